-- tg.http with https: whom it believes, what it says where it does not, pools, redirects, streams.
local support = require "spec.support"
local rig = require "spec.host.http_rig"

describe("tg.http with https", function()
  local ca, id

  local set_up, tear_down = support.shared(function()
    ca = support.tls.authority()
    id = ca:issue {}
  end)
  setup(set_up)
  teardown(tear_down)

  local function origin(handler, identity)
    local o = support.origin(handler or function(req, conn) conn:respond { body = req.method .. " " .. req.body } end,
      { tls = identity or id })
    o.url = "https://localhost:" .. o.port
    return o
  end

  -- `CA`, `CERT` and `KEY` are paths of files.
  local function with_files(code, mine)
    return ("local CA, CERT, KEY = %q, %q, %q\n%s"):format(ca.cert, mine and mine.cert or "", mine and mine.key or "", code)
  end

  local function run(code, o, mine) return rig.run(with_files(code, mine), o) end

  it("fetches, and keeps connections by how TLS is spoken", support.async(function()
    local o = origin()
    assert.same({ "GET ", "POST x", "GET ", 200 }, run([[
      local tls = { ca = CA }
      return { assert(tg.http.get(ORIGIN, { tls = tls })).body, assert(tg.http.post(ORIGIN, { tls = tls, body = "x" })).body,
        assert(tg.http.get(ORIGIN, { tls = { ca = CA, verify = true, server_name = "localhost" } })).body,
        assert(tg.http.get(ORIGIN, { tls = { verify = false } })).status }
    ]], o))
    assert.equal(2, o.connections)
  end))

  it("says what is wrong with a certificate", support.async(function()
    local names = { "else.example" }
    for says, identity in pairs {
      ["cannot connect: the certificate \"old\" expired on 20"] = ca:issue { expired = true, name = "old" },
      ["cannot connect: its certificate is for else.example, not for localhost"] = ca:issue { names = names },
    } do
      local got = run("return pack(tg.http.get(ORIGIN, { tls = { ca = CA } }))", origin(nil, identity))
      assert.same({ "nil", "tls" }, { got[1], got[2] })
      assert.equal(says, got[3]:sub(1, #says))
    end
    local got = run("return pack(tg.http.stream(ORIGIN))", origin())
    assert.same({ "nil", "tls" }, { got[1], got[2] })
    assert.is_not_nil(got[3]:find("no trusted authority", 1, true))
  end))

  it("shows a certificate where one is asked for", support.async(function()
    local mine = ca:issue { name = "plugin" }
    local o = origin(nil, { cert = id.cert, key = id.key, verify_ca = ca.cert })
    assert.same({ 200, "tls" }, run([[
      return { assert(tg.http.get(ORIGIN, { tls = { ca = CA, cert = CERT, key = KEY } })).status,
        (select(2, tg.http.get(ORIGIN, { tls = { ca = CA } }))) }
    ]], o, mine))
  end))

  it("streams, and tells a stream that was cut from one that ended", support.async(function()
    local cut
    local o = origin(function(_, conn)
      conn:send "HTTP/1.1 200 OK\r\n\r\nsome bytes"
      conn.handle.cut = cut
      conn:close()
    end)
    local code = [[
      local res = assert(tg.http.stream(ORIGIN, { tls = { ca = CA } }))
      return pack(res:read(), res:read())
    ]]
    assert.same({ "some bytes", "nil" }, run(code, o))
    cut = true
    assert.same({ "some bytes", "nil", "closed" }, run(code, o))
  end))

  it("speaks with other hosts than the one named by the system's authorities", support.async(function()
    local other = origin()
    local o = origin(function(req, conn)
      if req.path == "/same" then return conn:respond { status = 302, headers = { location = "/there" } } end
      if req.path == "/there" then return conn:respond { body = "there" } end
      conn:respond { status = 302, headers = { location = ("https://127.0.0.1:%d/"):format(other.port) } }
    end)
    local got = run([[
      local options = { redirects = 2, tls = { ca = CA } }
      return { assert(tg.http.get(ORIGIN .. "/same", options)).body, (select(2, tg.http.get(ORIGIN .. "/other", options))) }
    ]], o)
    assert.same({ "there", "tls" }, got)
    assert.equal(0, #other.requests)
  end))

  it("raises where it is misused", support.async(function()
    for written, says in pairs {
      ["1"] = "tls must be a table, not number",
      ["{ ca = 1 }"] = "tls.ca must be a string, not number",
      ["{ ca = '' }"] = "tls.ca must not be empty",
      ["{ verify = 1 }"] = "tls.verify must be a boolean, not number",
      ["{ cert = CA }"] = "tls.cert and tls.key belong together",
      ["{ 'x' }"] = "tls has no '",
      ["{ vrify = false }"] = "tls has no 'vrify'; known are ca, cert, key, server_name, verify",
      ["{ ca = '/nonexistent' }"] = "tls.ca: /nonexistent cannot be read: no such file",
      ["{ cert = CA, key = CA }"] = "tls.key: " .. ca.cert .. ": holds no private key",
    } do
      local got = run("return pack(pcall(tg.http.get, ORIGIN, { tls = " .. written .. " }))")
      assert.is_false(got[1])
      assert.is_not_nil(got[2]:find(says, 1, true), got[2])
    end
  end))

  it("runs in tollgate exec", support.async(function()
    local o = origin()
    local path = support.write_file(support.tmpdir() .. "/x.lua", [[
      local tg = require "tollgate"
      local url, ca = ...
      print(assert(tg.http.get(url, { tls = { ca = ca } })).body)
    ]])
    local res = support.tollgate { "exec", path, o.url, ca.cert }
    assert.same({ 0, "GET \n" }, { res.code, res.out }, res.err)
  end))
end)
