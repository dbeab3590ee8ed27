-- Connections with TLS over their life: clients that stall, leave or are too many, and the gateway's own end and upgrade.
local uv = require "luv"
local files = require "spec.support.files"
local gateway = require "spec.support.gateway"
local rig = require "spec.host.proxy_rig"
local supervision = require "spec.host.supervision_rig"
local support = require "spec.support"
local async, tls = support.async, support.tls

local MB, GROWTH = 1048576, 8192 -- kB, for buffers on both sides and OpenSSL's own
local id, ca

local up, down = support.shared(function()
  ca = tls.authority()
  local one = ca:issue { names = { "a.test" } }
  id = { cert = one.cert, key = one.key }
end)
setup(up)
teardown(down)

local function listen() return { { "127.0.0.1:0", tls = id } } end

-- A gateway whose clients speak TLS without a word more.
local function secured(gw)
  function gw:connect(options)
    options = options or {}
    options.name, options.verify_ca = "a.test", ca.cert
    return assert(tls.connect(self.port, options))
  end
  function gw:request(options)
    local c = self:connect()
    local res, err = c:request(options)
    c:close()
    return res, err
  end
  return gw
end

local function start(options)
  options.config = options.config or {}
  options.config.listen = listen()
  local on = rig.start(options)
  secured(on.gw)
  return on
end

local function connections(gw)
  return tonumber(gw:admin("/metrics").body:match("\ntollgate_client_connections (%d+)"))
end

local function counter(gw, name) return tonumber(gw:admin("/metrics").body:match("\ntollgate_" .. name .. " (%d+)")) end

local function stalls(progress, what)
  local last
  support.wait_for(function()
    local now = progress()
    local stalled = now > 0 and now == last
    last = now
    support.sleep(100)
    return stalled
  end, what .. " to stall", 20000)
end

describe("a client that stalls", function()
  it("while it is answered makes the origin wait, and gets everything", async(function()
    local poured = 0
    local on = start { measured = true, handler = function(_, conn)
      poured = 0
      conn:start {}
      for i = 1, 100 do
        if not conn:chunk(string.char(i):rep(MB)) then return end
        poured = i
      end
      conn:finish()
    end }
    on.gw:connect():request { path = "/", method = "HEAD" }
    local before, c = rig.rss(on.gw), on.gw:connect()
    c:send_request { path = "/" }
    local res = c:read_head()
    c:pause()
    stalls(function() return poured end, "the origin")
    assert.is_true(poured < 60)
    assert.is_true(rig.rss(on.gw) - before < GROWTH, rig.rss(on.gw) - before)
    c:resume()
    local n = 0
    for piece in function() return res:read() end do n = n + #piece end
    assert.same({ 100 * MB, true }, { n, res.complete })
    assert.is_true(rig.rss(on.gw) - before < GROWTH)
  end, 60000))

  it("is made to wait with its body by an origin that stalls", async(function()
    local go, sent = false, 0
    local on = start { measured = true, config = { limits = { body = "1g" } }, origin = { stream_body = true },
      handler = function(req, conn)
        conn:pause()
        support.wait_for(function() return go end, "a word", 30000)
        conn:resume()
        local n = 0
        for piece in function() return req:read() end do n = n + #piece end
        conn:respond { body = tostring(n) }
      end }
    local before, c = rig.rss(on.gw), on.gw:connect()
    support.spawn(function()
      c:send("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: " .. 100 * MB .. "\r\n\r\n")
      for i = 1, 100 do
        assert(c:send(string.char(i):rep(MB), 30000))
        sent = i
      end
    end)
    stalls(function() return sent end, "the client")
    assert.is_true(sent < 60)
    assert.is_true(rig.rss(on.gw) - before < GROWTH, rig.rss(on.gw) - before)
    go = true
    assert.equal(tostring(100 * MB), c:read_response({ timeout = 30000 }).body)
  end, 60000))

  it("in its handshake costs little and ends by itself", async(function()
    local on = start { measured = true, config = { timeouts = { handshake = 2 } } }
    on.gw:request { path = "/" }
    local before, idle = rig.rss(on.gw), {}
    for i = 1, 300 do
      idle[i] = support.connect(on.gw.port)
      if i % 2 == 0 then idle[i]:send("\22\3\1\2\0\1\0\1\252\3\3") end
    end
    support.wait_for(function() return connections(on.gw) == 300 end, "all of them")
    assert.equal(200, on.gw:request({ path = "/" }).status)
    assert.is_true(rig.rss(on.gw) - before < 300 * 64, rig.rss(on.gw) - before)
    support.wait_for(function() return connections(on.gw) == 0 end, "their end", 10000)
    for _, c in ipairs(idle) do assert.is_true(c:wait_closed()) end
  end, 30000))
end)

describe("a client that leaves", function()
  it("in the middle of a stream ends the origin's answer", async(function()
    for _, how in ipairs { "close", "cut", "reset" } do
      local gone
      local on = start { handler = function(_, conn)
        conn:start { headers = { ["content-type"] = "text/event-stream" } }
        conn:chunk("data: 1\n\n")
        gone = conn:wait_closed()
      end }
      local c = on.gw:connect()
      c:send_request { path = "/" }
      c:read_head():read()
      if how == "cut" then c.tls.cut = true end
      if how == "reset" then c:reset() else c:close() end
      support.wait_for(function() return gone end, "the origin's end, " .. how)
      assert.equal("client_gone", on.gw:wait_access(1)[1].ended)
    end
  end))

  it("between two requests leaves nothing behind, whatever it says", async(function()
    local on = start {}
    for i = 1, 30 do
      local c = on.gw:connect { max = i % 2 == 0 and "1.2" or nil }
      assert.equal(200, c:request({ path = "/" }).status)
      if i % 3 == 0 then c.tls.cut = true end
      if i % 5 == 0 then c:reset() else c:close() end
    end
    support.wait_for(function() return connections(on.gw) == 0 end, "their end")
    assert.equal(0, counter(on.gw, "client_gone_total"))
  end))
end)

describe("more clients than the limit", function()
  it("wait, those in their handshake counted", async(function()
    local on = start { config = { limits = { connections = 2 }, timeouts = { handshake = 20 } } }
    local first, silent = on.gw:connect(), support.connect(on.gw.port)
    assert.equal(200, first:request({ path = "/" }).status)
    support.wait_for(function() return connections(on.gw) == 2 end, "both")
    local third
    local task = support.spawn(function() third = on.gw:connect() end)
    support.wait_for(function() return counter(on.gw, "client_connections_deferred_total") == 1 end, "the third to wait")
    assert.is_nil(third)
    silent:close()
    task:join(10000)
    assert.equal(200, third:request({ path = "/" }).status)
  end))
end)

describe("the gateway's end", function()
  it("lets answers end, in good order also for TLS; idle clients and silent ones go soon", async(function()
    local word = 0
    local on = start { config = { timeouts = { drain = 20 } }, handler = function(_, conn)
      conn:start {}
      for i = 1, 2 do
        conn:chunk("piece " .. i)
        support.wait_for(function() return word >= i end, "word " .. i)
      end
      conn:finish()
    end }
    local busy, idle, silent = on.gw:connect(), on.gw:connect(), support.connect(on.gw.port)
    busy:send_request { path = "/" }
    local res = busy:read_head()
    assert.equal("piece 1", res:read())
    support.wait_for(function() return connections(on.gw) == 3 end, "all three")
    on.gw:kill("sigterm")
    assert.is_true(idle:wait_closed())
    assert.is_nil(idle.err) -- with a close_notify
    assert.is_true(silent:wait_closed())
    word = 1
    assert.equal("piece 2", res:read())
    word = 2
    assert.is_nil((res:read()))
    assert.is_true(res.complete)
    assert.is_true(busy:wait_closed())
    assert.is_nil(busy.err)
    assert.same({ 0, 0 }, { on.gw.process:wait(10000) })
  end))
end)

describe("an upgrade", function()
  it("loses no request of TLS clients, keeps busy ones, and takes the tickets of before", async(function()
    local dir = support.tmpdir()
    local function install()
      files.write_file(dir .. "/tollgate.new", files.read_file(gateway.binary()))
      uv.fs_chmod(dir .. "/tollgate.new", tonumber("755", 8))
      os.rename(dir .. "/tollgate.new", dir .. "/tollgate")
    end
    install()
    local gw = secured(support.gateway { dir = dir, bin = dir .. "/tollgate",
      files = { ["plugins/answer.lua"] = supervision.plugin "one" },
      config = { listen = listen(), workers = 2, redis = "redis://127.0.0.1:1",
        routes = { { name = "all", path = "/*", plugins = { answer = {} } } } } })
    local c = gw:connect()
    assert.equal("one", c:request({ path = "/" }).body)
    local session = c.tls:session()
    local stop = supervision.load(gw, { clients = 4 })
    install()
    local run = gw:command("upgrade")
    assert.equal(0, run.code, run.err)
    gw:wait_log("upgraded: tollgate", true, 20000)
    local figures = stop()
    assert.equal(0, figures.failed, table.concat(figures.errors, " "))
    c = gw:connect { session = session }
    assert.is_true(c.tls:resumed())
    assert.equal("one", c:request({ path = "/" }).body)
  end, 60000))
end)
