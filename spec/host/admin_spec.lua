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
    assert.same({ 200, "ready\n" }, { ready().status, ready().body })
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
    local res = gw:admin("/readyz")
    assert.same({ 503, "no-store" }, { res.status, res.headers["cache-control"] })
    assert.matches("^not ready: redis: .*connection refused", res.body)
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

it("admin = false opens no such listener", async(function()
  local gw = support.gateway { config = ([[return { listen = "127.0.0.1:0", admin = false, redis = "redis://127.0.0.1:1",
    routes = { { name = "r", path = "/*" } } }]]) }
  assert.is_nil(gw.admin_port)
  assert.equal(500, gw:request({}).status)
end))
