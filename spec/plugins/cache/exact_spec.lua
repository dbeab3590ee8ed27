-- Exact responses that are no streams, end to end: what is kept and for whom, what is the same question, what never comes
-- from the cache, and what answers say of it.
local support = require "spec.support"
local rig = require "spec.plugins.cache.rig"
local async = support.async

local redis
local up, down = support.shared(function() redis = support.redis() end)

describe("cache, exact responses", function()
  setup(up)
  teardown(down)
  before_each(async(function() redis:must("FLUSHALL") end))

  it("answers the same question without its origin, byte for byte, for every API", async(function()
    local origin = support.llm_origin()
    local gw = rig.gateway { redis = redis, origin = origin.url }
    local n = 0
    for api in pairs(rig.apis) do
      local first, status = rig.send(gw, rig.ask(api))
      assert.equal(200, first.status)
      assert.equal("tollgate; fwd=miss; ttl=300; stored", status)
      n = n + 1
      rig.wait_kept(redis, n)
      local again, hit = rig.send(gw, rig.ask(api))
      assert.equal(200, again.status)
      assert.equal(first.body, again.body)
      assert.equal("application/json", again.headers["content-type"])
      assert.matches("^tollgate; hit; ttl=%d+$", hit)
      assert.matches("^%d+$", again.headers.age)
      assert.equal(n, #origin.requests)
    end
    for _, key in ipairs(redis:must("KEYS", "*")) do
      assert.matches("^cache:exact:a:%x+$", key)
      assert.equal(64, #key:match("%x+$"))
      local left = redis:must("PTTL", key)
      assert.is_true(left > 240000 and left <= 300000)
    end
    rig.wait_count(gw, "cache_requests_total", "openai-chat", "hit", 1)
    rig.wait_count(gw, "cache_requests_total", "openai-chat", "miss", 1)
    rig.wait_count(gw, "cache_fills_total", "openai-chat", "stored", 1)
  end))

  it("takes the same question for the same, and every other difference for another", async(function()
    local origin = support.llm_origin()
    local gw = rig.gateway { redis = redis, origin = origin.url, cache = { headers = { "x-region" } } }
    local base = '{"model":"m","messages":[{"role":"user","content":"hi"}],"seed":12345678901234567890,"x":[]}'
    rig.send(gw, rig.ask("openai-chat", base))
    rig.wait_kept(redis, 1)
    local function is_hit(body, options)
      local _, status = rig.send(gw, rig.ask("openai-chat", body, options))
      return status:find("hit", 1, true) ~= nil
    end
    for _, same in ipairs {
      '{"seed":12345678901234567890, "x" : [ ],"messages":[{"content":"hi","role":"user"}],"model":"m"}',
      '{"model":"\\u006d","messages":[{"role":"user","content":"h\\u0069"}],"seed":12345678901234567890,"x":[]}',
    } do assert.is_true(is_hit(same), same) end
    local others = {
      base:gsub('"m"', '"M"'), base:gsub('"hi"', '"hi "'), base:gsub("890", "891"), base:gsub("%[%]", "{}"),
      base:gsub('"x":%[%]', '"x":null'), base:gsub('"x":%[%]', '"y":[]'), base:gsub(',"x":%[%]', ""),
    }
    for i = 1, #others do
      if type(others[i]) == "string" then assert.is_false(is_hit(others[i]), others[i]) end
    end
    for _, headers in ipairs { { ["x-region"] = "eu" }, { ["x-region"] = "us" }, { ["openai-beta"] = "x" },
      { ["anthropic-version"] = "1" }, { cookie = "a=b" }, { ["api-key"] = "k" } } do
      assert.is_false(is_hit(base, { headers = headers }))
    end
    assert.is_false(is_hit(base, { path = "/v1/chat/completions?api-version=1" }))
    assert.is_true(is_hit(base, { headers = { ["x-other"] = "1", ["user-agent"] = "u" } }))
  end))

  it("never answers a tenant with what another one asked, unless told to share", async(function()
    local origin = support.llm_origin()
    local gw = rig.gateway { redis = redis, origin = origin.url }
    for i, who in ipairs { "a", "b", "lone" } do
      local _, status = rig.send(gw, rig.ask("openai-chat", nil, { as = who }))
      assert.matches("fwd=miss", status)
      rig.wait_kept(redis, i)
    end
    assert.equal(1, #redis:must("KEYS", "cache:exact:key-lone:*"))
    local shared = rig.gateway { redis = redis, origin = origin.url, cache = { shared = true } }
    rig.send(shared, rig.ask("openai-chat", nil, { as = "a" }))
    rig.wait_kept(redis, 4)
    local _, status = rig.send(shared, rig.ask("openai-chat", nil, { as = "b" }))
    assert.matches("hit", status)
    assert.equal(1, #redis:must("KEYS", "cache:exact:shared:*"))
  end))

  it("tells tenants, keys and the rest apart, though they have one name", async(function()
    local origin = support.llm_origin()
    local gw = rig.gateway { redis = redis, origin = origin.url, keys = {
      { id = "x", tenant = "same", secret = "sk-1" }, { id = "same", secret = "sk-2" },
      { id = "anonymous", secret = "sk-3" }, { id = "y", tenant = "shared", secret = "sk-4" },
    } }
    for i = 1, 4 do
      local _, status = rig.send(gw, rig.ask("openai-chat", nil, { headers = { authorization = "Bearer sk-" .. i } }))
      assert.matches("fwd=miss", status)
      rig.wait_kept(redis, i)
    end
  end))

  it("does not share between credentials that go to the origin", async(function()
    local origin = support.llm_origin()
    local gw = rig.gateway { redis = redis, origin = origin.url, config = { plugins = {} }, cache = { shared = true } }
    for i, key in ipairs { "sk-1", "sk-2" } do
      local _, status = rig.send(gw, rig.ask("openai-chat", nil, { headers = { authorization = "Bearer " .. key } }))
      assert.matches("fwd=miss", status)
      rig.wait_kept(redis, i)
    end
    local _, status = rig.send(gw, rig.ask("openai-chat", nil, { headers = { authorization = "Bearer sk-1" } }))
    assert.matches("hit", status)
    for _, key in ipairs(redis:must("KEYS", "*")) do assert.is_nil(key:find("sk-", 1, true)) end
  end))

  it("refuses a revoked key although its answer is kept", async(function()
    local origin = support.llm_origin()
    local gw = rig.gateway { redis = redis, origin = origin.url }
    rig.send(gw, rig.ask("openai-chat"))
    rig.wait_kept(redis, 1)
    gw:write("keys.jsonl", support.keys { { id = "key-a", tenant = "a", secret = rig.secrets.a, disabled = true } })
    assert.equal(0, gw:command("reload").code)
    assert.equal(401, gw:request(rig.ask("openai-chat")).status)
  end))

  it("keeps no answer that is an error, cut, encoded, too large or forbidden to be kept", async(function()
    local origin = support.origin(function(req, conn)
      local how = req.headers["x-how"]
      local good = '{"choices":[{"index":0,"finish_reason":"stop","message":{"content":"x"}}]}'
      local headers = { ["content-type"] = "application/json" }
      if how == "500" or how == "429" or how == "404" or how == "201" then
        conn:respond { status = tonumber(how), headers = headers, body = good }
      elseif how == "error" then conn:respond { headers = headers, body = '{"error":{"message":"no"}}' }
      elseif how == "garbage" then conn:respond { headers = headers, body = good:sub(1, -2) }
      elseif how == "text" then conn:respond { headers = { ["content-type"] = "text/plain" }, body = good }
      elseif how == "gzip" then
        headers["content-encoding"] = "gzip"
        conn:respond { headers = headers, body = support.gzip(good) }
      elseif how == "no-store" then
        headers["cache-control"] = "max-age=1, no-store"
        conn:respond { headers = headers, body = good }
      elseif how == "large" then
        conn:respond { headers = headers, body = good .. (" "):rep(2000) }
      elseif how == "cut" then
        conn:start { headers = headers }
        conn:chunk(good)
        conn:close()
      else conn:respond { headers = headers, body = good } end
    end)
    local gw = rig.gateway { redis = redis, origin = origin.url, cache = { max_size = 1000 } }
    local hows = { "500", "429", "404", "201", "error", "garbage", "text", "gzip", "no-store", "large", "cut" }
    for _, how in ipairs(hows) do
      for _ = 1, 2 do gw:request(rig.ask("openai-chat", nil, { headers = { ["x-how"] = how } })) end
    end
    assert.equal(2 * #hows, #origin.requests)
    -- One that is kept, asked last, shows that nothing else came to be kept before it.
    gw:request(rig.ask("openai-chat"))
    rig.wait_kept(redis, 1)
  end))

  it("asks the origin for what is not encoded", async(function()
    local origin = support.llm_origin()
    local gw = rig.gateway { redis = redis, origin = origin.url }
    gw:request(rig.ask("openai-chat", nil, { headers = { ["accept-encoding"] = "gzip, br" } }))
    assert.equal("identity", origin.requests[1].headers["accept-encoding"])
  end))

  it("obeys Cache-Control of requests", async(function()
    local origin = support.llm_origin()
    local gw = rig.gateway { redis = redis, origin = origin.url, cache = { ttl = 100 } }
    local function ask(cache_control, more)
      return rig.send(gw, rig.ask("openai-chat", nil, { headers = rig.merged({ ["cache-control"] = cache_control }, more) }))
    end
    local _
    local res, status = ask "only-if-cached"
    assert.equal(504, res.status)
    assert.equal("only_if_cached", support.json(res).error.code)
    assert.equal("tollgate; fwd=request", status)
    assert.equal(0, #origin.requests)
    _, status = ask "no-store"
    assert.equal("tollgate; fwd=request", status)
    _, status = ask "no-cache"
    assert.equal("tollgate; fwd=request; ttl=100; stored", status)
    rig.wait_kept(redis, 1)
    assert.equal(2, #origin.requests)
    _, status = ask "only-if-cached"
    assert.matches("hit", status)
    local key = redis:must("KEYS", "*")[1]
    redis:must("PEXPIRE", key, 60500) -- as it is 39 seconds later
    res, status = ask "max-age=50"
    assert.matches("hit; ttl=60", status)
    assert.equal("39", res.headers.age)
    _, status = ask "max-age=30"
    assert.matches("fwd=request", status)
    support.wait_for(function() return redis:must("PTTL", key) > 90000 end, "the answer to be kept anew")
    _, status = ask(nil, { pragma = "no-cache" })
    assert.matches("fwd=request", status)
    local deaf = rig.gateway { redis = redis, origin = origin.url, cache = { client_control = false } }
    _, status = rig.send(deaf, rig.ask("openai-chat", nil, { headers = { ["cache-control"] = "no-store" } }))
    assert.matches("hit", status)
  end))

  it("lets pass what its settings name", async(function()
    local origin = support.llm_origin()
    local gw = rig.gateway { redis = redis, origin = origin.url, cache = { bypass = { headers = { "x-fresh" }, tools = true,
      max_temperature = 0.5, max_n = 1, members = { "user" } } } }
    local cold = { temperature = 0 }
    local function ask(api, body, headers) return (select(2, rig.send(gw, rig.ask(api, body, { headers = headers })))) end
    assert.matches("stored", ask("openai-chat", cold))
    for _, body in ipairs { {}, { temperature = 0.6 }, { temperature = 0, n = 2 }, { temperature = 0, user = "u" },
      { temperature = 0, tools = { { type = "function" } } }, { temperature = 0, functions = { {} } } } do
      assert.equal("tollgate; fwd=bypass; detail=body", ask("openai-chat", body))
    end
    assert.equal("tollgate; fwd=bypass", ask("openai-chat", cold, { ["X-Fresh"] = "1" }))
    for _, body in ipairs { { temperature = 0, background = true }, { temperature = 0, conversation = "conv_1" },
      { temperature = 0, prompt = { id = "p" } } } do
      assert.matches("fwd=bypass", ask("openai-responses", body))
    end
    assert.matches("stored", ask("openai-responses", { temperature = 0, prompt = { id = "p", version = "2" } }))
    for _, body in ipairs { "[1]", "{", '{"model":"m","model":"n"}', '"\\ud800"' } do
      assert.matches("fwd=bypass", ask("openai-chat", body))
    end
    rig.wait_count(gw, "cache_requests_total", "openai-chat", "bypass", 11)
  end))

  it("lets a GET pass, and keeps it where told to", async(function()
    local origin = support.origin(function(req, conn)
      conn:respond { headers = { vary = req.headers["x-vary"] }, body = { path = req.path } }
    end)
    local gw = rig.gateway { redis = redis, origin = origin.url }
    local _, status = rig.send(gw, rig.get())
    assert.equal("tollgate; fwd=method", status)
    gw = rig.gateway { redis = redis, origin = origin.url, cache = { get = true } }
    for i, path in ipairs { "/plain/x", "/plain/y", "/plain/x?a=1", "/plain/x?a=2" } do
      _, status = rig.send(gw, rig.get(path))
      assert.matches("stored", status)
      rig.wait_kept(redis, i)
      local res
      res, status = rig.send(gw, rig.get(path))
      assert.matches("hit", status)
      assert.equal(path:match "^[^?]*", support.json(res).path:match "^[^?]*")
    end
    for _, headers in ipairs { { accept = "text/plain" }, { ["accept-language"] = "de" } } do
      _, status = rig.send(gw, rig.get(nil, { headers = headers }))
      assert.matches("fwd=miss", status)
    end
    for _, headers in ipairs { { range = "bytes=0-1" }, { ["if-none-match"] = '"x"' } } do
      _, status = rig.send(gw, rig.get(nil, { headers = headers }))
      assert.equal("tollgate; fwd=bypass", status)
    end
    _, status = rig.send(gw, rig.get("/plain/v", { headers = { ["x-vary"] = "Accept-Language" } }))
    assert.equal("tollgate; fwd=miss", status)
    _, status = rig.send(gw, rig.get("/plain/w", { headers = { ["x-vary"] = "Accept-Encoding" } }))
    assert.matches("stored", status)
    assert.equal("tollgate; fwd=method", (select(2, rig.send(gw, rig.merged(rig.get(), { method = "DELETE" })))))
  end))

  it("appends to the Cache-Status of caches behind it", async(function()
    local origin = support.origin(function(_, conn)
      conn:respond { headers = { ["cache-status"] = "CDN; hit" }, body = { choices = {} } }
    end)
    local gw = rig.gateway { redis = redis, origin = origin.url }
    local _, status = rig.send(gw, rig.ask("openai-chat"))
    assert.equal("CDN; hit, tollgate; fwd=miss; ttl=300; stored", status)
  end))

  it("gives the tokens of a hit back, but not its place in the bucket", async(function()
    local origin = support.llm_origin()
    local gw = rig.gateway { redis = redis, origin = origin.url, plugins = { quota = {} },
      limits = { monthly_tokens = 1000, rps = 0.001, burst = 3 } }
    assert.equal(200, gw:request(rig.ask("openai-chat")).status)
    rig.wait_kept(redis, 1)
    local spent = redis:must("KEYS", "q:tokens:*")[1]
    support.wait_for(function() return redis:must("GET", spent) == "13" end, "the settlement of the miss")
    local res, status = rig.send(gw, rig.ask("openai-chat"))
    assert.matches("hit", status)
    assert.equal(200, res.status)
    support.wait_for(function() return redis:must("GET", spent) == "13" end, "the settlement of the hit")
    assert.equal(0, gw:wait_access(2)[2].tokens.used)
    assert.equal(200, gw:request(rig.ask("openai-chat")).status)
    assert.equal(429, gw:request(rig.ask("openai-chat")).status)
    assert.equal(1, #origin.requests)
  end))

  it("replaces what lies under its key and is no answer", async(function()
    local origin = support.llm_origin()
    local gw = rig.gateway { redis = redis, origin = origin.url }
    rig.send(gw, rig.ask("openai-chat"))
    rig.wait_kept(redis, 1)
    local key = redis:must("KEYS", "*")[1]
    local good = redis:must("GET", key)
    redis:must("SET", key, "nonsense", "EX", 100)
    local res, status = rig.send(gw, rig.ask("openai-chat", { stream = true }))
    assert.equal(200, res.status)
    assert.matches("fwd=request", status)
    support.wait_for(function() return #redis:must("GET", key) >= #good end, "the answer")
  end))

  it("names keys by hash tags where Redis is a cluster", async(function()
    local origin = support.llm_origin()
    local gw = rig.gateway { redis = redis, origin = origin.url,
      config = { redis = { url = redis.url, hash_tags = true } }, keys = { { id = "k", tenant = "a:{b}", secret = "sk-odd" } } }
    rig.send(gw, rig.ask("openai-chat", nil, { headers = { authorization = "Bearer sk-odd" } }))
    rig.wait_kept(redis, 1)
    assert.matches("^cache:exact:a%%3A%%7Bb%%7D:{%x+}$", redis:must("KEYS", "*")[1])
  end))
end)
