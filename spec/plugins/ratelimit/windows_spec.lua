-- Windows with a clock of the spec's own: how counters are named, when a window is full, what is left, and when to retry.
local windows = assert(loadfile("plugins/ratelimit/windows.lua"))()
local clock = assert(loadfile("plugins/ratelimit/clock.lua"))()

local function one(limit, seconds, sliding)
  return windows.prepare({ { limit = limit, seconds = seconds, sliding = sliding } })[1]
end

describe("the counters of windows", function()
  it("are named by the window's number, further ones by length, name and number too", function()
    local list = windows.prepare { { limit = 1, seconds = 60 }, { limit = 1, seconds = 3600 },
      { limit = 1, seconds = 86400, name = "day" } }
    local now = 1700000000 * 1000
    local function names(i) return { unpack(windows.suffixes(list[i], windows.index(list[i], now))) } end
    assert.same({ "28333332", "28333333", "28333334" }, names(1))
    assert.same({ "3600-all-472221", "3600-all-472222", "3600-all-472223" }, names(2))
    assert.same({ "86400-day-19674", "86400-day-19675", "86400-day-19676" }, names(3))
    assert.same({ "60s", "3600s", "day" }, { list[1].label, list[2].label, list[3].label })
    assert.equal("60-first-1", windows.suffixes(windows.prepare({ { limit = 1, seconds = 60, name = "first" } })[1], 1)[2])
  end)

  it("change with the window and not before", function()
    local window = one(1, 60)
    for now, expected in pairs { [59999] = "0", [60000] = "1", [119999] = "1", [120000] = "2" } do
      assert.equal(expected, windows.suffixes(window, windows.index(window, now))[2])
    end
  end)

  it("are told apart by length and name", function()
    local identity = windows.identity
    assert.equal(identity({ seconds = 60 }, false), identity({ seconds = 60, name = "all" }, false))
    assert.not_equal(identity({ seconds = 60 }, true), identity({ seconds = 60 }, false))
    assert.not_equal(identity({ seconds = 60 }, true), identity({ seconds = 61 }, true))
  end)
end)

describe("a fixed window", function()
  local window = one(3, 10)

  it("is full at its limit, until its end", function()
    assert.is_false(windows.full(window, 3, 2, 0, 5000))
    assert.is_true(windows.full(window, 3, 3, 0, 5000))
    assert.same({ 1, 5000 }, { windows.left(window, 3, 2, 0, 5000) })
    assert.same({ 3, 0 }, { windows.left(window, 3, 0, 0, 5000) })
    assert.same({ 0, 1 }, { windows.left(window, 3, 4, 0, 9999) })
    assert.same({ 0, 5000 }, { windows.retry(window, 3, 2, 0, 5000), windows.retry(window, 3, 3, 0, 5000) })
    assert.equal(1, windows.retry(window, 3, 3, 0, 9999))
    assert.equal(10000, windows.retry(window, 3, 3, 0, 10000))
  end)
end)

describe("a sliding window", function()
  it("weighs the window before by what of it is less than one length ago", function()
    local window = one(100, 10, true)
    -- 84 before, 30 % into the window: 84 × 0.7 = 58.8 of them count.
    assert.is_false(windows.full(window, 100, 40, 84, 3000))
    assert.is_true(windows.full(window, 100, 41, 84, 3000))
    assert.same({ 1, 17000 }, { windows.left(window, 100, 40, 84, 3000) })
    assert.same({ 41, 7000 }, { windows.left(window, 100, 0, 84, 3000) })
    assert.is_true(windows.full(window, 10, 0, 10, 999))
    assert.is_false(windows.full(window, 10, 0, 10, 1000))
  end)

  -- The state of a window as time goes by without requests.
  local function later(window, count, before, now, at)
    local passed = windows.index(window, at) - windows.index(window, now)
    if passed == 0 then return count, before end
    return 0, passed == 1 and count or 0
  end

  it("says to the millisecond when a request would pass", function()
    math.randomseed(os.time())
    for _ = 1, 20000 do
      local sliding = math.random() < 0.8
      local window = one(math.random(1, 12), math.random(1, 3), sliding)
      local count, before = math.random(0, 15), sliding and math.random(0, 15) or 0
      local now = math.random(0, 20000)
      local wait = windows.retry(window, window.limit, count, before, now)
      local function full(at)
        local c, b = later(window, count, before, now, at)
        return windows.full(window, window.limit, c, window.sliding and b or 0, at)
      end
      local what = ("limit %d, %d s, count %d, before %d, now %d, sliding %s"):format(window.limit, window.seconds, count,
        before, now, tostring(sliding))
      assert.is_false(full(now + wait), what)
      if wait > 0 then assert.is_true(full(now + wait - 1), what) end
    end
  end)

  it("tells exactly how many would pass at once", function()
    for _ = 1, 5000 do
      local window = one(math.random(1, 12), math.random(1, 3), true)
      local count, before, now = math.random(0, 15), math.random(0, 15), math.random(0, 20000)
      local remaining = windows.left(window, window.limit, count, before, now)
      local passed = 0
      while not windows.full(window, window.limit, count + passed, before, now) do passed = passed + 1 end
      assert.equal(passed, remaining)
    end
  end)
end)

describe("another machine's clock", function()
  it("is followed, never ahead of it, by the fastest answers", function()
    local c = clock.new()
    assert.equal(1000, c:now(1000))
    c:learn(1000, 1010, 51004) -- 50,000 ahead
    assert.equal(50994, c:now(1000))
    c:learn(2000, 2001, 52000.5)
    assert.equal(2000 + 49999.5, c:now(2000))
    c:learn(3000, 3500, 53490) -- a slow answer says less
    assert.equal(3000 + 49999.5, c:now(3000))
  end)

  it("is followed when it is set, either way", function()
    local c = clock.new()
    c:learn(0, 2, 1001)
    c:learn(10, 12, 11)
    assert.equal(19, c:now(20))
    c:learn(30, 31, 5030)
    assert.equal(5039, c:now(40))
  end)
end)
