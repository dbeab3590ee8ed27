-- The leases of a worker: renewed in time by one timer, in batches, with tries to spare, and never of what has ended.
local claims_of = assert(loadfile("plugins/idempotency/claims.lua"))()

local calls, reply

local function run(keys, args)
  calls[#calls + 1] = { keys = keys, args = args }
  return reply(keys, args)
end

local function all_ok(keys)
  local list = {}
  for i in ipairs(keys) do list[i] = "ok" end
  return list
end

before_each(function() calls, reply = {}, all_ok end)

local function claim(name, lease_ms)
  return { key = "idem:k:" .. name, owner = "owner-" .. name, lease_ms = lease_ms or 60000, keep_ms = 0 }
end

-- So many ticks of a sixth of 60 s; returns how often each key was renewed.
local function ticks(claims, n)
  local counts = {}
  calls = {}
  for _ = 1, n do claims:tick(10000) end
  for _, call in ipairs(calls) do
    for _, key in ipairs(call.keys) do counts[key:sub(8)] = (counts[key:sub(8)] or 0) + 1 end
  end
  return counts
end

describe("leases", function()
  it("are renewed every third of their time, each by its own", function()
    assert.equal(10, claims_of.interval(60))
    local claims = claims_of.new(run, 500)
    claims:add(claim "a")
    claims:add(claim("long", 240000))
    assert.same({ a = 6, long = 1 }, ticks(claims, 12))
    assert.same({ "idem:k:a" }, calls[1].keys)
    assert.same({ "owner-a", "renew", 60000, 0 }, calls[1].args)
  end)

  it("are tried again with each tick while Redis is away, three times before they lapse", function()
    local claims = claims_of.new(run, 500)
    claims:add(claim "a")
    reply = function() return nil, "down" end
    assert.same({}, ticks(claims, 1))
    assert.same({ a = 4 }, ticks(claims, 4)) -- at 20, 30, 40 and 50 s
    assert.equal("down", claims:tick(10000))
    reply = all_ok
    assert.is_nil(claims:tick(10000))
    assert.same({}, ticks(claims, 1))
  end)

  it("go out in batches, and an error ends the round", function()
    local claims = claims_of.new(run, 2)
    for i = 1, 5 do claims:add(claim(tostring(i))) end
    ticks(claims, 2)
    assert.same({ 2, 2, 1 }, { #calls[1].keys, #calls[2].keys, #calls[3].keys })
    reply = function() return nil, "timeout" end
    ticks(claims, 2)
    assert.equal(1, #calls)
    reply = all_ok
    ticks(claims, 1)
    assert.equal(3, #calls)
  end)

  it("that are lost are marked, and not asked for again", function()
    local claims, lost, kept = claims_of.new(run, 500), claim "lost", claim "kept"
    claims:add(lost)
    claims:add(kept)
    reply = function(keys)
      local list = {}
      for i, key in ipairs(keys) do list[i] = key:find("lost") and "lost" or "ok" end
      return list
    end
    assert.same({ lost = 1, kept = 3 }, ticks(claims, 6))
    assert.is_true(lost.lost)
    assert.is_nil(kept.lost)
    claims:remove(lost)
    assert.equal(1, claims.n)
  end)

  it("of requests that end while Redis is asked are no longer theirs: nothing is lost", function()
    local claims, a, b, c = claims_of.new(run, 500), claim "a", claim "b", claim "c"
    for _, one in ipairs { a, b, c } do claims:add(one) end
    reply = function()
      claims:remove(a)
      return { "lost", "ok", "lost" }
    end
    ticks(claims, 2)
    assert.is_nil(a.lost)
    assert.is_true(c.lost)
    assert.equal(1, claims.n)
    reply = all_ok
    assert.same({ b = 1 }, ticks(claims, 2))
  end)

  it("come and go in any order", function()
    local claims, held, n = claims_of.new(run, 500), {}, 0
    math.randomseed(7)
    for i = 1, 2000 do
      if math.random() < 0.6 or n == 0 then
        n = n + 1
        held[n] = claim(tostring(i))
        claims:add(held[n])
      else
        local at = math.random(n)
        claims:remove(held[at])
        claims:remove(held[at]) -- once more does nothing
        held[at], held[n], n = held[n], nil, n - 1
      end
      assert.equal(n, claims.n)
    end
    local counts = ticks(claims, 2)
    for _, one in ipairs(held) do assert.equal(1, counts[one.key:sub(8)]) end
  end)
end)
