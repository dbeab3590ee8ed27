-- tollgate usage KEYID: what a key has spent and has in flight, read from the gateway's Redis, its own or a given one; and what
-- it says where Redis does not answer. The figures themselves are in usage_spec.lua.
local support = require "spec.support"
local async = support.async

local SECRET = "tg-usage-secret"

-- A gateway whose quota has a budget and a concurrency; the origin holds the answer back until `on.go`.
local function gateway(config)
  local on = { go = true }
  on.origin = support.chat_origin { usage = { prompt_tokens = 10, completion_tokens = 7, total_tokens = 17 } }
  local answer = on.origin.handler
  on.origin.handler = function(req, conn)
    support.wait_for(function() return on.go end, "leave to answer")
    answer(req, conn)
  end
  config.routes = { { name = "chat", path = "/v1/chat/completions", targets = { { url = on.origin.url } },
    plugins = { auth = { keys = "keys.jsonl" }, quota = {} } } }
  on.gw = support.gateway { config = config, files = { ["keys.jsonl"] = support.keys {
    { id = "alice", secret = SECRET, rps = 0.001, burst = 5, monthly_tokens = 100000, concurrency = 3 } } } }
  return on
end

local function chat(gw)
  return gw:request { path = "/v1/chat/completions", headers = { authorization = "Bearer " .. SECRET },
    body = { model = "m", max_tokens = 50, messages = { { role = "user", content = "hi" } } } }
end

local function usage(gw, ...)
  return support.tollgate({ "usage", "-c", gw.dir .. "/gateway.lua", ... }, { cwd = gw.dir })
end

local function json(gw, id)
  local res = usage(gw, id, "--json")
  assert.same({ 0, "" }, { res.code, res.err })
  assert.matches("^{[^\n]*}\n$", res.out)
  local told = support.decode(res.out)
  return { key = told.key, charged = told.charged, in_flight = told.in_flight }
end

local function told_of(config)
  local on = gateway(config)
  on.gw:wait_log("redis: usable")
  assert.same({ key = "alice", charged = 0, in_flight = 0 }, json(on.gw, "alice"))
  assert.matches("bucket +full\n", usage(on.gw, "alice").out)

  on.go = false
  local pending = support.spawn(function() return chat(on.gw) end)
  on.origin:wait_request(1)
  local during = json(on.gw, "alice")
  assert.equal(1, during.in_flight)
  assert.is_true(during.charged >= 50) -- reserved
  on.go = true
  assert.equal(200, pending:join().status)
  assert.same({ key = "alice", charged = 17, in_flight = 0 }, json(on.gw, "alice"))

  local text = usage(on.gw, "alice")
  assert.same({ 0, "" }, { text.code, text.err })
  assert.matches("key +alice\n", text.out)
  assert.matches("tokens, month +17 %(spent and reserved%)\n", text.out)
  assert.matches("in flight +0\n", text.out)
  assert.matches("bucket +4%.%d%d requests left", text.out)
  local unknown = usage(on.gw, 'b"\n')
  assert.same({ 1, "" }, { unknown.code, unknown.out })
  assert.matches('no key "b\\"\\n": ', unknown.err, 1, true)
end

it("tells what is reserved, spent and in flight: of a given Redis", async(function()
  local redis = support.redis()
  told_of { redis = redis.url }
end))

it("of a Redis with a password, by its socket, with keys in braces", async(function()
  local redis = support.redis { password = "pw" }
  told_of { redis = { url = redis.unix_url, hash_tags = true } }
end))

it("of the gateway's own Redis", async(function() told_of {} end))

it("changes nothing in Redis", async(function()
  local redis = support.redis()
  local on = gateway { redis = redis.url }
  on.gw:wait_log("redis: usable")
  assert.equal(200, chat(on.gw).status)
  json(on.gw, "alice")
  local before = redis:dump()
  json(on.gw, "alice")
  assert.equal(1, usage(on.gw, "bob").code)
  assert.same(before, redis:dump())
end))

describe("where Redis does not answer", function()
  local function config(redis)
    local dir = support.tmpdir()
    support.write_file(dir .. "/gateway.lua", "return { " .. (redis and ("redis = %q, "):format(redis) or "")
      .. 'data_dir = "data", routes = { { name = "r", path = "/*" } } }')
    return support.tollgate({ "usage", "alice", "-c", dir .. "/gateway.lua" }, { cwd = dir })
  end

  it("it says why, with exit code 1 and nothing on stdout, and never the password", async(function()
    local paused, locked = support.redis(), support.redis { password = "right" }
    paused:pause()
    local results = support.all {
      function() return config "redis://127.0.0.1:1" end,
      function() return config(paused.url) end,
      function() return config("redis://:wrong@127.0.0.1:" .. locked.port) end,
    }
    paused:resume()
    for i, reason in ipairs { "connection refused", "no answer", "WRONGPASS" } do
      assert.same({ i, 1, "" }, { i, results[i].code, results[i].out })
      assert.matches("^tollgate usage: redis: .*" .. reason, results[i].err)
      assert.is_nil(results[i].err:find("wrong", 1, true))
    end
  end))

  it("and where the gateway was never started", async(function()
    local res = config(nil)
    assert.same({ 1, "" }, { res.code, res.out })
    assert.matches("^tollgate usage: .*has the gateway been started%?", res.err)
  end))
end)

it("refuses a configuration with faults, with each", async(function()
  local dir = support.tmpdir()
  support.write_file(dir .. "/gateway.lua", "return { admn = false }")
  local res = support.tollgate({ "usage", "-c", dir .. "/gateway.lua", "alice" })
  assert.same({ 1, "" }, { res.code, res.out })
  assert.matches("admn: unknown key %(did you mean admin%?%)", res.err)
end))
