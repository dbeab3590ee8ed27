-- The script that counts, against a real Redis whose clock the spec moves, and a model that is told nothing but the times
-- at which the script ran.
local support = require "spec.support"
local async = support.async

local TEXT = support.read_file("plugins/ratelimit/count.lua")

local redis
local up, down = support.shared(function() redis = support.moved_redis() end)

local function now_ms()
  local time = redis:must("TIME")
  return time[1] * 1000 + math.floor(time[2] / 1000)
end

local function key(seconds, index) return ("rl:k:%d-w-%.0f"):format(seconds, index) end

-- One call; `windows` each { limit, seconds, sliding }; off: by how many windows the caller's idea of the time is wrong.
local function call(windows, count_refused, off)
  local keys, args, now = {}, { count_refused and "1" or "0" }, now_ms()
  for _, w in ipairs(windows) do
    local index = math.floor(now / (w.seconds * 1000)) + (off or 0)
    for i = w.sliding and -1 or 0, 1 do keys[#keys + 1] = key(w.seconds, index + i) end
    for _, arg in ipairs { w.limit, w.seconds, w.sliding and "1" or "0", ("%.0f"):format(index) } do
      args[#args + 1] = arg
    end
  end
  local all = { "EVAL", TEXT, #keys, unpack(keys) }
  for _, arg in ipairs(args) do all[#all + 1] = arg end
  return redis:cmd(unpack(all))
end

local function parsed(reply)
  local verdict, rest = reply:match("^(%a+) (.*)$")
  local numbers = {}
  for n in rest:gmatch("%d+") do numbers[#numbers + 1] = tonumber(n) end
  return verdict, table.remove(numbers, 1), numbers
end

-- What should happen at a time, by counts of its own.
local Model = {}
Model.__index = Model

function Model:at(w, index) return self[w.seconds .. ":" .. index] or 0 end

function Model:decide(windows, now, count_refused)
  local verdict = "ok"
  for _, w in ipairs(windows) do
    local length = w.seconds * 1000
    local index, elapsed = math.floor(now / length), now % length
    local used = self:at(w, index)
    if w.sliding then used = used + self:at(w, index - 1) * (length - elapsed) / length end
    -- Rounding apart, which only matters within a billionth.
    if used + 1 > w.limit + 1e-9 then verdict = "limited" end
  end
  for _, w in ipairs(windows) do
    local slot = w.seconds .. ":" .. math.floor(now / (w.seconds * 1000))
    if verdict == "ok" or count_refused then self[slot] = (self[slot] or 0) + 1 end
  end
  return verdict
end

local function random_windows()
  local windows, used = {}, {}
  for _ = 1, math.random(3) do
    local seconds = ({ 1, 2, 3, 7, 60 })[math.random(5)]
    if not used[seconds] then
      windows[#windows + 1] = { limit = math.random(12), seconds = seconds, sliding = math.random() < 0.5 }
    end
    used[seconds] = true
  end
  return windows
end

local function assert_lifetimes(longest)
  for name, entry in pairs(redis:dump { pttl = true }) do
    assert(entry.expires_at > 0, name .. " has no lifetime")
    assert(entry.pttl <= 2 * longest * 1000, name .. " lives for too long")
  end
end

describe("counting", function()
  setup(up)
  teardown(down)
  before_each(async(function()
    redis.shift(0)
    redis:must("FLUSHALL")
  end))

  it("decides as the model does, whatever the windows and however time goes", async(function()
    local seed = os.time()
    math.randomseed(seed)
    local shift = 0
    for round = 1, 40 do
      redis:must("FLUSHALL")
      local windows, model, count_refused = random_windows(), setmetatable({}, Model), math.random() < 0.3
      for _ = 1, 60 do
        if math.random() < 0.3 then
          shift = shift + math.random(3000)
          redis.shift(shift)
        end
        local verdict, now, counts = parsed(call(windows, count_refused))
        -- Where the turn of a window came between the spec's look at the time and the call, the names still fit.
        assert.equal(model:decide(windows, now, count_refused), verdict, ("seed %d, round %d"):format(seed, round))
        for i, w in ipairs(windows) do
          local index = math.floor(now / (w.seconds * 1000))
          assert.equal(model:at(w, index), counts[2 * i - 1])
          assert.equal(w.sliding and model:at(w, index - 1) or 0, counts[2 * i])
        end
      end
      assert_lifetimes(60)
    end
  end))

  it("sets the lifetime with the first count, and only then", async(function()
    local windows = { { limit = 100, seconds = 1000 } }
    call(windows)
    local name = redis:must("KEYS", "*")[1]
    local first = redis:must("PEXPIRETIME", name)
    assert.is_true(math.abs(first - now_ms() - 2000000) < 5000)
    for _ = 1, 3 do call(windows) end
    assert.same({ first, "4" }, { redis:must("PEXPIRETIME", name), redis:must("GET", name) })
  end))

  it("keeps the window before until it counts no more", async(function()
    local windows, shift = { { limit = 10, seconds = 10, sliding = true } }, 0
    local function to(ms) -- into the next window
      shift = shift + 10000 - now_ms() % 10000 + ms
      redis.shift(shift)
    end
    to(9500)
    for _ = 1, 10 do assert.equal("ok", (parsed(call(windows)))) end
    to(0)
    assert.equal("limited", (parsed(call(windows))))
    shift = shift + 8000 -- the rest is counted still: of ten, two
    redis.shift(shift)
    local passed = 0
    for _ = 1, 15 do passed = passed + (parsed(call(windows)) == "ok" and 1 or 0) end
    assert.is_true(passed >= 8 and passed <= 9, passed)
    to(0)
    to(0)
    assert.equal("ok", (parsed(call(windows))))
  end))

  it("takes a caller whose time is one window behind, and tells any other the time", async(function()
    for _, sliding in ipairs { false, true } do
      local windows = { { limit = 5, seconds = 2678400, sliding = sliding }, { limit = 5, seconds = 86400 } }
      redis:must("FLUSHALL")
      assert.equal("ok", (parsed(call(windows, false, 0))))
      assert.equal("ok", (parsed(call(windows, false, -1))))
      local before = redis:dump()
      for _, off in ipairs { -2, 1, 5, -100 } do
        local reply = call(windows, true, off)
        assert.is_true(math.abs(tonumber(reply:match "^clock (%d+)$") - now_ms()) < 5000, reply)
      end
      assert.same(before, redis:dump())
      assert.equal(2, redis:must("DBSIZE"))
    end
  end))

  it("errs where a counter holds something else, before anything is changed", async(function()
    local windows = { { limit = 5, seconds = 86400 }, { limit = 5, seconds = 2678400, sliding = true } }
    local index = math.floor(now_ms() / 2678400000)
    for _, name in ipairs { key(2678400, index), key(2678400, index - 1) } do
      for _, write in ipairs { { "SET", name, "many" }, { "SET", name, "1.5" }, { "SET", name, "-1" }, { "RPUSH", name, "1" } } do
        redis:must("FLUSHALL")
        redis:must(unpack(write))
        local before = redis:dump()
        local reply = call(windows)
        assert.equal("TYPE " .. name .. " holds no count", reply.err:match "TYPE .*count")
        assert.same(before, redis:dump())
      end
    end
  end))
end)
