-- Bad requests get the right status with a JSON error in the shape of the path's API, a closed connection, and nothing of
-- them reaches the origin. Bad answers of an origin are a 502. The rules themselves are parse's (spec/c/parse_test.c).
local support = require "spec.support"
local rig = require "spec.host.proxy_rig"
local async = support.async

local on, up, down = rig.shared { config = { limits = { head = 4096, url = 256, fields = 20 }, timeouts = { first_byte = 5 } } }
setup(up)
teardown(down)

local function get(fields) return "GET / HTTP/1.1\r\nHost: a\r\n" .. fields .. "\r\n" end

local function post(fields, body) return "POST / HTTP/1.1\r\nHost: a\r\n" .. fields .. "\r\n" .. (body or "") end

local function chunked(body) return post("Transfer-Encoding: chunked\r\n", body) end

local requests = {
  { 400, "GET / HTTP/1.1\r\n\r\n", "no Host" },
  { 400, get "Host: b\r\n", "two Hosts" },
  { 400, "GET / HTTP/1.1\r\nHost: a b\r\n\r\n", "a bad Host" },
  { 400, "GET / HTTP/1.1\r\nHost: u@a\r\n\r\n", "user info in Host" },
  { 400, "GET  / HTTP/1.1\r\nHost: a\r\n\r\n", "two spaces" },
  { 400, "GET /\tHTTP/1.1\r\nHost: a\r\n\r\n", "a tab in the request line" },
  { 400, "GET / HTTP/1.1 \r\nHost: a\r\n\r\n", "space behind the version" },
  { 400, "GET /\r\nHost: a\r\n\r\n", "HTTP/0.9" },
  { 400, "GET / HTTP/1.1\nHost: a\n\n", "bare LF" },
  { 400, "GET / HTTP/1.1\r\nHost: a\r\nX: 1\n\r\n", "one bare LF" },
  { 400, "GET / HTTP/1.1\r\nHost: a\rX: 1\r\n\r\n", "bare CR" },
  { 400, get "X: a\0b\r\n", "NUL in a value" },
  { 400, get "X: a\1b\r\n", "a control character in a value" },
  { 400, get "X : 1\r\n", "space before the colon" },
  { 400, get " X: 1\r\n", "a folded line" },
  { 400, get "X: 1\r\n\tmore\r\n", "a folded value" },
  { 400, get "X\r\n", "no colon" },
  { 400, get ": 1\r\n", "no name" },
  { 400, get "X(y): 1\r\n", "a name that is no token" },
  { 400, get "X\195\164: 1\r\n", "a name beyond ASCII" },
  { 400, "G(T / HTTP/1.1\r\nHost: a\r\n\r\n", "a method that is no token" },
  { 400, "\22\3\1\0\200\1\0\0", "a TLS hello" },
  { 400, "GET a HTTP/1.1\r\nHost: a\r\n\r\n", "a target without a slash" },
  { 400, "GET ftp://a/ HTTP/1.1\r\nHost: a\r\n\r\n", "another scheme" },
  { 400, "GET * HTTP/1.1\r\nHost: a\r\n\r\n", "an asterisk without OPTIONS" },
  { 400, "GET /%zz HTTP/1.1\r\nHost: a\r\n\r\n", "bad percent encoding" },
  { 400, "GET /%00 HTTP/1.1\r\nHost: a\r\n\r\n", "an encoded NUL" },
  { 400, "GET /a/%2e%2e/%2e%2e/b HTTP/1.1\r\nHost: a\r\n\r\n", "a climb above the root" },
  { 400, "GET /a\\b HTTP/1.1\r\nHost: a\r\n\r\n", "a backslash" },
  { 400, "GET /a#b HTTP/1.1\r\nHost: a\r\n\r\n", "a fragment" },
  { 400, "GET /?%f HTTP/1.1\r\nHost: a\r\n\r\n", "bad percent encoding in the query" },
  { 400, "GET /\195\164 HTTP/1.1\r\nHost: a\r\n\r\n", "bytes beyond ASCII in the target" },
  { 400, post("Content-Length: 3\r\nContent-Length: 3\r\n", "abc"), "Content-Length twice" },
  { 400, post("Content-Length: 3, 3\r\n", "abc"), "a list as Content-Length" },
  { 400, post("Content-Length: -1\r\n"), "a negative Content-Length" },
  { 400, post("Content-Length: +3\r\n", "abc"), "a signed Content-Length" },
  { 400, post("Content-Length: 0x3\r\n", "abc"), "a hexadecimal Content-Length" },
  { 400, post("Content-Length: \r\n"), "an empty Content-Length" },
  { 400, post("Content-Length: 99999999999999999999\r\n"), "a Content-Length beyond 2^63" },
  { 400, post("Content-Length: 3\r\nTransfer-Encoding: chunked\r\n", "0\r\n\r\n"), "both framings" },
  { 400, post("Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n", "0\r\n\r\n"), "Transfer-Encoding twice" },
  { 400, post("Transfer-Encoding: chunked, chunked\r\n", "0\r\n\r\n"), "chunked twice" },
  { 400, post("Transfer-Encoding: chunked, gzip\r\n"), "chunked not last" },
  { 501, post("Transfer-Encoding: gzip, chunked\r\n"), "another coding" },
  { 501, post("Transfer-Encoding: identity\r\n"), "identity" },
  { 400, "POST / HTTP/1.0\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n", "Transfer-Encoding in HTTP/1.0" },
  { 400, chunked "g\r\n", "a chunk size that is none" },
  { 400, chunked "-1\r\n", "a negative chunk size" },
  { 400, chunked " 3\r\nabc\r\n0\r\n\r\n", "space before a chunk size" },
  { 400, chunked "3\nabc\r\n0\r\n\r\n", "bare LF behind a chunk size" },
  { 400, chunked "3\r\nabcd\r\n0\r\n\r\n", "a chunk longer than its size" },
  { 400, chunked "fffffffffffffffff\r\n", "a chunk size beyond 2^64" },
  { 400, chunked "0\r\nbad trailer\r\n\r\n", "a bad trailer" },
  { 501, "CONNECT a:443 HTTP/1.1\r\nHost: a\r\n\r\n", "CONNECT" },
  { 505, "GET / HTTP/2.0\r\nHost: a\r\n\r\n", "HTTP/2.0" },
  { 505, "GET / HTTP/1.2\r\nHost: a\r\n\r\n", "HTTP/1.2" },
  { 400, "GET / HTPP/1.1\r\nHost: a\r\n\r\n", "another protocol" },
  { 505, "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", "an HTTP/2 preface" },
  { 417, post("Content-Length: 3\r\nExpect: the-best\r\n"), "an unknown expectation" },
  { 414, "GET /" .. ("a"):rep(256) .. " HTTP/1.1\r\nHost: a\r\n\r\n", "a target too long" },
  { 414, "GET /" .. ("a"):rep(10000), "a target that does not end" },
  { 431, get("X: " .. ("a"):rep(4096) .. "\r\n"), "a head too large" },
  { 431, get(("X: 1\r\n"):rep(20)), "too many fields" },
  { 501, "TRACE / HTTP/1.1\r\nHost: a\r\n\r\n", "TRACE" },
}

describe("a bad request", function()
  it("is refused with the right status, and its connection ends", async(function()
    for _, case in ipairs(requests) do
      local status, bytes, name = unpack(case)
      local c, res = rig.raw(on.gw, bytes .. "GET /smuggled HTTP/1.1\r\nHost: a\r\n\r\n")
      assert.same({ status, "application/json", "close" },
        { res and res.status, res and res.headers["content-type"], res and res.headers.connection }, name)
      local err = support.json(res).error
      assert.is_string(err.message)
      assert.is_string(err.type)
      assert.same({ "", "closed" }, { c:read_all() }, name)
    end
    assert.same({}, on.origin.requests)
  end))

  it("does not spoil the answers before it", async(function()
    local c = on.gw:connect()
    c:send(get "" .. "BAD\r\n\r\n")
    assert.equal("hello", c:read_response().body)
    assert.equal(400, c:read_response().status)
    assert.is_true(c:wait_closed())
  end))

  it("cut at any byte leaves nothing behind", async(function()
    local bytes = post("Content-Length: 3\r\nX-A: b\r\n")
    for at = 0, #bytes do
      local c = on.gw:connect()
      if at > 0 then c:send(bytes:sub(1, at)) end
      c:shutdown()
      assert.is_true(c:wait_closed())
      assert.equal("", (c:read_all()))
    end
  end))

  it("has an error in the shape of its API", async(function()
    local function refused(path, bytes)
      local _, res = rig.raw(on.gw, "POST " .. path .. " HTTP/1.1\r\n" .. (bytes or "Host: a\r\nContent-Length: x\r\n") .. "\r\n")
      return support.json(res), res
    end
    local body, res = refused "/v1/chat/completions"
    assert.same({ "invalid_request_error", "string" }, { body.error.type, type(body.error.message) })
    assert.matches('"code":null', res.body, 1, true)
    body, res = refused "/v1/messages"
    assert.same({ "error", "invalid_request_error" }, { body.type, body.error.type })
    assert.equal(res.headers["x-request-id"], body.request_id)
    assert.equal(res.headers["x-request-id"], res.headers["request-id"])
  end))
end)

local answers = {
  { "HTTP/1.1 20 OK\r\n\r\n", "a short status" },
  { "HTTP/1.1 600 No\r\n\r\n", "a status that is none" },
  { "HTTP/1.1 abc\r\n\r\n", "no number" },
  { "HTTP/2.0 200 OK\r\n\r\n", "another version" },
  { "ICY 200 OK\r\n\r\n", "another protocol" },
  { "<html>hello</html>", "HTTP/0.9" },
  { "HTTP/1.1 200 OK\nContent-Length: 0\n\n", "bare LF" },
  { "HTTP/1.1 200 OK\r\nX : 1\r\n\r\n", "space before the colon" },
  { "HTTP/1.1 200 OK\r\nX: a\r\n b\r\n\r\n", "a folded line" },
  { "HTTP/1.1 200 OK\r\nX: a\0b\r\n\r\n", "NUL" },
  { "HTTP/1.1 200 OK\r\nnonsense\r\n\r\n", "no colon" },
  { "HTTP/1.1 200 OK\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\nab", "two lengths" },
  { "HTTP/1.1 200 OK\r\nContent-Length: x\r\n\r\n", "a length that is none" },
  { "HTTP/1.1 200 OK\r\nContent-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n", "both framings" },
  { "HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip\r\n\r\n", "another coding" },
  { "HTTP/1.0 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n", "Transfer-Encoding in HTTP/1.0" },
  { "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n", "a bad first chunk" },
  { "HTTP/1.1 100 Continue\r\nContent-Length: 5\r\n\r\nhello", "an interim answer with a body" },
  { "HTTP/1.1 200 OK\r\nX: " .. ("a"):rep(5000) .. "\r\n\r\n", "a head too large" },
  { "HTTP/1.1 200 OK\r\n" .. ("X: 1\r\n"):rep(30) .. "\r\n", "too many fields" },
}

describe("a bad answer", function()
  it("is a 502 with a JSON error, and its connection is not used again", async(function()
    local c = on.gw:connect()
    for _, case in ipairs(answers) do
      local bytes, name = unpack(case)
      on.origin.handler = rig.raw_handler(bytes, true)
      local before = on.origin.connections
      local res = c:request {}
      assert.same({ 502, "bad_origin_answer" }, { res.status, support.json(res).error.code }, name)
      on.origin.handler = rig.hello
      assert.equal("hello", c:request({}).body, name)
      assert.is_true(on.origin.connections > before, name)
    end
  end))

  it("behind the head that has gone to the client is cut off, so that it shows", async(function()
    for _, framing in ipairs { "chunked", "none" } do
      on.origin.handler = function(_, conn)
        conn:start {}
        conn:chunk("abc")
        support.wait_for(function() return on.got end, "the client to have it")
        conn:write("zz\r\n")
        conn:wait_closed()
      end
      on.got = false
      local c = on.gw:connect()
      c:send(framing == "chunked" and get "" or "GET / HTTP/1.0\r\n\r\n")
      local res = c:read_head()
      assert.equal("abc", res:read())
      on.got = true
      local _, err = res:read()
      assert.equal(framing == "chunked" and "closed" or "reset", err)
      assert.is_false(res.complete)
    end
  end))

  it("with bytes behind its end passes, but the connection is not used again", async(function()
    on.origin.handler = function(_, conn) conn:write("HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nokHTTP/1.1 200 OK\r\n\r\n") end
    local c = on.gw:connect()
    assert.equal("ok", c:request({}).body)
    on.origin.handler = rig.hello
    local before = on.origin.connections
    assert.equal("hello", c:request({}).body)
    assert.equal(before + 1, on.origin.connections)
  end))
end)
