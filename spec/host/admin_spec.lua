-- The admin listener: whether the process lives and may get requests, its figures, and that a browser which was lured to it
-- by a name gets nothing.
local support = require "spec.support"
local rig = require "spec.host.plugin_rig"
local async = support.async

local ANSWER = [[ local tg = require "tollgate"
  return { access = function(_, ctx)
    if ctx.request.path == "/slow" then return 200, function() tg.timer.sleep(1000) end end
    return 200, "answer"
  end } ]]

local function get(gw, options)
  return support.request(setmetatable({ port = gw.admin_port }, { __index = options }))
end

describe("/healthz and /readyz", function()
  it("the process lives; it is ready when Redis is", async(function()
    local redis = support.redis()
    local gw = rig.start { plugins = { answer = ANSWER }, config = { redis = { url = redis.url, timeout = 0.1 } } }
    gw:wait_log("redis: usable")
    local function ready() return gw:admin("/readyz") end
    assert.same({ 200, "ok\n" }, { gw:admin("/healthz").status, gw:admin("/healthz").body })
    support.wait_for(function() return ready().status == 200 end, "ready") -- a worker says so a turn later
    assert.equal("ready\n", ready().body)
    redis:stop()
    support.wait_for(function() return ready().status == 503 end, "not ready")
    assert.matches("^not ready: redis: %S.*\n$", ready().body)
    assert.equal(200, gw:admin("/healthz").status)
    assert.equal("answer", gw:request({}).body)
    redis:restart()
    support.wait_for(function() return ready().status == 200 end, "ready")
  end))

  it("it starts without Redis, and says why it is not ready", async(function()
    local gw = rig.start { plugins = { answer = ANSWER } }
    gw:wait_log("redis: not usable")
    local res
    support.wait_for(function() -- a worker says so a turn later
      res = gw:admin("/readyz")
      return res.body:match "^not ready: redis: .*connection refused"
    end, "the reason")
    assert.same({ 503, "no-store" }, { res.status, res.headers["cache-control"] })
  end))

  it("while it drains it is not ready", async(function()
    local redis = support.redis()
    local gw = rig.start { plugins = { answer = ANSWER }, config = { redis = redis.url, timeouts = { drain = 30 } } }
    gw:wait_log("redis: usable")
    local stream = gw:connect()
    stream:send_request { path = "/slow" }
    stream:read_head()
    local c = support.connect(gw.admin_port)
    c:send "GET /readyz HTTP/1.1\r\n"
    gw:admin("/healthz") -- by now the first line has been read
    gw.process:kill("sigterm")
    gw:wait_log("stopping: ")
    c:send "Host: localhost\r\n\r\n"
    local res = c:read_response()
    assert.same({ 503, "not ready: draining\n", "close" }, { res.status, res.body, res.headers.connection:lower() })
    c:close()
    stream:close()
    gw:stop() -- a second signal: what is still open is cut off
  end))
end)

describe("the admin listener", function()
  local on, up, down = rig.shared(function() return { plugins = { answer = ANSWER } } end)
  setup(up)
  teardown(down)

  it("answers to IP addresses and localhost, with or without a port, and to no other name", async(function()
    for _, host in ipairs { "127.0.0.1", "127.0.0.1:" .. on.gw.admin_port, "localhost", "LOCALHOST:8081", "[::1]", "[::1]:8081",
      "10.1.2.3:80" } do
      assert.same({ host, 200 }, { host, get(on.gw, { path = "/healthz", host = host }).status })
    end
    for _, host in ipairs { "evil.example", "evil.example:8081", "localhost.evil.example", "127.0.0.1.evil.example",
      "localhostx", "1", ("a"):rep(200) } do
      local res = get(on.gw, { path = "/metrics", host = host })
      assert.same({ host, 421 }, { host, res.status })
      assert.is_nil(res.body:find("tollgate_", 1, true))
    end
    local c = support.connect(on.gw.admin_port)
    c:send "GET http://evil.example/metrics HTTP/1.1\r\nHost: localhost\r\n\r\n"
    assert.equal(421, c:read_response().status)
  end))

  it("only reads: GET and HEAD", async(function()
    for _, method in ipairs { "POST", "PUT", "DELETE", "OPTIONS", "PATCH" } do
      local res = get(on.gw, { path = "/healthz", method = method, host = "localhost" })
      assert.same({ method, 405, "GET, HEAD" }, { method, res.status, res.headers.allow })
      assert.is_nil(res.headers["access-control-allow-origin"])
    end
    local c = support.connect(on.gw.admin_port)
    c:send_request { method = "HEAD", path = "/healthz", host = "localhost" }
    local res = c:read_response { method = "HEAD" }
    assert.same({ 200, "3", "" }, { res.status, res.headers["content-length"], res.body })
  end))

  it("has no other pages, and none of the gateway's routes; nor has the gateway its pages", async(function()
    local res = get(on.gw, { path = "/", host = "localhost" })
    assert.equal(404, res.status)
    for _, page in ipairs { "/healthz", "/readyz", "/metrics" } do assert.matches(page, res.body, 1, true) end
    assert.equal("answer", on.gw:request({ path = "/healthz" }).body)
  end))

  it("keeps its own requests out of the access log and the figures", async(function()
    on.gw:request { path = "/before" }
    local lines = #support.wait_for(function()
      local list = on.gw.access()
      return #list > 0 and list[#list].path == "/before" and list
    end, "the line of the request before")
    get(on.gw, { path = "/healthz", host = "localhost" })
    get(on.gw, { path = "/none", host = "evil.example" })
    on.gw:request { path = "/after" }
    local list = on.gw:wait_access(lines + 1)
    assert.same({ lines + 1, "/after" }, { #list, list[#list].path })
    on.gw:wait_metric("requests_total", #list)
  end))

  it("gives figures as Prometheus reads them: each with help and type, once", async(function()
    on.gw:request {}
    support.wait_for(function() return on.gw:metric("requests_total") >= 1 end, "the count")
    local res = on.gw:admin("/metrics")
    assert.equal("text/plain; version=0.0.4", res.headers["content-type"])
    local samples, types, help = support.prometheus.parse(res.body)
    for _, sample in ipairs(samples) do assert.matches("^%l[%l%d_]*$", sample.name) end
    for name in pairs(types) do assert.matches("^[%u%d].*[^.]$", help[name], name) end
    assert.is_true(support.prometheus.sum(samples, "tollgate_requests_total") >= 1)
  end))
end)

describe("admin.token", function()
  local TOKEN = "tg-admin-0123456789abcdef"

  local function start(extra)
    local config = { admin = { address = "127.0.0.1:0", token = support.raw 'env "ADMIN_TOKEN"' }, redis = "redis://127.0.0.1:1",
      plugin_path = { "plugins" }, routes = { { name = "r", path = "/*", plugins = { answer = {} } } } }
    for key, value in pairs(extra or {}) do config[key] = value end
    return support.gateway { config = config, env = { ADMIN_TOKEN = TOKEN }, files = { ["plugins/answer.lua"] = ANSWER } }
  end

  local function post(gw, path, headers, more)
    local options = { port = gw.admin_port, method = "POST", path = path, host = "127.0.0.1", headers = headers, timeout = 15000 }
    for key, value in pairs(more or {}) do options[key] = value end
    return support.request(options)
  end

  local BEARER = { authorization = "Bearer " .. TOKEN }

  it("lets who has it reload, with the outcome as the answer", async(function()
    local gw = start { reload = { watch = false } }
    local res = post(gw, "/reload", BEARER)
    assert.same({ 200, "nothing has changed\n" }, { res.status, res.body })
    gw:write("plugins/answer.lua", (ANSWER:gsub('"answer"', '"another"')))
    res = post(gw, "/reload", { authorization = "bearer  " .. TOKEN })
    assert.equal(200, res.status, res.body)
    assert.equal("another", gw:request({ path = "/" }).body)
    gw:write("plugins/answer.lua", "return 1")
    res = post(gw, "/reload", BEARER)
    assert.equal(409, res.status)
    assert.matches("answer.lua", res.body, 1, true)
    assert.equal("another", gw:request({ path = "/" }).body)
    assert.is_nil(gw.log():find(TOKEN, 1, true))
    assert.is_nil(gw:admin("/status").body:find(TOKEN, 1, true))
    local run = gw:command("check", "--print")
    assert.is_nil(run.out:find(TOKEN, 1, true))
  end))

  it("is asked for: nothing is done without it, with another one, or by a name", async(function()
    local gw = start()
    local reloads = gw:metric "reloads_total"
    for _, value in ipairs { false, TOKEN, "Bearer", "Bearer .", "Bearer " .. TOKEN .. "x", "Bearer " .. TOKEN:sub(1, -2),
      "Basic " .. TOKEN, "Bearer " .. TOKEN:upper() } do
      local res = post(gw, "/reload", { authorization = value or nil })
      assert.same({ value, 401, "Bearer" }, { value, res.status, res.headers["www-authenticate"] })
    end
    local res = post(gw, "/reload", BEARER, { host = "evil.example" })
    assert.equal(421, res.status)
    assert.same({ 405, "POST" }, (function()
      local got = get(gw, { path = "/reload", host = "localhost", headers = BEARER })
      return { got.status, got.headers.allow }
    end)())
    res = post(gw, "/reload", { origin = "http://evil.example" }, { method = "OPTIONS" })
    assert.equal(405, res.status)
    for name in pairs(res.headers) do assert.is_nil(name:find("access-control", 1, true)) end
    assert.equal(404, post(gw, "/status2", BEARER, { method = "GET" }).status)
    assert.equal(405, post(gw, "/metrics", BEARER).status)
    assert.equal(reloads, gw:metric "reloads_total")
  end))

  it("lets who has it open the access log anew, and upgrade, whose answer comes though the program is replaced", async(function()
    local gw = start { log = { access = "file:access.log" } }
    gw:request { path = "/" }
    support.wait_for(function() return (support.read_file(gw.dir .. "/access.log") or ""):find("\n", 1, true) end, "a line")
    os.rename(gw.dir .. "/access.log", gw.dir .. "/old.log")
    assert.equal(200, post(gw, "/reopen", BEARER).status)
    support.wait_for(function() return support.read_file(gw.dir .. "/access.log") end, "the new file")
    local res = post(gw, "/upgrade", BEARER)
    assert.same({ 200, "the new program takes over\n" }, { res.status, res.body })
    gw:wait_log("upgraded: ")
    assert.equal(200, post(gw, "/reload", BEARER).status)
  end))

  it("a client that leaves does not take its reload with it", async(function()
    local gw = start { reload = { watch = false } }
    for i = 1, 5 do
      gw:write("plugins/answer.lua", "-- " .. i .. "\n" .. ANSWER)
      local c = support.connect(gw.admin_port)
      c:send("POST /reload HTTP/1.1\r\nhost: localhost\r\ncontent-length: 5\r\nauthorization: Bearer " .. TOKEN
        .. "\r\n\r\nhello")
      gw:wait_log("reload, asked for over HTTP")
      if i % 2 == 0 then c:reset() else c:close() end
      support.wait_for(function() return gw:metric("generation") == i + 1 end, "generation " .. i + 1)
    end
  end))

  it("is refused where it is short, or cannot be a token", async(function()
    for value, fault in pairs { ['"short"'] = "admin.token: must be at least 16 bytes long",
      ['"with spaces in the token"'] = "admin.token: must be letters" } do
      local dir = support.tmpdir()
      support.write_file(dir .. "/gateway.lua", ("return { admin = { address = '127.0.0.1:0', token = %s }, %s }"):format(value,
        "routes = { { name = 'r', path = '/' } }"))
      local run = support.tollgate { "check", "-c", dir .. "/gateway.lua" }
      assert.equal(1, run.code)
      assert.matches(fault, run.err .. run.out, 1, true)
    end
  end))
end)

it("admin = false opens no such listener", async(function()
  local gw = support.gateway { config = ([[return { listen = "127.0.0.1:0", admin = false, redis = "redis://127.0.0.1:1",
    routes = { { name = "r", path = "/*" } } }]]) }
  assert.is_nil(gw.admin_port)
  assert.equal(500, gw:request({}).status)
end))
