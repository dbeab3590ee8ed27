-- Peers behind TLS that stall: the other side is held back, and the gateway holds little, whatever there is to relay.
local support = require "spec.support"
local rig = require "spec.host.proxy_rig"

local MUCH = 96 * 2 ^ 20 -- bytes; more than the kernel's buffers of both connections can grow to
local PIECE = ("x"):rep(262144)
local GROWTH = 16 * 1024 -- kB

describe("with an origin that speaks TLS", function()
  local ca, id

  local set_up, tear_down = support.shared(function()
    ca = support.tls.authority()
    id = ca:issue {}
  end)
  setup(set_up)
  teardown(tear_down)

  local function start(handler, options)
    options = options or {}
    options.tls = id
    return rig.start { handler = handler, origin = options, measured = true,
      set = { tls = { ca = ca.cert } }, config = { limits = { body = MUCH * 2 } } }
  end

  it("a client that stalls holds the origin back, and gets all of the answer in the end", support.async(function()
    local sent, stalls = 0, false
    local on = start(function(_, conn)
      conn:send("HTTP/1.1 200 OK\r\nContent-Length: " .. MUCH .. "\r\n\r\n")
      while sent < MUCH do
        stalls = true
        if not conn:send(PIECE, 20000) then break end
        stalls = false
        sent = sent + #PIECE
      end
    end)
    local c = on.gw:connect(20000)
    c:pause()
    local before = rig.rss(on.gw)
    c:send("GET / HTTP/1.1\r\nHost: a\r\n\r\n")
    local seen = -1
    support.wait_for(function()
      local still = stalls and seen == sent
      seen = sent
      support.sleep(100)
      return still
    end, "the origin to stall", 20000)
    assert.is_true(sent < MUCH, "all of it was taken")
    assert.is_true(rig.rss(on.gw) - before < GROWTH)
    c:resume()
    assert.is_truthy(c:read_until("\r\n\r\n", true))
    local got = 0
    while got < MUCH do got = got + #assert(c:read_some()) end
    assert.equal(MUCH, got)
    assert.is_true(rig.rss(on.gw) - before < GROWTH)
  end))

  it("an origin that stalls holds the client back, and gets all of the body in the end", support.async(function()
    local go_on, got
    local on = start(function(req, conn)
      conn.handle:read_stop()
      support.wait_for(function() return go_on end, "the word to go on", 25000)
      conn:resume()
      got = 0
      for piece in function() return req:read() end do got = got + #piece end
      conn:respond { body = "thanks" }
    end, { stream_body = true })
    local c, sent, stalls = on.gw:connect(20000), 0, false
    local before = rig.rss(on.gw)
    c:send("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: " .. MUCH .. "\r\n\r\n")
    support.spawn(function()
      while sent < MUCH do
        stalls = true
        if not c:send(PIECE, 20000) then break end
        stalls = false
        sent = sent + #PIECE
      end
    end)
    local seen = -1
    support.wait_for(function()
      local still = stalls and seen == sent
      seen = sent
      support.sleep(100)
      return still
    end, "the client to stall", 20000)
    assert.is_true(sent < MUCH, "all of it was taken")
    assert.is_true(rig.rss(on.gw) - before < GROWTH)
    go_on = true
    local res = assert(c:read_response { timeout = 20000 })
    assert.same({ 200, "thanks", MUCH }, { res.status, res.body, got })
    assert.is_true(rig.rss(on.gw) - before < GROWTH)
  end))

  it("1,000 requests leave memory as it was", support.async(function()
    local on = start(function(_, conn) conn:respond { body = PIECE:sub(1, 5000), headers = { connection = "close" } } end)
    local function ask(n)
      support.all((function()
        local list = {}
        for i = 1, 10 do
          list[i] = function() for _ = 1, n / 10 do assert.equal(5000, #on.gw:request { path = "/" }.body) end end
        end
        return list
      end)())
    end
    ask(300)
    local before = rig.rss(on.gw)
    ask(1000)
    assert.is_true(rig.rss(on.gw) - before < 3072, "grown by " .. rig.rss(on.gw) - before)
  end, 60000))
end)
