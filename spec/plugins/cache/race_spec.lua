-- The race that a cache loses which only deletes: a fill begins, the value changes and is invalidated, the fill ends late.
-- What is read behind the invalidation is never older than it, by one replica or two, whatever comes first.
local resources = require "spec.plugins.cache.resource_rig"
local rig = require "spec.plugins.cache.rig"
local support = require "spec.support"
local async = support.async

local redis
local up, down = support.shared(function() redis = support.redis() end)

-- An origin of values by tenant, which change when the spec says so; it reads a value, and answers with it later.
local function origin_of(values, delay)
  return support.origin(function(req, conn)
    local tenant = req.path:match "/tenants/([^/]+)/"
    local value = values[tenant]
    support.sleep(delay())
    conn:respond { body = { value = value } }
  end)
end

local function read(gw, request)
  local res = assert(gw:request(request))
  assert.equal(200, res.status)
  return support.json(res).value
end

local function tenant_of(i) return "t" .. i end

-- One round on a key of its own: readers on all gateways, a change with its invalidation in between, and readers again.
local function round(gws, values, i)
  local tenant = tenant_of(i)
  local request = resources.get("/tenants/" .. tenant .. "/balance")
  values[tenant] = 1
  local calls = {}
  for _, gw in ipairs(gws) do
    calls[#calls + 1] = function()
      support.sleep(math.random(0, 3))
      assert.is_true(read(gw, request) >= 1)
    end
  end
  calls[#calls + 1] = function()
    support.sleep(math.random(0, 6))
    values[tenant] = 2
    resources.invalidate(gws[math.random(#gws)], tenant)
    -- From here on nobody may read the old value.
    for _ = 1, 2 do
      for _, gw in ipairs(gws) do assert.equal(2, read(gw, request)) end
    end
  end
  support.all(calls)
  for _, gw in ipairs(gws) do assert.equal(2, read(gw, request)) end
  local kept = redis:must("GET", "balance:" .. tenant)
  assert(kept == nil or support.decode(kept).value == 2, "a fill landed behind the invalidation")
end

local function race(replicas, rounds)
  math.randomseed(os.time())
  local values = {}
  local origin = origin_of(values, function() return math.random(0, 4) end)
  local gws = {}
  for i = 1, replicas do
    gws[i] = resources.gateway { redis = redis, origin = origin.url, cache = { shared = true } }
  end
  local next_round = 0
  local calls = {}
  for lane = 1, 20 do
    calls[lane] = function()
      while next_round < rounds do
        next_round = next_round + 1
        round(gws, values, next_round)
      end
    end
  end
  support.all(calls)
  support.redis_tap.assert_lifetimes(redis)
end

describe("a fill and an invalidation", function()
  setup(up)
  teardown(down)
  before_each(async(function() redis:must("FLUSHALL") end))

  it("never leave the old value, 1,000 times", async(function() race(1, 1000) end))

  it("never leave the old value, 1,000 times through two replicas", async(function() race(2, 1000) end))

  it("that came while the origin answered: the value is dropped", async(function()
    local go = false
    local origin = support.origin(function(_, conn)
      support.wait_for(function() return go end, "the spec", 20000)
      conn:respond { body = { value = 1 } }
    end)
    local gw = resources.gateway { redis = redis, origin = origin.url }
    local task = support.spawn(function() return read(gw, resources.get()) end)
    origin:wait_request(1)
    resources.invalidate(gw)
    go = true
    assert.equal(1, task:join()) -- it had asked before
    rig.wait_count(gw, "cache_fills_total", "tenants", "fenced", 1)
    assert.equal(0, redis:must("EXISTS", "balance:a"))
    -- A reader that comes behind the invalidation does not join the fill that began before it.
    go = false
    local old = support.spawn(function() return read(gw, resources.get()) end)
    origin:wait_request(2)
    resources.invalidate(gw)
    local new = support.spawn(function() return read(gw, resources.get()) end)
    origin:wait_request(3)
    go = true
    old:join()
    new:join()
    rig.wait_kept(redis, 1, "balance:a")
  end))
end)
