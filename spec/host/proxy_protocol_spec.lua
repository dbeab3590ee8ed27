-- The PROXY protocol on listeners: whose address counts, who may send it, what is closed, and TLS behind it. The header's
-- forms are shown in spec/c/proxy_protocol_test.c.
local support = require "spec.support"
local async = support.async

local V2 = "\r\n\r\n\0\r\nQUIT\n\33\17\0\12\192\0\2\1\198\51\100\7\220\4\1\187" -- 192.0.2.1:56324 → 198.51.100.7:443
local V1 = "PROXY TCP4 192.0.2.1 198.51.100.7 56324 443\r\n"
local LOCAL = "\r\n\r\n\0\r\nQUIT\n\32\0\0\0"
local GET = "GET / HTTP/1.1\r\nHost: x\r\n\r\n"
local WHO = '"192.0.2.1" 56324 "192.0.2.1"'

local plugins = { ["plugins/who.lua"] = [[
  return { version = "1", schema = {}, access = function(_, ctx)
    return 200, ("%q %d %q %s"):format(ctx.client.address, ctx.client.port, ctx.client.peer, ctx.request.scheme)
  end }
]] }

local function start(proxy_protocol, options)
  options = options or {}
  local entry = { address = "127.0.0.1:0", proxy_protocol = proxy_protocol, tls = options.tls }
  local config = { listen = options.listen or { entry }, timeouts = { handshake = options.handshake or 10 },
    trusted_proxies = options.trusted_proxies, workers = options.workers, redis = "redis://127.0.0.1:1",
    routes = { { name = "a", path = "/*", plugins = { who = {} } } } }
  return support.gateway { config = config, files = plugins }
end

local function answer(gw, bytes)
  local c = gw:connect()
  assert(c:send(bytes))
  local res, err = c:read_response {}
  c:close()
  return res and res.body, err
end

describe("a connection behind a proxy", function()
  it("is the client's that the header names, in both versions", async(function()
    local gw = start { "127.0.0.1" }
    assert.equal(WHO .. " http", answer(gw, V1 .. GET))
    assert.equal(WHO .. " http", answer(gw, V2 .. GET))
    assert.equal('"2001:db8::1" 1 "2001:db8::1" http', answer(gw, "PROXY TCP6 2001:db8::1 ::1 1 2\r\n" .. GET))
    local log = gw:wait_access(3)
    assert.equal("192.0.2.1", log[1].client)
  end))

  it("keeps its address over all its requests", async(function()
    local gw = start(true, { trusted_proxies = { "127.0.0.0/8" } })
    local c = gw:connect()
    c:send(V2 .. GET .. GET)
    for _ = 1, 2 do assert.equal(WHO .. " http", c:read_response({}).body) end
    c:send(GET)
    assert.equal(WHO .. " http", c:read_response({}).body)
  end))

  it("is the proxy's own where the header says so", async(function()
    local gw = start { "127.0.0.1" }
    assert.matches('^"127.0.0.1" %d+ "127.0.0.1" http$', answer(gw, LOCAL .. GET))
    assert.matches('^"127.0.0.1" %d+ "127.0.0.1" http$', answer(gw, "PROXY UNKNOWN\r\n" .. GET))
  end))

  it("may be cut anywhere on the way", async(function()
    local gw = start { "127.0.0.1" }
    local all = {}
    for _, header in ipairs { V1, V2 } do
      for at = 1, #header do
        all[#all + 1] = function()
          local c = gw:connect()
          c:send(header:sub(1, at))
          support.sleep(1)
          c:send(header:sub(at + 1) .. GET)
          assert.equal(WHO .. " http", c:read_response({}).body)
          c:close()
        end
      end
    end
    support.all(all)
  end))

  it("is believed about X-Forwarded-For only where the client itself is trusted", async(function()
    local gw = start({ "127.0.0.1" }, { trusted_proxies = { "192.0.2.0/24" } })
    local with = "GET / HTTP/1.1\r\nHost: x\r\nX-Forwarded-For: 9.9.9.9\r\n\r\n"
    assert.equal('"9.9.9.9" 0 "192.0.2.1" http', answer(gw, V2 .. with))
    assert.equal('"198.51.100.1" 5 "198.51.100.1" http', answer(gw, "PROXY TCP4 198.51.100.1 1.1.1.1 5 6\r\n" .. with))
  end))

  it("may speak TLS behind the header", async(function()
    local ca = support.tls.authority()
    local id = ca:issue { names = { "a.test" } }
    local gw = start({ "127.0.0.1" }, { tls = { cert = id.cert, key = id.key } })
    local python = [[
import socket, ssl, sys
header = b"]] .. V2:gsub(".", function(c) return ("\\x%02x"):format(c:byte()) end) .. [["
context = ssl.create_default_context(cafile=sys.argv[2])
for piece in (len(header), 3):
    s = socket.create_connection(("127.0.0.1", int(sys.argv[1])))
    for i in range(0, len(header), piece):
        s.sendall(header[i:i + piece])
    s = context.wrap_socket(s, server_hostname="a.test")
    s.sendall(b"GET / HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
    data = b""
    while chunk := s.recv(65536):
        data += chunk
    print(data.split(b"\r\n\r\n")[1].decode())
]]
    local res = support.exec { cmd = "python3", args = { "-c", python, tostring(gw.port), ca.cert } }
    assert.equal(WHO .. " https\n" .. WHO .. " https\n", res.out, res.err)
    assert.matches("TLS: write https", answer(gw, V2 .. GET))
  end))
end)

describe("a listener with the PROXY protocol", function()
  -- Closed without an answer.
  local function closed(gw, bytes)
    local c = gw:connect()
    if bytes ~= "" then c:send(bytes) end
    local res, err = c:read_all(5000)
    c:close()
    assert.equal("", res)
    assert.is_true(err == "closed" or err == "reset")
  end

  local function refused(gw)
    return tonumber(gw:admin("/metrics").body:match("tollgate_proxy_protocol_refused_total (%d+)"))
  end

  it("closes who has no header, a bad one, or only a part of it", async(function()
    local gw = start({ "127.0.0.1" }, { handshake = 0.3 })
    closed(gw, GET)
    closed(gw, "PROXY TCP4 192.0.2.1\r\n" .. GET)
    closed(gw, V2:sub(1, 12) .. "\17" .. V2:sub(14) .. GET)
    closed(gw, V2:sub(1, 20))
    closed(gw, "")
    support.wait_for(function() return refused(gw) == 5 end, "the count")
    assert(gw.log():find("client 127.0.0.1: PROXY protocol: no header of the PROXY protocol; closed", 1, true))
    local c = gw:connect()
    c:send(V2:sub(1, 5))
    c:close()
    support.wait_for(function() return refused(gw) == 6 end, "the count")
    c = gw:connect()
    c:close() -- a look at the port is nothing to count
    assert.equal(WHO .. " http", answer(gw, V2 .. GET))
    assert.equal(6, refused(gw))
  end))

  it("closes who may not send it, whatever comes", async(function()
    local gw = start({ "10.0.0.0/8", "unix" })
    closed(gw, V2 .. GET)
    closed(gw, GET)
    support.wait_for(function() return refused(gw) == 2 end, "the count")
    assert(gw.log():find("it is not one that may send its header", 1, true))
  end))

  it("takes it on Unix sockets", async(function()
    local path = support.tmpdir() .. "/gw.sock"
    start(nil, { listen = { "127.0.0.1:0", { address = "unix:" .. path, proxy_protocol = { "unix" } } } })
    local c = support.connect(path)
    c:send(V2 .. GET)
    assert.equal(WHO .. " http", c:read_response({}).body)
  end))

  it("is not held up at the end by those who send nothing", async(function()
    local gw = start { "127.0.0.1" }
    local idle, half = gw:connect(), gw:connect()
    half:send(V1:sub(1, 9))
    gw:stop()
    idle:close()
    half:close()
  end))

  it("needs to know from whom", async(function()
    local dir = support.tmpdir()
    support.write_file(dir .. "/gateway.lua",
      [[return { listen = { "127.0.0.1:0", proxy_protocol = true }, routes = { { name = "a", path = "/" } } }]])
    local res = support.tollgate { "check", "-c", dir .. "/gateway.lua" }
    assert.equal(1, res.code)
    assert((res.out .. res.err):find("listen.proxy_protocol: needs trusted_proxies", 1, true), res.out .. res.err)
  end))
end)
