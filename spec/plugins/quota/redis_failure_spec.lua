-- quota while Redis is down, hangs, forgets, or holds something else: a clear 503 within about one deadline and at once
-- after that, recovery without a restart, one log line a change; or, where so set, requests that pass and are settled
-- when Redis is back.
local uv = require "luv"
local support = require "spec.support"
local rig = require "spec.plugins.quota.rig"
local async = support.async

local DEADLINE = 0.3 -- seconds

local function start(redis, options)
  options = options or {}
  local url = options.url or redis.url
  return rig.gateway { redis = redis, origin = (options.origin or support.chat_origin()).url,
    limits = options.limits or { rps = 1000, burst = 1000, monthly_tokens = 100000, concurrency = 100 },
    quota = { on_redis_error = options.on_redis_error, deadline = options.deadline },
    config = { redis = { url = url, timeout = options.timeout or DEADLINE, connect_timeout = DEADLINE } } }
end

local function timed(gw, request)
  local began = uv.hrtime()
  local res = assert(gw:request(request or rig.chat()))
  return res, (uv.hrtime() - began) / 1e9
end

local function assert_unavailable(res)
  assert.same({ 503, "1" }, { res.status, res.headers["retry-after"] })
  local err = support.json(res).error
  assert.same({ "server_error", "quota_unavailable" }, { err.type, err.code })
  assert.is_nil(res.headers.ratelimit)
end

-- However long Redis is away, only the first request waits for it.
local function assert_refuses_at_once(gw)
  local began = uv.hrtime()
  for _ = 1, 20 do assert_unavailable(timed(gw)) end
  assert.is_true((uv.hrtime() - began) / 1e9 < 20 * DEADLINE / 2)
end

local function wait_admitted(gw)
  support.wait_for(function() return gw:request(rig.chat()).status == 200 end, "recovery", 10000)
end

local function changes(gw)
  local list = {}
  for line in gw.log():gmatch("[^\n]+") do
    local what = line:match("redis: (usable)") or line:match("redis: (not usable)")
    if what then list[#list + 1] = what end
  end
  return list
end

-- Each request that was answered 200 has cost 13, whatever came in between.
local function assert_charged(redis, gw)
  local expected = 0
  for _, line in ipairs(gw:wait_access(gw:metric("requests_total"))) do
    if line.status == 200 and line.tokens then expected = expected + 13 end
  end
  assert.equal(expected, rig.settled(redis, "k", 10000))
end

describe("quota without Redis", function()
  it("starts, refuses clearly, and recovers", async(function()
    local redis = support.redis()
    redis:stop()
    local gw = start(redis)
    local res, seconds = timed(gw)
    assert_unavailable(res)
    assert.is_true(seconds < DEADLINE + 1)
    assert_refuses_at_once(gw)
    assert.equal(503, gw:admin("/readyz").status)
    assert.same({ "not usable" }, changes(gw))
    redis:restart()
    wait_admitted(gw)
    assert.equal(200, gw:admin("/readyz").status)
    assert.same({ "not usable", "usable" }, changes(gw))
    assert_charged(redis, gw)
    assert.equal("unavailable", gw.access()[1].refusal)
  end))

  it("that is killed and started again refuses in between, also while it refuses connections", async(function()
    local redis = support.redis()
    local proxy = support.proxy { to = redis.socket }
    local gw = start(redis, { url = "redis://127.0.0.1:" .. proxy.port })
    wait_admitted(gw)
    redis:stop()
    proxy:cut()
    assert_refuses_at_once(gw)
    proxy:refuse(true)
    local tries = proxy.connections
    support.wait_for(function() return proxy.connections >= tries + 2 end, "further tries to connect")
    assert_refuses_at_once(gw)
    proxy:refuse(false)
    redis:restart()
    wait_admitted(gw)
    assert.same({ "usable", "not usable", "usable" }, changes(gw))
    rig.settled(redis)
  end))

  it("that hangs costs one deadline, and what it did meanwhile is taken back", async(function()
    local redis = support.redis()
    local gw = start(redis)
    wait_admitted(gw)
    assert.equal(13, rig.settled(redis))
    redis:pause()
    local res, seconds = timed(gw)
    assert_unavailable(res)
    assert.is_true(seconds >= DEADLINE * 0.9 and seconds < DEADLINE + 1, seconds)
    assert_refuses_at_once(gw)
    redis:resume()
    wait_admitted(gw)
    assert.same({ "usable", "not usable", "usable" }, changes(gw))
    assert_charged(redis, gw)
  end))

  it("that hangs for long is left, and what was sent to it is taken back too", async(function()
    local redis = support.redis()
    local proxy = support.proxy { to = redis.socket }
    local gw = start(redis, { url = "redis://127.0.0.1:" .. proxy.port })
    wait_admitted(gw)
    redis:pause()
    assert_unavailable(timed(gw))
    support.wait_for(function() return proxy.connections >= 2 end, "another connection", 10000)
    assert_refuses_at_once(gw)
    redis:resume()
    wait_admitted(gw)
    assert.same({ "usable", "not usable", "usable" }, changes(gw))
    assert_charged(redis, gw)
  end))

  it("has as long as quota's own deadline says", async(function()
    local redis = support.redis()
    local gw = start(redis, { timeout = 20, deadline = DEADLINE })
    wait_admitted(gw)
    redis:pause()
    local res, seconds = timed(gw)
    assert_unavailable(res)
    assert.is_true(seconds >= DEADLINE * 0.9 and seconds < DEADLINE + 2, seconds)
    assert_refuses_at_once(gw)
    redis:resume()
    wait_admitted(gw)
    assert_charged(redis, gw)
  end))

  it("that has no memory left refuses, and takes settlements still", async(function()
    local redis = support.redis()
    local origin = support.chat_origin { delay_ms = 30 }
    local gw = start(redis, { origin = origin })
    local running = support.spawn(function() return gw:request(rig.chat { stream = true }) end)
    origin:wait_request(1)
    redis:must("CONFIG", "SET", "maxmemory", "1")
    assert_unavailable(timed(gw))
    assert.equal(200, running:join().status)
    assert_charged(redis, gw)
    redis:must("CONFIG", "SET", "maxmemory", "0")
    assert.equal(200, gw:request(rig.chat()).status)
    assert_charged(redis, gw)
  end))

  it("that became a replica refuses until it is a master again", async(function()
    local redis = support.redis()
    local gw = start(redis)
    wait_admitted(gw)
    rig.settled(redis)
    redis:must("REPLICAOF", "127.0.0.1", "1")
    assert_unavailable(timed(gw))
    support.wait_for(function() return changes(gw)[2] end, "the change")
    assert_refuses_at_once(gw)
    redis:must("REPLICAOF", "NO", "ONE")
    wait_admitted(gw)
    assert.same({ "usable", "not usable", "usable" }, changes(gw))
    assert_charged(redis, gw)
  end))

  it("forgets its scripts, which nobody notices", async(function()
    local redis = support.redis()
    local gw = start(redis)
    for _ = 1, 5 do
      redis:must("SCRIPT", "FLUSH")
      assert.equal(200, gw:request(rig.chat()).status)
    end
    assert.same({ "usable" }, changes(gw))
    assert.is_nil(gw.log():find("warn", 1, true))
    assert.equal(5 * 13, rig.settled(redis))
  end))

  it("forgets everything while a request runs, which ends well all the same", async(function()
    local redis = support.redis()
    local origin = support.chat_origin { delay_ms = 20 }
    local gw = start(redis, { origin = origin })
    local running = support.spawn(function() return gw:request(rig.chat { stream = true, max_tokens = 8 }) end)
    origin:wait_request(1)
    redis:must("FLUSHALL")
    assert.equal(200, running:join().status)
    -- The month began anew; of what was reserved then, 10, 3 more were taken.
    support.wait_for(function() return rig.look(redis).tokens == 3 end, "the settlement")
    assert.equal(200, gw:request(rig.chat()).status)
    assert.equal(3 + 13, rig.settled(redis))
  end))

  it("holds something else under a key: 503, and what else there is stays", async(function()
    local redis = support.redis()
    local gw = start(redis)
    wait_admitted(gw)
    rig.settled(redis)
    local counter = redis:must("KEYS", "q:tokens:k:*")[1]
    for key, write in pairs {
      ["q:rps:k"] = { "SET", "q:rps:k", "x" }, ["q:conc:k"] = { "SET", "q:conc:k", "x" },
      [counter] = { "RPUSH", counter, "x" }, broken = { "SET", counter, "many" }, rps = { "HSET", "q:rps:k", "tokens", "x" },
    } do
      key = write[2] or key
      local kept = redis:must("DUMP", key)
      redis:must("DEL", key)
      redis:must(unpack(write))
      redis:must("EXPIRE", key, 1000)
      local before = redis:dump()
      assert_unavailable(timed(gw))
      -- What was asked for is taken back, which leaves a mark of its own for a while.
      local after = redis:dump()
      for name, entry in pairs(after) do
        if name:match("^q:reserved:") then
          assert.equal("-1", entry.value)
          before[name], after[name] = nil, nil
        end
      end
      assert.same(before, after)
      redis:must("DEL", key)
      if kept then redis:must("RESTORE", key, 1000000, kept) end
      assert.equal(200, gw:request(rig.chat()).status)
    end
    assert.matches("quota: admit: TYPE q:", gw.log(), 1, true)
    assert.same({ "usable" }, changes(gw))
  end))

  it("wants another password: one line that says so, until it is right", async(function()
    local redis = support.redis { password = "right" }
    local gw = start(redis, { url = ("redis://:wrong@127.0.0.1:%d"):format(redis.port) })
    assert_unavailable(timed(gw))
    assert_refuses_at_once(gw)
    assert.matches("not usable .*AUTH: WRONGPASS", gw:wait_log("redis: not usable[^\n]*"))
    assert.is_nil(gw.log():find("wrong@", 1, true))
    assert.same({ "not usable" }, changes(gw))
    redis:must("CONFIG", "SET", "requirepass", "wrong")
    wait_admitted(gw)
    assert.same({ "not usable", "usable" }, changes(gw))
    assert_charged(redis, gw)
  end))
end)

describe("quota with on_redis_error = allow", function()
  it("lets requests pass, and charges them once Redis is back", async(function()
    local redis = support.redis()
    redis:stop()
    local gw = start(redis, { on_redis_error = "allow" })
    for i = 1, 10 do
      local res = gw:request(rig.chat { stream = i % 2 == 0 or nil })
      assert.same({ 200, nil }, { res.status, res.headers.ratelimit })
    end
    assert.equal(200, gw:request(rig.plain()).status)
    redis:restart()
    support.wait_for(function() return rig.look(redis).tokens == 130 end, "what they cost", 10000)
    wait_admitted(gw)
    assert_charged(redis, gw)
    assert.is_nil(gw:wait_access(1)[1].refusal)
  end))

  it("charges once where Redis had admitted all the same", async(function()
    local redis = support.redis()
    local gw = start(redis, { on_redis_error = "allow" })
    wait_admitted(gw)
    redis:pause()
    for _ = 1, 3 do assert.equal(200, timed(gw).status) end
    redis:resume()
    support.wait_for(function() return rig.look(redis).tokens == 4 * 13 end, "what they cost", 10000)
    assert.equal(4 * 13, rig.settled(redis))
    support.wait_for(function() return changes(gw)[3] end, "recovery")
    assert.equal(200, gw:request(rig.chat()).status)
    assert.equal(5 * 13, rig.settled(redis))
  end))
end)
