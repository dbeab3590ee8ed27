-- TLS with clients: certificates by SNI, versions and ciphers, what is refused and how, and HTTP inside it.
local support = require "spec.support"
local async, tls = support.async, support.tls

local on = {}

local function config(origin)
  return {
    listen = {
      { "127.0.0.1:0", tls = { certificates = { on.first, on.exact, on.wild, on.rsa, on.named } } },
      { "127.0.0.1:0", tls = { cert = on.first.cert, key = on.first.key, min_version = "1.3",
        ciphers = { "TLS_CHACHA20_POLY1305_SHA256" } } },
      "127.0.0.1:0",
    },
    redis = "redis://127.0.0.1:1", log = { level = "debug" }, timeouts = { handshake = 2 },
    routes = {
      { name = "scheme", path = "/scheme", plugins = { scheme = {} } },
      { name = "all", path = "/*", targets = { { url = origin.url } } },
    },
  }
end

local up, down = support.shared(function()
  on.ca = tls.authority()
  local function issue(options)
    local one = on.ca:issue(options)
    return { cert = one.cert, key = one.key }
  end
  on.first = issue { names = { "first.test" } }
  on.exact = issue { names = { "a.test", "x.wild.test" } }
  on.wild = issue { names = { "*.wild.test" } }
  on.rsa = issue { names = { "a.test", "x.wild.test" }, key = "rsa" }
  on.named = issue { names = { "other.test" } }
  on.named.names = { "named.test" }
  on.origin = support.origin(function(req, conn) return on.handler(req, conn) end)
  on.gw = support.gateway { config = config(on.origin), files = { ["plugins/scheme.lua"] = [[
    return { access = function(_, ctx) return 200, ctx.request.scheme end }
  ]] } }
  on.ports = {}
  for port in on.gw.log():gmatch("listening on 127%.0%.0%.1:(%d+)") do on.ports[#on.ports + 1] = tonumber(port) end
end)
setup(up)
teardown(down)

before_each(function()
  on.handler = function(req, conn) conn:respond { body = req.target } end
end)

local function connect(options, port)
  options = options or {}
  options.verify_ca, options.name = on.ca.cert, options.name or "a.test"
  return tls.connect(port or on.ports[1], options)
end

local function counter(name)
  return tonumber(on.gw:admin("/metrics").body:match(name:gsub("[%(%){}]", "%%%0") .. " (%d+)"))
end

-- A counter grows, a turn behind what it counts.
local function grows(name, act)
  local before = counter(name)
  act()
  support.wait_for(function() return counter(name) == before + 1 end, name)
end

local function failures(reason) return ('tollgate_tls_handshake_failures_total{reason="%s"}'):format(reason) end

describe("the certificate", function()
  local function served(name, options)
    options = options or {}
    options.name = name
    local c = assert(tls.connect(on.ports[1], options))
    local found = c.tls:fingerprint()
    c:close()
    for _, which in ipairs { "first", "exact", "wild", "rsa", "named" } do
      if tls.fingerprint(on[which].cert) == found then return which end
    end
  end

  it("is that of the name, exact before wildcard, else the first", async(function()
    assert.equal("exact", served "a.test")
    assert.equal("exact", served "A.Test")
    assert.equal("exact", served "x.wild.test")
    assert.equal("wild", served "y.wild.test")
    assert.equal("first", served "y.x.wild.test")
    assert.equal("first", served "wild.test")
    assert.equal("first", served "nobody.test")
    assert.equal("first", served(nil))
  end))

  it("is for the names that the configuration gives it, where it gives some", async(function()
    assert.equal("named", served "named.test")
    assert.equal("first", served "other.test")
  end))

  it("is of the kind of key that the client can use", async(function()
    assert.equal("rsa", served("a.test", { max = "1.2", ciphers = "ECDHE-RSA-AES128-GCM-SHA256" }))
    assert.equal("exact", served("a.test", { max = "1.2", ciphers = "ECDHE-ECDSA-AES128-GCM-SHA256" }))
    local c, err = tls.connect(on.ports[1], { name = "y.wild.test", max = "1.2", ciphers = "ECDHE-RSA-AES128-GCM-SHA256" })
    assert.same({ nil, "sslv3 alert handshake failure" }, { c, err })
  end))

  it("passes what an ordinary client verifies", async(function()
    assert.equal("/x", assert(connect()):request({ path = "/x" }).body)
    local _, err = connect { name = "nobody.test" }
    assert.equal("certificate verify failed", err)
  end))
end)

describe("TLS", function()
  it("is 1.2 or 1.3", async(function()
    assert.equal("TLSv1.3", assert(connect()).tls:version())
    assert.equal("TLSv1.2", assert(connect { max = "1.2" }).tls:version())
    for _, version in ipairs { "1.0", "1.1" } do
      grows(failures "protocol", function()
        local c, err = connect { min = version, max = version, ciphers = "ALL:@SECLEVEL=0" }
        assert.same({ nil, "tlsv1 alert protocol version" }, { c, err })
      end)
    end
  end))

  it("has the version and the ciphers that an address says", async(function()
    local _, err = connect({ max = "1.2" }, on.ports[2])
    assert.equal("tlsv1 alert protocol version", err)
    assert.equal("TLS_CHACHA20_POLY1305_SHA256", assert(connect({ name = "first.test" }, on.ports[2])).tls:cipher())
    _, err = connect({ suites = "TLS_AES_128_GCM_SHA256" }, on.ports[2])
    assert.equal("sslv3 alert handshake failure", err)
  end))

  it("has forward secrecy and no old cipher", async(function()
    for _, list in ipairs { "AES128-SHA", "AES128-GCM-SHA256", "ECDHE-RSA-AES128-SHA256", "DHE-RSA-AES128-GCM-SHA256" } do
      local c, err = connect { max = "1.2", ciphers = list .. ":@SECLEVEL=0" }
      assert.same({ nil, "sslv3 alert handshake failure" }, { c, err }, list)
    end
  end))

  it("does not renegotiate", async(function()
    local c = assert(connect { max = "1.2" })
    assert.equal(200, c:request({ path = "/" }).status)
    c.tls:renegotiate()
    assert.is_true(c:wait_closed())
    assert.equal("no renegotiation", c.tls.error)
  end))

  it("speaks http/1.1 by ALPN, and refuses who cannot", async(function()
    assert.equal("http/1.1", assert(connect { alpn = { "h2", "http/1.1" } }).tls:alpn())
    assert.is_nil(assert(connect()).tls:alpn())
    local _, err = connect { alpn = { "h2" } }
    assert.equal("tlsv1 alert no application protocol", err)
  end))
end)

describe("what does not fit", function()
  it("is told: a plain request to a port of TLS", async(function()
    for _, method in ipairs { "GET", "POST", "OPTIONS", "report" } do
      grows(failures "http", function()
        local res = support.request { port = on.ports[1], method = method, path = "/x" }
        assert.same({ 400, "close", "text/plain" }, { res.status, res.headers.connection, res.headers["content-type"] })
        assert.equal("This port speaks TLS: write https:// instead of http://.\n", res.body)
      end)
    end
    assert.equal("", support.request({ port = on.ports[1], method = "HEAD" }).body)
    on.gw:wait_log("a plain HTTP request came to a port of TLS", true)
  end))

  it("is told: TLS to a plain port", async(function()
    local _, err = connect({}, on.ports[3])
    assert.equal("wrong version number", err)
    on.gw:wait_log("TLS came to a port without", true)
    assert.equal(200, support.request({ port = on.ports[3] }).status)
  end))

  it("ends with an alert: bytes that are no TLS", async(function()
    for _, bytes in ipairs { "\22\3\1\0\5hello", "\0\1\2\3\4\5\6\7", "\22\3\1\255\255", "\128\1\2\3\4\5" } do
      local c = support.connect(on.ports[1])
      c:send(bytes)
      c:shutdown()
      local answer = c:read_all()
      assert.is_true(answer == "" or answer:byte() == 21, answer)
    end
    assert.equal(200, assert(connect()):request({ path = "/" }).status)
  end))

  it("ends with the deadline: a handshake that does not go on", async(function()
    grows(failures "timeout", function()
      local c = support.connect(on.ports[1])
      assert.is_true(c:wait_closed())
    end)
    grows(failures "timeout", function()
      local c = support.connect(on.ports[1])
      c:send("\22\3\1\2\0\1\0\1\252")
      assert.is_true(c:wait_closed())
    end)
  end))

  it("is not counted: somebody who looks whether the port is open", async(function()
    local before = counter(failures "cut")
    for _ = 1, 3 do support.connect(on.ports[1]):close() end
    grows(failures "cut", function()
      local c = support.connect(on.ports[1])
      c:send("\22\3\1\2\0\1\0")
      c:close()
    end)
    assert.equal(before + 1, counter(failures "cut"))
  end))
end)

describe("a handshake", function()
  it("may come a byte at a time, and holds up nobody", async(function()
    local between = support.server(function(client)
      local far = support.connect(on.ports[1])
      support.spawn(function()
        local bytes = far:read_some()
        while bytes and client:send(bytes) do bytes = far:read_some() end
      end)
      local n, byte = 0, client:read_some(nil, 1)
      while byte and far:send(byte) do
        n = n + 1
        if n % 8 == 0 then support.sleep(1) end
        byte = client:read_some(nil, 1)
      end
    end)
    local slow
    local done = support.spawn(function() slow = assert(connect({}, between.port)) end)
    for _ = 1, 5 do
      assert.equal(200, assert(connect()):request({ path = "/" }).status)
      assert.is_nil(slow)
    end
    done:join()
    assert.equal(200, slow:request({ path = "/" }).status)
  end))

  it("may break off at any byte", async(function()
    local probe = support.server(function(conn) on.hello = conn:read_some() end)
    tls.connect(probe.port, { name = "a.test", limit_ms = 200 })
    for n = 1, #on.hello, 7 do
      local c = support.connect(on.ports[1])
      c:send(on.hello:sub(1, n))
      if n % 2 == 0 then c:reset() else c:close() end
    end
    assert.equal(200, assert(connect()):request({ path = "/" }).status)
  end))
end)

describe("HTTP inside", function()
  it("knows that it is https", async(function()
    on.handler = function(req, conn) conn:respond { body = req.headers["x-forwarded-proto"] } end
    assert.equal("https", assert(connect()):request({ path = "/" }).body)
    assert.equal("http", support.request({ port = on.ports[3] }).body)
    assert.equal("https", assert(connect()):request({ path = "/scheme" }).body)
    assert.equal("http", support.request({ port = on.ports[3], path = "/scheme" }).body)
  end))

  it("is in the access log with version, cipher and name", async(function()
    assert(connect { max = "1.2", ciphers = "ECDHE-ECDSA-AES256-GCM-SHA384" }):request { path = "/logged" }
    support.request { port = on.ports[3], path = "/plain" }
    local by_path = {}
    support.wait_for(function()
      for _, line in ipairs(on.gw.access()) do by_path[line.path] = line end
      return by_path["/logged"] and by_path["/plain"]
    end, "both lines")
    assert.same({ version = "1.2", cipher = "TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384", sni = "a.test", resumed = false },
      by_path["/logged"].tls)
    assert.is_nil(by_path["/plain"].tls)
  end))

  it("keeps the connection, and takes requests that follow at once", async(function()
    local c = assert(connect())
    for i = 1, 3 do assert.equal("/" .. i, c:request({ path = "/" .. i }).body) end
    c:send("GET /a HTTP/1.1\r\nhost: a\r\n\r\nGET /b HTTP/1.1\r\nhost: a\r\n\r\n"
      .. "GET /c HTTP/1.1\r\nhost: a\r\nconnection: close\r\n\r\n")
    assert.equal("/a", c:read_response().body)
    assert.equal("/b", c:read_response().body)
    assert.equal("/c", c:read_response().body)
    assert.is_true(c:wait_closed())
    assert.is_nil(c.err) -- a close_notify came: nothing is missing
  end))

  it("carries megabytes both ways", async(function()
    on.handler = function(req, conn) conn:respond { body = req.body } end
    local body = ("0123456789abcdef"):rep(3 * 65536)
    local res = assert(assert(connect()):request { body = body })
    assert.equal(support.sha256(body), support.sha256(res.body))
  end))

  it("gives each event of a stream when it comes", async(function()
    local go
    on.handler = function(_, conn)
      conn:start { headers = { ["content-type"] = "text/event-stream" } }
      for i = 1, 3 do
        conn:chunk("data: " .. i .. "\n\n")
        go = nil
        support.wait_for(function() return go end, "the client's turn")
      end
      conn:finish()
    end
    local c = assert(connect())
    c:send_request { path = "/" }
    local res = c:read_head()
    for i = 1, 3 do
      assert.equal("data: " .. i .. "\n\n", res:read())
      go = true
    end
    assert.is_nil(res:read())
  end))
end)
