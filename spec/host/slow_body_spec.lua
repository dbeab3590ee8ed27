-- A request body that trickles: its pieces come in time, and it would never end. It has to come at limits.body_rate.
local support = require "spec.support"
local rig = require "spec.host.proxy_rig"
local async = support.async

-- `wait`: timeouts.body. Where a body should pass it is long enough for a test that does not get the processor for a while.
local function start(rate, wait, options)
  options = options or {}
  options.config = { timeouts = { body = wait }, limits = { body_rate = rate, body = "100m" } }
  return rig.start(options)
end

-- Sends a piece every 50 ms until the gateway has closed, for 20 s at most.
local function trickle(c, piece)
  return support.spawn(function()
    for _ = 1, 400 do
      if not c:send(piece) then return end
      support.sleep(50)
    end
  end)
end

it("is answered with 408 and closed, whatever its framing", async(function()
  local on = start(1000, 1, { origin = { stream_body = true }, handler = function(req) while req:read() do end end })
  for framing, piece in pairs { ["Content-Length: 100000"] = "x", ["Transfer-Encoding: chunked"] = "1\r\nx\r\n" } do
    local c = on.gw:connect()
    c:send("POST / HTTP/1.1\r\nHost: a\r\n" .. framing .. "\r\n\r\n")
    local sending = trickle(c, piece)
    local res = c:read_response()
    assert.same({ 408, "close" }, { res.status, res.headers.connection })
    assert.is_true(c:wait_closed())
    c:close()
    sending:join(25000)
  end
  support.wait_for(function() return on.origin.open == 0 end, "the origin's connections to end")
end))

it("goes on for as long as it likes where the rate is 0, also where only a route says so", async(function()
  local on = { start(0, 3), start(100000, 3, { route = { limits = { body_rate = 0 } } }) }
  local clients = {}
  for i = 1, #on do
    clients[i] = on[i].gw:connect()
    clients[i]:send("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 80\r\n\r\n")
  end
  for _ = 1, 80 do
    support.sleep(50)
    for i = 1, #on do clients[i]:send("x") end
  end
  for i = 1, #on do assert.equal(200, clients[i]:read_response().status) end
end))

it("that waits for a slow origin is not slow", async(function()
  local go
  local on = start(100000, 3, { origin = { stream_body = true }, handler = function(req, conn)
    conn:pause()
    support.wait_for(function() return go end, "a word", 20000)
    conn:resume()
    while req:read() do end
    conn:respond { body = "all" }
  end })
  local c = on.gw:connect()
  support.spawn(function()
    c:send("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 64000000\r\n\r\n" .. ("x"):rep(64000000))
  end)
  on.origin:wait_request(1)
  assert.same({ nil, "timeout" }, { c:read_some(4000) })
  go = true
  assert.equal("all", c:read_response().body)
end))
