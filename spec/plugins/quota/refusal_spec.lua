-- quota's refusals: statuses, codes, and the headers by which clients decide whether and when to try again.

local refusal = assert(loadfile("plugins/quota/refusal.lua"))()

local LIMITS = { rate = 0.5, burst = 10, budget = 5e15, concurrency = 1 }

describe("quota's refusals", function()
  it("say when a passing limit passes", function()
    local given = { ["x-ratelimit-limit-requests"] = "10" }
    local status, code, message, headers = refusal.limited("rate", LIMITS, 0, 1200.2, given)
    assert.same({ 429, "rate_limit_exceeded" }, { status, code })
    assert.equal("Rate limit reached: 0.5 requests a second, at most 10 at once", message)
    assert.same({ ["x-ratelimit-limit-requests"] = "10", ["retry-after"] = "2", ["retry-after-ms"] = "1201" }, headers)
    assert.same({ ["x-ratelimit-limit-requests"] = "10" }, given)
  end)

  it("name a time where none is known, and never 0", function()
    local function headers(ms) return select(4, refusal.limited("concurrency", LIMITS, 0, ms)) end
    assert.same({ ["retry-after"] = "1", ["retry-after-ms"] = "1000" }, headers(-1))
    assert.same({ ["retry-after"] = "1", ["retry-after-ms"] = "1000" }, headers(nil))
    assert.same({ ["retry-after"] = "1", ["retry-after-ms"] = "1" }, headers(0))
    assert.equal("Concurrency limit reached: 1 request in flight at once",
      (select(3, refusal.limited("concurrency", LIMITS, 0, 1))))
  end)

  it("do not look retryable where the month is spent", function()
    local status, code, message, headers = refusal.limited("budget", LIMITS, 4100, 86400001)
    assert.same({ 429, "insufficient_quota" }, { status, code })
    assert.truthy(message:find("4100 tokens, and of 5000000000000000 a month", 1, true))
    assert.same({ ["retry-after"] = "86401", ["x-should-retry"] = "false" }, headers)
    assert.same({ ["x-should-retry"] = "false" }, (select(4, refusal.limited("budget", LIMITS, 1, -1))))
  end)

  it("are a 503 where Redis cannot decide", function()
    local status, code, _, headers = refusal.unavailable()
    assert.same({ 503, "quota_unavailable", { ["retry-after"] = "1" } }, { status, code, headers })
  end)
end)
