-- One client connection, many requests: keep-alive, pipelining however the bytes are split, and bounds for clients that
-- send without reading. Answers come in order and their bytes never mix.
local support = require "spec.support"
local rig = require "spec.host.proxy_rig"
local async = support.async

local on, up, down = rig.shared {
  measured = true,
  handler = function(req, conn) conn:respond { body = req.method .. " " .. req.path .. " " .. req.body } end,
  config = { limits = { pipelined = 4096, body = 100000 } },
}
setup(up)
teardown(down)

local three = "GET /1 HTTP/1.1\r\nHost: a\r\n\r\n"
  .. "POST /2 HTTP/1.1\r\nHost: a\r\nContent-Length: 3\r\n\r\nabc"
  .. "PUT /3 HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nde\r\n0\r\n\r\n"

local function read(c)
  return assert(c:read_response()).body
end

local function read_three(c)
  return { read(c), read(c), read(c) }
end

local expected = { "GET /1 ", "POST /2 abc", "PUT /3 de" }

describe("one connection", function()
  it("serves one request after the other, on one connection to the origin", async(function()
    local c, before = on.gw:connect(), on.origin.connections
    for i = 1, 20 do assert.equal("GET /" .. i .. " ", c:request({ path = "/" .. i }).body) end
    assert.is_true(on.origin.connections <= before + 1)
  end))

  it("serves requests that come in one packet", async(function()
    local c = on.gw:connect()
    c:send(three)
    assert.same(expected, read_three(c))
  end))

  it("serves requests that are split at any byte", async(function()
    for at = 1, #three - 1 do
      local c = on.gw:connect()
      c:send(three:sub(1, at))
      -- Whatever is complete by now is answered before the rest goes.
      local answered = at >= 90 and 2 or at >= 28 and 1 or 0
      local got = {}
      for i = 1, answered do got[i] = read(c) end
      c:send(three:sub(at + 1))
      for i = answered + 1, 3 do got[i] = read(c) end
      assert.same(expected, got, "split at " .. at)
      c:close()
    end
  end))

  it("serves requests that come byte by byte", async(function()
    local c = on.gw:connect()
    for byte in three:gmatch(".") do c:send(byte) end
    assert.same(expected, read_three(c))
  end))

  it("takes empty lines before a request", async(function()
    local c = on.gw:connect()
    c:send("\r\n\r\nGET /a HTTP/1.1\r\nHost: a\r\n\r\n\r\nGET /b HTTP/1.1\r\nHost: a\r\n\r\n")
    assert.same({ "GET /a ", "GET /b " }, { read(c), read(c) })
  end))

  it("answers in the order of the requests, also where later ones are ready first", async(function()
    local handler, go = on.origin.handler, false
    on.origin.handler = function(req, conn)
      if req.path == "/slow" then support.wait_for(function() return go end, "a word") end
      conn:respond { body = req.path }
    end
    local c = on.gw:connect()
    c:send("GET /slow HTTP/1.1\r\nHost: a\r\n\r\nGET /none HTTP/1.1\r\nHost: a\r\n\r\nGET /last HTTP/1.1\r\nHost: a\r\n\r\n")
    assert.same({ nil, "timeout" }, { c:read_some(30) })
    go = true
    assert.same({ "/slow", "/none", "/last" }, read_three(c))
    on.origin.handler = handler
  end))

  it("ends behind Connection: close, and what follows is not served", async(function()
    local c, before = on.gw:connect(), #on.origin.requests
    c:send("GET /1 HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\nGET /2 HTTP/1.1\r\nHost: a\r\n\r\n")
    local res = c:read_response()
    assert.same({ "GET /1 ", "close" }, { res.body, res.headers.connection })
    assert.same({ "", "closed" }, { c:read_all() })
    assert.equal(before + 1, #on.origin.requests)
  end))

  it("serves on behind an error of the origin's, and ends behind a refusal that leaves much unread", async(function()
    local handler = on.origin.handler
    on.origin.handler = function(req, conn) conn:respond { status = req.path == "/no" and 404 or 200 } end
    local c = on.gw:connect()
    c:send("GET /no HTTP/1.1\r\nHost: a\r\n\r\nGET /yes HTTP/1.1\r\nHost: a\r\n\r\n")
    assert.same({ 404, 200 }, { c:read_response().status, c:read_response().status })
    on.origin.handler = handler
    c:send("POST /1 HTTP/1.1\r\nHost: a\r\nContent-Length: 200000\r\n\r\n")
    assert.equal(413, c:read_response().status)
    assert.is_true(c:wait_closed())
  end))

  it("stays in step when many are pipelined with bodies", async(function()
    local c, parts, n = on.gw:connect(), {}, 200
    for i = 1, n do
      local body = ("x"):rep(i * 7 % 300)
      parts[i] = ("POST /%d HTTP/1.1\r\nHost: a\r\nContent-Length: %d\r\n\r\n%s"):format(i, #body, body)
    end
    support.spawn(function() c:send(table.concat(parts)) end)
    for i = 1, n do
      assert.equal(("POST /%d %s"):format(i, ("x"):rep(i * 7 % 300)), read(c))
    end
  end))
end)

describe("a client that sends without reading", function()
  local flood = ("GET /flood HTTP/1.1\r\nHost: a\r\n\r\n"):rep(20000)

  it("is not read further while an answer is owed than the limit of pipelined bytes", async(function()
    local handler = on.origin.handler
    on.origin.handler = function(_, conn) conn:wait_closed() end
    local c, before = on.gw:connect(), rig.rss(on.gw)
    local stalled
    support.spawn(function()
      for _ = 1, 60 do
        if not c:send(flood, 200) then break end
      end
      stalled = true
    end)
    support.wait_for(function() return stalled end, "the flood to stall", 20000)
    assert.is_true(rig.rss(on.gw) - before < 4096)
    assert.equal(1, on.origin.open)
    c:reset() -- which the gateway sees although it does not read
    support.wait_for(function() return on.origin.open == 0 end, "the end of the request to the origin")
    on.origin.handler = handler
  end))

  it("is not served further than its answers find room", async(function()
    local other = rig.start { measured = true, files = { ["plugins/big.lua"] = [[
      local body = ("x"):rep(20000)
      return { version = "1.0.0", priority = 1, schema = {}, access = function() return 200, body end }]] },
      route = { plugins = { big = {} }, targets = {} } }
    local c = other.gw:connect()
    other.gw:request {}
    local before = rig.rss(other.gw)
    c:pause()
    local sent = 0
    while sent < 40 and c:send(flood, 200) do sent = sent + 1 end -- answers to all would be 16 GB
    assert.is_true(sent < 40)
    assert.is_true(rig.rss(other.gw) - before < 6144)
    c:resume()
    local n = 0
    while n < 300 do
      assert.equal(20000, #read(c))
      n = n + 1
    end
    c:reset()
  end))
end)
