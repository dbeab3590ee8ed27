-- quota's monthly budget, end to end: what fits is admitted and nothing more, at every sampled instant spent and
-- reserved together stay within it, and a refusal touches nothing and does not look worth a retry.
local support = require "spec.support"
local rig = require "spec.plugins.quota.rig"
local async = support.async

local redis
local up, down = support.shared(function() redis = support.redis() end)

local RESERVE, USED = 10, 6 -- tokens: of rig.chat's request, and as the origin reports
local USAGE = { prompt_tokens = 2, completion_tokens = 4, total_tokens = USED }

-- A chat origin that answers nothing until it is told to.
local function stalled_origin()
  local answer = support.chat_handler { usage = USAGE }
  local origin
  origin = support.origin(function(req, conn)
    support.wait_for(function() return origin.released end, "the release", 20000)
    answer(req, conn)
  end)
  support.on_end(function() origin.released = true end)
  return origin
end

local function statuses(results)
  local counts = {}
  for _, res in ipairs(results) do counts[res.status] = (counts[res.status] or 0) + 1 end
  return counts
end

local function calls(n, request, ...)
  local gateways, list = { ... }, {}
  for i = 1, n do
    list[i] = function() return assert(gateways[i % #gateways + 1]:request(request)) end
  end
  return list
end

describe("quota's budget", function()
  setup(up)
  teardown(down)
  before_each(async(function() redis:must("FLUSHALL") end))

  it("that fits 7 of 100 at once admits 7, in two gateways too, and is never overdrawn", async(function()
    local origin = stalled_origin()
    local options = { redis = redis, origin = origin.url, limits = { monthly_tokens = 7 * RESERVE + RESERVE - 1 } }
    local one, two = rig.gateway(options), rig.gateway(options)
    local stop = rig.watch(redis)
    local all = support.spawn(function() return support.all(calls(100, rig.chat(), one, two)) end)
    support.wait_for(function()
      return #one:access_lines() + #two:access_lines() == 93 and #origin.requests == 7
    end, "93 refusals")
    assert.same({ tokens = 70, reserved = 70, open = 7, inflight = 0 }, rig.look(redis))
    origin.released = true
    assert.same({ [200] = 7, [429] = 93 }, statuses(all:join()))
    assert.equal(7 * USED, rig.settled(redis))
    local seen = stop()
    assert.is_true(#seen > 5)
    for _, now in ipairs(seen) do
      assert.is_true(now.tokens <= options.limits.monthly_tokens and now.tokens >= now.reserved)
      -- What is not reserved is spent, in whole answers.
      assert.equal(0, (now.tokens - now.reserved) % USED)
    end
  end))

  it("is never overdrawn while requests come and go, and ends as the sum of what was used", async(function()
    local origin = support.chat_origin { usage = USAGE, delay_ms = 2 }
    local limit = 2000
    local gw = rig.gateway { redis = redis, origin = origin.url, limits = { monthly_tokens = limit, concurrency = 1000 } }
    local stop, workers = rig.watch(redis), {}
    local admitted, refused = 0, 0
    for i = 1, 40 do
      workers[i] = function()
        local conn = gw:connect()
        for _ = 1, 12 do
          local res = assert(conn:request(rig.chat { stream = i % 2 == 0 or nil }))
          if res.status == 200 then admitted = admitted + 1 else refused = refused + 1 end
        end
        conn:close()
      end
    end
    support.all(workers)
    local tokens = rig.settled(redis)
    local used = 0
    for _, line in ipairs(gw:wait_access(480)) do used = used + line.tokens.used end
    assert.same({ 480, USED * admitted, used }, { admitted + refused, tokens, tokens })
    assert.is_true(refused > 0 and tokens > limit - RESERVE * 40)
    for _, now in ipairs(stop()) do
      assert.is_true(now.tokens <= limit and now.tokens >= now.reserved)
      assert.equal(now.open, now.inflight)
    end
  end, 60000))

  it("is refused in a way that nobody retries, with every key as it was", async(function()
    local gw = rig.gateway { redis = redis, origin = support.chat_origin { usage = USAGE }.url,
      limits = { monthly_tokens = 12, rps = 1000, burst = 1000, concurrency = 5 } }
    assert.equal(200, gw:request(rig.chat()).status)
    assert.equal(USED, rig.settled(redis))
    local before = redis:dump()
    local res = gw:request(rig.chat())
    assert.same(before, redis:dump())
    assert.equal(429, res.status)
    local err, h = support.json(res).error, res.headers
    assert.same({ "insufficient_quota", "insufficient_quota" }, { err.type, err.code })
    assert.matches("Monthly token budget reached: this request may take 10 tokens, and of 12", err.message, 1, true)
    assert.same({ "false", nil }, { h["x-should-retry"], h["retry-after-ms"] })
    local month_end = tonumber(h["retry-after"])
    assert.is_true(month_end >= 1 and month_end <= 31 * 86400)
    assert.same({ "12", "6" }, { h["x-ratelimit-limit-tokens"], h["x-ratelimit-remaining-tokens"] })
    assert.matches('"tokens";q=12;w=2678400', h["ratelimit-policy"], 1, true)
    assert.matches('"tokens";r=6;t=%d+', h.ratelimit)
    local lines = gw:wait_access(2)
    assert.equal("budget", lines[2].refusal)
    assert.same({ RESERVE, USED, 0, 0 },
      { lines[1].tokens.reserved, lines[1].tokens.used, lines[2].tokens.reserved, lines[2].tokens.used })
    gw:wait_metric("tokens_reserved_total", RESERVE)
    -- A smaller request still fits.
    assert.equal(200, gw:request(rig.chat { max_tokens = 4 }).status)
  end))

  it("of nothing refuses everything that costs, and no plain request", async(function()
    local origin = support.chat_origin()
    local gw = rig.gateway { redis = redis, origin = origin.url, limits = { monthly_tokens = 0 } }
    assert.equal(429, gw:request(rig.chat()).status)
    assert.equal(429, gw:request(rig.chat { stream = true }).status)
    assert.equal(200, gw:request(rig.plain()).status)
    assert.same({ 1, {} }, { #origin.requests, redis:dump() })
  end))

  it("may be overdrawn by a provider that takes more than it was allowed, which is counted", async(function()
    local usage = { prompt_tokens = 20, completion_tokens = 30, total_tokens = 50 }
    local gw = rig.gateway { redis = redis, origin = support.chat_origin { usage = usage }.url,
      limits = { monthly_tokens = 12 } }
    assert.equal(200, gw:request(rig.chat()).status)
    assert.equal(50, rig.settled(redis))
    gw:wait_metric("quota_overspent_total", 1)
    local res = gw:request(rig.chat())
    assert.same({ 429, "0" }, { res.status, res.headers["x-ratelimit-remaining-tokens"] })
  end))

  it("once raised admits at once", async(function()
    local options = { redis = redis, origin = support.chat_origin { usage = USAGE }.url, limits = { monthly_tokens = 10 } }
    local gw = rig.gateway(options)
    assert.equal(200, gw:request(rig.chat()).status)
    assert.equal(429, gw:request(rig.chat()).status)
    gw:stop()
    options.limits.monthly_tokens = 16
    gw = rig.gateway(options)
    assert.equal(200, gw:request(rig.chat()).status)
    assert.equal(429, gw:request(rig.chat()).status)
    assert.equal(2 * USED, rig.settled(redis))
  end))

  it("stands before the bucket and the slots: all or nothing", async(function()
    local origin = stalled_origin()
    local gw = rig.gateway { redis = redis, origin = origin.url,
      limits = { monthly_tokens = 100, rps = 0.001, burst = 2, concurrency = 1 } }
    local running = support.spawn(function() return gw:request(rig.chat()) end)
    origin:wait_request(1)
    -- By each limit in turn: the slot, then the budget; the token that either asked for is still there at the end.
    local before = redis:dump()
    assert.matches("Concurrency limit", support.json(gw:request(rig.chat())).error.message)
    assert.matches("Monthly token budget", support.json(gw:request(rig.chat { max_tokens = 99 })).error.message)
    assert.same(before, redis:dump())
    origin.released = true
    assert.equal(200, running:join().status)
    assert.equal(200, gw:request(rig.chat()).status)
    local spent = rig.settled(redis)
    before = redis:dump()
    assert.matches("Rate limit", support.json(gw:request(rig.chat())).error.message)
    assert.same({ 2 * USED, before }, { spent, redis:dump() })
  end))
end)
