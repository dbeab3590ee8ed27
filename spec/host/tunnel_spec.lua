-- Other protocols than HTTP: who may switch, what origin and client are told, and the bytes that pass afterwards: whole,
-- bounded while a side stalls, and to a proper end whoever leaves first. A real WebSocket client is in websocket_spec.lua.
local support = require "spec.support"
local async = support.async

local ASK = "GET /chat?x=1 HTTP/1.1\r\nHost: chat.test\r\nConnection: keep-alive, Upgrade\r\nUpgrade: %s\r\n" ..
  "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n"
local AGREE = "HTTP/1.1 101 Switching Protocols\r\nUpgrade: %s\r\nConnection: Upgrade\r\nSec-WebSocket-Accept: x\r\n\r\n"
local HELLO = "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"

-- A gateway before an origin that answers each request's head with `reply` (text, or a function of the head that returns
-- it) and hands the connection to `talk`.
local function start(options)
  local on = { heads = {}, conns = {} }
  on.origin = support.server(function(conn)
    while true do
      local head = conn:read_until("\r\n\r\n", true)
      if not head then return conn:close() end
      on.heads[#on.heads + 1], on.conns[#on.conns + 1] = head, conn
      local reply = options.reply or AGREE:format("websocket")
      conn:send(type(reply) == "function" and reply(head) or reply)
      if options.talk then return options.talk(conn, head) end
    end
  end)
  local route = { name = "chat", path = "/*", targets = { { url = "http://127.0.0.1:" .. on.origin.port } },
    upgrade = { "websocket" } }
  for key, value in pairs(options.route or {}) do route[key] = value end
  local config = { redis = options.redis or "redis://127.0.0.1:1", routes = { route } }
  for key, value in pairs(options.config or {}) do config[key] = value end
  on.gw = support.gateway { config = config, files = options.files }
  return on
end

local function ask(on, protocol, more)
  local c = on.gw:connect()
  c:send(ASK:format(protocol or "websocket") .. (more or ""))
  return c
end

local function open(on)
  local c = ask(on)
  local head = c:read_until("\r\n\r\n", true)
  assert.matches("^HTTP/1.1 101 ", head)
  return c, head
end

local function echo(conn)
  while true do
    local bytes = conn:read_some()
    if not bytes then return conn:close() end
    conn:send(bytes)
  end
end

local function last(on, n) return on.gw:wait_access(n or 1)[n or 1] end

describe("a switch", function()
  it("is asked of the origin and told to the client in the gateway's own name", async(function()
    local on = start { talk = echo }
    local c, head = open(on)
    local up = on.heads[1]:lower()
    assert.matches("^get /chat%?x=1 http/1.1\r\n", up)
    assert.matches("\r\nconnection: upgrade\r\n", up)
    assert.matches("\r\nupgrade: websocket\r\n", up)
    assert.matches("\r\nsec%-websocket%-key: dghlihnhbxbszsbub25jzq==\r\n", up)
    assert.is_nil(up:find("keep-alive", 1, true))
    head = head:lower()
    assert.matches("\r\nconnection: upgrade\r\n", head)
    assert.matches("\r\nupgrade: websocket\r\n", head)
    assert.matches("\r\nsec%-websocket%-accept: x\r\n", head)
    assert.matches("\r\nvia: 1.1 tollgate\r\n", head)
    assert.is_nil(head:find("content-length", 1, true))
    assert.is_nil(head:find("transfer-encoding", 1, true))
    c:send("\0\1\2 raw")
    assert.equal("\0\1\2 raw", c:read_n(7))
    c:close()
    local log = last(on)
    assert.same({ 101, "websocket", "ok", 7, 7 }, { log.status, log.upgrade, log.ended, log.bytes_in, log.bytes_out })
  end))

  it("passes what either side sent early", async(function()
    local on = start { reply = AGREE:format("WebSocket") .. "early from the origin", talk = echo }
    local c = ask(on, "websocket", "early from the client")
    c:read_until("\r\n\r\n", true)
    assert.equal("early from the originearly from the client", c:read_n(42))
    c:close()
  end))

  it("asks only for what the route allows", async(function()
    local on = start { talk = echo }
    local c = ask(on, "h2c, websocket, foo/1")
    assert.matches("\r\nupgrade: websocket\r\n", c:read_until("\r\n\r\n", true):lower())
    assert.matches("\r\nupgrade: websocket\r\n", on.heads[1]:lower())
    c:close()
  end))

  it("takes any protocol where the route says true", async(function()
    local on = start { route = { upgrade = true }, reply = AGREE:format("foo/2"), talk = echo }
    local c = ask(on, "bar, foo/2")
    assert.matches("\r\nupgrade: foo/2\r\n", c:read_until("\r\n\r\n", true):lower())
    c:close()
    assert.equal("foo/2", last(on).upgrade)
  end))

  it("that the route does not allow is a 426 for WebSocket", async(function()
    for wanted, upgrade in pairs { ["HTTP/1.1"] = false, ["irc, foo"] = { "irc", "foo" } } do
      local on = start { route = { upgrade = upgrade }, reply = HELLO }
      local c = ask(on)
      local res = c:read_response {}
      assert.equal(426, res.status)
      assert.equal(wanted, res.headers.upgrade)
      assert.equal("upgrade", res.headers.connection)
      assert.equal("upgrade_required", support.json(res).error.code)
      assert.equal("ok", c:request({}).body) -- the connection goes on
      assert.equal(1, #on.heads)
      c:close()
    end
  end))

  it("that the route does not allow is passed over for other protocols", async(function()
    local on = start { route = { upgrade = false }, reply = HELLO }
    for _, upgrade in ipairs { "h2c", "foo, bar" } do
      local c = ask(on, upgrade)
      assert.equal("ok", c:read_response({}).body)
      c:close()
    end
    for _, head in ipairs(on.heads) do assert.is_nil(head:lower():find("upgrade", 1, true)) end
  end))

  it("is not seen where HTTP does not allow one to ask", async(function()
    local on = start { reply = HELLO }
    for _, bytes in ipairs {
      "GET / HTTP/1.0\r\nConnection: upgrade\r\nUpgrade: websocket\r\n\r\n",
      "GET / HTTP/1.1\r\nHost: x\r\nUpgrade: websocket\r\n\r\n",
      "GET / HTTP/1.1\r\nHost: x\r\nConnection: upgrade\r\n\r\n",
      "POST / HTTP/1.1\r\nHost: x\r\nConnection: upgrade\r\nUpgrade: websocket\r\nContent-Length: 0\r\n\r\n",
    } do
      local c = on.gw:connect()
      c:send(bytes)
      assert.equal("ok", c:read_response({}).body)
      c:close()
    end
    for _, head in ipairs(on.heads) do assert.is_nil(head:lower():find("upgrade", 1, true)) end
    local c = on.gw:connect()
    c:send("CONNECT chat.test:80 HTTP/1.1\r\nHost: chat.test\r\nConnection: upgrade\r\nUpgrade: websocket\r\n\r\n")
    assert.equal(501, c:read_response({}).status)
  end))

  it("that the origin does not make is an ordinary answer", async(function()
    local on = start { reply = HELLO }
    local c = ask(on)
    assert.equal("ok", c:read_response({}).body)
    c:send(ASK:format("websocket"))
    assert.equal("ok", c:read_response({}).body)
    assert.equal(2, #on.heads)
    on = start { reply = "HTTP/1.1 426 Upgrade Required\r\nUpgrade: foo\r\nContent-Length: 0\r\n\r\n" }
    local res = ask(on):read_response {}
    assert.same({ 426, "foo", "upgrade" }, { res.status, res.headers.upgrade, res.headers.connection })
  end))

  it("that the client did not ask for is a 502", async(function()
    for reply, why in pairs {
      [AGREE:format("foo")] = "switched to a protocol that it was not asked for",
      [AGREE:format("websocket, foo")] = "switched to a protocol that it was not asked for",
      ["HTTP/1.1 101 Switching Protocols\r\n\r\n"] = "switched protocols without saying to which",
      [AGREE:format("websocket"):gsub("1.1", "1.0", 1)] = "switched protocols unasked",
    } do
      local on = start { reply = reply }
      assert.equal(502, ask(on):read_response({}).status)
      assert(on.gw.log():find(why, 1, true), on.gw.log())
    end
    local on = start {}
    assert.equal(502, on.gw:request({}).status)
    assert(on.gw.log():find("switched protocols unasked", 1, true))
  end))

  it("passes the plugins of its route", async(function()
    local on = start {
      reply = AGREE:format("websocket") .. "early", talk = echo,
      route = { plugins = { watch = {} } },
      files = { ["plugins/watch.lua"] = [[
        local tg = require "tollgate"
        return { version = "1", schema = {},
          access = function(_, ctx)
            if ctx.request.headers["x-refuse"] then return 401, "no" end
            ctx.request.headers["x-seen"] = ctx.upgrade
          end,
          response = function(_, ctx)
            tg.timer.sleep(0.02)
            ctx.response.headers["x-plugin"] = ctx.upgrade
            if ctx.response.status == 401 then return end
            assert(ctx.response.status == 101 and not pcall(function() ctx.response.status = 204 end))
          end,
          body = function(_, _, chunk) return chunk:upper() end,
          log = function(_, ctx) tg.log.info(("watched %s %s %d"):format(ctx.upgrade, ctx.ended, ctx.response.status)) end,
        }
      ]] },
    }
    local c, head = open(on)
    assert.matches("\r\nx%-plugin: websocket\r\n", head:lower())
    assert.matches("\r\nx%-seen: websocket\r\n", on.heads[1]:lower())
    assert.equal("early", c:read_n(5))
    c:close()
    on.gw:wait_log("watched websocket ok 101")
    c = on.gw:connect()
    c:send((ASK:format("websocket"):gsub("Host:", "X-Refuse: 1\r\nHost:")))
    assert.equal(401, c:read_response({}).status)
  end))
end)

describe("a tunnel", function()
  it("ends when the origin ends it, behind all its bytes", async(function()
    local on = start { talk = function(conn)
      conn:send(("x"):rep(300000))
      conn:shutdown()
    end }
    local c = open(on)
    local all, why = c:read_all()
    assert.equal(300000, #all)
    assert.equal("closed", why)
    assert.same({ "ok", 300000 }, { last(on).ended, last(on).bytes_out })
  end))

  it("ends when the client ends it, behind all its bytes", async(function()
    local got
    local on = start { talk = function(conn) got = conn:read_all() end }
    local c = open(on)
    c:send(("y"):rep(300000))
    c:shutdown()
    support.wait_for(function() return got end, "the origin's end")
    assert.equal(300000, #got)
    assert.same({ "ok", 300000 }, { last(on).ended, last(on).bytes_in })
  end))

  it("passes a reset on", async(function()
    local on = start { talk = function(conn)
      conn:read_n(1)
      conn:reset()
    end }
    local c = open(on)
    c:send("!")
    local _, why = c:read_all()
    assert.equal("reset", why)
    assert.equal("origin_cut", last(on).ended)
    local reason
    on = start { talk = function(conn) reason = select(2, conn:read_all()) end }
    open(on):reset()
    support.wait_for(function() return reason end, "the origin's end")
    assert.equal("client_gone", last(on).ended)
  end))

  it("is closed in halves where the route says so", async(function()
    local on = start { route = { half_close = "answer" }, talk = function(conn)
      local all = conn:read_all()
      conn:send("got " .. #all)
      conn:close()
    end }
    local c = open(on)
    c:send(("z"):rep(200000))
    c:shutdown()
    assert.equal("got 200000", (c:read_all()))
    assert.equal("ok", last(on).ended)
    local got
    on = start { route = { half_close = "answer" }, talk = function(conn)
      conn:send("bye")
      conn:shutdown()
      got = conn:read_all()
    end }
    c = open(on)
    assert.equal("bye", (c:read_all()))
    c:send("last words")
    c:shutdown()
    support.wait_for(function() return got end, "the origin's end")
    assert.equal("last words", got)
    assert.equal("ok", last(on).ended)
  end))

  it("is closed in halves inside TLS", async(function()
    local ca = support.tls.authority()
    local id = ca:issue { names = { "gw.test" } }
    local got
    local on = start { route = { half_close = "answer" },
      config = { listen = { { address = "127.0.0.1:0", tls = { cert = id.cert, key = id.key } } } },
      talk = function(conn)
        conn:send("bye")
        conn:shutdown()
        got = conn:read_all()
      end }
    local c = support.tls.connect(on.gw.port, { name = "gw.test", verify_ca = ca.cert })
    c:send(ASK:format("websocket"))
    assert.matches("\r\n\r\nbye$", (c:read_all()))
    c:send("last words")
    c:shutdown()
    support.wait_for(function() return got end, "the origin's end")
    assert.equal("last words", got)
    assert.equal("ok", last(on).ended)
  end))

  it("takes an end that came before the answer where the route says so", async(function()
    local release
    local on = start { route = { half_close = "answer" }, reply = function()
      support.wait_for(function() return release end, "the release")
      return AGREE:format("websocket")
    end, talk = function(conn) conn:send("got " .. conn:read_all()) conn:close() end }
    local c = ask(on, "websocket", "early")
    c:shutdown()
    support.wait_for(function() return #on.heads == 1 end, "the request")
    support.sleep(20)
    release = true
    assert.matches("\r\n\r\ngot early$", (c:read_all()))
  end))

  it("is ended by timeouts.tunnel once nothing passes", async(function()
    local reason
    local on = start { config = { timeouts = { tunnel = 0.3, keepalive = 0.1, idle = 0.1, first_byte = 0.1, body = 0.1 } },
      talk = function(conn)
        for _ = 1, 6 do
          support.sleep(100)
          conn:send(".")
        end
        reason = select(2, conn:read_all())
      end }
    local c = open(on)
    assert.equal("......", (c:read_all()))
    support.wait_for(function() return reason end, "the origin's end")
    assert.equal("timeout", last(on).ended)
  end))

  it("holds little while a side stalls, and loses nothing", async(function()
    local N = 16 * 1024 * 1024
    local piece = ("0123456789abcdef"):rep(4096)
    local stalled, got = true
    local on = start { talk = function(conn)
      support.spawn(function() for _ = 1, N / #piece do conn:send(piece, 30000) end end)
      conn:pause()
      support.wait_for(function() return not stalled end, "the origin to read", 20000)
      conn:resume()
      got = conn:read_n(N, 20000)
    end }
    local worker = on.gw:workers()[1]
    local function rss()
      return tonumber(support.read_file("/proc/" .. worker .. "/status"):match("VmRSS:%s*(%d+)"))
    end
    local c = open(on)
    local before = rss()
    c:pause()
    support.spawn(function() for _ = 1, N / #piece do c:send(piece, 30000) end end)
    support.sleep(700)
    assert.is_true(rss() - before < 3000, "grew by " .. rss() - before .. " kB")
    stalled = false
    c:resume()
    local down = c:read_n(N, 20000)
    support.wait_for(function() return got end, "all at the origin", 20000)
    assert.is_true(down == piece:rep(N / #piece))
    assert.is_true(got == piece:rep(N / #piece))
    c:close()
  end))

  it("survives a reload, and SIGTERM until the drain's limit", async(function()
    local on = start { talk = echo, config = { timeouts = { drain = 0.5 } } }
    local c = open(on)
    assert.equal(0, on.gw:command("reload").code)
    c:send("after")
    assert.equal("after", c:read_n(5))
    on.gw:kill("sigterm")
    on.gw:wait_log("stopping: 1 connections")
    c:send("still")
    assert.equal("still", c:read_n(5))
    c:wait_closed()
    assert.equal(0, (on.gw.process:wait(5000)))
    assert.equal("shutdown", last(on).ended)
  end))

  it("is given up where the client leaves at any byte of the way", async(function()
    local on = start { talk = echo }
    local bytes = ASK:format("websocket") .. "hello"
    for at = 1, #bytes, 7 do
      local c = on.gw:connect()
      c:send(bytes:sub(1, at))
      if at % 2 == 0 then c:reset() else c:close() end
    end
    for at = #bytes - 6, #bytes do
      local c = on.gw:connect()
      c:send(bytes:sub(1, at))
      c:wait_data()
      if at % 2 == 0 then c:reset() else c:close() end
    end
    support.wait_for(function()
      local n = on.gw:status().workers[1]
      return n.requests == 0 and n.connections == 0
    end, "everything to end")
    for _, conn in ipairs(on.conns) do support.wait_for(function() return conn.closed end, "the origin's side") end
  end))

  it("is given up where the origin leaves at any byte of its answer", async(function()
    local answer = AGREE:format("websocket")
    local at = 0
    local on = start { reply = function() return answer:sub(1, at) end, talk = function(conn)
      if at % 2 == 0 then conn:reset() else conn:close() end
    end }
    for n = 1, #answer - 1, 5 do
      at = n
      assert.equal(502, ask(on):read_response({}).status)
    end
    at = #answer
    local c = ask(on)
    local all = c:read_all()
    assert.is_true(all:find("101", 1, true) ~= nil or all:find("502", 1, true) ~= nil or all == "")
  end))

  it("is one request to quota, and holds its slot as long as it lasts", async(function()
    local redis = support.redis()
    local on = start { redis = redis.url, talk = echo,
      route = { api = "openai-responses",
        plugins = { quota = { key = "route", concurrency = 1, rps = 1, burst = 3, monthly_tokens = 1000 } } } }
    on.gw:wait_log("redis: usable")
    local c = open(on)
    assert.equal(1, redis:cmd("SCARD", "q:conc:route%3Achat"))
    assert.equal(429, ask(on):read_response({}).status)
    c:close()
    support.wait_for(function() return redis:cmd("SCARD", "q:conc:route%3Achat") == 0 end, "the slot to be free")
    local again = open(on)
    again:close()
    support.wait_for(function() return redis:cmd("SCARD", "q:conc:route%3Achat") == 0 end, "the slot to be free")
    for _, key in ipairs(redis:cmd("KEYS", "q:tokens:*")) do assert.equal("0", redis:cmd("GET", key)) end
  end))

  it("stands a thousand times", async(function()
    local N = 1000
    local on = start { talk = echo, config = { limits = { connections = 2000 } } }
    local clients = {}
    for i = 1, N do
      clients[i] = on.gw:connect()
      clients[i]:send(ASK:format("websocket"))
    end
    for i = 1, N do assert.matches("^HTTP/1.1 101 ", clients[i]:read_until("\r\n\r\n", true)) end
    for i = 1, N do clients[i]:send(("message %4d"):format(i)) end
    for i = 1, N do assert.equal(("message %4d"):format(i), clients[i]:read_n(12)) end
    assert.matches("tollgate_tunnels_total 1000\n", on.gw:admin("/metrics").body)
    for i = 1, N do clients[i]:close() end
    support.wait_for(function() return on.gw:status().workers[1].requests == 0 end, "their end", 10000)
  end))
end)

describe("upgrade", function()
  it("is checked", async(function()
    local dir = support.tmpdir()
    for text, message in pairs { ['"websocket"'] = "upgrade", ["{}"] = "upgrade", ['{ "a b" }'] = "upgrade[1]" } do
      support.write_file(dir .. "/gateway.lua",
        ('return { routes = { { name = "a", path = "/", upgrade = %s } } }'):format(text))
      local res = support.tollgate { "check", "-c", dir .. "/gateway.lua" }
      assert.equal(1, res.code)
      assert((res.out .. res.err):find("routes[1]." .. message, 1, true), res.out .. res.err)
    end
  end))
end)
