-- quota's on_client_gone = "drain": where a client leaves, the answer is read on to its usage, so that what the origin
-- charges is what is settled; in bytes and time it has an end.

local support = require "spec.support"
local rig = require "spec.plugins.quota.rig"
local async = support.async

local USAGE = { prompt_tokens = 11, completion_tokens = 22, total_tokens = 33 }
local LIMITS = { monthly_tokens = 100000, concurrency = 4 }

local function drain(more)
  local conf = { on_client_gone = "drain" }
  for key, value in pairs(more or {}) do conf[key] = value end
  return conf
end

-- Asks for a stream and leaves once `seen` has come (by default the first event), or before any bytes where `early`.
local function leave(gw, origin, early, seen)
  local c = gw:connect()
  c:send_request(rig.chat { stream = true, max_tokens = 50 })
  origin:wait_request(1)
  if not early then c:read_until(seen or "data:", true) end
  c:close()
end

describe("on_client_gone", function()
  for _, early in ipairs { false, true } do
    it("drain charges what the origin reports, left " .. (early and "before" or "in the middle of") .. " the stream",
      async(function()
        local redis = support.redis()
        local origin = support.chat_origin { deltas = { "a", "b", "c", "d" }, usage = USAGE, delay_ms = 30 }
        local gw = rig.gateway { redis = redis, origin = origin.url, limits = LIMITS, quota = drain() }
        leave(gw, origin, early)
        assert.equal(33, rig.settled(redis))
        local line = gw:wait_access(1)[1]
        assert.equal("client_gone", line.ended)
        assert.equal(33, line.tokens.used)
        assert.is_nil(line.tokens.usage_missing)
      end))
  end

  it("drain keeps the origin's connection for the next request", async(function()
    local redis = support.redis()
    local origin = support.chat_origin { deltas = { "a", "b" }, usage = USAGE, delay_ms = 20 }
    local gw = rig.gateway { redis = redis, origin = origin.url, limits = LIMITS, quota = drain() }
    leave(gw, origin)
    rig.settled(redis)
    assert.equal(200, gw:request(rig.chat {}).status)
    assert.equal(1, origin.connections)
  end))

  it("drain ends behind its time, and the policy decides", async(function()
    local redis = support.redis()
    local origin = support.chat_origin { deltas = { "abc" }, usage = USAGE, stall_after = 1 }
    local gw = rig.gateway { redis = redis, origin = origin.url, limits = LIMITS,
      quota = drain { drain_time = 0.2, on_missing_usage = "reserved" } }
    leave(gw, origin)
    assert.equal(52, rig.settled(redis)) -- 2 of the prompt and max_tokens
    support.wait_for(function() return origin.open == 0 end, "the origin's connection to close")
    assert.equal("client_gone", gw:wait_access(1)[1].tokens.usage_missing)
  end))

  it("drain ends behind its bytes", async(function()
    local redis = support.redis()
    local deltas = {}
    for i = 1, 200 do deltas[i] = ("x"):rep(1000) end
    local origin = support.chat_origin { deltas = deltas, usage = USAGE, delay_ms = 5 }
    local gw = rig.gateway { redis = redis, origin = origin.url, limits = LIMITS,
      quota = drain { drain_bytes = 5000, on_missing_usage = "reserved" } }
    leave(gw, origin)
    assert.equal(52, rig.settled(redis))
    support.wait_for(function() return origin.open == 0 end, "the origin's connection to close")
  end))

  it("drain takes an origin that dies as missing usage", async(function()
    local redis = support.redis()
    local origin = support.chat_origin { deltas = { "a", "b", "c" }, usage = USAGE, delay_ms = 30, cut_after = 2 }
    local gw = rig.gateway { redis = redis, origin = origin.url, limits = LIMITS,
      quota = drain { on_missing_usage = "reserved" } }
    leave(gw, origin)
    assert.equal(52, rig.settled(redis))
  end))

  it("drain does not hold up the end of the gateway", async(function()
    local redis = support.redis()
    local origin = support.chat_origin { deltas = { "abc" }, usage = USAGE, stall_after = 1 }
    local gw = rig.gateway { redis = redis, origin = origin.url, limits = LIMITS,
      quota = drain { drain_time = 3600, on_missing_usage = "reserved" } }
    leave(gw, origin)
    gw:stop()
    assert.equal(52, rig.settled(redis))
  end))

  it("cancel, the default, ends the origin's answer", async(function()
    local redis = support.redis()
    local origin = support.chat_origin { deltas = { "abc" }, usage = USAGE, stall_after = 2 }
    local gw = rig.gateway { redis = redis, origin = origin.url, limits = LIMITS }
    leave(gw, origin, false, '"abc"')
    support.wait_for(function() return origin.open == 0 end, "the origin's connection to close")
    assert.equal(3, rig.settled(redis)) -- 2 of the prompt, 1 of what was relayed
  end))
end)
