-- idempotency while Redis is away, hangs or is full: a clear 503, or no protection where so set; answers that could not be
-- stored are stored later, while the lease is renewed; and nothing is left behind.
local support = require "spec.support"
local rig = require "spec.plugins.idempotency.rig"
local async = support.async

local function through(redis, conf)
  local origin = rig.origin()
  local gw, proxy = rig.through(redis, origin, { timeout = 0.3, connect_timeout = 0.3 }, { conf = conf })
  return gw, proxy, origin
end

local function is_script(args, name)
  return args[1] == "EVALSHA" and args[2] == name.sha or args[1] == "EVAL" and args[2] == name.text
end

local function script(redis, name)
  local text = support.read_file("plugins/idempotency/" .. name .. ".lua")
  return { text = text, sha = redis:must("SCRIPT", "LOAD", text) }
end

describe("without Redis", function()
  it("requests with a key are refused, others pass; it recovers", async(function()
    local redis = rig.redis()
    local gw, proxy, origin = through(redis)
    proxy:refuse(true)
    proxy:cut()
    local res = rig.ask(gw, "key")
    assert.same({ 503, "idempotency_unavailable", "1" }, { res.status, rig.code(res), res.headers["retry-after"] })
    assert.equal(200, gw:request({ method = "POST", path = "/", body = "b" }).status)
    assert.equal(1, origin.runs)
    proxy:refuse(false)
    support.wait_for(function() return rig.ask(gw, "key").status == 200 end, "recovery", 10000)
    assert.equal("true", rig.ask(gw, "key").headers["idempotency-replayed"])
  end))

  it('with on_redis_error = "allow" they run, unprotected', async(function()
    local redis = rig.redis()
    local gw, proxy, origin = through(redis, { on_redis_error = "allow" })
    proxy:refuse(true)
    proxy:cut()
    for i = 1, 2 do assert.same({ 200, nil, "run " .. i .. " amount=1" }, rig.seen(rig.ask(gw, "key"))) end
    assert.equal(2, origin.runs)
    rig.counts(gw, "idempotency_requests_total", "unavailable", 2)
  end))

  it("that hangs costs a deadline, and a claim that comes late is let go", async(function()
    for _, lost in ipairs { "retry", "refuse" } do
      local redis = rig.redis()
      local gw, proxy, origin = through(redis, { on_lost = lost })
      proxy:hold("up")
      assert.equal(503, rig.ask(gw, "key").status)
      proxy:release("up")
      rig.wait_state(redis, "none", 10000)
      assert.equal(0, origin.runs)
      support.wait_for(function() return rig.ask(gw, "key").status == 200 end, "recovery", 10000)
      assert.equal(1, origin.runs)
    end
  end))

  it("that forgets scripts is not noticed", async(function()
    local redis = rig.redis()
    local gw = through(redis)
    rig.ask(gw, "a")
    redis:must("SCRIPT", "FLUSH")
    assert.equal("true", rig.ask(gw, "a").headers["idempotency-replayed"])
  end))
end)

describe("an answer that could not be stored", function()
  it("goes to the client all the same, and is stored when Redis is back", async(function()
    local redis = rig.redis()
    local gw, proxy, origin = through(redis, { lease = 3 })
    local store = script(redis, "store")
    local cut
    proxy:on_command(function(args)
      if not cut and is_script(args, store) then
        cut = true
        proxy:refuse(true)
        support.spawn(function() proxy:cut() end)
        return "drop"
      end
    end)
    assert.same({ 200, nil, "run 1 amount=1" }, rig.seen(rig.ask(gw, "key")))
    assert.is_true(cut)
    assert.equal("running", rig.record(redis).state)
    proxy:refuse(false)
    rig.wait_state(redis, "done", 10000)
    support.wait_for(function() return rig.ask(gw, "key").headers["idempotency-replayed"] == "true" end, "the replay", 10000)
    assert.equal(1, origin.runs)
  end))

  it("whose reply was lost is stored once", async(function()
    local redis = rig.redis()
    local gw, proxy, origin = through(redis)
    local store, lost = script(redis, "store"), nil
    proxy:on_command(function(args)
      if not lost and is_script(args, store) then
        lost = true
        return "lose_reply"
      end
    end)
    assert.equal(200, rig.ask(gw, "key").status)
    rig.counts(gw, "idempotency_claims_total", "stored", 1)
    support.wait_for(function() return rig.ask(gw, "key").headers["idempotency-replayed"] == "true" end, "the replay", 10000)
    assert.equal(1, origin.runs)
  end))

  it("because memory is full is told; the next request runs, or is refused", async(function()
    for _, case in ipairs { { "retry", nil }, { "refuse", "idempotency_outcome_unknown" } } do
      local redis = rig.redis()
      local origin = rig.origin()
      local gw = rig.gateway { redis = redis, origin = origin.url, conf = { on_lost = case[1] } }
      local c = gw:connect()
      c:send_request(rig.post("key", { path = "/?slow" }))
      origin:wait_request(1)
      redis:must("CONFIG", "SET", "maxmemory-policy", "noeviction", "maxmemory", 1)
      origin.go = true
      assert.equal(200, c:read_response().status)
      gw:wait_log("error.*idempotency: idem:k:%x+: it could not be written: OOM")
      redis:must("CONFIG", "SET", "maxmemory", 0)
      local res = rig.ask(gw, "key", { path = "/?slow" })
      assert.equal(case[2], res.status ~= 200 and rig.code(res) or nil)
      rig.counts(gw, "idempotency_claims_total", "not_stored", 1)
    end
  end))

  it("at the gateway's end does not hold that up", async(function()
    local redis = rig.redis()
    local gw, proxy, origin = through(redis)
    local c = gw:connect()
    c:send_request(rig.post("key", { path = "/?slow" }))
    origin:wait_request(1)
    proxy:hold("up")
    origin.go = true
    assert.equal(200, c:read_response().status)
    gw:kill("sigterm")
    assert.same({ 0, 0 }, { gw.process:wait(10000) })
    assert.equal("running", rig.record(redis).state)
    proxy:cut()
  end))
end)

describe("what is in Redis and not ours", function()
  it("is a clear refusal, and left alone", async(function()
    local redis, origin = rig.redis(), rig.origin()
    local gw = rig.gateway { redis = redis, origin = origin.url }
    local key = "idem:k:" .. support.sha256("key")
    redis:must("SET", key, "text", "EX", 100)
    assert.equal(503, rig.ask(gw, "key").status)
    redis:must("DEL", key)
    rig.ask(gw, "key")
    redis:must("HSET", key, "headers", "no JSON")
    assert.equal(503, rig.ask(gw, "key").status)
    assert.equal("done", redis:must("HGET", key, "state"))
  end))
end)
