-- Deadlines, each set short while all others are long: what runs into one ends in the right way, and time that belongs to
-- the other side does not count.
local support = require "spec.support"
local rig = require "spec.host.proxy_rig"
local async = support.async

local SHORT = 0.25 -- s

local function start(timeouts, options)
  options = options or {}
  options.config = { timeouts = timeouts, limits = { body = "100m" } }
  return rig.start(options)
end

describe("the head's deadline", function()
  it("answers a part of a head with 408 and closes, however the bytes trickle", async(function()
    local on = start { head = SHORT }
    local c = on.gw:connect()
    c:send("GET / HTTP/1.1\r\n")
    local trickle = support.spawn(function()
      while c:send("X: 1\r\n") do support.sleep(20) end
    end)
    local res = c:read_response()
    assert.same({ 408, "close" }, { res.status, res.headers.connection })
    assert.is_true(c:wait_closed())
    c:close()
    trickle:join()
    assert.same({}, on.origin.requests)
  end))

  it("closes a connection without a byte, or with empty lines only, in silence", async(function()
    local on = start { head = SHORT }
    local c, d = on.gw:connect(), on.gw:connect()
    d:send("\r\n\r\n")
    assert.same({ "", "closed" }, { c:read_all() })
    assert.same({ "", "closed" }, { d:read_all() })
  end))

  it("counts anew for each request", async(function()
    local on = start { head = SHORT }
    local c = on.gw:connect()
    for _ = 1, 3 do
      assert.equal("hello", c:request({}).body)
      support.sleep(SHORT * 600)
    end
    c:send("GET ")
    assert.equal(408, c:read_response().status)
  end))
end)

it("keep-alive's deadline closes an idle connection in silence", async(function()
  local on = start { keepalive = SHORT }
  local c = on.gw:connect()
  assert.equal("hello", c:request({}).body)
  assert.same({ "", "closed" }, { c:read_all() })
end))

describe("the body's deadline", function()
  local head = "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 100\r\n\r\n"

  it("answers a body that stops with 408, closes, and ends the request to the origin", async(function()
    for _, began in ipairs { "", "abc" } do
      local on = start({ body = SHORT }, { origin = { stream_body = true }, handler = function(req) while req:read() do end end })
      local c, res = rig.raw(on.gw, head .. began)
      assert.same({ 408, "close" }, { res.status, res.headers.connection })
      assert.is_true(c:wait_closed())
      support.wait_for(function() return on.origin.open == 0 end, "the origin's connection to end")
    end
  end))

  it("counts from piece to piece", async(function()
    local on = start({ body = SHORT }, { handler = function(req, conn) conn:respond { body = req.body } end })
    local c = on.gw:connect()
    c:send(head)
    for _ = 1, 10 do
      support.sleep(SHORT * 300)
      c:send(("x"):rep(10))
    end
    assert.equal(("x"):rep(100), c:read_response().body)
  end))

  it("may be a route's own", async(function()
    local on = rig.start { route = { timeouts = { body = SHORT } }, origin = { stream_body = true },
      handler = function(req) while req:read() do end end }
    local _, res = rig.raw(on.gw, head)
    assert.equal(408, res.status)
  end))

  it("does not count while the gateway does not read", async(function()
    local go
    local on = start({ body = SHORT }, { origin = { stream_body = true }, handler = function(req, conn)
      conn:pause()
      support.wait_for(function() return go end, "a word")
      conn:resume()
      while req:read() do end
      conn:respond { body = "all" }
    end })
    local c, sent = on.gw:connect(), false
    support.spawn(function()
      c:send("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 64000000\r\n\r\n" .. ("x"):rep(64000000))
      sent = true
    end)
    on.origin:wait_request(1)
    assert.same({ nil, "timeout" }, { c:read_some(SHORT * 3000) })
    assert.is_false(sent)
    go = true
    assert.equal("all", c:read_response().body)
  end))
end)

describe("an origin that cannot be reached", function()
  it("is a 502 in the shape of the route's API", async(function()
    for _, target in ipairs { "http://127.0.0.1:" .. support.free_port(), "unix:/no/such.sock" } do
      local on = rig.start { target = target, route = { path = "/v1/chat/completions" } }
      local res = on.gw:request { path = "/v1/chat/completions" }
      assert.same({ 502, "origin_unreachable" }, { res.status, support.json(res).error.code })
      on = rig.start { target = target, route = { path = "/v1/messages" } }
      res = on.gw:request { path = "/v1/messages" }
      assert.same({ 502, "error", "api_error" }, { res.status, support.json(res).type, support.json(res).error.type })
    end
  end))

  it("is a 504 where connecting takes too long", async(function()
    -- libuv accepts one connection and the queue holds one more: the next SYN is dropped.
    local uv = require "luv"
    local server = uv.new_tcp()
    assert(server:bind("127.0.0.1", 0))
    local port = server:getsockname().port
    assert(server:listen(0, function() end))
    support.on_end(function() server:close() end)
    support.connect(port)
    support.connect(port)
    local on = start({ connect = SHORT }, { target = "http://127.0.0.1:" .. port })
    local res = assert(on.gw:request {})
    assert.same({ 504, "origin_timeout" }, { res.status, support.json(res).error.code })
  end))
end)

describe("the first byte's deadline", function()
  local function silent(_, conn) conn:wait_closed() end

  it("makes a silent origin a 504 and closes its connection", async(function()
    for _, begun in ipairs { "", "HTTP/1.1 200", "HTTP/1.1 103 Early Hints\r\n\r\n" } do
      local on = start({ first_byte = SHORT }, { handler = begun == "" and silent or rig.raw_handler(begun, true) })
      local c = on.gw:connect()
      local res = c:request { body = "abc" }
      assert.same({ 504, "origin_timeout" }, { res.status, support.json(res).error.code })
      support.wait_for(function() return on.origin.open == 0 end, "the origin's connection to end")
      on.origin.handler = rig.hello
      assert.equal("hello", c:request({}).body)
    end
  end))

  it("counts from the request's end, not while the client is slow with its body", async(function()
    local on = start({ first_byte = SHORT }, { handler = function(req, conn) conn:respond { body = req.body } end })
    local c = on.gw:connect()
    c:send("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 4\r\n\r\nab")
    support.sleep(SHORT * 3000)
    c:send("cd")
    assert.equal("abcd", c:read_response().body)
    on.origin.handler = silent
    c:send("POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nab\r\n")
    support.sleep(SHORT * 2000)
    c:send("0\r\n\r\n")
    assert.equal(504, c:read_response().status)
  end))

  it("counts while the origin does not take the body", async(function()
    local on = start({ first_byte = SHORT }, { origin = { stream_body = true }, handler = function(_, conn)
      conn:pause()
      support.wait_for(function() return conn.handle:is_closing() end, "the test's end", 20000)
    end })
    local c = on.gw:connect()
    support.spawn(function()
      c:send("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 64000000\r\n\r\n" .. ("x"):rep(64000000))
    end)
    local res = c:read_response()
    assert.same({ 504, "close" }, { res.status, res.headers.connection })
    on.origin:close()
  end))

  it("may be a route's own", async(function()
    local on = rig.start { route = { timeouts = { first_byte = SHORT } }, handler = silent }
    assert.equal(504, on.gw:request({}).status)
  end))
end)

describe("the idle deadline of an answer", function()
  it("cuts it off, so that it shows, and closes the origin's connection", async(function()
    for _, framing in ipairs { "length", "chunked", "close" } do
      local on = start({ idle = SHORT }, { handler = function(_, conn)
        conn:write("HTTP/1.1 200 OK\r\n" .. (framing == "length" and "Content-Length: 9\r\n\r\nabc"
          or "Transfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n"))
        conn:wait_closed()
      end })
      local c = on.gw:connect()
      c:send("GET / HTTP/1." .. (framing == "close" and 0 or 1) .. "\r\nHost: a\r\n\r\n")
      local res = c:read_head()
      assert.equal("abc", res:read())
      assert.same({ nil, framing == "close" and "reset" or "closed" }, { res:read() })
      assert.is_false(res.complete)
      support.wait_for(function() return on.origin.open == 0 end, "the origin's connection to end")
      assert.equal("timeout", on.gw:wait_access(1)[1].ended)
    end
  end))

  it("counts from piece to piece", async(function()
    local on = start({ idle = SHORT }, { handler = function(_, conn)
      conn:start {}
      for _ = 1, 8 do
        support.sleep(SHORT * 300)
        conn:chunk("x")
      end
      conn:finish()
    end })
    assert.equal("xxxxxxxx", on.gw:request({}).body)
  end))
end)

describe("the write deadline", function()
  local function pour(_, conn)
    conn:start {}
    local piece = ("x"):rep(65536)
    while not conn.closed and conn:chunk(piece) do end
  end

  it("ends a client that takes nothing, and with it the origin's answer", async(function()
    local on = start({ write = SHORT }, { handler = pour })
    local c = on.gw:connect()
    c:pause()
    c:send_request {}
    support.wait_for(function() return on.origin.connections == 1 and on.origin.open == 0 end, "the answer to end", 15000)
    c:resume()
    assert.equal("reset", select(2, c:read_response()))
    assert.equal("client_gone", on.gw:wait_access(1)[1].ended)
  end))

  -- Reads about n bytes and stalls again; returns how many.
  local function take(c, n)
    local got = 0
    c:resume()
    while got < n do got = got + #assert(c:read_some()) end
    c:pause()
    return got
  end

  it("counts for the end of an answer too, where its origin is done and the connection is to end", async(function()
    local on = start({ write = 6 * SHORT }, { files = { ["plugins/big.lua"] = [[
      local body = ("x"):rep(64 * 1024 * 1024)
      return { version = "1.0.0", priority = 1, schema = {}, access = function() return 200, body end }]] },
      route = { plugins = { big = {} }, targets = {} } })
    local slow, dead = on.gw:connect(), on.gw:connect()
    for _, c in ipairs { slow, dead } do
      c:pause()
      c:send_request { headers = { connection = "close" } }
    end
    on.gw:wait_access(2)
    -- One takes a little again and again, and gets all of it, although that takes long.
    local got = 0
    slow:resume()
    slow:read_until("\r\n\r\n", true)
    slow:pause()
    for _ = 1, 12 do
      support.sleep(SHORT * 1000)
      got = got + take(slow, 2 * 1024 * 1024)
    end
    slow:resume()
    local rest, err = slow:read_all()
    assert.same({ 64 * 1024 * 1024, "closed" }, { got + #rest, err })
    dead:resume()
    assert.equal("reset", select(2, dead:read_response()))
  end))
end)
