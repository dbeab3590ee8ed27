-- The scripts of quota alone, on a real Redis: what they answer where Redis refuses a part of what they do, and that
-- an error leaves everything as it was.
local support = require "spec.support"
local async = support.async

local BUCKET, COUNTER, INFLIGHT, LEASE = "q:rps:k", "q:tokens:k:197001", "q:conc:k", "q:reserved:k.1"
local ALWAYS = { "0", "9007199254740991" } -- a month that time does not leave

local redis

local function run(as, name, keys, args)
  local command = { "EVAL", support.read_file("scripts/redis/" .. name .. ".lua"), #keys }
  for _, list in ipairs { keys, args } do
    for _, item in ipairs(list) do command[#command + 1] = item end
  end
  return as:cmd(unpack(command))
end

-- One request: 1 of 1 a second, 10 of 100 tokens, one slot.
local function admit(as)
  return run(as, "admit", { BUCKET, COUNTER, INFLIGHT, LEASE }, { 1, 1, 1, 100, ALWAYS[1], ALWAYS[2], 1, "k.1", 10 })
end

local function settle(as, form, actual)
  return run(as, "settle", { COUNTER, INFLIGHT, LEASE }, { 1, "1", "1", "k.1", form, actual, 10 })
end

-- A connection of a user who may not do one thing.
local function without(command)
  redis:must("ACL", "SETUSER", "some", "reset", "on", ">pw", "~*", "+@all", "-" .. command)
  local own = setmetatable({ socket = redis.socket }, getmetatable(redis))
  own:must("AUTH", "some", "pw")
  support.on_end(function() own.conn:close() end)
  return own
end

local function verdict(reply) return reply[3]:match "%a+" end

describe("the scripts of quota", function()
  local up, down = support.shared(function() redis = support.redis() end)
  setup(up)
  teardown(down)
  before_each(async(function() redis:must("FLUSHALL") end))

  it("admit once, and settle what was admitted", async(function()
    assert.equal("admitted", verdict(admit(redis)))
    local second = { 1, "", "", "", "", "", 1, "k.2", 0 }
    assert.equal("concurrency", verdict(run(redis, "admit", { INFLIGHT, "q:reserved:k.2" }, second)))
    assert.same({ "settled" }, settle(redis, "first", 4))
    assert.same({ "nothing" }, settle(redis, "again", 4))
    local left = redis:dump()
    assert.same({ "4", nil, nil }, { left[COUNTER].value, left[INFLIGHT], left[LEASE] })
  end))

  it("admit: says what Redis refused, not that a key holds something else", async(function()
    for _, command in ipairs { "hmget", "get", "scard" } do
      local reply = admit(without(command))
      assert.truthy(reply.err, command)
      assert.falsy(reply.err:find("TYPE", 1, true), reply.err)
      assert.same({}, redis:dump())
    end
  end))

  it("settle: does not hide that a slot could not be given back", async(function()
    admit(redis)
    local reply = settle(without "srem", "first", 4)
    assert.truthy(reply.err)
    assert.same({ "nothing" }, settle(redis, "again", 4))
    assert.is_nil(redis:dump()[INFLIGHT])
  end))

  it("settle: leaves a set's key alone that holds something else", async(function()
    admit(redis)
    redis:must("SET", INFLIGHT, "x", "EX", 100)
    assert.same({ "settled" }, settle(redis, "first", 4))
    assert.same({ "4", "x" }, { redis:must("GET", COUNTER), redis:must("GET", INFLIGHT) })
  end))

  it("settle: changes nothing where the counter is no number that Redis can add to", async(function()
    for _, text in ipairs { "many", "-0", "007" } do
      redis:must("FLUSHALL")
      admit(redis)
      redis:must("SET", COUNTER, text, "EX", 100)
      local before = redis:dump()
      local reply = settle(redis, "first", 14)
      assert.truthy(reply.err, text)
      assert.same(before, redis:dump())
    end
  end))
end)
