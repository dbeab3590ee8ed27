-- quota's bucket, end to end: how many of many at once it admits, what a refusal says and leaves untouched, and the
-- limit headers that every answer carries.
local support = require "spec.support"
local rig = require "spec.plugins.quota.rig"
local async = support.async

local redis
local up, down = support.shared(function() redis = support.redis() end)

-- Sends one request on each of n connections, all opened before; returns how many answers had each status.
local function at_once(n, request, ...)
  local gateways, conns, counts = { ... }, {}, {}
  for i = 1, n do conns[i] = gateways[i % #gateways + 1]:connect() end
  local calls = {}
  for i = 1, n do
    calls[i] = function()
      local res = assert(conns[i]:request(request))
      counts[res.status] = (counts[res.status] or 0) + 1
      conns[i]:close()
    end
  end
  support.all(calls)
  return counts
end

local function hello()
  return support.origin(function(_, conn) conn:respond { body = "hello" } end)
end

describe("quota's rate", function()
  setup(up)
  teardown(down)
  before_each(async(function() redis:must("FLUSHALL") end))

  it("admits exactly the burst of 200 at once, the first requests of a new key too", async(function()
    local origin = hello()
    local gw = rig.gateway { redis = redis, origin = origin.url, limits = { rps = 0.001, burst = 10 } }
    assert.same({ [200] = 10, [429] = 190 }, at_once(200, rig.plain(), gw))
    assert.same({ [429] = 50 }, at_once(50, rig.plain(), gw))
    assert.equal(10, #origin.requests)
    gw:wait_metric("quota_decisions_total", 10, { verdict = "admitted" })
    gw:wait_metric("quota_decisions_total", 240, { verdict = "rate" })
  end))

  it("is one limit for two gateways on one Redis", async(function()
    local options = { redis = redis, origin = hello().url, limits = { rps = 0.001, burst = 10 } }
    local one, two = rig.gateway(options), rig.gateway(options)
    assert.same({ [200] = 10, [429] = 90 }, at_once(100, rig.plain(), one, two))
  end))

  it("never admits more than rate and burst together, and what it keeps comes back", async(function()
    local gw = rig.gateway { redis = redis, origin = hello().url, limits = { rps = 100, burst = 5 } }
    local began, admitted = require("luv").hrtime(), 0
    for _ = 1, 20 do
      admitted = admitted + (at_once(20, rig.plain(), gw)[200] or 0)
      support.sleep(10)
    end
    local seconds = (require("luv").hrtime() - began) / 1e9
    assert.is_true(admitted <= 5 + 100 * seconds + 1, admitted .. " in " .. seconds .. " s")
    assert.is_true(admitted > 5)
  end))

  it("says honestly when a refused request would pass", async(function()
    local gw = rig.gateway { redis = redis, origin = hello().url, limits = { rps = 0.7, burst = 1 } }
    local conn = gw:connect()
    assert.equal(200, conn:request(rig.plain()).status)
    local res = conn:request(rig.plain())
    assert.equal(429, res.status)
    local ms = tonumber(res.headers["retry-after-ms"])
    assert.is_true(ms >= 1 and ms <= 1429)
    assert.equal(math.ceil(ms / 1000), tonumber(res.headers["retry-after"]))
    support.sleep(ms + 5)
    assert.equal(200, conn:request(rig.plain()).status)
  end))

  it("names the limit, and its state in headers, in a refusal", async(function()
    local gw = rig.gateway { redis = redis, origin = hello().url, limits = { rps = 0.01, burst = 2 } }
    assert.same({ [200] = 2 }, at_once(2, rig.plain(), gw))
    local res = gw:request(rig.chat())
    assert.equal(429, res.status)
    local err = support.json(res).error
    assert.same({ "rate_limit_error", "rate_limit_exceeded" }, { err.type, err.code })
    assert.matches("Rate limit reached: 0.01 requests a second, at most 2 at once", err.message, 1, true)
    local h = res.headers
    assert.same({ "2", "0" }, { h["x-ratelimit-limit-requests"], h["x-ratelimit-remaining-requests"] })
    assert.matches("^3m%d+s$", h["x-ratelimit-reset-requests"]) -- 200 s until it is full
    assert.equal('"requests";q=2;w=200', h["ratelimit-policy"])
    assert.matches('^"requests";r=0;t=%d+$', h.ratelimit)
    local seconds, ms = tonumber(h["retry-after"]), tonumber(h["retry-after-ms"])
    assert.is_true(seconds >= 60 and seconds <= 100)
    assert.equal(seconds, math.ceil(ms / 1000))
    assert.is_nil(h["x-should-retry"])
    assert.equal("rate", gw:wait_access(3)[3].refusal)
  end))

  it("refuses in Anthropic's shape, with its headers", async(function()
    local gw = rig.gateway { redis = redis, origin = hello().url, limits = { rps = 0.01, burst = 1 },
      route = { api = "anthropic-messages" } }
    local first = gw:request(rig.chat())
    local h = first.headers
    assert.same({ 200, "1", "0" }, { first.status, h["anthropic-ratelimit-requests-limit"],
      h["anthropic-ratelimit-requests-remaining"] })
    assert.matches("^%d%d%d%d%-%d%d%-%d%dT%d%d:%d%d:%d%dZ$", h["anthropic-ratelimit-requests-reset"])
    local res = gw:request(rig.chat())
    local body = support.json(res)
    assert.same({ 429, "error", "rate_limit_error" }, { res.status, body.type, body.error.type })
    assert.equal("0", res.headers["anthropic-ratelimit-requests-remaining"])
    assert.is_nil(res.headers["x-ratelimit-limit-requests"])
  end))

  it("leaves every key as it was when it refuses", async(function()
    local gw = rig.gateway { redis = redis, origin = hello().url,
      limits = { rps = 0.001, burst = 2, concurrency = 5, monthly_tokens = 1000 } }
    assert.same({ [200] = 2 }, at_once(2, rig.plain(), gw))
    rig.settled(redis)
    local before = redis:dump()
    assert.is_table(before["q:rps:k"])
    assert.same({ [429] = 10 }, at_once(10, rig.plain(), gw))
    assert.same({ [429] = 10 }, at_once(10, rig.chat(), gw))
    assert.same(before, redis:dump())
  end))

  it("is in the headers of every admitted answer: JSON, streams, the origin's errors and the gateway's", async(function()
    local origin = support.chat_origin { each = function(_, body)
      if body.model == "fails" then return { status = 500, error = { error = { message = "no" } } } end
    end }
    local gw = rig.gateway { redis = redis, origin = origin.url, limits = { rps = 0.001, burst = 10 } }
    local requests = { rig.chat(), rig.chat { stream = true }, rig.chat { model = "fails" }, rig.plain() }
    for i, request in ipairs(requests) do
      local res = gw:request(request)
      assert.equal(i == 3 and 500 or 200, res.status)
      assert.same({ "10", tostring(10 - i) },
        { res.headers["x-ratelimit-limit-requests"], res.headers["x-ratelimit-remaining-requests"] })
    end
    origin:close()
    local res = gw:request(rig.plain())
    assert.same({ 502, "5" }, { res.status, res.headers["x-ratelimit-remaining-requests"] })
  end))

  it("is a plan's where the key has no own, and all of a route's where it is so set", async(function()
    local options = { redis = redis, origin = hello().url, limits = { plan = "small" },
      keys = { { id = "other", secret = "tg-other", plan = "big" } },
      quota = { rps = 0.001, burst = 1, plans = { small = { rps = 0.001, burst = 2 }, big = { rps = 0.001, burst = 4 } } } }
    local gw = rig.gateway(options)
    local other = rig.plain { headers = { ["x-api-key"] = "tg-other" } }
    assert.same({ [200] = 2, [429] = 8 }, at_once(10, rig.plain(), gw))
    assert.same({ [200] = 4, [429] = 6 }, at_once(10, other, gw))
    gw:stop()
    options.quota.key = "route"
    gw = rig.gateway(options)
    assert.equal(200, gw:request(other).status)
    assert.equal(429, gw:request(rig.plain()).status)
    assert.is_table(redis:dump()["q:rps:route%3Aplain"])
  end))

  it("once raised admits at once", async(function()
    local options = { redis = redis, origin = hello().url, limits = { rps = 0.001, burst = 1 } }
    local gw = rig.gateway(options)
    assert.same({ [200] = 1, [429] = 4 }, at_once(5, rig.plain(), gw))
    gw:stop()
    -- A new rate counts from the last refill, so that what it would have filled is there.
    options.limits = { rps = 1000, burst = 1000 }
    gw = rig.gateway(options)
    assert.equal(200, gw:request(rig.plain()).status)
  end))

  it("of a key whose plan nobody knows is no rate at all: its requests fail", async(function()
    local gw = rig.gateway { redis = redis, origin = hello().url, limits = { plan = "smal" },
      quota = { plans = { small = { rps = 1 } } } }
    assert.equal(500, gw:request(rig.plain()).status)
    gw:wait_log("the key k has the plan smal, which quota's plans do not have", true)
  end))
end)
