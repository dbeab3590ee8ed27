-- tg.http.request, get and post: what goes out, what comes back, when connections are used again, and that
-- each way to fail has its constant and leaves nothing behind.
local support = require "spec.support"
local rig = require "spec.host.http_rig"
local async, run = support.async, rig.run

local function origin(fn, options)
  return support.origin(fn or function(_, conn) conn:respond { body = "hello" } end, options)
end

-- Answers the first connection as `first` does, later ones with "again".
local function first_then_again(first)
  local n = 0
  return origin(function(req, conn)
    n = n + 1
    if n == 1 then return first(req, conn) end
    conn:respond { body = "again" }
  end)
end

describe("tg.http.request", function()
  it("sends method, path, query, headers and body as asked", async(function()
    local o = origin()
    run([[
      tg.http.request(ORIGIN .. "/a//b/../%7ec/?x=1", { method = "PATCH", body = "text", headers = {
        ["X-One"] = "1", ["x-many"] = { "a", 2 }, ["User-Agent"] = "mine" }, query = {
        z = "a b&c=d/é", list = { 1, "two", true }, a = false } })
      tg.http.get(ORIGIN)
      tg.http.post(ORIGIN .. "?q")
      tg.http.post(ORIGIN .. "/json#fragment", { json = { a = tg.json.array {} } })
      tg.http.request(ORIGIN .. "/typed", { method = "PUT", json = "s", headers = { ["content-type"] = "text/x" } })
      tg.http.request(ORIGIN .. "/h", { headers = { Host = "other.test:81" }, method = "DELETE" })
    ]], o)
    local r = o.requests
    assert.equal("PATCH /a//b/../%7ec/?x=1&a=false&list=1&list=two&list=true&z=a%20b%26c%3Dd%2F%C3%A9 HTTP/1.1", r[1].first)
    assert.same({ "text", "1", "a, 2", "mine", "4", "127.0.0.1:" .. o.port }, { r[1].body, r[1].headers["x-one"],
      r[1].headers["x-many"], r[1].headers["user-agent"], r[1].headers["content-length"], r[1].headers.host })
    assert.equal("GET / HTTP/1.1", r[2].first)
    assert.is_nil(r[2].headers["content-length"])
    assert.matches("^tollgate/", r[2].headers["user-agent"])
    assert.same({ "POST /?q HTTP/1.1", "0" }, { r[3].first, r[3].headers["content-length"] })
    assert.same({ "POST /json HTTP/1.1", '{"a":[]}', "application/json" },
      { r[4].first, r[4].body, r[4].headers["content-type"] })
    assert.same({ '"s"', "text/x" }, { r[5].body, r[5].headers["content-type"] })
    assert.same({ "DELETE /h HTTP/1.1", "other.test:81" }, { r[6].first, r[6].headers.host })
  end))

  it("gives status, headers, body and URL", async(function()
    local o = origin(function(_, conn)
      conn:respond { status = 429, body = '{"a":[1]}', headers = {
        { "X-Many", "1" }, { "Content-Type", "application/json" }, { "x-many", "2" }, { "Set-Cookie", "a=b, c" },
        { "Connection", "x-hop" }, { "X-Hop", "1" } } }
    end)
    local r = run([[
      local res = assert(tg.http.get(ORIGIN .. "/p?q=1"))
      return { status = res.status, headers = res.headers, list = res.header_list, body = res.body, url = res.url,
        a = res:json().a, none = { (tg.http.get(ORIGIN)) and "res" } }
    ]], o)
    assert.same({ 429, '{"a":[1]}', o.url .. "/p?q=1", { 1 } }, { r.status, r.body, r.url, r.a })
    assert.same({ ["x-many"] = "1, 2", ["content-type"] = "application/json", ["set-cookie"] = "a=b, c",
      ["content-length"] = "9" }, r.headers)
    assert.same({ { "X-Many", "1" }, { "Content-Type", "application/json" }, { "x-many", "2" },
      { "Set-Cookie", "a=b, c" }, { "Content-Length", "9" } }, r.list)
  end))

  it("says what is wrong with a body that is not JSON", async(function()
    local r = run([[return pack(assert(tg.http.get(ORIGIN)):json())]], origin())
    assert.equal("nil", r[1])
    assert.matches("at byte 1$", r[2])
  end))

  it("reads every framing", async(function()
    local o = origin(function(req, conn)
      local way = req.path:sub(2)
      if way == "chunked" then
        conn:start { headers = { ["x-a"] = "1" } }
        for _, piece in ipairs { "one", " ", "two" } do conn:chunk(piece) end
        conn:finish { ["x-trailer"] = "1" }
      elseif way == "close" then
        conn:respond { body = "to the end", length = false }
      elseif way == "interim" then
        conn:write("HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Early Hints\r\nlink: x\r\n\r\n")
        conn:respond { body = "final" }
      elseif way == "old" then
        conn:write("HTTP/1.0 200 OK\r\n\r\nold")
        conn:close()
      else
        conn:respond { status = tonumber(way), body = "body" }
      end
    end)
    local r = run([[
      local out = {}
      for _, way in ipairs { "200", "204", "304", "chunked", "interim", "close", "old" } do
        local res = assert(tg.http.get(ORIGIN .. "/" .. way))
        out[#out + 1] = { way, res.status, res.body }
      end
      local res = assert(tg.http.request(ORIGIN .. "/200", { method = "HEAD" }))
      out[#out + 1] = { "head", res.status, res.body, res.headers["content-length"] }
      return out
    ]], o)
    assert.same({ { "200", 200, "body" }, { "204", 204, "" }, { "304", 304, "" }, { "chunked", 200, "one two" },
      { "interim", 200, "final" }, { "close", 200, "to the end" }, { "old", 200, "old" }, { "head", 200, "", "4" } }, r)
    assert.equal(3, o.connections)
  end))

  it("carries large bodies both ways", async(function()
    local o = origin(function(req, conn) conn:respond { body = req.body } end)
    assert.same({ true, 9000000 }, run([[
      local body = ("0123456789"):rep(900000)
      local res = assert(tg.http.post(ORIGIN, { body = body }))
      return { res.body == body, #res.body }
    ]], o))
  end))

  it("speaks to Unix sockets", async(function()
    local o = origin()
    local proxy = support.tmpdir() .. "/s.sock"
    local uv = require "luv"
    local server = uv.new_pipe(false)
    assert(server:bind(proxy))
    server:listen(8, function()
      local client = uv.new_pipe(false)
      server:accept(client)
      client:read_start(function(_, data)
        if not data then return client:close() end
        local line = data:match("^[^\r]+")
        local host = data:match("\r\nHost: ([^\r]+)")
        client:write(("HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%s|%s"):format(#line + #host + 1, line, host))
      end)
    end)
    support.on_end(function() server:close() end)
    assert.same({ "GET /v1/x?y=2 HTTP/1.1|localhost", "GET / HTTP/1.1|localhost", "unix:" .. proxy .. ":/" }, run(([[
      local a = assert(tg.http.get("unix:%s:/v1/x?y=2"))
      local b = assert(tg.http.get("unix:%s"))
      return { a.body, b.body, b.url }
    ]]):format(proxy, proxy), o))
  end))
end)

describe("connections of tg.http", function()
  local THREE = [[
    local out = {}
    for i = 1, 3 do out[i] = (assert(tg.http.get(ORIGIN))).body end
    return out
  ]]

  it("are kept and used again", async(function()
    local o = origin()
    local gw = rig.start({ ["/x"] = THREE }, o)
    for _ = 1, 3 do assert.same({ "hello", "hello", "hello" }, rig.call(gw, "/x")) end
    assert.equal(1, o.connections)
    assert.equal(9, #o.requests)
  end))

  it("are shared with the routes' targets", async(function()
    local o = origin()
    local gw = rig.start({ ["/x"] = THREE }, o, { routes = {
      { name = "r", path = "/x", plugins = { probe = { origin = o.url } } },
      { name = "t", path = "/t", targets = { { url = o.url } } },
    } })
    for _ = 1, 3 do
      assert.same({ "hello", "hello", "hello" }, rig.call(gw, "/x"))
      assert.equal("hello", gw:request { path = "/t" }.body)
    end
    assert.equal(1, o.connections)
  end))

  it("are not used again where bytes stand behind the answer", async(function()
    local o = first_then_again(function(_, conn)
      conn:write("HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nokHTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nwrong")
    end)
    assert.same({ "ok", "again", "again" }, run(THREE, o))
    assert.equal(2, o.connections)
  end))

  it("are not used again where the origin says so", async(function()
    local o = origin(function(_, conn) conn:respond { body = "hello", headers = { connection = "close" } } end)
    run(THREE, o)
    assert.equal(3, o.connections)
  end))

  it("are not used again once the origin's own time for them has passed", async(function()
    local o = origin(function(_, conn) conn:respond { body = "hello", headers = { ["keep-alive"] = "timeout=1" } } end)
    local gw = rig.start({ ["/x"] = "return (assert(tg.http.get(ORIGIN))).body" }, o)
    rig.call(gw, "/x")
    support.wait_for(function() return o.open == 0 end, "the gateway to close the connection")
    assert.equal("hello", rig.call(gw, "/x"))
    assert.equal(2, o.connections)
  end))

  it("are not used again while the origin has not taken the request", async(function()
    local server = support.server(function(stream)
      stream:read_until("\r\n\r\n", true)
      stream:pause()
      stream:write("HTTP/1.1 413 Too Large\r\nContent-Length: 0\r\n\r\n")
    end)
    local o = { url = "http://127.0.0.1:" .. server.port }
    assert.same({ 413, 413 }, run([[
      local out = {}
      for i = 1, 2 do out[i] = (assert(tg.http.post(ORIGIN, { body = ("x"):rep(2 ^ 24) }))).status end
      return out
    ]], o))
  end))

  it("that the origin closed are replaced, and a request without body is sent once more", async(function()
    local closed = 0
    local o = origin(function(req, conn)
      conn.served = (conn.served or 0) + 1
      if conn.served == 2 then -- as if it had been closed while the request was on its way
        closed = closed + 1
        return conn:close()
      end
      conn:respond { body = req.method }
    end)
    assert.same({ "GET", "DELETE" }, run([[
      return { assert(tg.http.get(ORIGIN)).body, assert(tg.http.request(ORIGIN, { method = "DELETE" })).body }
    ]], o))
    assert.same({ 1, 2 }, { closed, o.connections })
  end))

  it("that the origin closed fail a request that may have had an effect", async(function()
    local o = origin(function(_, conn)
      conn.served = (conn.served or 0) + 1
      if conn.served == 2 then return conn:close() end
      conn:respond { body = "hello" }
    end)
    assert.same({ "nil", "closed", "nil", "closed" }, run([[
      assert(tg.http.get(ORIGIN))
      local a, err = tg.http.post(ORIGIN)
      assert(tg.http.get(ORIGIN))
      local b, again = tg.http.request(ORIGIN, { method = "PUT", body = "x" })
      return pack(a, err, b, again)
    ]], o))
    assert.equal(4, #o.requests)
  end))

  it("are tried twice and no more", async(function()
    local o = origin()
    local gw = rig.start({ ["/a"] = "return tg.http.get(ORIGIN).body", ["/b"] = "return pack(tg.http.get(ORIGIN))" }, o)
    assert.equal("hello", rig.call(gw, "/a"))
    o.handler = function(_, conn) conn:close() end
    assert.same({ "nil", "closed" }, { unpack(rig.call(gw, "/b"), 1, 2) })
    assert.same({ 3, 2 }, { #o.requests, o.connections })
  end))

  it("of the origins used longest ago are let go", async(function()
    local first = origin()
    local others, urls = {}, {}
    for i = 1, 65 do
      others[i] = origin()
      urls[i] = ("%q"):format(others[i].url)
    end
    local gw = rig.start({
      ["/first"] = "return tg.http.get(ORIGIN).body",
      ["/some"] = "for i = 1, 60 do assert(tg.http.get(URLS[i])) end",
      ["/all"] = "for _, url in ipairs(URLS) do assert(tg.http.get(url)) end",
      top = "local URLS = { " .. table.concat(urls, ", ") .. " }",
    }, first)
    rig.call(gw, "/first")
    rig.call(gw, "/some")
    rig.call(gw, "/first")
    assert.same({ 1, 1 }, { first.connections, first.open })
    rig.call(gw, "/all")
    support.wait_for(function() return first.open == 0 and others[1].open == 0 end, "the oldest to be let go")
    local open = 0
    for _, o in ipairs(others) do open = open + o.open end
    assert.equal(64, open)
  end))

  it("serve many requests side by side", async(function()
    local waiting, released = 0, false
    local o = origin(function(req, conn)
      waiting = waiting + 1
      support.wait_for(function() return released or waiting == 30 end, "all requests to be there")
      released = true
      conn:respond { body = req.path }
    end)
    local gw = rig.start({ ["/x"] = [[return assert(tg.http.get(ORIGIN .. "/" .. ctx.request.query)).body]] }, o)
    local calls = {}
    for i = 1, 30 do calls[i] = function() return rig.call(gw, "/x?" .. i) end end
    for i, body in ipairs(support.all(calls)) do assert.equal("/" .. i, body) end
    assert.is_true(o.connections <= 30)
  end))
end)
