-- Cached resources, end to end: keys that other services know, who may read them, what never comes from the cache, and
-- configurations that would let them go stale.
local resources = require "spec.plugins.cache.resource_rig"
local rig = require "spec.plugins.cache.rig"
local support = require "spec.support"
local async = support.async

local redis
local up, down = support.shared(function() redis = support.redis() end)

local function balance(res) return support.json(res).balance end

describe("cache, resources", function()
  setup(up)
  teardown(down)
  before_each(async(function() redis:must("FLUSHALL") end))

  it("are kept under their keys, as the origin answered, for their time", async(function()
    local origin = resources.origin()
    local gw = resources.gateway { redis = redis, origin = origin.url }
    for path, expected in pairs { ["/tenants/a/balance"] = { "balance:a", 60 },
      ["/tenants/a/stats"] = { "stats:a:current_month", 300 } } do
      local key, ttl = unpack(expected)
      local first, status = rig.send(gw, resources.get(path))
      assert.equal(("tollgate; fwd=miss; ttl=%d; stored"):format(ttl), status)
      rig.wait_kept(redis, 1, key)
      assert.equal(first.body, redis:must("GET", key))
      local left = redis:must("PTTL", key)
      assert.is_true(left <= ttl * 1000 and left > 0)
      local again, hit = rig.send(gw, resources.get(path))
      assert.equal(first.body, again.body)
      assert.matches("^tollgate; hit; ttl=", hit)
      assert.equal("application/json", again.headers["content-type"])
    end
    assert.equal(2, #origin.requests)
    redis:must("SET", "balance:b", '{"balance":-1}', "EX", 30) -- another service fills it
    local res = rig.send(gw, resources.get("/tenants/b/balance", { as = "b" }))
    assert.equal(-1, balance(res))
    assert.equal("30", res.headers.age)
  end))

  it("are dropped by an event, and read anew", async(function()
    local origin = resources.origin()
    local gw = resources.gateway { redis = redis, origin = origin.url }
    for round = 1, 3 do
      local res = rig.send(gw, resources.get())
      assert.equal(round, balance(res))
      rig.wait_kept(redis, 1, "balance:a")
      assert.equal(round, balance(rig.send(gw, resources.get())))
      resources.invalidate(gw)
      assert.equal(0, redis:must("EXISTS", "balance:a"))
    end
  end))

  it("are read by their tenant alone, whatever is kept", async(function()
    local origin = resources.origin()
    local gw = resources.gateway { redis = redis, origin = origin.url }
    rig.send(gw, resources.get())
    rig.wait_kept(redis, 1, "balance:a")
    for _, who in ipairs { "b", "lone" } do
      local res = rig.send(gw, resources.get(nil, { as = who }))
      assert.equal(403, res.status)
      assert.equal("wrong_tenant", support.json(res).error.code)
    end
    assert.equal(1, #origin.requests)
    assert.equal(401, gw:request({ path = "/tenants/a/balance" }).status)
    rig.wait_count(gw, "cache_requests_total", "tenants", "denied", 2)
    local open = resources.gateway { redis = redis, origin = origin.url, cache = { shared = true } }
    local _, status = rig.send(open, resources.get(nil, { as = "b" }))
    assert.matches("hit", status)
  end))

  it("have keys that no other fields make", async(function()
    local origin = resources.origin()
    local gw = resources.gateway { redis = redis, origin = origin.url, keys = {
      { id = "x", tenant = "a:b", secret = "sk-x" }, { id = "y", tenant = "a%3Ab", secret = "sk-y" } } }
    rig.send(gw, resources.get("/tenants/a%3Ab/balance", { headers = { authorization = "Bearer sk-x" } }))
    rig.send(gw, resources.get("/tenants/a%253Ab/balance", { headers = { authorization = "Bearer sk-y" } }))
    rig.wait_kept(redis, 2, "balance:*")
    assert.equal(1, redis:must("EXISTS", "balance:a%3Ab"))
    assert.equal(1, redis:must("EXISTS", "balance:a%253Ab"))
    assert.equal(2, #origin.requests)
  end))

  it("do not come from the cache where the request says more than the key", async(function()
    local origin = resources.origin()
    local gw = resources.gateway { redis = redis, origin = origin.url, cache = { ignore_headers = { "X-Trace" } } }
    rig.send(gw, resources.get())
    rig.wait_kept(redis, 1, "balance:a")
    for _, request in ipairs {
      resources.get "/tenants/a/balance?at=1", resources.get(nil, { headers = { ["accept-language"] = "de" } }),
      resources.get(nil, { headers = { cookie = "a=b" } }), resources.get(nil, { headers = { range = "bytes=0-1" } }),
      resources.get(nil, { headers = { accept = "text/csv" } }), resources.get(nil, { headers = { ["if-none-match"] = "x" } }),
    } do
      local res, status = rig.send(gw, request)
      assert.equal(200, res.status)
      assert.equal("tollgate; fwd=bypass", status)
    end
    assert.equal(7, #origin.requests)
    for _, headers in ipairs { { accept = "application/json" }, { accept = "text/html, */*" }, { ["x-trace"] = "1" },
      { ["user-agent"] = "x", ["x-forwarded-for"] = "1.2.3.4", ["sec-fetch-mode"] = "cors" } } do
      local _, status = rig.send(gw, resources.get(nil, { headers = headers }))
      assert.matches("hit", status)
    end
    local _, status = rig.send(gw, rig.merged(resources.get(), { method = "POST", body = "{}" }))
    assert.equal("tollgate; fwd=method", status)
    _, status = rig.send(gw, resources.get "/tenants/a/other")
    assert.is_nil(status)
  end))

  it("are filled from query, header and consumer where the settings say so", async(function()
    local origin = resources.origin()
    local gw = resources.gateway { redis = redis, origin = origin.url, hook = false, caches = {
      { key = "usage:{tenantId}:{period}:{region}", path = "/tenants/me", fields = { tenantId = "consumer.tenant",
        period = "query.period", region = "header.X-Region" } } } }
    local function ask(path, region)
      return select(2, rig.send(gw, resources.get(path, { headers = { ["x-region"] = region } })))
    end
    assert.matches("stored", ask("/tenants/me?period=2024-01", "eu"))
    rig.wait_kept(redis, 1, "usage:a:2024-01:eu")
    assert.matches("hit", ask("/tenants/me?period=2024-01", "eu"))
    assert.matches("fwd=miss", ask("/tenants/me?period=2024-02", "eu"))
    assert.matches("fwd=miss", ask("/tenants/me?period=2024-01", "us"))
    for _, path in ipairs { "/tenants/me", "/tenants/me?period=", "/tenants/me?period=1&period=2", "/tenants/me?period=1&x=2" } do
      assert.equal("tollgate; fwd=bypass", ask(path, "eu"))
    end
    assert.equal("tollgate; fwd=bypass", ask("/tenants/me?period=1"))
  end))

  it("are one number where the settings name one, from the cache or not", async(function()
    local body = '{"data":{"amounts":[{"value":12345678901234567890.5}]},"x":"y"}'
    local origin = support.origin(function(req, conn)
      if req.path:find "/b/" then body = '{"data":"none"}' end
      conn:respond { headers = { ["content-type"] = "application/json" }, body = body }
    end)
    local gw = resources.gateway { redis = redis, origin = origin.url, caches = {
      { key = "balance:{tenantId}", path = "/tenants/{tenantId}/balance", extract = "data.amounts.1.value" } } }
    for i = 1, 2 do
      local res, status = rig.send(gw, resources.get())
      assert.equal("12345678901234567890.5", res.body)
      assert.equal(#res.body, tonumber(res.headers["content-length"]))
      assert.matches(i == 1 and "stored" or "hit", status)
      rig.wait_kept(redis, 1, "balance:a")
    end
    assert.equal("12345678901234567890.5", redis:must("GET", "balance:a"))
    local res = rig.send(gw, resources.get "/tenants/a/balance?x=1")
    assert.equal("12345678901234567890.5", res.body)
    res = rig.send(gw, resources.get("/tenants/b/balance", { as = "b" }))
    assert.equal('{"data":"none"}', res.body)
    rig.wait_count(gw, "cache_fills_total", "tenants", "no_number", 1)
    assert.equal(0, redis:must("EXISTS", "balance:b"))
  end))

  it("are not kept where the answer is none", async(function()
    local how
    local origin = support.origin(function(_, conn)
      local headers = { ["content-type"] = "application/json" }
      if how == "404" then conn:respond { status = 404, headers = headers, body = "{}" }
      elseif how == "text" then conn:respond { headers = { ["content-type"] = "text/plain" }, body = "1" }
      elseif how == "garbage" then conn:respond { headers = headers, body = "{" }
      elseif how == "private" then conn:respond { headers = { ["content-type"] = "application/json",
        ["cache-control"] = "private" }, body = "{}" }
      elseif how == "cut" then
        conn:start { headers = headers }
        conn:chunk "{}"
        conn:close()
      else conn:respond { headers = headers, body = "{}" } end
    end)
    local gw = resources.gateway { redis = redis, origin = origin.url }
    for _, each in ipairs { "404", "text", "garbage", "private", "cut" } do
      how = each
      gw:request(resources.get())
      gw:request(resources.get())
    end
    assert.equal(10, #origin.requests)
    how = "good"
    gw:request(resources.get())
    rig.wait_kept(redis, 1, "*")
  end))

  it("of the month end with it, by Redis's clock, and never begin in the next", async(function()
    local own, go = support.moved_redis(), true
    local origin = support.origin(function(_, conn)
      support.wait_for(function() return go end, "the spec", 20000)
      conn:respond { body = {} }
    end)
    local day = 86400
    local month_end = (math.floor(os.time() / day) + 1) * day
    while os.date("!%d", month_end) ~= "01" do month_end = month_end + day end
    own.shift((month_end - os.time() - 1000) * 1000)
    local gw = resources.gateway { redis = own, origin = origin.url, cache = { ttl = 31 * day } }
    rig.send(gw, resources.get "/tenants/a/stats")
    rig.wait_kept(own, 1, "stats:a:current_month")
    assert.equal(month_end * 1000, own:must("PEXPIRETIME", "stats:a:current_month"))
    rig.send(gw, resources.get())
    rig.wait_kept(own, 1, "balance:a") -- which is of no month
    assert.is_true(own:must("PEXPIRETIME", "balance:a") > month_end * 1000)
    -- A read of the old month that ends in the new one.
    own:must("DEL", "stats:a:current_month")
    go = false
    local task = support.spawn(function() return gw:request(resources.get "/tenants/a/stats").status end)
    origin:wait_request(3)
    own.shift((month_end - os.time() + 10) * 1000)
    go = true
    assert.equal(200, task:join())
    rig.wait_count(gw, "cache_fills_total", "tenants", "late", 1)
    assert.equal(0, own:must("EXISTS", "stats:a:current_month"))
  end))

  it("answer one at a time to the origin where many ask at once", async(function()
    local answer = false
    local origin = support.origin(function(_, conn)
      support.wait_for(function() return answer end, "the spec", 20000)
      conn:respond { body = { balance = 1 } }
    end)
    local gw = resources.gateway { redis = redis, origin = origin.url, config = { workers = 2 } }
    local calls = {}
    for i = 1, 50 do calls[i] = function() return gw:request(resources.get()).body end end
    calls[51] = function()
      origin:wait_request(1)
      rig.wait_followers(gw, "tenants", 49)
      answer = true
    end
    local results = support.all(calls)
    for i = 1, 50 do assert.equal('{"balance":1}', results[i]) end
    assert.equal(1, #origin.requests)
  end))

  it("obey no-cache, and fill under the fence all the same", async(function()
    local origin = resources.origin()
    local gw = resources.gateway { redis = redis, origin = origin.url }
    for i = 1, 2 do
      local res, status = rig.send(gw, resources.get(nil, { headers = { ["cache-control"] = "no-cache" } }))
      assert.equal(i, balance(res))
      assert.matches("stored", status)
      support.wait_for(function()
        return redis:must("GET", "balance:a") == res.body
      end, "the fill")
    end
    local alone = { headers = { ["cache-control"] = "only-if-cached" } }
    assert.equal(504, gw:request(resources.get("/tenants/a/stats", alone)).status)
  end))

  it("go to the origin where Redis is away", async(function()
    local own = support.redis()
    local origin = resources.origin()
    local gw = resources.gateway { redis = own, origin = origin.url }
    rig.send(gw, resources.get())
    own:stop()
    gw:wait_log("redis: ", true)
    local res, status = rig.send(gw, resources.get())
    assert.equal(200, res.status)
    assert.equal("tollgate; fwd=miss; detail=redis", status)
    -- A refused reader stays one.
    assert.equal(403, gw:request(resources.get(nil, { as = "b" })).status)
  end))

  it("leave every key with a lifetime, wherever the gateway is killed", async(function()
    local origin = resources.origin()
    support.redis_tap.each {
      redis = redis,
      start = function(url) return resources.gateway { url = url, origin = origin.url } end,
      run = function(gw)
        gw:request(resources.get())
        support.wait_for(function() return gw.process.exited or redis:must("EXISTS", "balance:a") == 1 end, "the fill")
        resources.hooks.send(gw, { data = { tenantId = "a" } })
        gw:request(resources.get "/tenants/a/stats")
      end,
    }
  end))
end)
