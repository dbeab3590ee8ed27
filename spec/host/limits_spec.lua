-- What a client may send, and how many clients there may be: each limit's last allowed value passes, the next is refused,
-- and a body is refused as early as it can be.
local support = require "spec.support"
local rig = require "spec.host.proxy_rig"
local async = support.async

local on, up, down = rig.shared {
  handler = function(req, conn) conn:respond { body = tostring(#req.body) } end,
  config = { limits = { head = 1000, url = 100, fields = 10, body = 1000 }, timeouts = { keepalive = 0.3 } },
  routes = function(url)
    return {
      { name = "own", path = "/own", limits = { body = 10 }, targets = { { url = url } } },
      { name = "all", path = "/*", targets = { { url = url } } },
    }
  end,
}
setup(up)
teardown(down)

local function status(bytes)
  local _, res = rig.raw(on.gw, bytes)
  return res.status
end

describe("the head", function()
  it("may have so many bytes", async(function()
    local function of_size(n)
      local bytes = "GET / HTTP/1.1\r\nHost: a\r\nX: \r\n\r\n"
      return (bytes:gsub("X: ", "X: " .. ("x"):rep(n - #bytes)))
    end
    assert.same({ 200, 431 }, { status(of_size(1000)), status(of_size(1001)) })
  end))

  it("may have a target of so many bytes", async(function()
    local function of_size(n) return "GET /" .. ("x"):rep(n - 1) .. " HTTP/1.1\r\nHost: a\r\n\r\n" end
    assert.same({ 200, 414 }, { status(of_size(100)), status(of_size(101)) })
  end))

  it("may have so many fields", async(function()
    local function of(n) return "GET / HTTP/1.1\r\nHost: a\r\n" .. ("X: 1\r\n"):rep(n - 1) .. "\r\n" end
    assert.same({ 200, 431 }, { status(of(10)), status(of(11)) })
  end))

  it("is refused before its end has come", async(function()
    local c = on.gw:connect()
    c:send("GET / HTTP/1.1\r\nX: " .. ("x"):rep(1000))
    assert.equal(431, c:read_response().status)
    assert.is_true(c:wait_closed())
  end))
end)

describe("a body with a length", function()
  it("may be as large as the route allows", async(function()
    assert.equal("1000", on.gw:request({ body = ("x"):rep(1000) }).body)
    assert.equal("10", on.gw:request({ path = "/own", body = ("x"):rep(10) }).body)
    assert.equal(413, on.gw:request({ path = "/own", body = ("x"):rep(11) }).status)
  end))

  it("is refused by its length, before it is there, and the origin hears nothing", async(function()
    local before = #on.origin.requests
    local c, res = rig.raw(on.gw, "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 1000000000000\r\n\r\n")
    assert.same({ 413, "close", "request_too_large" },
      { res.status, res.headers.connection, support.json(res).error.code })
    assert.is_true(c:wait_closed())
    assert.equal(before, #on.origin.requests)
  end))

  it("that is refused and small is read and dropped, and the connection goes on", async(function()
    local c = on.gw:connect()
    c:send("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 5000\r\n\r\n")
    local res = c:read_response()
    assert.same({ 413, nil }, { res.status, res.headers.connection })
    c:send(("GET /no HTTP/1.1\r\n\r\n"):rep(250) .. "GET / HTTP/1.1\r\nHost: a\r\n\r\n")
    assert.same({ 200, "0" }, (function(r) return { r.status, r.body } end)(c:read_response()))
    assert.is_true(c:wait_closed()) -- idle as any other
  end))

  it("that was refused and dropped leaves an idle connection that ends in time", async(function()
    local c, res = rig.raw(on.gw, "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 2000\r\n\r\n" .. ("x"):rep(500))
    assert.equal(413, res.status)
    c:send(("x"):rep(1500))
    assert.same({ "", "closed" }, { c:read_all() })
  end))
end)

describe("a body in chunks", function()
  it("may be as large as the route allows", async(function()
    assert.equal("1000", on.gw:request({ chunked = { ("x"):rep(900), ("x"):rep(100) } }).body)
  end))

  it("is refused at the byte that is too much, also when most of it is at the origin already", async(function()
    local gone
    local function handler(req, conn)
      while req:read() do end
      gone = not req.complete
      conn:close()
    end
    local other = rig.start { origin = { stream_body = true }, config = { limits = { body = 1000 } }, handler = handler }
    local c = other.gw:connect()
    c:send("POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n" .. "3e8\r\n" .. ("x"):rep(1000) .. "\r\n")
    support.wait_for(function() return other.origin.requests[1] end, "the origin to have the head")
    assert.same({ nil, "timeout" }, { c:read_some(20) })
    c:send("1\r\nx\r\n")
    local res = c:read_response()
    assert.same({ 413, "close" }, { res.status, res.headers.connection })
    assert.is_true(c:wait_closed())
    support.wait_for(function() return gone end, "the origin's connection to end")
  end))

  it("that all comes with its head is refused before the origin hears of it", async(function()
    local before = #on.origin.requests
    assert.equal(413, on.gw:request({ chunked = { ("x"):rep(1001) } }).status)
    assert.equal(before, #on.origin.requests)
  end))
end)

describe("connections", function()
  it("above the limit wait while all have a request under way", async(function()
    local go = 0
    local few = rig.start { config = { limits = { connections = 2 } }, handler = function(_, conn)
      support.wait_for(function() return go > 0 end, "a word", 20000)
      go = go - 1
      conn:respond { body = "hello" }
    end }
    local all = {}
    for i = 1, 4 do
      all[i] = few.gw:connect()
      all[i]:send_request { headers = { connection = "close" } }
      if i <= 2 then few.origin:wait_request(i) end
    end
    few.gw:wait_metric("client_connections_deferred_total", 1)
    assert.same({ nil, "timeout" }, { all[3]:read_some(30) })
    assert.equal(2, #few.origin.requests)
    go = 1
    few.origin:wait_request(3)
    go = 3
    for i = 1, 4 do assert.equal("hello", all[i]:read_response().body) end
    assert.equal(200, few.gw:admin("/healthz").status)
    assert.equal(0, few.gw:metric("client_connections_evicted_total"))
  end))
end)
