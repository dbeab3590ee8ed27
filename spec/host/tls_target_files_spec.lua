-- Files of a target's TLS: what cannot be used is refused with the key it stands at, and a change of one is a reload.
local support = require "spec.support"

local function echo(_, conn) conn:respond { body = "ok" } end

describe("the files of a target's TLS", function()
  local ca, id

  local set_up, tear_down = support.shared(function()
    ca = support.tls.authority()
    id = ca:issue {}
  end)
  setup(set_up)
  teardown(tear_down)

  local function check(tls)
    local dir = support.tmpdir()
    local config = { data_dir = dir .. "/data", routes = { { name = "r", path = "/*", targets = {
      { provider = "a", url = "http://127.0.0.1:1" }, { url = "https://localhost", tls = tls } } } } }
    support.write_file(dir .. "/gateway.lua", "return " .. support.literal(config))
    local res = support.tollgate { "check", "-c", dir .. "/gateway.lua" }
    return res.code, res.out .. res.err
  end

  it("are refused where they cannot be used", support.async(function()
    local other = ca:issue {}
    local dir = support.tmpdir()
    local garbage = support.write_file(dir .. "/garbage", "nothing to see")
    local sealed = dir .. "/sealed.key"
    support.exec { cmd = "openssl", args = { "pkey", "-in", id.key, "-aes256", "-passout", "pass:x", "-out", sealed } }
    local cases = {
      { { ca = "/nonexistent/ca.pem" }, "ca: /nonexistent/ca.pem cannot be read: no such file or directory" },
      { { ca = dir }, "ca: " .. dir .. " cannot be read: " },
      { { ca = garbage }, "ca: " .. garbage .. ": holds no certificate in PEM form" },
      { { ca = id.key }, "ca: " .. id.key .. ": holds no certificate in PEM form" },
      { { cert = garbage, key = id.key }, "cert: " .. garbage .. ": holds no certificate in PEM form" },
      { { cert = id.cert, key = garbage }, "key: " .. garbage .. ": holds no private key in PEM form" },
      { { cert = id.cert, key = id.cert }, "key: " .. id.cert .. ": holds no private key in PEM form" },
      { { cert = id.cert, key = other.key }, "key: " .. other.key .. ": is not the key of the certificate" },
      { { cert = id.cert, key = sealed }, "key: " .. sealed .. ": the key is encrypted" },
    }
    local secret = support.read_file(id.key):match("\n(%S+)\n")
    for _, case in ipairs(cases) do
      local code, text = check(case[1])
      assert.equal(1, code)
      assert.is_not_nil(text:find("routes[1].targets[2].tls." .. case[2], 1, true), text)
      assert.is_nil(text:find(secret, 1, true))
    end
    local code, text = check { ca = ca.cert, cert = id.cert, key = id.key }
    assert.equal(0, code, text)
  end))

  it("are never printed", support.async(function()
    local dir = support.tmpdir()
    support.write_file(dir .. "/gateway.lua", ("return " .. support.literal { routes = { { name = "r", path = "/*", targets = {
      { url = "https://localhost", tls = { ca = ca.cert, cert = id.cert, key = id.key } } } } } }))
    local res = support.tollgate { "check", "--print", "-c", dir .. "/gateway.lua" }
    assert.equal(0, res.code, res.err)
    assert.is_not_nil(res.out:find(id.key, 1, true)) -- its name
    assert.is_nil(res.out:find("PRIVATE KEY", 1, true))
    assert.is_nil(res.out:find(support.read_file(id.key):match("\n(%S+)\n"), 1, true))
  end))

  it("that change are taken by a reload: an authority that was removed is trusted no more", support.async(function()
    local resumed = {}
    local origin = support.origin(function(_, conn)
      resumed[#resumed + 1] = conn.handle:resumed()
      conn:respond { body = "ok" }
    end, { tls = id })
    local trusted = support.write_file(support.tmpdir() .. "/trusted.pem", support.read_file(ca.cert))
    local gw = support.gateway { config = { routes = { { name = "r", path = "/*", targets = {
      { url = "https://localhost:" .. origin.port, tls = { ca = trusted } } } } } } }
    local function ask() return gw:request { path = "/" }.status end
    assert.equal(200, ask())
    support.write_file(trusted, support.read_file(support.tls.authority("Elsewhere").cert))
    assert.equal(0, gw:command("reload").code)
    assert.equal(502, ask()) -- on no connection of before, and with no session of before
    support.write_file(trusted, "no certificate any more")
    local res = gw:command("reload")
    assert.equal(1, res.code)
    assert.is_not_nil((res.out .. res.err):find("routes[1].targets[1].tls.ca: " .. trusted .. ": holds no", 1, true))
    assert.equal(502, ask()) -- the former configuration serves on
    support.write_file(trusted, support.read_file(ca.cert))
    assert.equal(0, gw:command("reload").code)
    assert.equal(200, ask())
    assert.same({ false, false }, resumed)
  end))

  it("that stay the same keep connections over a reload", support.async(function()
    local origin = support.origin(echo, { tls = id })
    local gw = support.gateway { config = { routes = { { name = "r", path = "/*", targets = {
      { url = "https://localhost:" .. origin.port, tls = { ca = ca.cert } } } } } } }
    for _ = 1, 3 do
      assert.equal(200, gw:request { path = "/" }.status)
      assert.equal(0, gw:command("reload").code)
    end
    assert.equal(1, origin.connections)
  end))
end)
