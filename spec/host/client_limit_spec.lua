-- limits.connections_per_address: one client cannot take what is there for all. Addresses of 127.0.0.0/8 are the clients.
local support = require "spec.support"
local rig = require "spec.host.proxy_rig"
local async = support.async

local A, B = "127.0.0.2", "127.0.0.3"

local function start(config, options)
  options = options or {}
  options.config = config
  return rig.start(options)
end

local function from(on, address) return support.connect(on.gw.port, nil, nil, address) end
local function served(c) return c:request({}).body == "hello" end
local function refused(c) return c:wait_closed() and c.received == 0 end
local function refusals(on) return on.gw:metric("client_connections_refused_total") end

describe("connections of one address", function()
  it("are closed at once above the limit, and others' are not", async(function()
    local on = start { limits = { connections_per_address = 2 } }
    local a1, a2 = from(on, A), from(on, A)
    assert.is_true(served(a1) and served(a2))
    assert.is_true(refused(from(on, A)))
    assert.is_true(refused(from(on, A)))
    assert.is_true(served(from(on, B)) and served(from(on, B)))
    assert.is_true(served(a1) and served(a2))
    on.gw:wait_metric("client_connections_refused_total", 2)
    local _, lines = on.gw.log():gsub("client 127.0.0.2: closed, it has 2 connections to this worker", "")
    assert.equal(1, lines)
  end))

  it("have room again as soon as one has ended", async(function()
    local on = start { limits = { connections_per_address = 1 } }
    for _ = 1, 20 do
      local c = from(on, A)
      assert.equal("hello", c:request({ headers = { connection = "close" } }).body)
      assert.is_true(c:wait_closed())
    end
    local c = from(on, A)
    assert.is_true(served(c))
    c:reset()
    on.gw:wait_metric("client_connections", 0)
    assert.is_true(served(from(on, A)))
    assert.equal(0, refusals(on))
  end))

  it("are counted before there is a limit, which a reload sets and takes away", async(function()
    local on = start { limits = {}, reload = { watch = false } }
    local path = on.gw.dir .. "/gateway.lua"
    local text = support.read_file(path)
    local function reload(limit)
      on.gw:write("gateway.lua", "local config = (function() " .. text .. "end)()\n" ..
        ("config.limits.connections_per_address = %s\nreturn config\n"):format(limit))
      local run = on.gw:command("reload")
      assert.equal(0, run.code, run.err)
    end
    local all = {}
    for i = 1, 3 do
      all[i] = from(on, A)
      assert.is_true(served(all[i]))
    end
    reload(3)
    assert.is_true(refused(from(on, A)))
    for i = 1, 3 do assert.is_true(served(all[i])) end
    reload("nil")
    assert.is_true(served(from(on, A)))
    reload(4)
    assert.is_true(refused(from(on, A)))
  end))

  it("keep nobody's idle connection from staying where all are taken", async(function()
    local on = start { limits = { connections = 3, connections_per_address = 1 } }
    local a, b, c = from(on, A), from(on, B), from(on, "127.0.0.4")
    assert.is_true(served(a) and served(b) and served(c))
    support.sleep(150) -- from 100 ms on they would make room
    for _ = 1, 5 do assert.is_true(refused(from(on, A))) end
    assert.equal(0, on.gw:metric("client_connections_evicted_total"))
    assert.is_true(served(a) and served(b) and served(c))
    assert.is_true(served(from(on, "127.0.0.5"))) -- for whom one of them goes
    on.gw:wait_metric("client_connections_evicted_total", 1)
  end))

  it("of trusted proxies are as many as they like", async(function()
    local on = start { limits = { connections_per_address = 1 }, trusted_proxies = { A } }
    for _ = 1, 4 do assert.is_true(served(from(on, A))) end
    assert.is_true(served(from(on, B)))
    assert.is_true(refused(from(on, B)))
  end))
end)

describe("behind the PROXY protocol", function()
  local function as(on, client)
    local c = from(on, A)
    c:send(("PROXY TCP4 %s 198.51.100.7 56324 80\r\n"):format(client))
    return c
  end

  it("the client is whom the header names", async(function()
    local on = start({ limits = { connections_per_address = 1 },
      listen = { { address = "127.0.0.1:0", proxy_protocol = { A } } } })
    local one = as(on, "192.0.2.1")
    assert.is_true(served(one))
    assert.is_true(refused(as(on, "192.0.2.1")))
    assert.is_true(served(as(on, "192.0.2.2")))
    one:close()
    on.gw:wait_metric("client_connections", 1)
    assert.is_true(served(as(on, "192.0.2.1")))
  end))

  it("IPv6 clients are counted by their /64", async(function()
    local on = start({ limits = { connections_per_address = 1 },
      listen = { { address = "127.0.0.1:0", proxy_protocol = { A } } } })
    local function v6(address)
      local c = from(on, A)
      c:send(("PROXY TCP6 %s ::1 1 2\r\n"):format(address))
      return c
    end
    assert.is_true(served(v6 "2001:db8:0:1::1"))
    assert.is_true(refused(v6 "2001:db8:0:1:ffff::2"))
    assert.is_true(served(v6 "2001:db8:0:2::1"))
  end))

  it("the proxy's own connections are not counted", async(function()
    local on = start({ limits = { connections_per_address = 1 },
      listen = { { address = "127.0.0.1:0", proxy_protocol = { A } } } })
    for _ = 1, 3 do
      local c = from(on, A)
      c:send("PROXY UNKNOWN\r\n")
      assert.is_true(served(c))
    end
  end))
end)

it("handshakes of TLS that do not come to their end count", async(function()
  local ca = support.tls.authority()
  local identity = ca:issue { names = { "a.test" } }
  local on = start { limits = { connections_per_address = 2 },
    listen = { { address = "127.0.0.1:0", tls = { cert = identity.cert, key = identity.key } } } }
  local slow = { from(on, A), from(on, A) }
  slow[1]:send("\22\3\1")
  on.gw:wait_metric("client_connections", 2)
  assert.is_true(refused(from(on, A)))
  slow[1]:close()
  slow[2]:close()
  on.gw:wait_metric("client_connections", 0)
  local c = from(on, A)
  on.gw:wait_metric("client_connections", 1)
  c:close()
  assert.equal(1, refusals(on))
end))
