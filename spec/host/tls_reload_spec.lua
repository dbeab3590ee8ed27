-- Certificates that change: for new connections and those there are, under load, by hand and by themselves.
local support = require "spec.support"
local async, tls = support.async, support.tls

local on = {}
local up, down = support.shared(function() on.ca = tls.authority() end)
setup(up)
teardown(down)

local function start(identity, options)
  options = options or {}
  return support.gateway {
    files = { crt = support.read_file(identity.cert), key = support.read_file(identity.key),
      ["plugins/answer.lua"] = "return { access = function() return 200, 'fine' end }" },
    config = { listen = { "127.0.0.1:0", tls = { cert = "crt", key = "key" } }, admin = options.admin,
      workers = options.workers, reload = options.reload, redis = "redis://127.0.0.1:1",
      routes = { { name = "r", path = "/*", plugins = { answer = {} } } } },
  }
end

-- Both files change at once for whoever reads: they are written beside and moved.
local function install(gw, identity)
  for name, from in pairs { crt = identity.cert, key = identity.key } do
    gw:write(name .. ".new", support.read_file(from))
    os.rename(gw.dir .. "/" .. name .. ".new", gw.dir .. "/" .. name)
  end
end

local function reload(gw)
  local run = gw:command("reload")
  assert.equal(0, run.code, run.err)
end

local function connect(gw, session)
  return assert(tls.connect(gw.port, { name = "a.test", verify_ca = on.ca.cert, session = session }))
end

local function served(gw)
  local c = connect(gw)
  local found = c.tls:fingerprint()
  c:close()
  return found
end

describe("a certificate that changes", function()
  it("is shown to new connections of every worker; those there are stay", async(function()
    local one, two = on.ca:issue { names = { "a.test" } }, on.ca:issue { names = { "a.test" }, key = "rsa" }
    local gw = start(one, { workers = 2, reload = { watch = false } })
    local kept = {}
    for i = 1, 6 do
      kept[i] = connect(gw)
      assert.equal("fine", kept[i]:request({ path = "/" }).body)
    end
    install(gw, two)
    reload(gw)
    local want = tls.fingerprint(two.cert)
    for _ = 1, 12 do assert.equal(want, served(gw)) end
    for _, c in ipairs(kept) do
      assert.equal("fine", c:request({ path = "/" }).body)
      assert.equal(tls.fingerprint(one.cert), c.tls:fingerprint())
    end
  end))

  it("is seen where files are watched", async(function()
    local one, two = on.ca:issue { names = { "a.test" } }, on.ca:issue { names = { "a.test" } }
    local gw = start(one)
    install(gw, two)
    local want = tls.fingerprint(two.cert)
    support.wait_for(function() return served(gw) == want end, "the new certificate", 10000)
  end))

  it("costs none of 1,000 handshakes under load", async(function()
    local identities = { on.ca:issue { names = { "a.test" } }, on.ca:issue { names = { "a.test" } } }
    local gw = start(identities[1], { workers = 2, reload = { watch = false } })
    local done, seen = 0, {}
    local function client()
      while done < 1000 do
        done = done + 1
        local c = connect(gw)
        assert.equal("fine", c:request({ path = "/" }).body)
        seen[c.tls:fingerprint()] = true
        c:close()
      end
    end
    local clients = {}
    for i = 1, 8 do clients[i] = support.spawn(client) end
    local reloads = 0
    while done < 1000 do
      install(gw, identities[reloads % 2 + 1])
      reload(gw)
      reloads = reloads + 1
    end
    for _, one in ipairs(clients) do one:join(20000) end
    assert.is_true(reloads >= 2)
    for _, one in ipairs(identities) do assert.is_true(seen[tls.fingerprint(one.cert)]) end
    local body = gw:admin("/metrics").body
    assert.equal(0, tonumber(body:match('failures_total{reason="cut"} (%d+)')))
    assert.equal(0, tonumber(body:match('failures_total{reason="protocol"} (%d+)')))
  end, 60000))

  it("is the admin listener's too", async(function()
    local one, two = on.ca:issue { names = { "a.test" } }, on.ca:issue { names = { "a.test" } }
    local gw = start(one, { admin = { "127.0.0.1:0", tls = { cert = "crt", key = "key" } }, reload = { watch = false } })
    local function admin(path)
      local c = assert(tls.connect(gw.admin_port, { name = "a.test", verify_ca = on.ca.cert }))
      return c:request({ path = path, host = "127.0.0.1" }), c.tls:fingerprint()
    end
    local res, found = admin("/healthz")
    assert.same({ "ok\n", tls.fingerprint(one.cert) }, { res.body, found })
    local expires = tonumber(admin("/metrics").body:match("\ntollgate_tls_certificate_expiry_timestamp_seconds (%S+)"))
    assert.is_true(math.abs(expires - os.time() - 20 * 86400) < 7200)
    assert.equal(400, gw:admin("/healthz").status) -- plain
    install(gw, two)
    reload(gw)
    res, found = admin("/healthz")
    assert.same({ "ok\n", tls.fingerprint(two.cert) }, { res.body, found })
  end))
end)
