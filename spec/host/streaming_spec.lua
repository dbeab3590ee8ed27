-- Bodies are streamed both ways: each read is passed on at once, a slower side holds up the faster one instead of growing
-- the gateway, and large bodies arrive byte for byte.
local support = require "spec.support"
local rig = require "spec.host.proxy_rig"
local async = support.async

local MB = 1024 * 1024
local GROWTH = 6 * 1024 -- kB; what 200 MB in the wrong place would exceed by far

-- 1 MB in which no two kB are alike, so that a piece lost, doubled or moved shows.
local parts = {}
for i = 1, 1024 do parts[i] = ("%016d"):format(i * 7919):rep(64) end
local block = table.concat(parts)

local function checksum(n, piece_of)
  local sums = {}
  for i = 1, n do sums[i] = support.sha256(piece_of(i)) end
  return sums
end

-- Takes a body apart into blocks and gives the sum of each.
local function sums_of(message)
  local sums, rest = {}, ""
  for piece in function() return message:read() end do
    rest = rest .. piece
    while #rest >= MB do
      sums[#sums + 1] = support.sha256(rest:sub(1, MB))
      rest = rest:sub(MB + 1)
    end
  end
  assert.is_true(message.complete)
  assert.equal("", rest)
  return sums
end

local function nth(i) return ("%08d"):format(i) .. block:sub(9) end

describe("each read is passed on at once", function()
  it("from the origin: an event arrives before the next is made", async(function()
    local seen = 0
    local on = rig.start { handler = function(_, conn)
      conn:start { headers = { ["content-type"] = "text/event-stream" } }
      for i = 1, 20 do
        conn:chunk("data: " .. i .. "\n\n")
        support.wait_for(function() return seen == i end, "the client to have event " .. i)
      end
      conn:finish()
    end }
    local c = on.gw:connect()
    c:send_request {}
    local res = c:read_head()
    for event in support.events(res) do
      seen = seen + 1
      assert.equal(tostring(seen), event.data)
    end
    assert.same({ 20, true }, { seen, res.complete })
  end))

  it("from the origin: the head before the body, in every framing", async(function()
    for _, fields in ipairs { "Content-Length: 2\r\n", "Transfer-Encoding: chunked\r\n", "" } do
      local got_head
      local on = rig.start { handler = function(_, conn)
        conn:write("HTTP/1.1 200 OK\r\n" .. fields .. "\r\n")
        support.wait_for(function() return got_head end, "the client to have the head")
        conn:write(fields:find "chunked" and "2\r\nok\r\n0\r\n\r\n" or "ok")
        conn:close()
      end }
      local c = on.gw:connect()
      c:send_request {}
      local res = c:read_head()
      got_head = true
      assert.same({ "ok", nil }, { res:read(), res:read() })
      assert.is_true(res.complete)
    end
  end))

  it("from the client, in both framings", async(function()
    local got = ""
    local on = rig.start { origin = { stream_body = true }, handler = function(req, conn)
      for piece in function() return req:read() end do got = got .. piece end
      conn:respond { body = got }
    end }
    local c = on.gw:connect()
    for _, chunked in ipairs { true, false } do
      got = ""
      c:send("POST / HTTP/1.1\r\nHost: a\r\n" .. (chunked and "Transfer-Encoding: chunked" or "Content-Length: 10") .. "\r\n\r\n")
      for i = 1, 5 do
        c:send(chunked and "2\r\nab\r\n" or "ab")
        support.wait_for(function() return got == ("ab"):rep(i) end, "the origin to have piece " .. i)
      end
      if chunked then c:send("0\r\n\r\n") end
      assert.equal(("ab"):rep(5), c:read_response().body)
    end
  end))

  it("both ways at the same time", async(function()
    local on = rig.start { origin = { stream_body = true }, handler = function(req, conn)
      conn:start {}
      for piece in function() return req:read() end do conn:chunk(piece) end
      conn:finish()
    end }
    local c = on.gw:connect()
    c:send("POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n")
    local res = c:read_head()
    for i = 1, 10 do
      c:send("3\r\n<" .. (i % 10) .. ">\r\n")
      assert.equal("<" .. (i % 10) .. ">", res:read())
    end
    c:send("0\r\n\r\n")
    assert.is_nil((res:read()))
    assert.is_true(res.complete)
  end))
end)

describe("a slower side holds up the faster one", function()
  it("a reader that stalls, its origin; and then gets everything", async(function()
    local poured
    local on = rig.start { measured = true, handler = function(req, conn)
      local by_length = req.path == "/length"
      if by_length then conn:write("HTTP/1.1 200 OK\r\nContent-Length: " .. 200 * MB .. "\r\n\r\n") else conn:start {} end
      local write = by_length and conn.write or conn.chunk
      for i = 1, 200 do
        if not write(conn, nth(i)) then return end
        poured = i
      end
      if not by_length then conn:finish() end
    end }
    on.gw:request { method = "HEAD", path = "/length" }
    support.wait_for(function() return on.origin.open == 0 end, "the first to end")
    for _, path in ipairs { "/length", "/chunked" } do
      poured = 0
      local before, c = rig.rss(on.gw), on.gw:connect(20000)
      c:send_request { path = path }
      local res = c:read_head()
      c:pause()
      local last
      support.wait_for(function()
        local stalled = poured > 0 and poured == last
        last = poured
        support.sleep(100)
        return stalled
      end, "the origin to stall")
      assert.is_true(poured < 100)
      assert.is_true(rig.rss(on.gw) - before < GROWTH)
      c:resume()
      assert.same(checksum(200, nth), sums_of(res))
      assert.is_true(rig.rss(on.gw) - before < GROWTH)
    end
  end), 60000)

  it("an origin that stalls, its client; and then gets everything", async(function()
    local go, sums
    local function handler(req, conn)
      conn:pause()
      support.wait_for(function() return go end, "a word", 20000)
      conn:resume()
      sums = sums_of(req)
      conn:respond {}
    end
    local on = rig.start { measured = true, config = { limits = { body = "1g" } }, origin = { stream_body = true },
      handler = handler }
    for _, chunked in ipairs { false, true } do
      go = false
      local sent, before, c = 0, rig.rss(on.gw), on.gw:connect(20000)
      support.spawn(function()
        c:send("POST / HTTP/1.1\r\nHost: a\r\n" .. (chunked and "Transfer-Encoding: chunked" or "Content-Length: " .. 200 * MB)
          .. "\r\n\r\n")
        for i = 1, 200 do
          assert(c:send(chunked and ("%x\r\n"):format(MB) .. nth(i) .. "\r\n" or nth(i)))
          sent = i
        end
        if chunked then c:send("0\r\n\r\n") end
      end)
      local last
      support.wait_for(function()
        local stalled = sent > 0 and sent == last
        last = sent
        support.sleep(100)
        return stalled
      end, "the client to stall")
      assert.is_true(sent < 100)
      assert.is_true(rig.rss(on.gw) - before < GROWTH)
      go = true
      assert.equal(200, c:read_response().status)
      assert.same(checksum(200, nth), sums)
      assert.is_true(rig.rss(on.gw) - before < GROWTH)
    end
  end), 60000)

  it("while a plugin's function makes the answer, it is asked no further", async(function()
    local on = rig.start { measured = true, files = { ["plugins/pour.lua"] = [[
      local piece = ("x"):rep(65536)
      return { version = "1.0.0", priority = 1, schema = {}, access = function()
        local n = 0
        return 200, function() n = n + 1; if n <= 3200 then return piece end end
      end }]] }, route = { plugins = { pour = {} }, targets = {} } }
    local before, c = rig.rss(on.gw), on.gw:connect()
    c:send_request {}
    local res = c:read_head()
    c:pause()
    support.sleep(300)
    assert.is_true(rig.rss(on.gw) - before < GROWTH)
    c:resume()
    local n = 0
    for piece in function() return res:read() end do n = n + #piece end
    assert.same({ 200 * MB, true }, { n, res.complete })
  end), 60000)
end)

it("many large bodies at once arrive byte for byte, each at its own client", async(function()
  local on = rig.start { config = { limits = { body = "1g" } }, origin = { stream_body = true }, handler = function(req, conn)
    conn:start {}
    for piece in function() return req:read() end do conn:chunk(piece) end
    conn:finish()
  end }
  local tasks = {}
  for k = 1, 8 do
    tasks[k] = function()
      local c = on.gw:connect(20000)
      c:send("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: " .. 4 * MB .. "\r\n\r\n")
      support.spawn(function()
        for i = 1, 4 do c:send(nth(100 * k + i)) end
      end)
      assert.same(checksum(4, function(i) return nth(100 * k + i) end), sums_of(c:read_head()))
    end
  end
  support.all(tasks)
end), 60000)
