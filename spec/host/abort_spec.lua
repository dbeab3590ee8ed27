-- Who leaves, and when: a client's end cancels the request to the origin wherever it comes, an origin's end is never
-- passed on as a proper one, and nothing is left behind (the gateway's exit code tells).
local support = require "spec.support"
local rig = require "spec.host.proxy_rig"
local async = support.async

local CHUNKED = "Transfer-Encoding: chunked\r\n\r\n"

local function wait_gone(on)
  support.wait_for(function() return on.origin.open == 0 end, "the origin's connection to end")
end

local function silent(_, conn) conn:wait_closed() end

local function stream(_, conn)
  conn:start {}
  while not conn.closed do
    conn:chunk("x")
    support.sleep(2)
  end
end

describe("a client that leaves", function()
  local ways = { "close", "shutdown", "reset" }

  it("at any byte of its request, in any way, leaves nothing at the origin", async(function()
    local on = rig.start { handler = silent, origin = { stream_body = true } }
    local bytes = "POST /a HTTP/1.1\r\nHost: a\r\nContent-Length: 10\r\n\r\n0123456789"
    local head = #bytes - 10
    for at = 1, #bytes do
      for _, way in ipairs(ways) do
        local before = #on.origin.requests
        local c = on.gw:connect()
        c:send(bytes:sub(1, at))
        if at >= head then on.origin:wait_request(before + 1) end
        c[way](c)
        if way ~= "reset" then assert.is_true(c:wait_closed()) end
        wait_gone(on)
        assert.equal(before + (at >= head and 1 or 0), #on.origin.requests)
        c:close()
      end
    end
    for _, line in ipairs(on.gw:wait_access((10 + 1) * #ways)) do
      assert.same({ "client_gone", nil }, { line.ended, line.status })
    end
  end))

  it("in chunks of its body", async(function()
    local on = rig.start { handler = silent, origin = { stream_body = true } }
    local bytes = "5\r\n01234\r\n0\r\n\r\n"
    for at = 0, #bytes do
      local c = on.gw:connect()
      c:send("POST /a HTTP/1.1\r\nHost: a\r\n" .. CHUNKED .. bytes:sub(1, at))
      on.origin:wait_request(at + 1)
      c:close()
      wait_gone(on)
    end
  end))

  it("amid an answer", async(function()
    local on = rig.start { handler = stream }
    for i, way in ipairs(ways) do
      local c = on.gw:connect()
      c:send_request {}
      local res = c:read_head()
      assert.is_string(res:read())
      c[way](c)
      wait_gone(on)
      local line = on.gw:wait_access(i)[i]
      assert.same({ "client_gone", 200 }, { line.ended, line.status })
      c:close()
    end
  end))

  it("while its reading is stalled, and the origin's with it", async(function()
    local on = rig.start { handler = function(_, conn)
      conn:start {}
      local piece = ("x"):rep(65536)
      while not conn.closed and conn:chunk(piece) do end
    end }
    local c = on.gw:connect()
    c:pause()
    c:send_request {}
    on.origin:wait_request(1)
    support.sleep(100)
    c:close()
    wait_gone(on)
  end))

  it("by a reset while its body is stalled by the origin", async(function()
    local left
    local on = rig.start { origin = { stream_body = true }, handler = function(req, conn)
      conn:pause()
      support.wait_for(function() return left end, "the client to leave", 10000)
      conn:resume()
      while req:read() do end
    end }
    local c, sent = on.gw:connect(), 0
    c:send("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 9999999\r\n\r\n")
    while sent < 9 and c:send(("x"):rep(1000000), 200) do sent = sent + 1 end
    c:reset()
    on.gw:wait_access(1)
    left = true
    wait_gone(on)
  end))

  it("while its body is stalled by plugins, by an end or a reset", async(function()
    for _, way in ipairs(ways) do
      local on = rig.start { files = { ["plugins/slow.lua"] = [[
        local tg = require "tollgate"
        return { version = "1.0.0", priority = 1, schema = {}, access = function() tg.timer.sleep(60) end }]] },
        route = { plugins = { slow = {} } } }
      local c = on.gw:connect()
      c:send("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 999999\r\n\r\n" .. ("x"):rep(100000))
      support.sleep(50)
      c[way](c)
      assert.equal("client_gone", on.gw:wait_access(1)[1].ended)
      assert.same({}, on.origin.requests)
    end
  end))

  it("while it waits for a connection, or while plugins run", async(function()
    local on = rig.start { config = { upstream = { connections = 1 } }, handler = silent,
      files = { ["plugins/slow.lua"] = [[
        local tg = require "tollgate"
        return { version = "1.0.0", priority = 1, schema = {}, access = function() tg.timer.sleep(60) end }]] },
      routes = function(url)
        return { { name = "all", path = "/*", targets = { { url = url } } },
          { name = "slow", path = "/slow", targets = { { url = url } }, plugins = { slow = {} } } }
      end }
    local first, second, third = on.gw:connect(), on.gw:connect(), on.gw:connect()
    first:send_request {}
    on.origin:wait_request(1)
    second:send_request {}
    third:send_request { path = "/slow" }
    support.sleep(20)
    second:close()
    third:close()
    on.gw:wait_access(2)
    first:close()
    wait_gone(on)
    assert.equal(1, #on.origin.requests)
  end))

  it("frees its place at once: hundreds leave nothing behind", async(function()
    local on = rig.start { handler = silent }
    local fds
    for round = 1, 3 do
      for _ = 1, 100 do
        local c = on.gw:connect()
        c:send_request {}
        c:reset()
      end
      wait_gone(on)
      support.wait_for(function() return rig.descriptors(on.gw) <= (fds or math.huge) end, "descriptors as before")
      if round == 1 then
        support.sleep(50)
        fds = rig.descriptors(on.gw)
      end
    end
  end))
end)

describe("half_close = \"answer\"", function()
  it("answers a client that has sent its FIN behind its request, and then ends", async(function()
    local on = rig.start { route = { half_close = "answer" }, handler = function(req, conn)
      support.sleep(20)
      conn:respond { body = req.path .. req.body }
    end }
    local c = on.gw:connect()
    c:send_request { path = "/a", body = "b" }
    c:shutdown()
    assert.equal("/ab", c:read_response().body)
    assert.is_true(c:wait_closed())
    local d = on.gw:connect()
    d:send("GET /1 HTTP/1.1\r\nHost: a\r\n\r\nGET /2 HTTP/1.1\r\nHost: a\r\n\r\nGET /3 HT")
    d:shutdown()
    assert.same({ "/1", "/2" }, { d:read_response().body, d:read_response().body })
    assert.same({ "", "closed" }, { d:read_all() })
    assert.equal(3, #on.origin.requests)
  end))

  it("still ends the request of a client whose body is cut, or that resets", async(function()
    local on = rig.start { route = { half_close = "answer" }, handler = stream, origin = { stream_body = true } }
    local c = on.gw:connect()
    c:send("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 10\r\n\r\nabc")
    on.origin:wait_request(1)
    c:shutdown()
    wait_gone(on)
    c = on.gw:connect()
    c:send_request {}
    c:read_head()
    c:shutdown()
    for _ = 1, 5 do assert.is_string(c:read_some()) end
    c:close() -- what comes now is answered by a reset
    wait_gone(on)
  end))
end)

describe("an origin that", function()
  it("closes or resets without an answer is a 502", async(function()
    for _, way in ipairs { "close", "reset" } do
      local on = rig.start { handler = function(_, conn) conn[way](conn) end }
      local res = on.gw:request { body = "x" }
      assert.same({ 502, "origin_closed" }, { res.status, support.json(res).error.code })
      on.origin.handler = function(_, conn)
        conn:write("HTTP/1.1 200 OK\r\nContent-Le")
        conn[way](conn)
      end
      assert.equal(502, on.gw:request({ body = "x" }).status)
    end
  end))

  -- framing of the answer, and of what the client then sees
  local cases = { length = "Content-Length: 10\r\n\r\nabc", chunked = CHUNKED .. "3\r\nabc\r\n",
    cut_chunk = CHUNKED .. "9\r\nabc", no_last_chunk = CHUNKED .. "3\r\nabc\r\n0\r\n" }

  it("dies amid its answer leaves the client with an answer that is not complete", async(function()
    for name, bytes in pairs(cases) do
      for _, way in ipairs { "close", "reset" } do
        for _, minor in ipairs { 1, 0 } do
          local on = rig.start { handler = function(_, conn)
            conn:write("HTTP/1.1 200 OK\r\n" .. bytes)
            support.sleep(5)
            conn[way](conn)
          end }
          local c = on.gw:connect()
          c:send("GET / HTTP/1." .. minor .. "\r\nHost: a\r\n\r\n")
          local res, err, part = c:read_response()
          -- Without a length or chunks only a reset tells.
          local expected = minor == 0 and name ~= "length" and "reset" or "closed"
          assert.same({ nil, expected, "abc" }, { res, err, part and part.body }, name .. " " .. way)
          assert.equal("origin_cut", on.gw:wait_access(1)[1].ended)
        end
      end
    end
  end))

  it("resets an answer that would end by closing leaves it not complete, too", async(function()
    local on = rig.start { handler = function(_, conn)
      conn:write("HTTP/1.1 200 OK\r\n\r\nabc")
      support.wait_for(function() return conn.seen end, "the client to have it")
      conn:reset()
    end }
    for minor = 0, 1 do
      local c = on.gw:connect()
      c:send("GET / HTTP/1." .. minor .. "\r\nHost: a\r\n\r\n")
      local res = c:read_head()
      assert.equal("abc", res:read())
      for conn in pairs(on.origin.conns) do conn.seen = true end
      assert.same({ nil, minor == 0 and "reset" or "closed" }, { res:read() })
    end
  end))

  it("resets it before the gateway has read the last bytes: also then", async(function()
    local on
    on = rig.start { handler = function(_, conn)
      on.gw:kill("sigstop")
      support.on_end(function() on.gw:kill("sigcont") end)
      conn:write("HTTP/1.1 200 OK\r\n\r\nabc")
      support.sleep(20)
      conn:reset()
    end }
    local c = on.gw:connect()
    c:send_request {}
    support.wait_for(function() return on.origin.requests[1] and on.origin.open == 0 end, "the reset")
    on.gw:kill("sigcont")
    local res, err = c:read_response()
    assert.is_nil(res)
    assert.equal("closed", err)
    assert.equal("origin_cut", on.gw:wait_access(1)[1].ended)
  end))

  it("answers before it has the whole body is heard, and the rest is not sent", async(function()
    local got
    local on = rig.start { origin = { stream_body = true }, handler = function(req, conn)
      conn:respond { status = 413, body = "too much", headers = { connection = "close" } }
      support.sleep(20)
      got = req
      conn:close()
    end }
    local c = on.gw:connect()
    c:send("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 9000000\r\n\r\n")
    local res = c:read_response()
    assert.same({ 413, "too much", "close" }, { res.status, res.body, res.headers.connection })
    assert.is_true(c:wait_closed())
    support.wait_for(function() return got end, "the origin's end")
    assert.is_false(got.complete)
    -- A small rest is read and dropped, and the connection goes on.
    c = on.gw:connect()
    c:send("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 900\r\n\r\n")
    assert.equal(413, c:read_response().status)
    c:send(("x"):rep(900))
    on.origin.handler = rig.hello
    assert.equal("hello", c:request({}).body)
  end))
end)
