-- The scripts that claim, hold and store, against a real Redis: each acts only for the owner, and leaves no key without a
-- lifetime.
local support = require "spec.support"
local async = support.async

local KEY = "idem:k:0f"

local redis
local up, down = support.shared(function() redis = support.redis() end)
setup(up)
teardown(down)
before_each(support.async(function() redis:must("FLUSHALL") end))

local function eval(name, keys, ...)
  local args = { ... }
  for i = #keys, 1, -1 do table.insert(args, 1, keys[i]) end
  return redis:cmd("EVAL", support.read_file("plugins/idempotency/" .. name .. ".lua"), #keys, unpack(args))
end

local function claim(owner, fingerprint) return eval("claim", { KEY }, owner, fingerprint or "f", 60000) end
local function hold(owner, what, keep) return eval("hold", { KEY }, owner, what, 60000, keep or 0)[1] end
local function store(owner, body) return eval("store", { KEY }, owner, 200, "[]", body or "b", 86400000) end
local function pttl() return redis:must("PTTL", KEY) end

local function between(low, n, high)
  if not (low < n and n <= high) then error(("%s is not above %s and up to %s"):format(n, low, high), 2) end
end

describe("claim", function()
  it("gives a key to the first, and tells the others", async(function()
    assert.same({ "claimed" }, claim "a")
    between(50000, pttl(), 60000)
    local before = redis:dump()[KEY].value
    assert.same({ "running" }, claim "b")
    assert.same({ "mismatch" }, claim("b", "other"))
    assert.same({ "mismatch" }, claim("a", "other"))
    assert.same(before, redis:dump()[KEY].value)
  end))

  it("may be repeated by its owner", async(function()
    claim "a"
    assert.same({ "claimed" }, claim "a")
  end))

  it("gives the answer once it is stored, to its owner too; another fingerprint is a mismatch still", async(function()
    claim "a"
    assert.equal("stored", store("a", "the body\0\255"))
    for _, owner in ipairs { "a", "b" } do assert.same({ "done", "200", "[]", "the body\0\255" }, claim(owner)) end
    assert.same({ "mismatch" }, claim("b", "other"))
    between(86000000, pttl(), 86400000)
  end))

  it("tells of a lease that is over where the key outlives it", async(function()
    claim "a"
    assert.equal("ok", hold("a", "renew", 86400000))
    assert.same({ "running" }, claim "b")
    redis:must("HSET", KEY, "lease", 1)
    assert.same({ "lost" }, claim "b")
    assert.same({ "claimed" }, claim "a")
  end))

  it("leaves what is not its own alone", async(function()
    redis:must("SET", KEY, "text", "EX", 100)
    assert.matches("WRONGTYPE", claim("a").err)
    redis:must("DEL", KEY)
    redis:must("HSET", KEY, "field", "1")
    redis:must("EXPIRE", KEY, 100)
    assert.matches("^TYPE", claim("a").err)
    assert.same({ field = "1" }, redis:dump()[KEY].value)
  end))

  it("does not take memory that is not there, but what is held can be let go", async(function()
    local full = support.redis()
    local shared = redis
    redis = full
    claim "a"
    full:must("CONFIG", "SET", "maxmemory-policy", "noeviction", "maxmemory", 1)
    assert.matches("^OOM", store("a").err)
    assert.matches("^OOM", eval("claim", { "idem:k:10" }, "b", "f", 1000).err)
    assert.equal("ok", hold("a", "renew", 86400000))
    assert.equal("ok", hold("a", "release"))
    redis = shared
    assert.equal(0, full:must("EXISTS", KEY))
  end))
end)

describe("hold and store", function()
  local function untouched(fn)
    local before = redis:dump()
    fn()
    assert.same(before, redis:dump())
  end

  it("act for the owner alone, and of a running claim", async(function()
    claim "a"
    untouched(function()
      for _, what in ipairs { "renew", "release", "lose" } do
        assert.equal("lost", hold("b", what))
        assert.equal("lost", hold("b", what, 86400000))
      end
      assert.equal("lost", store "b")
    end)
    store "a"
    untouched(function()
      for _, what in ipairs { "renew", "release", "lose" } do assert.equal("lost", hold("a", what)) end
      assert.equal("stored", store("a", "another body"))
    end)
  end))

  it("make no key that is gone", async(function()
    for _, what in ipairs { "renew", "release", "lose" } do assert.equal("lost", hold("a", what, 1000)) end
    assert.equal("lost", store "a")
    assert.same({}, redis:must("KEYS", "*"))
  end))

  it("renew the lease; with keep it is a time in the record, and the key outlives it", async(function()
    claim "a"
    redis:must("PEXPIRE", KEY, 1000)
    assert.equal("ok", hold("a", "renew"))
    between(50000, pttl(), 60000)
    assert.is_nil(redis:must("HGET", KEY, "lease"))
    assert.equal("ok", hold("a", "renew", 86400000))
    between(86000000, pttl(), 86400000)
    local now = redis:must("TIME")
    between(now[1] * 1000 + 50000, tonumber(redis:must("HGET", KEY, "lease")), now[1] * 1000 + 62000)
    store "a"
    assert.is_nil(redis:must("HGET", KEY, "lease"))
  end))

  it("give up: with keep the outcome is unknown from now on, else the lease is left as it is", async(function()
    claim "a"
    hold("a", "renew", 86400000)
    assert.equal("ok", hold("a", "lose", 86400000))
    assert.same({ "lost" }, claim "b")
    between(86000000, pttl(), 86400000)
    redis:must("DEL", KEY)
    claim "a"
    untouched(function() assert.equal("ok", hold("a", "lose")) end)
  end))

  it("do many at once, each for itself; another type spoils only itself", async(function()
    local keys, args = {}, {}
    for i = 1, 6 do
      keys[i] = KEY .. i
      if i < 5 then eval("claim", { keys[i] }, "o" .. i, "f", 1000) end
      for _, arg in ipairs { i == 2 and "x" or "o" .. i, i == 3 and "release" or "renew", 60000, 0 } do args[#args + 1] = arg end
    end
    redis:must("SET", keys[6], "text", "EX", 100)
    assert.same({ "ok", "lost", "ok", "ok", "lost", "lost" }, eval("hold", keys, unpack(args)))
    assert.equal(0, redis:must("EXISTS", keys[3], keys[5]))
    between(50000, redis:must("PTTL", keys[4]), 60000)
    between(0, redis:must("PTTL", keys[2]), 1000)
    assert.equal("text", redis:must("GET", keys[6]))
  end))
end)
