-- ratelimit end to end: exact under concurrency and over replicas, what clients are told, whose requests count together,
-- and the turn of windows by Redis's clock.
local uv = require "luv"
local support = require "spec.support"
local rig = require "spec.plugins.ratelimit.rig"
local async = support.async

local LONG = rig.LONG

local redis
local up, down = support.shared(function() redis = support.redis() end)

local function window(limit, more)
  local one = { limit = limit, seconds = LONG }
  for name, value in pairs(more or {}) do one[name] = value end
  return one
end

local function sorted_keys(r)
  local keys = r:must("KEYS", "*")
  table.sort(keys)
  return keys
end

local function index(seconds) return math.floor((uv.gettimeofday()) / seconds) end

describe("ratelimit", function()
  setup(up)
  teardown(down)
  before_each(async(function() redis:must("FLUSHALL") end))

  it("lets exactly as many pass as the window holds, also the first of a key, over replicas and workers", async(function()
    local origin = rig.origin()
    local options = { redis = redis, origin = origin.url, windows = { window(10) }, config = { workers = 2 } }
    local gateways = { rig.gateway(options), rig.gateway(options) }
    assert.same({ [200] = 10, [429] = 190 }, rig.at_once(gateways, 200))
    assert.equal(10, #origin.requests)
    local name = ("rl:k:%d"):format(index(LONG))
    assert.same({ name }, sorted_keys(redis))
    assert.equal("10", redis:must("GET", name)) -- the refused ones are not counted
    local ttl = redis:must("TTL", name)
    assert.is_true(ttl > 2 * LONG - 60 and ttl <= 2 * LONG)
  end))

  it("tells what is left, and when to come again", async(function()
    local gw = rig.gateway { redis = redis, windows = { window(2), { limit = 100, seconds = LONG, name = "more" } } }
    local res = gw:request(rig.get "k")
    assert.equal(200, res.status)
    local h = res.headers
    assert.same({ "2", "1" }, { h["x-ratelimit-limit-requests"], h["x-ratelimit-remaining-requests"] })
    assert.equal(('"%ds";q=2;w=%d, "more";q=100;w=%d'):format(LONG, LONG, LONG), h["ratelimit-policy"])
    local left = LONG - uv.gettimeofday() % LONG
    local t = tonumber(h.ratelimit:match(('^"%ds";r=1;t=(%%d+), "more";r=99;t=%%1$'):format(LONG)) or
      h.ratelimit:match('r=1;t=(%d+)'))
    assert.is_true(math.abs(t - left) < 30, h.ratelimit)
    assert.matches("^%d+h%d+m%d+s$", h["x-ratelimit-reset-requests"])
    assert.equal(200, gw:request(rig.get "k").status)
    res = gw:request(rig.get "k")
    assert.same({ 429, "0" }, { res.status, res.headers["x-ratelimit-remaining-requests"] })
    local err = support.json(res).error
    assert.equal("rate_limit_exceeded", err.code)
    assert.equal(("Rate limit reached: requests are limited to 2 in %d s, 100 in %d s"):format(LONG, LONG), err.message)
    assert.is_true(math.abs(res.headers["retry-after"] - left) < 30)
    assert.is_true(math.abs(res.headers["retry-after-ms"] / 1000 - res.headers["retry-after"]) <= 1)
    rig.wait_outcomes(gw, { admitted = 2, limited = 1 })
  end))

  it("counts in all windows or in none", async(function()
    local gw = rig.gateway { redis = redis, windows = { window(5), { limit = 3, seconds = LONG, name = "b" } } }
    assert.same({ [200] = 3, [429] = 4 }, rig.send(gw, 7))
    local i = index(LONG)
    assert.same({ ("rl:k:%d-b-%d"):format(LONG, i), "rl:k:" .. i }, sorted_keys(redis))
    assert.equal("3", redis:must("GET", ("rl:k:%d"):format(i)))
  end))

  it("admits at once when the limit is raised by a reload, and counts on over it", async(function()
    local gw = rig.gateway { redis = redis, windows = { window(2) }, config = { reload = { watch = false } } }
    assert.same({ [200] = 2, [429] = 3 }, rig.send(gw, 5))
    gw:write("gateway.lua", (support.read_file(gw.dir .. "/gateway.lua"):gsub("limit = 2%f[%D]", "limit = 4")))
    local run = gw:command "reload"
    assert.equal(0, run.code, run.err)
    assert.same({ [200] = 2, [429] = 1 }, rig.send(gw, 3))
  end))

  it("counts refused requests where it is told to", async(function()
    local gw = rig.gateway { redis = redis, windows = { window(2) }, conf = { count_refused = true } }
    assert.same({ [200] = 2, [429] = 5 }, rig.send(gw, 7))
    assert.equal("7", redis:must("GET", ("rl:k:%d"):format(index(LONG))))
  end))

  it("counts by consumer, tenant, address, header or route", async(function()
    local i = index(LONG)
    for _, case in ipairs {
      { "consumer", { "rl:k2:", "rl:k:", "rl:route%3Aplain:" } },
      { "tenant", { "rl:route%3Aplain:", "rl:tenant%3At:" } },
      { "address", { "rl:address%3A127.0.0.1:" } },
      { "route", { "rl:route%3Aplain:" } },
      { { header = "x-user" }, { "rl:header%3Ax-user%3A" .. support.sha256 "u" .. ":", "rl:route%3Aplain:" } },
    } do
      redis:must("FLUSHALL")
      local gw = rig.gateway { redis = redis, windows = { window(1) }, conf = { by = case[1] } }
      for _, request in ipairs { rig.get "k", rig.get "k2", rig.get(nil), rig.get("k", { ["x-user"] = "u" }) } do
        gw:request(request)
      end
      local expected = {}
      for n, prefix in ipairs(case[2]) do expected[n] = prefix .. i end
      assert.same(expected, sorted_keys(redis))
      gw:stop()
    end
  end))

  it("encodes key ids, and writes tags where they are configured", async(function()
    local i = index(LONG)
    local gw = rig.gateway { redis = redis, windows = { window(9), { limit = 9, seconds = 60, sliding = true } },
      settings = { hash_tags = true } }
    assert.equal(200, gw:request(rig.get "odd").status)
    local keys = sorted_keys(redis)
    assert.equal(2, #keys)
    assert.matches("^rl:{a%%3Ab%%20%%7Bc%%7D}:60%-all%-%d+$", keys[1])
    assert.equal("rl:{a%3Ab%20%7Bc%7D}:" .. i, keys[2])
  end))

  it("has windows by plan", async(function()
    local gw = rig.gateway { redis = redis, windows = { window(1) }, conf = { plans = { gold = { window(3) } } } }
    assert.same({ [200] = 1, [429] = 4 }, rig.send(gw, 5))
    assert.same({ [200] = 3, [429] = 2 }, rig.send(gw, 5, rig.get "k2"))
  end))

  it("refuses before 100 Continue, and before the body is there", async(function()
    local gw = rig.gateway { redis = redis, windows = { window(1) } }
    assert.equal(200, gw:request(rig.get "k").status)
    local conn = gw:connect()
    conn:send("POST / HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer k\r\nExpect: 100-continue\r\nContent-Length: 5\r\n\r\n")
    local head = conn:read_head()
    assert.same({ 429, 0 }, { head.status, #head.interim })
    conn:close()
  end))

  it("refuses in the shape of the route's API", async(function()
    local gw = rig.gateway { redis = redis, windows = { window(1) }, route = { path = "/v1/messages" } }
    local request = { method = "POST", path = "/v1/messages", headers = { ["x-api-key"] = "k" }, body = "{}" }
    gw:request(request)
    local res = gw:request(request)
    local body = support.json(res)
    assert.same({ 429, "error", "rate_limit_error" }, { res.status, body.type, body.error.type })
    assert.same({ "1", "0" }, { res.headers["anthropic-ratelimit-requests-limit"],
      res.headers["anthropic-ratelimit-requests-remaining"] })
    assert.matches("^%d%d%d%d%-%d%d%-%d%dT", res.headers["anthropic-ratelimit-requests-reset"])
  end))

  it("runs before quota, which a refused request does not touch; headers tell of both", async(function()
    local gw = rig.gateway { redis = redis, windows = { window(2) }, plugins = { quota = { rps = 0.001, burst = 100 } } }
    local res = gw:request(rig.get "k")
    assert.same({ 200, "2", "1" }, { res.status, res.headers["x-ratelimit-limit-requests"],
      res.headers["x-ratelimit-remaining-requests"] })
    assert.equal(('"requests";q=100;w=100000, "%ds";q=2;w=%d'):format(LONG, LONG), res.headers["ratelimit-policy"])
    assert.matches('^"requests";r=99;t=%d+, "%d+s";r=1;t=%d+$', res.headers.ratelimit)
    assert.same({ [200] = 1, [429] = 5 }, rig.send(gw, 6))
    assert.equal(98, math.floor(redis:must("HGET", "q:rps:k", "tokens")))
    assert.equal("2", redis:must("GET", ("rl:k:%d"):format(index(LONG))))
    -- The tighter of the two is told where there is room for one only.
    redis:must("HSET", "q:rps:k", "tokens", "0.5")
    redis:must("DEL", ("rl:k:%d"):format(index(LONG)))
    res = gw:request(rig.get "k")
    assert.same({ 429, "100", "0" }, { res.status, res.headers["x-ratelimit-limit-requests"],
      res.headers["x-ratelimit-remaining-requests"] })
  end))

  it("may stand twice on a route, with counts of their own", async(function()
    local gw = rig.gateway { redis = redis, plugins = { ratelimit = { { windows = { window(3) } },
      { windows = { window(5) }, by = "address" } } } }
    assert.same({ [200] = 3, [429] = 1 }, rig.send(gw, 4))
    assert.same({ [200] = 2, [429] = 1 }, rig.send(gw, 3, rig.get "k2")) -- by address three had passed
  end))
end)

describe("the turn of a window", function()
  -- So many ms before (negative) or after the next turn of windows of this length.
  local function at_turn(r, seconds, ms)
    local s, us = uv.gettimeofday()
    local real = s * 1000 + us / 1000
    r.shift(math.ceil(real / (seconds * 1000)) * seconds * 1000 + ms - real)
  end

  it("begins anew where windows are fixed, by Redis's clock, wherever the gateway's is", async(function()
    local r = support.moved_redis()
    local gw = rig.gateway { redis = r, windows = { { limit = 5, seconds = 1000 } } }
    at_turn(r, 1000, -100000)
    assert.same({ [200] = 5, [429] = 2 }, rig.send(gw, 7))
    local res = gw:request(rig.get "k")
    assert.is_true(tonumber(res.headers["retry-after"]) <= 101 and tonumber(res.headers["retry-after"]) > 60)
    at_turn(r, 1000, 100)
    assert.same({ [200] = 5, [429] = 2 }, rig.send(gw, 7))
    r.shift(-30 * 86400000) -- a clock that is set back: other windows, which are empty
    assert.same({ [200] = 5, [429] = 2 }, rig.send(gw, 7))
    assert.is_nil(gw.log():find "error")
  end))

  it("lets no double burst pass where windows slide", async(function()
    local r = support.moved_redis()
    local gw = rig.gateway { redis = r, windows = { { limit = 10, seconds = 1000, sliding = true } } }
    at_turn(r, 1000, -50000)
    assert.same({ [200] = 10 }, rig.send(gw, 10))
    at_turn(r, 1000, 50000) -- 9.5 of them count still
    local res = gw:request(rig.get "k")
    assert.same({ 429, "0" }, { res.status, res.headers["x-ratelimit-remaining-requests"] })
    local wait = tonumber(res.headers["retry-after"]) -- until one has faded: 100 s into the window
    assert.is_true(wait > 20 and wait <= 51, wait)
    at_turn(r, 1000, 550000)
    assert.same({ [200] = 5, [429] = 3 }, rig.send(gw, 8))
  end))
end)

describe("ratelimit's settings", function()
  local function check(conf, more)
    local dir = support.tmpdir()
    local config = { redis = "redis://127.0.0.1:1/0", plugins = more,
      routes = { { name = "a", path = "/", plugins = { ratelimit = conf } } } }
    support.write_file(dir .. "/gateway.lua", "return " .. support.literal(config))
    local run = support.tollgate { "check", "-c", dir .. "/gateway.lua" }
    return run.code, run.err
  end

  it("are refused where they cannot work, with the path of the key", async(function()
    local w = { limit = 1, seconds = 60 }
    for message, conf in pairs {
      ["ratelimit.windows: is required"] = {},
      ["ratelimit.windows: must have at least 1 item"] = { windows = {} },
      ["ratelimit.windows[1].limit: must be at least 1"] = { windows = { { limit = 0, seconds = 1 } } },
      ["ratelimit.windows[1].seconds: must be an integer"] = { windows = { { limit = 1, seconds = 0.5 } } },
      ["ratelimit.windows[1].seconds: must be at most 2678400"] = { windows = { { limit = 1, seconds = 1e7 } } },
      ["ratelimit.windows[1].name: must be letters"] = { windows = { { limit = 1, seconds = 1, name = "a:b" } } },
      ["ratelimit.windows[2]: has the length and the name of [1]"] = { windows = { w, { limit = 9, seconds = 60 } } },
      ["ratelimit.plans.gold[2]: has the length and the name"] = { windows = { w }, plans = { gold = { w, w } } },
      ["ratelimit.share: must be at most 1"] = { windows = { w }, share = 2 },
      ["ratelimit.by.header: is no name"] = { windows = { w }, by = { header = "a b" } },
      ["ratelimit[2]: counts in a window in which routes[1].plugins.ratelimit[1] counts"] =
        { { windows = { w } }, { windows = { { limit = 7, seconds = 60 } } } },
    } do
      local code, err = check(conf)
      assert.equal(1, code, message)
      assert.truthy(err:find(message, 1, true), message .. "\n" .. err)
    end
    assert.equal(0, (check { { windows = { w } }, { windows = { w }, by = "address" } }))
    assert.equal(0, (check { { windows = { w } }, { windows = { { limit = 1, seconds = 60, name = "x" } } } }))
    assert.equal(0, (check { windows = { w, { limit = 9, seconds = 60, name = "x" } } }))
  end))
end)
