-- Messages through the gateway: bodies by length and in chunks both ways, answers without a body, interim answers,
-- and clients that speak HTTP/1.0.
local support = require "spec.support"
local rig = require "spec.host.proxy_rig"
local async = support.async

local on, up, down = rig.shared {}
setup(up)
teardown(down)

local function answer(handler) on.origin.handler = handler end

local function last() return on.origin.requests[#on.origin.requests] end

describe("a request's body", function()
  before_each(function() answer(function(req, conn) conn:respond { body = req.body } end) end)

  it("goes on with its length", async(function()
    local res = on.gw:request { path = "/a?b=c&d", body = "12345" }
    assert.same({ 200, "12345", "5" }, { res.status, res.body, res.headers["content-length"] })
    local req = last()
    assert.same({ "POST", "/a?b=c&d", "1.1", "5", nil },
      { req.method, req.target, req.version, req.headers["content-length"], req.headers["transfer-encoding"] })
  end))

  it("of no bytes keeps its length, and none gets no framing", async(function()
    on.gw:request { method = "POST", body = "" }
    assert.equal("0", last().headers["content-length"])
    on.gw:request { method = "DELETE" }
    assert.is_nil(last().headers["content-length"])
    assert.is_nil(last().headers["transfer-encoding"])
  end))

  it("goes on in chunks when it came in chunks, without extensions and trailers", async(function()
    assert.equal("abcde", on.gw:request({ chunked = { "abc", "de" } }).body)
    assert.equal("chunked", last().headers["transfer-encoding"])
    assert.is_nil(last().headers["content-length"])
    local c, res = rig.raw(on.gw, "PUT / HTTP/1.1\r\nhost: a\r\ntransfer-encoding: chunked\r\ntrailer: x-t\r\n\r\n"
      .. "3;a=b;c=\"d\"\r\nabc\r\n00002\r\nde\r\n0\r\nx-t: 1\r\n\r\n")
    assert.equal("abcde", res.body)
    assert.same({}, last().trailers)
    assert.equal("abcde", c:request({ body = "abcde" }).body)
  end))

  it("is the same bytes whatever they are", async(function()
    local bytes = {}
    for i = 0, 255 do bytes[#bytes + 1] = string.char(i) end
    local body = table.concat(bytes):rep(700)
    assert.equal(support.sha256(body), support.sha256(on.gw:request({ body = body }).body))
    assert.equal(support.sha256(body), support.sha256(on.gw:request({ chunked = { body, body:sub(1, 1) } }).body:sub(1, -2)))
  end))

  it("may come with any method, known or not", async(function()
    for _, method in ipairs { "GET", "PUT", "PATCH", "DELETE", "OPTIONS", "REPORT", "X-OWN" } do
      assert.equal("b", on.gw:request({ method = method, body = "b" }).body)
      assert.equal(method, last().method)
    end
  end))
end)

describe("an answer", function()
  it("keeps its status, fields and order, and gets a reason of the gateway's own", async(function()
    answer(function(_, conn)
      conn:respond { status = 429, reason = "Whatever", headers = { { "X-B", "1" }, { "x-a", "2" }, { "X-B", "" } }, body = "no" }
    end)
    local res = on.gw:request {}
    assert.same({ 429, "Too Many Requests", "no", "1, " }, { res.status, res.reason, res.body, res.headers["x-b"] })
    assert.same({ { "X-B", "1" }, { "x-a", "2" }, { "X-B", "" } }, { res.list[1], res.list[2], res.list[3] })
  end))

  it("in chunks goes on in chunks, without its trailers", async(function()
    answer(function(_, conn)
      conn:start { headers = { trailer = "x-sum" } }
      conn:chunk("abc")
      conn:chunk("de")
      conn:finish { ["x-sum"] = "1" }
    end)
    local res = on.gw:request {}
    assert.same({ "abcde", "chunked", nil, true },
      { res.body, res.headers["transfer-encoding"], res.headers.trailer, res.complete })
    assert.same({}, res.trailers)
  end))

  it("that ends by closing goes on in chunks, and the client's connection stays", async(function()
    answer(function(_, conn) conn:respond { body = "all", length = false } end)
    local c = on.gw:connect()
    local res = c:request {}
    assert.same({ "all", "chunked", true }, { res.body, res.headers["transfer-encoding"], res.complete })
    assert.equal("all", c:request({}).body)
  end))

  it("to HEAD has no body, keeps the length that GET would have, and the connection goes on", async(function()
    answer(function(_, conn) conn:respond { body = "12345" } end)
    local c = on.gw:connect()
    local res = c:request { method = "HEAD" }
    assert.same({ 200, "5", "" }, { res.status, res.headers["content-length"], res.body })
    assert.equal("12345", c:request({}).body)
    answer(function(_, conn) conn:write("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n") end)
    res = c:request { method = "HEAD" }
    assert.same({ 200, nil }, { res.status, res.headers["content-length"] })
    answer(function(_, conn) conn:respond { body = "more" } end)
    assert.equal("more", c:request({}).body)
  end))

  it("of 204 or 304 has no body, and the connection goes on", async(function()
    local c = on.gw:connect()
    answer(function(_, conn) conn:respond { status = 204, headers = { ["x-n"] = "1" } } end)
    local res = c:request {}
    assert.same({ 204, "1", nil, nil },
      { res.status, res.headers["x-n"], res.headers["content-length"], res.headers["transfer-encoding"] })
    answer(function(_, conn) conn:write("HTTP/1.1 304 Not Modified\r\nETag: \"e\"\r\nContent-Length: 77\r\n\r\n") end)
    res = c:request {}
    assert.same({ 304, '"e"', "77" }, { res.status, res.headers.etag, res.headers["content-length"] })
    answer(function(_, conn) conn:respond { body = "next" } end)
    assert.equal("next", c:request({}).body)
  end))

  it("gets a Date and a request id where it has none, and keeps its own", async(function()
    answer(rig.hello)
    local res = on.gw:request {}
    assert.matches("^%a%a%a, %d%d %a%a%a %d%d%d%d %d%d:%d%d:%d%d GMT$", res.headers.date)
    assert.equal(res.headers["x-request-id"], last().headers["x-request-id"])
    answer(function(_, conn) conn:respond { headers = { date = "Thu, 01 Jan 1970 00:00:00 GMT", ["x-request-id"] = "o" } } end)
    res = on.gw:request { headers = { ["x-request-id"] = "mine" } }
    assert.same({ "Thu, 01 Jan 1970 00:00:00 GMT", "o" }, { res.headers.date, res.headers["x-request-id"] })
    assert.equal("mine", last().headers["x-request-id"])
  end))
end)

describe("an interim answer", function()
  local function with(interim)
    answer(function(_, conn)
      conn:write(interim)
      conn:respond { body = "end" }
    end)
    return on.gw:request {}
  end

  it("103 is passed on at once, with its fields", async(function()
    local go
    answer(function(_, conn)
      conn:write("HTTP/1.1 103 Early Hints\r\nLink: </a>\r\nConnection: x-hop\r\nX-Hop: 1\r\n\r\n")
      support.wait_for(function() return go end, "the client's word")
      conn:respond { body = "end" }
    end)
    local c = on.gw:connect()
    c:send_request {}
    local hints = c:read_until("\r\n\r\n", true)
    assert.matches("^HTTP/1.1 103 Early Hints\r\n", hints)
    assert.matches("Link: </a>\r\n", hints, 1, true)
    assert.is_nil(hints:lower():find("x-hop", 1, true))
    go = true
    assert.equal("end", c:read_response().body)
  end))

  it("100 and 102 stay between origin and gateway", async(function()
    local res = with("HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 102 Processing\r\n\r\n")
    assert.same({ 200, "end", 0 }, { res.status, res.body, #res.interim })
  end))

  it("several come in order", async(function()
    local res = with(("HTTP/1.1 103 Early Hints\r\nLink: <a>\r\n\r\n"):rep(3))
    assert.same({ "end", 3 }, { res.body, #res.interim })
  end))

  it("101, which nobody asked for, is a 502", async(function()
    answer(rig.raw_handler("HTTP/1.1 101 Switching Protocols\r\nUpgrade: x\r\nConnection: upgrade\r\n\r\nraw", true))
    local res = on.gw:request { headers = { upgrade = "x", connection = "upgrade" } }
    assert.equal(502, res.status)
    assert.is_nil(last().headers.upgrade)
    assert.is_nil(last().headers.connection)
  end))
end)

describe("a client of HTTP/1.0", function()
  local function get(fields)
    return rig.raw(on.gw, "GET /old HTTP/1.0\r\n" .. (fields or "") .. "\r\n")
  end

  it("gets an answer with its length, then the end", async(function()
    answer(rig.hello)
    local c, res = get()
    assert.same({ "hello", "5", "close" }, { res.body, res.headers["content-length"], res.headers.connection })
    assert.is_true(c:wait_closed())
    assert.same({ "1.1", on.origin.url:match("//(.*)") }, { last().version, last().headers.host })
  end))

  it("keeps its connection where it asks for that", async(function()
    answer(rig.hello)
    local c, res = get("Connection: Keep-Alive\r\n")
    assert.equal("keep-alive", res.headers.connection)
    c:send("GET /old HTTP/1.0\r\n\r\n")
    assert.equal("hello", c:read_response().body)
    assert.is_true(c:wait_closed())
  end))

  it("gets what has no length until the connection closes, never in chunks and no interim answer", async(function()
    answer(function(_, conn)
      conn:write("HTTP/1.1 103 Early Hints\r\nLink: <a>\r\n\r\n")
      conn:start {}
      conn:chunk("abc")
      conn:chunk("de")
      conn:finish()
    end)
    local _, res = get("Connection: keep-alive\r\n")
    assert.same({ "abcde", nil, nil, "close", 0 }, { res.body, res.headers["transfer-encoding"], res.headers["content-length"],
      res.headers.connection, #res.interim })
  end))

  it("sends a body by its length, and an expectation means nothing", async(function()
    answer(function(req, conn) conn:respond { body = req.body } end)
    local _, res = rig.raw(on.gw, "POST / HTTP/1.0\r\nExpect: 100-continue\r\nContent-Length: 3\r\n\r\nabc")
    assert.same({ "abc", 0 }, { res.body, #res.interim })
    assert.is_nil(last().headers.expect)
  end))
end)
