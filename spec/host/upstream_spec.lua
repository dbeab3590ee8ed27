-- Connections to the origin: kept and used again, not when the origin has closed or will close them, sent again where
-- that is safe, and limited in number.
local support = require "spec.support"
local rig = require "spec.host.proxy_rig"
local async = support.async

local function bodies(gw, n, options)
  local got = {}
  for i = 1, n do got[i] = gw:request(options or {}).body end
  return got
end

describe("a kept connection", function()
  it("serves requests of many clients", async(function()
    local on = rig.start {}
    assert.same({ "hello", "hello", "hello" }, bodies(on.gw, 3))
    assert.equal("hello", on.gw:request({ chunked = { "abc" } }).body)
    assert.equal(1, on.origin.connections)
    support.all { function() return on.gw:request {} end, function() return on.gw:request {} end }
    assert.is_true(on.origin.connections <= 2)
  end))

  it("is shared by all targets with its address", async(function()
    local on = rig.start { routes = function(url)
      return { { name = "a", path = "/a", targets = { { url = url .. "/x" } } },
        { name = "b", path = "/b", targets = { { url = url } } } }
    end }
    on.gw:request { path = "/a" }
    on.gw:request { path = "/b" }
    assert.equal(1, on.origin.connections)
  end))

  it("is not used again where the answer says so, by its fields, version or framing", async(function()
    local on = rig.start {}
    local answers = {
      "HTTP/1.1 200 OK\r\nContent-Length: 2\r\nConnection: close\r\n\r\nok",
      "HTTP/1.1 200 OK\r\nContent-Length: 2\r\nConnection: x, Close\r\n\r\nok",
      "HTTP/1.0 200 OK\r\nContent-Length: 2\r\n\r\nok",
    }
    for i, bytes in ipairs(answers) do
      on.origin.handler = rig.raw_handler(bytes, true)
      assert.equal("ok", on.gw:request({}).body)
      assert.equal(i, on.origin.connections)
      support.wait_for(function() return on.origin.open == 0 end, "the gateway to close it")
    end
    on.origin.handler = function(_, conn)
      conn:write("HTTP/1.0 200 OK\r\nContent-Length: 2\r\nConnection: keep-alive\r\n\r\nok")
    end
    assert.same({ "ok", "ok" }, bodies(on.gw, 2))
    assert.equal(#answers + 1, on.origin.connections)
  end))

  it("that the origin closes while it is idle is noticed", async(function()
    local on = rig.start {}
    on.gw:request {}
    for conn in pairs(on.origin.conns) do conn:close() end
    support.wait_for(function() return on.origin.open == 0 end, "the origin's side to end")
    assert.equal("hello", on.gw:request({ body = "not safe to send twice" }).body)
    assert.equal(2, on.origin.connections)
  end))

  it("on which bytes come unasked is not used again", async(function()
    local on = rig.start {}
    on.gw:request {}
    for conn in pairs(on.origin.conns) do
      conn:write("HTTP/1.1 200 OK\r\nContent-Length: 6\r\n\r\npoison")
      assert.is_true(conn:wait_closed())
    end
    assert.equal("hello", on.gw:request({}).body)
    assert.equal(2, on.origin.connections)
  end))

  it("ends after the time that the origin keeps it, and after the gateway's own", async(function()
    local on = rig.start { config = { upstream = { keepalive_timeout = 0.3 } } }
    on.gw:request {}
    support.wait_for(function() return on.origin.open == 0 end, "the gateway to close it")
    local kept = rig.start { handler = function(req, conn)
      conn:respond { headers = { ["Keep-Alive"] = "timeout=" .. req.path:sub(2) .. ", max=100" } }
    end }
    kept.gw:request { path = "/2" }
    support.wait_for(function() return kept.origin.open == 0 end, "the gateway to close it")
    assert.is_nil(kept.gw:request({ path = "/9" }).headers["keep-alive"])
    kept.gw:request { path = "/9" }
    assert.equal(2, kept.origin.connections)
  end))

  it("is one of so many", async(function()
    local go
    local on = rig.start { config = { upstream = { keepalive = 2 } }, handler = function(_, conn)
      support.wait_for(function() return go end, "a word")
      conn:respond {}
    end }
    local clients = {}
    for i = 1, 5 do clients[i] = support.spawn(function() return on.gw:request {} end) end
    support.wait_for(function() return #on.origin.requests == 5 end, "five requests")
    go = true
    for _, client in ipairs(clients) do client:join() end
    support.wait_for(function() return on.origin.open == 2 end, "three to end")
    local none = rig.start { config = { upstream = { keepalive = 0 } } }
    bodies(none.gw, 3)
    assert.equal(3, none.origin.connections)
  end))
end)

describe("a kept connection that turns out closed", function()
  -- The second request of each connection is answered by closing it, as if its end had crossed the request.
  local function closing(route)
    local seen = {}
    return rig.start { route = route, handler = function(req, conn)
      seen[conn] = (seen[conn] or 0) + 1
      if seen[conn] == 2 then return conn:close() end
      conn:respond { body = req.method .. req.body }
    end }
  end

  it("costs an idempotent request without a body one more try, on a new connection", async(function()
    local on = closing()
    for _, method in ipairs { "GET", "PUT", "DELETE", "OPTIONS" } do
      assert.equal(method, on.gw:request({ method = method }).body)
    end
    assert.same({ 4, 7 }, { on.origin.connections, #on.origin.requests })
  end))

  it("costs no further try on a route that says retry_stale = false", async(function()
    local on = closing { retry_stale = false }
    on.gw:request {}
    assert.equal(502, on.gw:request({}).status)
    assert.equal(2, #on.origin.requests)
  end))

  it("fails a request that may not be sent twice", async(function()
    for _, options in ipairs { { method = "POST" }, { method = "PUT", body = "x" }, { method = "PATCH" },
      { method = "PUT", chunked = { "x" } } } do
      local on = closing()
      on.gw:request {}
      local res = on.gw:request(options)
      assert.same({ 502, "origin_closed" }, { res.status, support.json(res).error.code })
      assert.same({ 1, 2 }, { on.origin.connections, #on.origin.requests })
    end
  end))

  it("is not tried again when a new one does the same, nor when an answer had begun", async(function()
    local on = rig.start {}
    on.gw:request {}
    on.origin.handler = function(_, conn) conn:close() end
    assert.equal(502, on.gw:request({}).status)
    assert.equal(3, #on.origin.requests)
    for _, begun in ipairs { "H", "HTTP/1.1 200 OK\r\n", "HTTP/1.1 103 Early Hints\r\nLink: <a>\r\n\r\n" } do
      on.origin.handler = rig.hello
      on.gw:request {}
      local before = #on.origin.requests
      on.origin.handler = rig.raw_handler(begun)
      local res = on.gw:request {}
      assert.equal(502, res.status)
      assert.equal(before + 1, #on.origin.requests)
    end
  end))
end)

describe("the limit of connections", function()
  it("lets requests wait, in order, until one is free", async(function()
    local word = {}
    local on = rig.start { config = { upstream = { connections = 2 } }, handler = function(req, conn)
      support.wait_for(function() return word[req.path] end, "a word for " .. req.path)
      conn:respond { body = req.path }
    end }
    local clients = {}
    for i = 1, 6 do
      clients[i] = on.gw:connect()
      clients[i]:send_request { path = "/" .. i }
      if i <= 2 then on.origin:wait_request(i) end
    end
    for i = 1, 6 do
      word["/" .. i] = true
      assert.equal("/" .. i, clients[i]:read_response().body)
    end
    assert.equal(2, on.origin.connections)
  end))

  it("counts a wait as time to connect, and forgets who has left", async(function()
    local go
    local on = rig.start { config = { upstream = { connections = 1 }, timeouts = { connect = 0.2 } }, handler = function(_, conn)
      support.wait_for(function() return go end, "a word")
      conn:respond { body = "done" }
    end }
    local first = on.gw:connect()
    first:send_request {}
    on.origin:wait_request(1)
    local res = on.gw:request {}
    assert.same({ 504, "origin_timeout" }, { res.status, support.json(res).error.code })
    local left = on.gw:connect()
    left:send_request {}
    left:close()
    on.gw:wait_access(2)
    go = true
    assert.equal("done", first:read_response().body)
    assert.equal("done", on.gw:request({}).body)
    assert.same({ 1, 2 }, { on.origin.connections, #on.origin.requests })
  end))

  it("is kept also when connections end in all ways", async(function()
    local most = 0
    local on
    on = rig.start { config = { upstream = { connections = 3 } }, handler = function(req, conn)
      most = math.max(most, on.origin.open)
      local way = tonumber(req.path:match("%d+")) % 4
      if way == 0 then return conn:close() end
      if way == 1 then return conn:respond { body = "x", length = false } end
      conn:respond { headers = way == 2 and { connection = "close" } or {} }
    end }
    local tasks = {}
    for i = 1, 60 do
      tasks[i] = function() return on.gw:request({ path = "/" .. i, method = "POST" }).status end
    end
    local seen = {}
    for i, status in ipairs(support.all(tasks)) do
      seen[status] = (seen[status] or 0) + 1
      if i % 4 ~= 0 then assert.equal(200, status) end
    end
    assert.equal(45, seen[200])
    assert.is_true(most <= 3)
  end))
end)

it("an origin on a Unix socket is served like any other", async(function()
  local dir = support.tmpdir()
  local uv = require "luv"
  local server, path = uv.new_pipe(false), dir .. "/origin.sock"
  assert(server:bind(path))
  assert(server:listen(16, function()
    local c = uv.new_pipe(false)
    server:accept(c)
    c:read_start(function(_, data)
      if not data then return c:close() end
      c:write("HTTP/1.1 200 OK\r\nContent-Length: " .. #data .. "\r\n\r\n" .. data)
    end)
  end))
  support.on_end(function() server:close() end)
  local on = rig.start { target = "unix:" .. path }
  local res = on.gw:request { path = "/x" }
  assert.matches("^GET /x HTTP/1.1\r\nHost: localhost\r\n", res.body)
end))
