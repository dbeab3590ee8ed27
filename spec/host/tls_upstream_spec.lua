-- https targets against an origin that speaks TLS inside the spec: whom the gateway believes, what it says where it does
-- not, sessions, bodies both ways, and origins that cut the connection.
local support = require "spec.support"

local function gateway(target, extra)
  target.url = target.url or error "a target needs a url"
  local route = { name = "r", path = "/*", targets = { target }, retry_stale = extra and extra.retry_stale }
  return support.gateway { config = { routes = { route }, timeouts = extra and extra.timeouts }, env = extra and extra.env }
end

local function localhost(origin) return "https://localhost:" .. origin.port end

local function echo(req, conn) conn:respond { body = req.method .. " " .. req.path .. " " .. req.body } end

local function code_of(res) return support.json(res).error.code end

describe("an https target", function()
  local ca, id

  local set_up, tear_down = support.shared(function()
    ca = support.tls.authority()
    id = ca:issue {}
  end)
  setup(set_up)
  teardown(tear_down)

  it("is served where its certificate is good", support.async(function()
    local names = {}
    local origin = support.origin(function(req, conn)
      names[#names + 1] = conn.handle:server_name() or "none"
      echo(req, conn)
    end, { tls = id })
    local gw = gateway { url = localhost(origin) .. "/base", tls = { ca = ca.cert } }
    local res = gw:request { path = "/x", body = "hello" }
    assert.equal(200, res.status)
    assert.equal("POST /base/x hello", res.body)
    assert.same({ "localhost" }, names)
    assert.equal("localhost:" .. origin.port, origin.requests[1].headers.host)
    assert.equal("http", origin.requests[1].headers["x-forwarded-proto"])
  end))

  it("may be an address, which the certificate then names, and which is not sent as a name", support.async(function()
    local name = "unset"
    local origin = support.origin(function(req, conn)
      name = conn.handle:server_name()
      echo(req, conn)
    end, { tls = id })
    local gw = gateway { url = origin.url, tls = { ca = ca.cert } }
    assert.equal(200, gw:request { path = "/" }.status)
    assert.is_nil(name)
  end))

  it("is checked by the system's authorities where none are named", support.async(function()
    local origin = support.origin(echo, { tls = id })
    local gw = gateway({ url = localhost(origin) }, { env = { SSL_CERT_FILE = ca.cert } })
    assert.equal(200, gw:request { path = "/" }.status)
    local other = gateway({ url = localhost(origin) }, { env = { SSL_CERT_FILE = false } })
    local res = other:request { path = "/" }
    assert.equal(502, res.status)
    assert.equal("origin_certificate", code_of(res))
    other:wait_log('target [^\n]*: cannot connect: the certificate "spec" was issued by "Spec CA", which is no trusted')
  end))

  -- what it shows, and what the log says
  local bad = {
    { "expired", function() return ca:issue { expired = true, name = "old" } end, 'the certificate "old" expired on 20%d%d' },
    { "not yet valid", function() return ca:issue { early = true, name = "young" } end,
      'the certificate "young" is not yet valid, but from 20%d%d' },
    { "for another name", function() return ca:issue { names = { "else.example", "10.1.2.3" } } end,
      "its certificate is for else.example, 10.1.2.3, not for localhost" },
    { "self-signed", function() return ca:issue { self_signed = true, name = "lone" } end,
      'its certificate "lone" is self%-signed' },
    { "of an unknown issuer", function() return support.tls.authority("Elsewhere"):issue {} end,
      'was issued by "Elsewhere", which is no trusted authority' },
  }
  for _, one in ipairs(bad) do
    it("is refused where its certificate is " .. one[1], support.async(function()
      local origin = support.origin(echo, { tls = one[2]() })
      local gw = gateway { url = localhost(origin), tls = { ca = ca.cert } }
      local res = gw:request { path = "/" }
      assert.equal(502, res.status)
      assert.equal("origin_certificate", code_of(res))
      gw:wait_log(one[3])
      assert.equal(0, #origin.requests)
      local _, lines = gw.log():gsub("cannot connect", "")
      assert.equal(1, lines)
      -- The same, but for a gateway that asks no questions.
      local open = gateway { url = localhost(origin), tls = { verify = false } }
      assert.equal(200, open:request { path = "/" }.status)
    end))
  end

  it("is refused where its certificate was revoked", support.async(function()
    local list = ca:issue {}
    local revoked = ca:revoke(list)
    local good, bad_one = support.origin(echo, { tls = id }), support.origin(echo, { tls = list })
    assert.equal(200, gateway({ url = localhost(good), tls = { ca = revoked } }):request { path = "/" }.status)
    local gw = gateway { url = localhost(bad_one), tls = { ca = revoked } }
    assert.equal("origin_certificate", code_of(gw:request { path = "/" }))
    gw:wait_log('was revoked by "Spec CA"', false)
  end))

  it("may show the certificate of a name that is given", support.async(function()
    local origin = support.origin(echo, { tls = ca:issue { names = { "api.example" } } })
    local gw = gateway { url = origin.url, tls = { ca = ca.cert, server_name = "api.example" } }
    assert.equal(200, gw:request { path = "/" }.status)
    assert.equal("127.0.0.1:" .. origin.port, origin.requests[1].headers.host)
  end))

  it("gets the gateway's certificate where it asks for one", support.async(function()
    local mine = ca:issue { name = "gateway", names = { "gateway.example" } }
    for _, version in ipairs { "1.2", "1.3" } do
      local origin = support.origin(echo, { tls = { cert = id.cert, key = id.key, verify_ca = ca.cert, max = version } })
      local gw = gateway { url = localhost(origin), tls = { ca = ca.cert, cert = mine.cert, key = mine.key } }
      assert.equal(200, gw:request { path = "/" }.status)
      local without = gateway { url = localhost(origin), tls = { ca = ca.cert } }
      local res = without:request { path = "/" }
      assert.equal(502, res.status)
      assert.equal("origin_tls", code_of(res))
      without:wait_log(version == "1.2" and "it refused with the TLS alert" or "certificate required")
    end
  end))

  it("that speaks plain HTTP is a 502 that says so", support.async(function()
    local origin = support.server(function(conn)
      if conn:wait_data(5000) then conn:send("HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\n\r\n") end
      conn:close()
    end)
    local gw = gateway { url = localhost(origin), tls = { ca = ca.cert } }
    local res = gw:request { path = "/" }
    assert.equal("origin_tls", code_of(res))
    gw:wait_log("what it sent is not TLS", true)
  end))

  it("that speaks only old versions is a 502", support.async(function()
    local origin = support.origin(echo, { tls = { cert = id.cert, key = id.key, min = "1.0", max = "1.1",
      ciphers = "ALL@SECLEVEL=0" } })
    local gw = gateway { url = localhost(origin), tls = { ca = ca.cert } }
    assert.equal("origin_tls", code_of(gw:request { path = "/" }))
    gw:wait_log("alert", true)
  end))

  it("that says nothing is a 504 once the time to connect is over", support.async(function()
    local silent = support.server(function(conn) conn:wait_closed(20000) end)
    local gw = gateway({ url = "https://localhost:" .. silent.port }, { timeouts = { connect = 0.2 } })
    local res = gw:request { path = "/" }
    assert.equal(504, res.status)
    assert.equal("origin_timeout", code_of(res))
  end))

  it("is one pool with others of the same TLS, and not with those of another", support.async(function()
    local origin = support.origin(echo, { tls = id })
    local function route(name, tls)
      return { name = name, path = "/" .. name, targets = { { url = localhost(origin), tls = tls } } }
    end
    local gw = support.gateway { config = { routes = { route("a", { ca = ca.cert }), route("b", { ca = ca.cert }),
      route("c", { verify = false }), route("d", { ca = ca.cert, server_name = "localhost" }) } } }
    for _, path in ipairs { "/a", "/b", "/a", "/d" } do assert.equal(200, gw:request { path = path }.status) end
    assert.equal(1, origin.connections)
    assert.equal(200, gw:request { path = "/c" }.status)
    assert.equal(2, origin.connections)
  end))

  it("resumes its session, and counts that", support.async(function()
    local resumed = {}
    local origin = support.origin(function(_, conn)
      resumed[#resumed + 1] = conn.handle:resumed()
      conn:respond { body = "x", headers = { connection = "close" } }
    end, { tls = id })
    local gw = gateway { url = localhost(origin), tls = { ca = ca.cert } }
    for _ = 1, 4 do assert.equal(200, gw:request { path = "/" }.status) end
    assert.same({ false, true, true, true }, resumed)
    support.wait_for(function()
      local text = gw:admin("/metrics").body
      return text:find("\ntollgate_origin_tls_handshakes_total 4\n", 1, true)
        and text:find("\ntollgate_origin_tls_resumed_total 3\n", 1, true)
        and text:find("\ntollgate_origin_tls_failures_total 0\n", 1, true)
    end, "the handshakes to be counted")
  end))

  it("carries megabytes both ways, in any split", support.async(function()
    local big = ("0123456789abcdef"):rep(4 * 65536) -- 4 MB
    local sums = {}
    local origin = support.origin(function(req, conn)
      sums[#sums + 1] = support.sha256(req.body)
      conn:start {}
      for at = 1, #req.body, 777777 do conn:chunk(req.body:sub(at, at + 777776)) end
      conn:finish()
    end, { tls = { cert = id.cert, key = id.key } })
    local gw = support.gateway { config = { limits = { body = "32m" },
      routes = { { name = "r", path = "/*", targets = { { url = localhost(origin), tls = { ca = ca.cert } } } } } } }
    for _ = 1, 3 do
      local res = gw:request { path = "/", body = big, timeout = 20000 }
      assert.equal(#big, #res.body)
      assert.is_true(res.body == big)
    end
    assert.same({ support.sha256(big), support.sha256(big), support.sha256(big) }, sums)
  end))

  it("is told by TLS that a connection ends which was kept", support.async(function()
    local ended
    local origin = support.server(function(conn)
      local inside = support.tls.accept(conn, id)
      inside:read_until("\r\n\r\n", true)
      inside:send "HTTP/1.1 200 OK\r\nContent-Length: 2\r\nKeep-Alive: timeout=1\r\n\r\nok"
      ended = { inside:read_all(20000) }
    end)
    local gw = gateway { url = localhost(origin), tls = { ca = ca.cert } }
    assert.equal("ok", gw:request { path = "/" }.body)
    gw:stop()
    support.wait_for(function() return ended end, "the end of the connection")
    assert.same({ "", "closed" }, ended) -- and not ECUT
  end))

  it("is asked for HTTP/1.1 by ALPN, here one in Python", support.async(function()
    local server = support.start { cmd = "python3", args = { "-u", "-c", [[
import socket, ssl, sys
context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
context.load_cert_chain(sys.argv[1], sys.argv[2])
context.set_alpn_protocols(["h2", "http/1.1"])
listener = socket.create_server(("127.0.0.1", 0))
print(listener.getsockname()[1])
with context.wrap_socket(listener.accept()[0], server_side=True) as conn:
    conn.recv(65536)
    conn.sendall(b"HTTP/1.1 200 OK\r\n\r\n" + str(conn.selected_alpn_protocol()).encode())
    conn.unwrap()
]], id.cert, id.key } }
    local port = support.wait_for(function() return server:out():match("^(%d+)\n") end, "the origin's port")
    local gw = gateway { url = "https://localhost:" .. port, tls = { ca = ca.cert } }
    assert.equal("http/1.1", gw:request { path = "/" }.body)
  end))

  it("that writes its handshake in single bytes is served", support.async(function()
    local origin = support.server(function(conn)
      local wrapped = support.tls.accept(conn, { cert = id.cert, key = id.key, drip = true })
      local got = wrapped:read_until("\r\n\r\n", true, 20000)
      if got then wrapped:send("HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok") end
      wrapped:wait_closed(10000)
    end)
    local gw = gateway { url = "https://localhost:" .. origin.port, tls = { ca = ca.cert } }
    local res = gw:request { path = "/" }
    assert.equal("ok", res.body)
  end))

  describe("that cuts the connection without ending TLS", function()
    local function cutting(head, body, clean)
      return support.origin(function(_, conn)
        conn:send(head .. "\r\n" .. body)
        conn.handle.cut = not clean
        conn:close()
      end, { tls = id })
    end
    local function ask(origin)
      local gw = gateway({ url = localhost(origin), tls = { ca = ca.cert } }, { retry_stale = false })
      local conn = gw:connect()
      conn:send("GET / HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
      local bytes, why = conn:read_all(5000)
      return bytes, why, gw:wait_access(1)[1].ended
    end

    it("leaves an answer up to the end of the connection incomplete", support.async(function()
      local bytes, why, ended = ask(cutting("HTTP/1.1 200 OK\r\n", "half an answer"))
      assert.equal("origin_cut", ended)
      assert.is_not_nil(bytes:find("half an answer", 1, true))
      assert.is_nil(bytes:find("\r\n0\r\n\r\n", 1, true)) -- the chunked answer to the client has no end
      assert.is_truthy(why == "closed" or why == "reset")
    end))

    it("which is complete where TLS was ended", support.async(function()
      local bytes, _, ended = ask(cutting("HTTP/1.1 200 OK\r\n", "an answer", true))
      assert.equal("ok", ended)
      assert.is_not_nil(bytes:find("\r\n0\r\n\r\n", 1, true))
    end))

    it("does no harm to an answer that is whole by its length", support.async(function()
      local bytes, _, ended = ask(cutting("HTTP/1.1 200 OK\r\nContent-Length: 5\r\n", "whole"))
      assert.equal("ok", ended)
      assert.is_not_nil(bytes:find("whole", 1, true))
    end))

    it("does no harm to an answer that is whole by its chunks", support.async(function()
      local _, _, ended = ask(cutting("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n", "5\r\nwhole\r\n0\r\n\r\n"))
      assert.equal("ok", ended)
    end))

    it("leaves an answer that lacks bytes incomplete", support.async(function()
      local _, _, ended = ask(cutting("HTTP/1.1 200 OK\r\nContent-Length: 50\r\n", "half"))
      assert.equal("origin_cut", ended)
    end))
  end)
end)
