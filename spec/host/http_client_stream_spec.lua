-- tg.http.stream: pieces as they come, an origin that is held back, and that a stream ends with whoever opened it.
local uv = require "luv"
local support = require "spec.support"
local rig = require "spec.host.http_rig"
local async, run = support.async, rig.run

-- A chunked answer of these pieces, each sent when the one before has been asked for by "/next".
local function in_steps(pieces)
  local step = 1
  return support.origin(function(req, conn)
    if req.path == "/next" then
      step = step + 1
      return conn:respond()
    end
    conn:start { headers = { ["x-a"] = "1" } }
    for i, piece in ipairs(pieces) do
      support.wait_for(function() return step >= i end, "step " .. i)
      conn:chunk(piece)
    end
    conn:finish()
  end)
end

-- Pours bytes without an end; .poured counts what the kernel took.
local function pouring(total)
  local o
  o = support.origin(function(req, conn)
    if req.path == "/stalled" then
      local before
      repeat -- until nothing has gone for a while
        before = o.poured
        support.sleep(100)
      until before == o.poured and before > 0
      return conn:respond()
    end
    o.poured = 0
    local piece = ("x"):rep(65536)
    conn:write(("HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n"):format(total))
    while o.poured < total and conn:write(piece, 20000) do o.poured = o.poured + #piece end
    if o.poured < total then conn:close() end
  end)
  return o
end

-- More than twice what the kernel's buffers of both connections can grow to (tcp_rmem, tcp_wmem).
local MUCH = 128 * 2 ^ 20

local function memory(gw, name)
  return tonumber(support.read_file(("/proc/%d/status"):format(gw:workers()[1])):match(name .. ":%s*(%d+) kB")) * 1024
end

describe("tg.http.stream", function()
  it("gives the head at once and the pieces as they come", async(function()
    local o = in_steps { "one", "two", "three" }
    assert.same({ 200, "1", o.url .. "/s", "one", "two", "three", "nil", "nil", "nil" }, run([[
      local res = assert(tg.http.stream(ORIGIN .. "/s"))
      local out = { res.status, res.headers["x-a"], res.url }
      for i = 1, 3 do
        out[#out + 1] = res:read()
        tg.http.get(ORIGIN .. "/next")
      end
      out[7], out[8], out[9] = tostring((res:read())), tostring((res:read())), tostring(res.err)
      return out
    ]], o))
  end))

  it("iterates over pieces, and its connection is used again", async(function()
    local o = support.origin(function(_, conn) conn:respond { body = ("abc"):rep(100000) } end)
    assert.same({ 300000, 0, 300000 }, run([[
      local out = {}
      for _, method in ipairs { "GET", "HEAD", "POST" } do
        local n = 0
        for piece in assert(tg.http.stream(ORIGIN, { method = method })):pieces() do n = n + #piece end
        out[#out + 1] = n
      end
      return out
    ]], o))
    assert.equal(1, o.connections)
  end))

  it("fails as tg.http.request does before the head", async(function()
    local o = support.origin(function(_, conn) conn:wait_closed(15000) end)
    assert.same({ "refused", "timeout", "timeout", "malformed" }, run(([[
      return {
        (select(2, tg.http.stream("http://127.0.0.1:%d"))),
        (select(2, tg.http.stream(ORIGIN, { timeout = 0.05 }))),
        (select(2, tg.http.stream((ORIGIN:gsub("^http:", "https:")), { timeout = 5 }))),
        (select(2, tg.http.stream(%q))),
      }
    ]]):format(support.free_port(), support.origin(function(_, conn) conn:write("no HTTP\r\n\r\n") end).url), o))
    support.wait_for(function() return o.open == 0 end, "the connection to be closed")
  end))

  it("follows redirects", async(function()
    local o = support.origin(function(req, conn)
      if req.path == "/" then return conn:respond { status = 302, headers = { location = "/there" }, body = "moved" } end
      conn:respond { body = "there" }
    end)
    assert.same({ "there", o.url .. "/there" }, run([[
      local res = assert(tg.http.stream(ORIGIN, { redirects = 1 }))
      return { res:read(), res.url }
    ]], o))
  end))

  it("holds the origin back while nobody reads", async(function()
    local o = pouring(MUCH)
    local gw = rig.start({ ["/x"] = [[
      local res = assert(tg.http.stream(ORIGIN))
      local n = #res:read()
      assert(tg.http.get(ORIGIN .. "/stalled"))
      tg.log.warn("it has stalled")
      assert(tg.http.get(ORIGIN .. "/stalled"))
      for piece in res:pieces() do
        n = n + #piece
        if #piece > 131072 then error("a piece of " .. #piece) end
      end
      return { n, tostring(res.err) }
    ]] }, o)
    local before = memory(gw, "VmRSS")
    local answer = support.spawn(function() return rig.call(gw, "/x") end)
    gw:wait_log("it has stalled")
    assert.is_true(o.poured < MUCH / 2, "the origin could send " .. o.poured)
    assert.same({ MUCH, "nil" }, answer:join(20000))
    local grown = memory(gw, "VmHWM") - before
    assert.is_true(grown < 16 * 2 ^ 20, "the gateway grew by " .. grown)
  end))

  it("goes on to a client as fast as that reads", async(function()
    local o = pouring(MUCH)
    local gw = rig.start({ ["/x"] = [[
      local res = assert(tg.http.stream(ORIGIN))
      return function() return res:read() end, {}
    ]] }, o)
    local before = memory(gw, "VmRSS")
    local client = gw:connect()
    uv.recv_buffer_size(client.handle, 65536)
    client:send_request { path = "/x" }
    local res = assert(client:read_head())
    client:pause()
    local at
    support.wait_for(function()
      local same = at == o.poured
      at = o.poured
      support.sleep(100)
      return same
    end, "the origin to be held back")
    assert.is_true(o.poured < MUCH / 2, "the origin could send " .. o.poured)
    client:resume()
    local n = 0
    for piece in function() return res:read() end do n = n + #piece end
    assert.same({ MUCH, true }, { n, res.complete })
    local grown = memory(gw, "VmHWM") - before
    assert.is_true(grown < 16 * 2 ^ 20, "the gateway grew by " .. grown)
  end))

  it("ends with the client that it goes on to", async(function()
    local o = pouring(50 * 2 ^ 20)
    local gw = rig.start({ ["/x"] = [[
      local res = assert(tg.http.stream(ORIGIN))
      return function() return res:read() end, {}
    ]] }, o)
    local client = gw:connect()
    client:send_request { path = "/x" }
    assert(assert(client:read_head()):read())
    client:close()
    support.wait_for(function() return o.open == 0 end, "the origin's connection to be closed")
  end))
end)

describe("a stream that is cut off", function()
  local READ = [[
    local res = assert(tg.http.stream(ORIGIN, OPTIONS))
    local out = {}
    for piece in res:pieces() do out[#out + 1] = piece end
    local _, err = res:read()
    return { table.concat(out), tostring(res.err), tostring(err) }
  ]]

  local function cut(code, bytes, close)
    return run(code .. READ, support.origin(function(_, conn)
      conn:write(bytes)
      if close then conn:close() else conn:wait_closed(15000) end
    end))
  end

  it("gives what had come, and then the reason", async(function()
    local length = "HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nhalf"
    local chunked = "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n4\r\nhalf\r\n"
    local none, idle = "local OPTIONS\n", "local OPTIONS = { idle_timeout = 0.05 }\n"
    assert.same({ "half", "closed", "closed" }, cut(none, length, true))
    assert.same({ "half", "closed", "closed" }, cut(none, chunked, true))
    assert.same({ "half", "malformed", "malformed" }, cut(none, chunked .. "zz\r\n"))
    assert.same({ "half", "timeout", "timeout" }, cut(idle, length))
    assert.same({ "half", "too_large", "too_large" },
      cut("local OPTIONS = { max_body = 7 }\n", chunked .. "4\r\nmore\r\n"))
    assert.same({ "half", "nil", "nil" }, cut(none, "HTTP/1.1 200 OK\r\n\r\nhalf", true))
  end))

  it("is not cut off for being read slowly", async(function()
    local total = 50 * 2 ^ 20
    assert.same({ total, "nil" }, run([[
      local res = assert(tg.http.stream(ORIGIN, { timeout = 1, idle_timeout = 1 }))
      tg.timer.sleep(1.5) -- longer than each; the origin is held back meanwhile
      local n = 0
      for piece in res:pieces() do n = n + #piece end
      return { n, tostring(res.err) }
    ]], pouring(total)))
  end))

  it("by close() says closed", async(function()
    local o = pouring(50 * 2 ^ 20)
    assert.same({ true, "nil", "closed", "closed", "closed" }, run([[
      local res = assert(tg.http.stream(ORIGIN))
      local some = #res:read() > 0
      res:close()
      res:close()
      local piece, err = res:read()
      for piece in res:pieces() do error("a piece") end
      return { some, tostring(piece), err, res.err, (select(2, res:read())) }
    ]], o))
    support.wait_for(function() return o.open == 0 end, "the origin's connection to be closed")
  end))

  it("by the end of its request is closed", async(function()
    local o = pouring(50 * 2 ^ 20)
    local gw = rig.start({ top = "local kept", ["/open"] = "kept = assert(tg.http.stream(ORIGIN)) return 1",
      ["/read"] = "return pack(kept:read())" }, o)
    rig.call(gw, "/open")
    support.wait_for(function() return o.open == 0 end, "the origin's connection to be closed")
    assert.same({ "nil", "closed" }, rig.call(gw, "/read"))
  end))

  it("by the garbage collector is closed", async(function()
    local o = pouring(50 * 2 ^ 20)
    local gw = rig.start({ ["/x"] = [[
      assert(tg.http.stream(ORIGIN))
      tg.timer.sleep(0) -- the result has left the stack
      collectgarbage()
      collectgarbage()
      assert(tg.http.get(ORIGIN .. "/end"))
      return 1
    ]] }, o)
    local pour = o.handler
    o.handler = function(req, conn)
      if req.path ~= "/end" then return pour(req, conn) end
      support.wait_for(function() return o.open == 1 end, "the stream's connection to be closed")
      conn:respond()
    end
    assert.equal(1, rig.call(gw, "/x"))
  end))

  it("is not collected while somebody waits for it", async(function()
    local o = in_steps { "one", "two" }
    local gw = rig.start({
      init = [[tg.timer.every(0.001, function() collectgarbage() end)]],
      ["/x"] = [[
        local function first() return assert(tg.http.stream(ORIGIN)):read() end
        local function second()
          local res = assert(tg.http.stream(ORIGIN))
          assert(res:read())
          local read = res:pieces()
          res = nil
          return read()
        end
        return { first(), second() }
      ]],
    }, o)
    local answer = support.spawn(function() return rig.call(gw, "/x") end)
    o:wait_request(2)
    support.sleep(30) -- some collections, while it waits
    support.request { port = o.port, path = "/next" }
    assert.same({ "one", "two" }, answer:join(5000))
  end))

  it("by another coroutine's close() wakes who waits", async(function()
    local o = support.origin(function(_, conn)
      conn:start()
      conn:wait_closed(15000)
    end)
    local gw = rig.start({ top = "local shared, waits",
      ["/read"] = [[
        shared = assert(tg.http.stream(ORIGIN))
        waits = true
        return pack(shared:read())
      ]],
      ["/second"] = "return waits and tostring(select(2, pcall(shared.read, shared)))",
      ["/close"] = "shared:close() return 1",
    }, o)
    local answer = support.spawn(function() return rig.call(gw, "/read") end)
    support.wait_for(function() return rig.call(gw, "/second") end, "the reader to wait")
    assert.matches("another coroutine is reading", rig.call(gw, "/second"))
    rig.call(gw, "/close")
    assert.same({ "nil", "closed" }, answer:join(5000))
    support.wait_for(function() return o.open == 0 end, "the origin's connection to be closed")
  end))

  it("by the gateway's stop leaves nothing behind", async(function()
    local o = pouring(50 * 2 ^ 20)
    local gw = rig.start({ top = "local kept = {}", init = [[
      tg.timer.after(0, function()
        kept[1] = assert(tg.http.stream(ORIGIN))
        assert(kept[1]:read())
        tg.log.warn("one waits")
        tg.timer.sleep(1000)
      end)
      tg.timer.after(0, function()
        local res = assert(tg.http.stream(ORIGIN))
        for _ in res:pieces() do end
      end)
    ]], ["/x"] = "" }, o)
    gw:wait_log("one waits")
    gw:stop()
    support.wait_for(function() return o.open == 0 end, "the origin's connections to be closed")
  end))

  it("raises where it is called wrongly", async(function()
    local r = run([[
      local res = assert(tg.http.stream(ORIGIN))
      local function why(...) return tostring(select(2, pcall(...))) end
      return { why(res.read), why(res.read, ctx), why(res.close, {}), why(res.pieces, 5),
        why(table.sort, { 1, 2, 3 }, function() res:read() end) }
    ]], support.origin(function(_, conn) conn:respond { body = "x" } end))
    for i = 1, 4 do assert.matches("with a colon: res:read%(%)", r[i]) end
    assert.matches("res:read%(%) cannot wait here", r[5])
  end))
end)
