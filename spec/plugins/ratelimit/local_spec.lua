-- Windows without Redis, over a dictionary of the spec's own: shares, all or nothing, sliding, and a dictionary that fails.
package.preload["ratelimit.windows"] = assert(loadfile("plugins/ratelimit/windows.lua"))
local windows = require "ratelimit.windows"
local window_local = assert(loadfile("plugins/ratelimit/local.lua"))()

local function dictionary()
  local self = { values = {}, ttls = {} }
  function self.get(key) return self.values[key] end
  function self.incr(key, by, init, ttl)
    if self.busy then return nil, "busy" end
    if self.values[key] == nil then
      if init == nil then return nil, "not found" end
      self.ttls[key] = ttl
    end
    self.values[key] = (self.values[key] or init) + by
    return self.values[key]
  end
  return self
end

local function taker(list, share, count_refused)
  local prepared, shared = windows.prepare(list), dictionary()
  return function(now)
    return (window_local.take(prepared, "rl:k:", now, { share = share or 1, count_refused = count_refused }, shared))
  end, shared
end

local function passes(take, n, now)
  local passed = 0
  for _ = 1, n do passed = passed + (take(now) and 1 or 0) end
  return passed
end

describe("windows in one replica", function()
  it("give out a share of the limit, one at least", function()
    for share, expected in pairs { [1] = 10, [0.5] = 5, [0.25] = 2, [0.01] = 1 } do
      assert.equal(expected, passes(taker({ { limit = 10, seconds = 10 } }, share), 30, 1000))
    end
  end)

  it("begin anew at the turn", function()
    local take, shared = taker { { limit = 3, seconds = 10 } }
    assert.same({ 3, 3 }, { passes(take, 9, 9999), passes(take, 9, 10000) })
    assert.same({ ["ratelimit:rl:k:0"] = 20, ["ratelimit:rl:k:1"] = 20 }, shared.ttls)
  end)

  it("slide", function()
    local take = taker { { limit = 10, seconds = 10, sliding = true } }
    assert.equal(10, passes(take, 20, 9000))
    assert.equal(5, passes(take, 20, 15000))
  end)

  it("count in all windows or in none", function()
    local take, shared = taker { { limit = 10, seconds = 10 }, { limit = 4, seconds = 100 } }
    assert.equal(4, passes(take, 9, 1000))
    assert.same({ ["ratelimit:rl:k:0"] = 4, ["ratelimit:rl:k:100-all-0"] = 4 }, shared.values)
    take, shared = taker({ { limit = 2, seconds = 10 } }, 1, true)
    assert.equal(2, passes(take, 9, 1000))
    assert.equal(9, shared.values["ratelimit:rl:k:0"])
  end)

  it("let pass where the dictionary cannot say", function()
    local take, shared = taker { { limit = 1, seconds = 10, sliding = true } }
    shared.busy = true
    assert.equal(3, passes(take, 3, 1000))
  end)
end)
