-- auth against the real gateway: where a key may stand, whom it lets in, how a refusal looks in each API's shape, and
-- that no credential of a client goes to the origin while the target's own does, and stays there.
local support = require "spec.support"
local async = support.async

local SECRET = "tg-good"

local KEYS = {
  { id = "good", tenant = "t", secret = SECRET },
  { id = "off", secret = "tg-off", disabled = true },
  { id = "narrow", secret = "tg-narrow", routes = { "messages" } },
}

local function echo()
  return support.origin(function(_, conn) conn:respond { body = "hello" } end)
end

-- No route has quota, so the Redis that is not there is never asked.
local function start(origin, auth, records)
  local conf = { keys = "keys.jsonl" }
  for name, value in pairs(auth or {}) do conf[name] = value end
  local targets = { { url = origin.url, headers = { authorization = "Bearer provider-key", ["x-provider"] = "p-secret" } } }
  return support.gateway {
    config = {
      redis = "redis://127.0.0.1:1/0", plugins = { auth = conf },
      routes = {
        { name = "chat", path = "/v1/chat/completions", targets = targets },
        { name = "messages", path = "/v1/messages", targets = targets },
        { name = "plain", path = "/plain", targets = { { url = origin.url } } },
        { name = "open", path = "/open", targets = { { url = origin.url } }, plugins = { auth = false } },
      },
    },
    files = { ["keys.jsonl"] = support.keys(records or KEYS) },
  }
end

local function get(gw, path, headers)
  return gw:request { method = "GET", path = path, headers = headers }
end

describe("auth", function()
  it("finds the key in each place, the scheme in any case", async(function()
    local gw = start(echo(), { header = { "X-Team-Key", "x-other" } })
    for _, headers in ipairs {
      { Authorization = "Bearer " .. SECRET }, { authorization = "bearer " .. SECRET },
      { authorization = "BEARER   " .. SECRET .. "  " }, { ["X-Api-Key"] = SECRET }, { ["x-team-key"] = SECRET },
      { ["X-Other"] = SECRET },
      -- Another scheme is none that holds a key.
      { authorization = "Basic dTpw", ["x-api-key"] = SECRET },
    } do
      local res = get(gw, "/plain", headers)
      assert.same({ 200, "hello" }, { res.status, res.body })
    end
    local lines = gw:wait_access(7)
    for _, line in ipairs(lines) do assert.same({ "good", "t" }, { line.consumer, line.tenant }) end
  end))

  it("looks at the first place that has one only", async(function()
    local gw = start(echo(), { header = "x-team-key" })
    for _, headers in ipairs {
      { authorization = "Bearer wrong", ["x-api-key"] = SECRET }, { ["x-api-key"] = "wrong", ["x-team-key"] = SECRET },
      { { "x-api-key", "wrong" }, { "x-api-key", SECRET } },
      { { "authorization", "Bearer wrong" }, { "authorization", "Bearer " .. SECRET } },
    } do
      assert.equal(401, get(gw, "/plain", headers).status)
    end
    for _, headers in ipairs {
      { { "X-API-Key", SECRET }, { "x-api-key", "wrong" } },
      { { "authorization", "Bearer " .. SECRET }, { "Authorization", "Bearer wrong" } },
    } do
      assert.equal(200, get(gw, "/plain", headers).status)
    end
  end))

  it("refuses whom it does not know", async(function()
    local origin = echo()
    local gw = start(origin)
    for name, headers in pairs {
      missing = {}, empty = { ["x-api-key"] = "" }, unknown = { ["x-api-key"] = "tg-nobody" },
      disabled = { authorization = "Bearer tg-off" }, scheme = { authorization = "Basic " .. SECRET },
      bare = { authorization = SECRET }, header = { ["x-team-key"] = SECRET }, longer = { ["x-api-key"] = SECRET .. "x" },
      digest = { ["x-api-key"] = support.sha256(SECRET) },
    } do
      local res = get(gw, "/plain", headers)
      assert.equal(401, res.status, name)
      assert.equal("Bearer", res.headers["www-authenticate"], name)
    end
    assert.equal(0, #origin.requests)
  end))

  it("tells nobody whether a key ever existed", async(function()
    local gw = start(echo())
    local function answer(secret)
      local res = get(gw, "/plain", { ["x-api-key"] = secret })
      return (res.body:gsub('"request_id":"[^"]*"', ""))
    end
    assert.equal(answer "tg-nobody", answer "tg-off")
  end))

  it("refuses in OpenAI's shape", async(function()
    local gw = start(echo())
    local res = gw:request { path = "/v1/chat/completions", body = { model = "m" } }
    assert.equal("application/json", res.headers["content-type"])
    local err = support.json(res).error
    assert.same({ 401, "invalid_request_error", "invalid_api_key" }, { res.status, err.type, err.code })
    assert.is_string(err.message)
    assert.truthy(res.body:find('"param":null', 1, true))
    res = gw:request { path = "/v1/chat/completions", headers = { ["x-api-key"] = "tg-narrow" }, body = {} }
    err = support.json(res).error
    assert.same({ 403, "permission_error", "route_not_allowed" }, { res.status, err.type, err.code })
    assert.is_nil(res.headers["www-authenticate"])
  end))

  it("refuses in Anthropic's shape", async(function()
    local gw = start(echo(), nil, { KEYS[1], { id = "narrow", secret = "tg-narrow", routes = { "chat" } } })
    local res = gw:request { path = "/v1/messages", body = { model = "m" } }
    local body = support.json(res)
    assert.same({ 401, "error", "authentication_error" }, { res.status, body.type, body.error.type })
    assert.equal("Bearer", res.headers["www-authenticate"])
    assert.equal(res.headers["x-request-id"], body.request_id)
    res = gw:request { path = "/v1/messages", headers = { ["x-api-key"] = "tg-narrow" }, body = {} }
    body = support.json(res)
    assert.same({ 403, "error", "permission_error" }, { res.status, body.type, body.error.type })
  end))

  it("lets a key use the routes of its record only", async(function()
    local gw = start(echo())
    local narrow = { ["x-api-key"] = "tg-narrow" }
    assert.equal(200, get(gw, "/v1/messages", narrow).status)
    assert.equal(403, get(gw, "/plain", narrow).status)
    assert.equal(200, get(gw, "/open").status)
  end))

  it("answers before the body is asked for", async(function()
    local gw = start(echo())
    local conn = gw:connect()
    conn:send "POST /plain HTTP/1.1\r\nhost: h\r\nexpect: 100-continue\r\ncontent-length: 5\r\n\r\n"
    local res = conn:read_response()
    assert.same({ 401, 0 }, { res.status, #res.interim })
  end))
end)

describe("a credential", function()
  it("of the client never reaches the origin, the target's does and never comes back", async(function()
    local origin = support.origin(function(_, conn) conn:respond { headers = { ["x-from"] = "origin" }, body = "hello" } end)
    local gw = start(origin, { header = "x-team-key" })
    local all = { { "Authorization", "Bearer " .. SECRET }, { "authorization", "Basic c2VjcmV0" },
      { "X-API-Key", "other-secret" }, { "x-team-key", "third-secret" }, { "X-TEAM-KEY", SECRET }, { "x-kept", "kept" } }
    for i, path in ipairs { "/v1/chat/completions", "/plain" } do
      local res = get(gw, path, all)
      assert.equal(200, res.status)
      local req = origin:wait_request(i)
      for _, secret in ipairs { SECRET, "c2VjcmV0", "other-secret", "third-secret" } do
        assert.is_nil(req.raw:find(secret, 1, true))
      end
      assert.same({ nil, nil, "kept" }, { req.headers["x-api-key"], req.headers["x-team-key"], req.headers["x-kept"] })
      for _, secret in ipairs { "provider-key", "p-secret", SECRET } do
        assert.is_nil((res.raw .. res.body):find(secret, 1, true))
      end
    end
    assert.same({ "Bearer provider-key", "p-secret" },
      { origin.requests[1].headers.authorization, origin.requests[1].headers["x-provider"] })
    assert.same({ nil, nil }, { origin.requests[2].headers.authorization, origin.requests[2].headers["x-provider"] })
    -- Nor any log.
    gw:wait_access(2)
    for _, secret in ipairs { SECRET, "third-secret", "provider-key" } do
      assert.is_nil((gw.log() .. gw.process:out()):find(secret, 1, true))
    end
  end))

  it("is removed too where requests may come without", async(function()
    local origin = echo()
    local gw = start(origin, { anonymous = true })
    assert.equal(200, get(gw, "/plain").status)
    assert.equal(401, get(gw, "/plain", { ["x-api-key"] = "tg-nobody" }).status)
    assert.equal(200, get(gw, "/plain", { authorization = "Basic c2VjcmV0" }).status)
    assert.is_nil(origin.requests[2].raw:find("c2VjcmV0", 1, true))
    assert.is_nil(gw:wait_access(3)[1].consumer)
  end))
end)

describe("keys.jsonl", function()
  local good = support.keys { KEYS[1] }

  local function refused(text)
    local dir = support.tmpdir()
    if text then support.write_file(dir .. "/keys.jsonl", text) end
    support.write_file(dir .. "/gateway.lua", [[return { listen = "127.0.0.1:0", admin = false, redis = "redis://127.0.0.1:1",
      plugins = { auth = { keys = "keys.jsonl" } },
      routes = { { name = "r", path = "/", targets = { { url = "http://127.0.0.1:1" } } } } }]])
    local res = support.tollgate({ "run", "-c", dir .. "/gateway.lua" })
    assert.equal(1, res.code)
    return res.err
  end

  it("that is bad is refused at the start, with the line", async(function()
    assert.matches("keys%.jsonl:2: .*id", refused(good .. '{"secret_sha256":"' .. ("0"):rep(64) .. '"}\n'))
    assert.matches("keys%.jsonl:3: .*did you mean concurrency", refused(good .. "\n" .. '{"id":"a","concurency":1}\n'))
    assert.matches("keys%.jsonl:2: .*already that of line 1", refused(good .. good))
    assert.matches("keys%.jsonl:2: .*byte", refused(good .. "{oops}\n"))
    assert.matches("keys%.jsonl:1: .*rps must be a number above 0", refused('{"id":"a","rps":-1}\n'))
    assert.matches("keys%.jsonl: cannot be read", refused(nil))
  end))

  it("takes the record that `tollgate key new` prints", async(function()
    local made = support.tollgate { "key", "new", "--id", "new-1", "--tenant", "acme", "--rps", "2.5", "--burst", "4",
      "--monthly-tokens", "1000", "--concurrency", "3", "--route", "chat", "--route", "plain" }
    assert.equal(0, made.code)
    local secret, line = made.out:match("^(%S+)\n(.-)\n$")
    assert.same({ id = "new-1", tenant = "acme", rps = 2.5, burst = 4, monthly_tokens = 1000, concurrency = 3,
      routes = { "chat", "plain" }, secret_sha256 = support.sha256(secret) }, support.decode(line))
    assert.is_nil(line:find(secret, 1, true))
    local again = support.tollgate { "key", "new", "--id", "new-2" }.out:match("^%S+")
    assert.not_equal(secret, again)

    local gw = start(echo(), nil, { (support.decode(line)) })
    assert.equal(200, get(gw, "/plain", { authorization = "Bearer " .. secret }).status)
    assert.equal(403, get(gw, "/v1/messages", { authorization = "Bearer " .. secret }).status)
    assert.equal(401, get(gw, "/plain", { authorization = "Bearer " .. again }).status)
    assert.equal("acme", gw:wait_access(1)[1].tenant)
  end))
end)
