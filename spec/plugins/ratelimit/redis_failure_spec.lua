-- ratelimit while Redis is down, hangs or forgets: refused clearly, let through, or counted in the replica, as set; at once
-- after the first request that waits, and exact again without a restart when Redis is back.
local uv = require "luv"
local support = require "spec.support"
local rig = require "spec.plugins.ratelimit.rig"
local async = support.async

local TIMEOUT = 0.3 -- seconds

local function start(redis, conf, config)
  return rig.gateway { redis = redis, windows = { { limit = 10, seconds = rig.LONG } }, conf = conf, config = config,
    settings = { timeout = TIMEOUT, connect_timeout = TIMEOUT } }
end

local function wait_counted(gw, request)
  support.wait_for(function()
    gw:request(request or rig.get "k2")
    return (rig.outcomes(gw).admitted or 0) > 0
  end, "a decision of Redis", 10000)
end

local function assert_unavailable(gw)
  local res = gw:request(rig.get "k")
  assert.same({ 503, "1", "ratelimit_unavailable" }, { res.status, res.headers["retry-after"], support.json(res).error.code })
end

local function seconds_of(fn)
  local began = uv.hrtime()
  fn()
  return (uv.hrtime() - began) / 1e9
end

-- Requests pass only by windows once more; returns how many did.
local function wait_back(gw)
  return support.wait_for(function()
    local res = gw:request(rig.get "k")
    return res.status ~= 503 and res
  end, "recovery", 10000)
end

describe("ratelimit without Redis", function()
  it("refuses clearly, at once after the first, and recovers", async(function()
    local redis = support.redis()
    local gw = start(redis)
    assert.equal(200, wait_back(gw).status)
    redis:pause()
    assert.is_true(seconds_of(function() assert_unavailable(gw) end) < TIMEOUT + 1)
    assert.is_true(seconds_of(function()
      for _ = 1, 20 do assert_unavailable(gw) end
    end) < 20 * TIMEOUT / 2)
    redis:resume()
    assert.equal(200, wait_back(gw).status)
    redis:stop()
    assert_unavailable(gw)
    redis:restart()
    assert.equal(200, wait_back(gw).status)
    -- It forgot everything: nine are left behind that one.
    assert.same({ [200] = 9, [429] = 3 }, rig.send(gw, 12))
    assert.is_nil(gw.log():find "error")
  end))

  it("has as long as its own deadline says", async(function()
    local redis = support.redis()
    local gw = rig.gateway { redis = redis, windows = { { limit = 10, seconds = rig.LONG } }, conf = { deadline = TIMEOUT },
      settings = { timeout = 20 } }
    assert.equal(200, wait_back(gw).status)
    redis:pause()
    assert.is_true(seconds_of(function() assert_unavailable(gw) end) < TIMEOUT + 2)
    redis:resume()
    wait_back(gw)
  end))

  it("lets pass, if so set", async(function()
    local redis = support.redis()
    local gw = start(redis, { on_redis_error = "allow" })
    wait_counted(gw)
    redis:stop()
    assert.same({ [200] = 30 }, rig.send(gw, 30))
    rig.wait_outcomes(gw, { allowed = 30 })
    redis:restart()
    support.wait_for(function() return gw:request(rig.get "k").headers.ratelimit end, "a decision of Redis", 10000)
    assert.same({ [200] = 9, [429] = 1 }, rig.send(gw, 10))
  end))

  it("counts in the replica, if so set: all workers together, up to its share", async(function()
    local redis = support.redis()
    redis:stop()
    local gw = start(redis, { on_redis_error = "local", share = 0.5 }, { workers = 2 })
    assert.same({ [200] = 5, [429] = 95 }, rig.at_once({ gw }, 100))
    local res = gw:request(rig.get "k")
    assert.same({ 429, "5", "0" }, { res.status, res.headers["x-ratelimit-limit-requests"],
      res.headers["x-ratelimit-remaining-requests"] })
    assert.is_true(tonumber(res.headers["retry-after"]) > 0)
    assert.same({ [200] = 5, [429] = 5 }, rig.at_once({ gw }, 10, rig.get "k2"))
    rig.wait_outcomes(gw, { local_admitted = 10, local_limited = 101 - 5 + 5 })
    redis:restart()
    support.wait_for(function() return (rig.outcomes(gw).admitted or 0) > 0 or gw:request(rig.get "k") == nil end,
      "a decision of Redis", 10000)
  end))

  it("forgets its scripts, which nobody notices", async(function()
    local redis = support.redis()
    local gw = start(redis)
    for _ = 1, 5 do
      redis:must("SCRIPT", "FLUSH")
      assert.equal(200, gw:request(rig.get "k").status)
    end
    assert.same({ [200] = 5, [429] = 1 }, rig.send(gw, 6))
    assert.is_nil(gw.log():find("warn", 1, true))
  end))

  it("holds something else under a key: 503, and it stays", async(function()
    local redis = support.redis()
    local gw = start(redis)
    assert.equal(200, wait_back(gw).status)
    local name = redis:must("KEYS", "rl:*")[1]
    redis:must("SET", name, "many", "EX", 1000)
    local before = redis:dump()
    for _ = 1, 5 do assert_unavailable(gw) end
    assert.same(before, redis:dump())
    gw:wait_log("ratelimit: Redis does not decide: TYPE " .. name, true)
    assert.equal(1, select(2, gw.log():gsub("ratelimit: ", "")))
    redis:must("DEL", name)
    assert.equal(200, gw:request(rig.get "k").status)
  end))

  it("that loses any reply or command leaves no key without a lifetime, and never lets too many pass", async(function()
    local redis = support.redis()
    local proxy = support.proxy { to = redis.socket, resp = true }
    local gw = rig.gateway { url = "redis://127.0.0.1:" .. proxy.port, windows = { { limit = 10, seconds = rig.LONG },
      { limit = 12, seconds = 3600, name = "hour" } }, settings = { timeout = TIMEOUT, connect_timeout = TIMEOUT } }
    wait_back(gw)
    local passed, n = 1, 0
    proxy:on_command(function(args)
      if args[1]:upper() ~= "EVALSHA" then return nil end
      n = n + 1
      return n % 4 == 0 and ({ "lose_reply", "cut", "hold_cut", "drop" })[n / 4 % 4 + 1] or nil
    end)
    for _ = 1, 40 do
      if gw:request(rig.get "k").status == 200 then passed = passed + 1 end
      for name, entry in pairs(redis:dump()) do assert(entry.expires_at > 0, name .. " has no lifetime") end
      if n >= 16 then break end
      support.sleep(20)
    end
    proxy:on_command(nil)
    proxy:release "up"
    wait_back(gw)
    for _ = 1, 12 do
      if gw:request(rig.get "k").status == 200 then passed = passed + 1 end
    end
    assert.is_true(passed <= 10, passed)
  end))

  it("at any of whose commands the gateway is killed has no key without a lifetime", async(function()
    local redis = support.redis()
    local origin = rig.origin()
    local windows = { { limit = 10, seconds = rig.LONG }, { limit = 10, seconds = 60, name = "m", sliding = true } }
    local commands = support.redis_tap.each {
      redis = redis,
      start = function(url) return rig.gateway { url = url, origin = origin.url, windows = windows } end,
      run = function(gw)
        for _ = 1, 3 do assert.equal(200, gw:request(rig.get "k").status) end
      end,
    }
    assert.is_true(commands >= 3)
  end), 60000)
end)
