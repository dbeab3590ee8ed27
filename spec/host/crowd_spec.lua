-- More clients than there is room for: who has no request under way makes room, the one that has waited longest first;
-- and descriptors that run out keep nobody from what is served already.
local support = require "spec.support"
local rig = require "spec.host.proxy_rig"
local gateway = require "spec.support.gateway"
local async = support.async

local function start(limits, options)
  options = options or {}
  options.config = options.config or {}
  options.config.limits = limits
  return rig.start(options)
end

local function served(c) return c:request({}).body == "hello" end

describe("where all connections are taken", function()
  it("the one that has been idle longest ends, in silence", async(function()
    local on = start { connections = 3 }
    local a, b, c = on.gw:connect(), on.gw:connect(), on.gw:connect()
    assert.is_true(served(a) and served(b) and served(c))
    assert.is_true(served(a)) -- now b is the oldest
    local d = on.gw:connect()
    assert.is_true(served(d))
    assert.same({ "", "closed" }, { b:read_all() })
    assert.is_true(served(a) and served(c) and served(d))
    on.gw:wait_metric("client_connections_evicted_total", 1)
  end))

  it("a head that does not come to its end goes as an idle one does", async(function()
    local on = start { connections = 2 }
    local a, b = on.gw:connect(), on.gw:connect()
    assert.is_true(served(b))
    a:send("GET / HTTP/1.1\r\nHost: a\r\nX: ")
    on.gw:wait_metric("client_connections", 2)
    support.sleep(50) -- so that the gateway has those bytes
    assert.is_true(served(b))
    local c = on.gw:connect()
    assert.is_true(served(c))
    assert.same({ "", "closed" }, { a:read_all() })
    assert.is_true(served(b))
  end))

  it("one that never sent anything goes too", async(function()
    local on = start { connections = 2 }
    local a = on.gw:connect()
    on.gw:wait_metric("client_connections", 1)
    assert.is_true(served(on.gw:connect()))
    assert.is_true(served(on.gw:connect()))
    assert.same({ "", "closed" }, { a:read_all() })
  end))

  it("a request under way never does, and one that waits comes as soon as that is over", async(function()
    local go
    local on = start({ connections = 1 }, { handler = function(_, conn)
      support.wait_for(function() return go end, "a word", 20000)
      conn:respond { body = "hello" }
    end })
    local a = on.gw:connect()
    a:send_request {}
    on.origin:wait_request(1)
    local b = on.gw:connect()
    b:send_request {}
    on.gw:wait_metric("client_connections_deferred_total", 1)
    assert.equal(0, on.gw:metric("client_connections_evicted_total"))
    go = true
    assert.equal("hello", a:read_response().body)
    assert.equal("hello", b:read_response().body)
    assert.is_true(a:wait_closed())
  end))

  it("a flood of ten times as many that say nothing keeps nobody from being served", async(function()
    local on = start { connections = 20 }
    local silent = {}
    for i = 1, 200 do
      silent[i] = on.gw:connect()
      if i % 40 == 0 then assert.is_true(served(on.gw:connect())) end
    end
    support.wait_for(function() return on.gw:metric("client_connections_evicted_total") >= 180 end, "room to be made")
    assert.is_true(on.gw:metric("client_connections") <= 20)
    assert.same({ "", "closed" }, { silent[1]:read_all() })
  end))
end)

it("a TLS handshake that takes long goes before what is idle", async(function()
  local ca = support.tls.authority()
  local identity = ca:issue { names = { "a.test" } }
  local on = start({ connections = 2 }, { config = {
    listen = { { address = "127.0.0.1:0" }, { "127.0.0.1:0", tls = { cert = identity.cert, key = identity.key } } },
  } })
  local ports = {}
  for port in on.gw.log():gmatch("listening on [%d%.]+:(%d+)") do ports[#ports + 1] = tonumber(port) end
  local idle = support.connect(ports[1])
  assert.is_true(served(idle))
  local slow = support.connect(ports[2])
  slow:send("\22\3\1")
  on.gw:wait_metric("client_connections", 2)
  support.sleep(1100) -- from a second on it is one that takes long
  local late = support.connect(ports[1])
  assert.is_true(served(late))
  assert.same({ "", "closed" }, { slow:read_all() })
  assert.is_true(served(idle))
end))

describe("where descriptors run out", function()
  it("idle connections make room, busy ones go on, and the log says it once", async(function()
    local dir = support.tmpdir()
    support.write_file(dir .. "/few", ('#!/bin/sh\nulimit -n 96\nexec "%s" "$@"\n'):format(gateway.binary()))
    assert(os.execute("chmod +x " .. dir .. "/few") == 0)
    local origin = support.origin(rig.hello)
    local gw = support.gateway { bin = dir .. "/few", config = { redis = "redis://127.0.0.1:1",
      routes = { { name = "all", path = "/*", targets = { { url = origin.url } } } } } }
    for _ = 1, 150 do gw:connect() end
    for _ = 1, 5 do assert.is_true(served(gw:connect())) end
    gw:wait_log("out of file descriptors", true)
    for _ = 1, 150 do gw:connect() end
    assert.is_true(served(gw:connect()))
    local _, n = gw.log():gsub("out of file descriptors", "")
    local _, back = gw.log():gsub("descriptors are free again", "")
    assert.is_true(n - back <= 1 and n <= 3, n .. " lines")
    assert.equal(200, gw:admin("/healthz").status)
  end))
end)

it("limits.connections that do not fit the descriptors are warned of, where they are written", async(function()
  local dir = support.tmpdir()
  local function check(n, limits)
    support.write_file(dir .. "/gateway.lua", ('return { data_dir = %q, redis = "redis://127.0.0.1:1", workers = 1, ' ..
      'limits = { %s }, routes = { { name = "a", path = "/" } } }'):format(dir .. "/data", limits))
    return support.exec { cmd = "/bin/sh", args = { "-c", 'ulimit -n "$1"; exec "$2" check -c "$3"', "sh", tostring(n),
      gateway.binary(), dir .. "/gateway.lua" } }
  end
  local res = check(1000, "connections = 5000")
  assert.equal(0, res.code, res.err)
  assert.matches("limits.connections: a worker's share of 5000 does not fit the 1000 descriptors", res.out .. res.err, 1, true)
  for _, quiet in ipairs { check(8000, "connections = 5000"), check(1000, "") } do
    assert.same({ 0, "" }, { quiet.code, quiet.err })
    assert.not_matches("descriptors", quiet.out)
  end
end))
