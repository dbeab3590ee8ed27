-- quota's limits: whose value counts, bursts that belong to their rate, and settings that are refused.

local limits = assert(loadfile("plugins/quota/limits.lua"))()

describe("quota's limits", function()
  it("are the record's own, else its plan's, else the settings'", function()
    local conf = { rps = 1, monthly_tokens = 100, concurrency = 9, plans = { pro = { rps = 5, monthly_tokens = 200 } } }
    assert.same({ rate = 1, burst = 1, budget = 100, concurrency = 9 }, limits.of(conf, nil))
    assert.same({ rate = 1, burst = 1, budget = 100, concurrency = 9 }, limits.of(conf, { id = "k" }))
    assert.same({ rate = 5, burst = 5, budget = 200, concurrency = 9 }, limits.of(conf, { id = "k", plan = "pro" }))
    assert.same({ rate = 7, burst = 7, budget = 0, concurrency = 9 },
      limits.of(conf, { id = "k", plan = "pro", rps = 7, monthly_tokens = 0 }))
    assert.same({}, limits.of({}, { id = "k" }))
  end)

  it("take burst no further than from where rps is", function()
    local conf = { rps = 10, burst = 50, plans = { pro = { rps = 0.5 }, big = { burst = 99 } } }
    assert.same({ rate = 10, burst = 50 }, limits.of(conf, { id = "k" }))
    assert.same({ rate = 0.5, burst = 1 }, limits.of(conf, { id = "k", plan = "pro" }))
    assert.same({ rate = 10, burst = 99 }, limits.of(conf, { id = "k", plan = "big" }))
    assert.same({ rate = 10, burst = 3 }, limits.of(conf, { id = "k", plan = "big", burst = 3 }))
    assert.same({ rate = 2, burst = 2 }, limits.of(conf, { id = "k", rps = 2 }))
  end)

  it("refuse a plan that nobody knows where the key would go free", function()
    local pro = { id = "k", plan = "pro" }
    assert.same({ rate = 1, burst = 1 }, limits.of({ rps = 1, plans = {} }, pro))
    assert.has_error(function() limits.of({ rps = 1, plans = { por = { rps = 2 } } }, pro) end,
      "the key k has the plan pro, which quota's plans do not have")
    assert.has_error(function() limits.of({ plans = {} }, pro) end)
  end)

  it("are checked where a schema cannot", function()
    local function check(conf) return limits.check(conf, "p") end
    assert.same({}, check {})
    assert.same({}, check { rps = 1, burst = 31 * 86400 })
    assert.same({}, check { rps = 1, plans = { a = { burst = 5 } } })
    assert.same({ { path = "p.burst", message = "needs rps: a burst is the size of a bucket that rps fills" } },
      check { burst = 5 })
    assert.same({ "p.plans.a.burst", "p.plans.b.rps" }, (function()
      local faults = check { plans = { a = { burst = 5 }, b = { rps = 1e-9 }, c = { rps = 1 } } }
      return { faults[1].path, faults[2].path }
    end)())
    assert.same("p.burst", check({ rps = 1, burst = 31 * 86400 + 1 })[1].path)
    assert.same("p.plans.a.burst", check({ rps = 0.001, plans = { a = { burst = 10000 } } })[1].path)
  end)
end)
