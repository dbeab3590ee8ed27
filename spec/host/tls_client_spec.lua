-- Certificates of clients: who is let in, what plugins learn of them, and how one that is taken off the list is kept out.
local support = require "spec.support"
local async, tls = support.async, support.tls

local on = {}

local PLUGIN = [[
local tg = require "tollgate"
return { access = function(_, ctx)
  return 200, { certificate = ctx.client.certificate or false }
end }
]]

local function listen(client)
  return { "127.0.0.1:0", tls = { cert = on.server.cert, key = on.server.key, client = client } }
end

local function start(listeners, files)
  local all = { ["plugins/show.lua"] = PLUGIN }
  for name, text in pairs(files or {}) do all[name] = text end
  local gw = support.gateway { files = all, config = { listen = listeners, log = { level = "debug" },
    redis = "redis://127.0.0.1:1", routes = { { name = "show", path = "/*", plugins = { show = {} } } } } }
  gw.ports = {}
  for port in gw.log():gmatch("listening on 127%.0%.0%.1:(%d+)") do gw.ports[#gw.ports + 1] = tonumber(port) end
  return gw
end

local up, down = support.shared(function()
  on.ca = tls.authority("Clients")
  on.server = on.ca:issue { names = { "a.test" } }
  on.alice = on.ca:issue { name = "alice", org = "Acme, Inc.",
    names = { "alice.test", "URI:spiffe://acme/alice", "email:a@b.test", "10.1.2.3", "IP:2001:db8::1" } }
  on.stranger = tls.authority("Strangers"):issue { name = "alice", names = { "alice.test" } }
  on.late = on.ca:issue { name = "late", expired = true }
  on.gw = start { listen { ca = on.ca.cert, required = false }, listen { ca = on.ca.cert } }
end)
setup(up)
teardown(down)

local function connect(port, identity, options)
  options = options or {}
  options.name, options.verify_ca = "a.test", on.ca.cert
  if identity then options.cert, options.key = identity.cert, identity.key end
  return tls.connect(port, options)
end

-- With TLS 1.3 the client is done before the server has seen its certificate: what the server says comes as an answer.
local function try(port, identity, options)
  local c, err = connect(port, identity, options)
  if not c then return nil, err end
  local res = c:request { path = "/" }
  if not res then return nil, c.tls.error or c.err end
  return support.json(res).certificate, nil, c
end

local function certificate_failures(gw)
  return tonumber(gw:admin("/metrics").body:match('tls_handshake_failures_total{reason="certificate"} (%d+)'))
end

describe("a client's certificate", function()
  it("is known to plugins, whole", async(function()
    for _, version in ipairs { "1.2", "1.3" } do
      local seen = assert(try(on.gw.ports[1], on.alice, { max = version }))
      assert.equal("CN=alice,O=Acme\\, Inc.", seen.subject)
      assert.equal("CN=Clients", seen.issuer)
      assert.equal(tls.fingerprint(on.alice.cert), seen.fingerprint)
      local serial = support.exec { cmd = "openssl", args = { "x509", "-in", on.alice.cert, "-noout", "-serial" } }.out
      assert.equal(serial:match("=(%x+)"), seen.serial)
      assert.same({ "DNS:alice.test", "URI:spiffe://acme/alice", "email:a@b.test", "IP:10.1.2.3", "IP:2001:db8::1" },
        seen.names)
    end
  end))

  it("is nil where it is optional and none comes, or there is no TLS", async(function()
    assert.is_false(try(on.gw.ports[1]))
    local plain = start { "127.0.0.1:0" }
    assert.is_false(support.json(plain:request { path = "/" }).certificate)
  end))

  it("is in the access log by its subject", async(function()
    assert(connect(on.gw.ports[2], on.alice)):request { path = "/logged" }
    local line = support.wait_for(function()
      for _, one in ipairs(on.gw.access()) do
        if one.path == "/logged" then return one end
      end
    end, "the line")
    assert.equal("CN=alice,O=Acme\\, Inc.", line.tls.subject)
  end))

  it("must come where it is required", async(function()
    assert(try(on.gw.ports[2], on.alice))
    for version, alert in pairs { ["1.2"] = "sslv3 alert handshake failure", ["1.3"] = "tlsv13 alert certificate required" } do
      local before = certificate_failures(on.gw)
      local seen, err = try(on.gw.ports[2], nil, { max = version })
      assert.same({ nil, alert }, { seen, err })
      support.wait_for(function() return certificate_failures(on.gw) == before + 1 end, "the count")
    end
    on.gw:wait_log("a certificate is required, and none came", true)
  end))

  it("must be good, also where it is optional", async(function()
    for port = 1, 2 do
      for _, version in ipairs { "1.2", "1.3" } do
        local before = certificate_failures(on.gw)
        assert.same({ nil, "tlsv1 alert unknown ca" }, { try(on.gw.ports[port], on.stranger, { max = version }) })
        assert.same({ nil, "sslv3 alert certificate expired" }, { try(on.gw.ports[port], on.late, { max = version }) })
        support.wait_for(function() return certificate_failures(on.gw) == before + 2 end, "the counts")
      end
    end
    on.gw:wait_log('the certificate "alice" was issued by "Strangers"', true)
    on.gw:wait_log('the certificate "late" expired on ', true)
    assert(try(on.gw.ports[2], on.alice))
  end))

  it("goes along when a session is resumed", async(function()
    for _, version in ipairs { "1.2", "1.3" } do
      local _, _, first = try(on.gw.ports[2], on.alice, { max = version })
      local seen, err, second = try(on.gw.ports[2], nil, { max = version, session = first.tls:session() })
      assert(seen, err)
      assert.is_true(second.tls:resumed())
      assert.equal("CN=alice,O=Acme\\, Inc.", seen.subject)
    end
  end))

  it("is not got around by a session of an address that trusts others", async(function()
    local _, _, open = try(on.gw.ports[1], nil)
    local seen, err = try(on.gw.ports[2], nil, { session = open.tls:session() })
    assert.same({ nil, "tlsv13 alert certificate required" }, { seen, err })
  end))
end)

describe("who is trusted", function()
  local function with_trust(text)
    return start({ listen { ca = "trust.pem" } }, { ["trust.pem"] = text })
  end
  local function trust(gw, text)
    gw:write("trust.pem", text)
    local run = gw:command("reload")
    assert.equal(0, run.code, run.err)
  end

  it("changes by a reload, which sessions do not get around", async(function()
    local ca, other = support.read_file(on.ca.cert), tls.authority("Others")
    local gw = with_trust(ca)
    for _, version in ipairs { "1.2", "1.3" } do
      trust(gw, ca)
      local _, _, before = try(gw.ports[1], on.alice, { max = version })
      trust(gw, support.read_file(other.cert))
      assert.equal(200, before:request({ path = "/" }).status) -- it keeps what it has
      local _, err = try(gw.ports[1], on.alice, { max = version, session = before.tls:session() })
      assert.equal("tlsv1 alert unknown ca", err)
      local bob = other:issue { name = "bob" }
      assert.equal("CN=bob", assert(try(gw.ports[1], bob, { max = version })).subject)
    end
  end, 30000))

  it("may be a single client, without its authority", async(function()
    local bob = on.ca:issue { name = "bob" }
    local gw = with_trust(support.read_file(bob.cert))
    assert.equal("CN=bob", assert(try(gw.ports[1], bob)).subject)
    local _, err = try(gw.ports[1], on.alice)
    assert.equal("tlsv1 alert unknown ca", err)
  end))

  it("ends for one by a revocation list", async(function()
    local carol = on.ca:issue { name = "carol" }
    local gw = with_trust(support.read_file(on.ca.cert))
    assert(try(gw.ports[1], carol))
    trust(gw, support.read_file(on.ca:revoke(carol)))
    local _, err = try(gw.ports[1], carol)
    assert.equal("sslv3 alert certificate revoked", err)
    assert(try(gw.ports[1], on.alice))
  end))
end)
