-- The script of an invalidation against a real Redis: fences that only rise, values that go, replicas that are told.
local support = require "spec.support"
local async = support.async

local CHANNEL = "cache:invalidate"
local TEXT = support.read_file("plugins/webhook/invalidate.lua")

local redis
local up, down = support.shared(function() redis = support.redis() end)

local function invalidate(...)
  local keys = {}
  for _, key in ipairs { ... } do
    keys[#keys + 1] = key
    keys[#keys + 1] = "fence:" .. key
  end
  keys[#keys + 1] = CHANNEL
  return redis:must("EVAL", TEXT, #keys - 1, unpack(keys))
end

local function fence(key) return tonumber(redis:must("GET", "fence:" .. key)) end

local function micros()
  local time = redis:must("TIME")
  return time[1] * 1000000 + time[2]
end

describe("an invalidation", function()
  setup(up)
  teardown(down)
  before_each(async(function() redis:must("FLUSHALL") end))

  it("deletes keys, and fences those that were not there too", async(function()
    redis:must("SET", "balance:t", "{}", "EX", 60)
    local before = micros()
    assert.equal("1", invalidate("balance:t", "stats:t:current_month"))
    local after = micros()
    for _, key in ipairs { "balance:t", "stats:t:current_month" } do
      assert.equal(0, redis:must("EXISTS", key))
      assert.is_true(fence(key) >= before and fence(key) <= after)
      local ttl = redis:must("PTTL", "fence:" .. key)
      assert.is_true(ttl > 3590000 and ttl <= 3600000, ttl)
    end
  end))

  it("never gives a fence a value that it had, also where the clock is behind it", async(function()
    local ahead = micros() + 1000000000
    redis:must("SET", "fence:balance:t", ("%.0f"):format(ahead))
    invalidate "balance:t"
    assert.equal(ahead + 1, fence "balance:t")
    assert.is_true(redis:must("TTL", "fence:balance:t") > 0)
    local last = 0
    redis:must("DEL", "fence:balance:t")
    for _ = 1, 200 do
      invalidate "balance:t"
      assert.is_true(fence "balance:t" > last)
      last = fence "balance:t"
    end
  end))

  it("replaces what is no fence", async(function()
    for _, write in ipairs { { "SET", "fence:b:t", "x" }, { "RPUSH", "fence:b:t", "x" }, { "SET", "fence:b:t", "nan" },
      { "SET", "fence:b:t", "1e300" }, { "HSET", "fence:b:t", "a", "b" } } do
      redis:must("DEL", "fence:b:t")
      redis:must(unpack(write))
      local before = micros()
      invalidate "b:t"
      assert.is_true(fence "b:t" >= before)
    end
  end))

  it("works where memory is short", async(function()
    redis:must("SET", "b:t", ("x"):rep(1000), "EX", 60)
    redis:must("CONFIG", "SET", "maxmemory", "1")
    assert.equal("1", invalidate "b:t")
    redis:must("CONFIG", "SET", "maxmemory", "0")
  end))

  it("tells each key on the channel, in order", async(function()
    local next_message = redis:listen(CHANNEL)
    invalidate("b:t", "s:t:current_month")
    for _, key in ipairs { "b:t", "s:t:current_month" } do
      assert.equal(key, next_message())
    end
  end))
end)
