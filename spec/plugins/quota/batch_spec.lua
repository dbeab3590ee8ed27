-- Batches, end to end: requests of one key that arrive in one turn of the loop are few script calls, decide as one by one
-- would, and each key's only touch its own.
local support = require "spec.support"
local rig = require "spec.plugins.quota.rig"
local async = support.async

local redis
local up, down = support.shared(function() redis = support.redis() end)

local function hello()
  return support.origin(function(_, conn) conn:respond { body = "hello" } end)
end

describe("a turn's requests", function()
  setup(up)
  teardown(down)
  before_each(async(function() redis:must("FLUSHALL") end))

  it("of one key are one script call for 64 of them", async(function()
    local gw = rig.gateway { redis = redis, origin = hello().url, limits = { rps = 0.001, burst = 150 } }
    local before = rig.script_calls(redis)
    assert.same({ [200] = 150, [429] = 50 }, rig.in_one_turn(gw, 200, rig.plain()))
    -- A rate alone has nothing to settle. Four would do; the turn may have been cut in two.
    local calls = rig.script_calls(redis) - before
    assert.is_true(calls >= 4 and calls <= 8, calls)
  end))

  it("are settled together too, to the exact sum", async(function()
    local gw = rig.gateway { redis = redis, origin = support.chat_origin().url,
      limits = { monthly_tokens = 100 * 10 + 5, concurrency = 200 } }
    assert.same({ [200] = 100, [429] = 20 }, rig.in_one_turn(gw, 120, rig.chat()))
    assert.equal(100 * 13, rig.settled(redis))
  end))

  it("stay within what is left of each limit: budget, then bucket, then slots", async(function()
    local gw = rig.gateway { redis = redis, origin = support.chat_origin { delay_ms = 300 }.url,
      limits = { monthly_tokens = 1000, rps = 0.001, burst = 9, concurrency = 7 } }
    assert.same({ [200] = 7, [429] = 23 }, rig.in_one_turn(gw, 30, rig.chat()))
    assert.equal(7 * 13, rig.settled(redis))
    -- Refused for a slot, none took a token: two are left.
    assert.same({ [200] = 2, [429] = 28 }, rig.in_one_turn(gw, 30, rig.chat()))
    assert.equal(9 * 13, rig.settled(redis))
  end))

  it("of several keys touch each its own", async(function()
    local gw = rig.gateway { redis = redis, origin = hello().url, limits = { rps = 0.001, burst = 3 },
      keys = { { id = "other", secret = "tg-other", rps = 0.001, burst = 5, concurrency = 5 },
        { id = "free", secret = "tg-free" } } }
    local requests = { rig.plain() }
    for i, secret in ipairs { "tg-other", "tg-free" } do
      requests[i + 1] = rig.plain { headers = { ["x-api-key"] = secret } }
    end
    assert.same({ [200] = 3 + 5 + 20, [429] = 32 }, rig.in_one_turn(gw, 60, requests))
    assert.equal(0, rig.settled(redis, "other"))
    local keys = redis:must("KEYS", "*")
    table.sort(keys)
    assert.same({ "q:rps:k", "q:rps:other" }, keys)
  end))
end)
