-- The gateway's end: SIGTERM lets answers end properly and refuses what is new; the drain's limit and a second signal
-- cut off what is left. And its start where the port is taken.
local support = require "spec.support"
local rig = require "spec.host.proxy_rig"
local async = support.async

local function ended(gw, limit_ms)
  local code, signal = gw.process:wait(limit_ms or 5000)
  return { code, signal }
end

local function term(gw)
  gw:kill("sigterm")
  gw:wait_log("stopping: %d+ connections")
end

-- An answer in steps: each word of the spec makes the next piece.
local function stepped()
  local word = 0
  local on = rig.start { config = { timeouts = { drain = 20 } }, handler = function(_, conn)
    conn:start {}
    for i = 1, 3 do
      conn:chunk("piece " .. i)
      support.wait_for(function() return word >= i end, "word " .. i)
    end
    conn:finish()
  end }
  return on, function() word = word + 1 end
end

describe("SIGTERM", function()
  it("lets an answer end properly, ends its connection, and exits 0", async(function()
    local on, go = stepped()
    local c = on.gw:connect()
    c:send_request {}
    local res = c:read_head()
    assert.equal("piece 1", res:read())
    term(on.gw)
    for i = 2, 3 do
      go()
      assert.equal("piece " .. i, res:read())
    end
    go()
    assert.is_nil((res:read()))
    assert.is_true(res.complete)
    assert.is_true(c:wait_closed())
    assert.same({ 0, 0 }, ended(on.gw))
    assert.equal("ok", on.gw.access()[1].ended)
  end))

  it("refuses new connections and ends idle ones at once", async(function()
    local on, go = stepped()
    local busy, idle, fresh = on.gw:connect(), on.gw:connect(), on.gw:connect()
    busy:send_request {}
    local res = busy:read_head()
    for _ = 1, 3 do go() end
    idle:request {}
    local _ = fresh
    on.origin.handler = function(_, conn) conn:wait_closed() end
    local owed = on.gw:connect()
    owed:send_request {}
    on.origin:wait_request(3)
    term(on.gw)
    assert.same({ "", "closed" }, { idle:read_all() })
    assert.same({ "", "closed" }, { fresh:read_all() })
    assert.has_error(function() on.gw:connect() end)
    while res:read() do end
    assert.is_true(res.complete)
    owed:close()
    assert.same({ 0, 0 }, ended(on.gw))
  end))

  it("serves a request whose bytes were coming in, and says that the connection ends", async(function()
    local on = rig.start { config = { timeouts = { drain = 20 } } }
    local head, body, piped = on.gw:connect(), on.gw:connect(), on.gw:connect()
    head:send("GET / HTTP/1.1\r\nHo")
    body:send("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 4\r\n\r\nab")
    on.origin.handler = function(req, conn)
      if req.path == "/slow" then support.wait_for(function() return on.go end, "a word") end
      conn:respond { body = req.path .. req.body }
    end
    piped:send("GET /slow HTTP/1.1\r\nHost: a\r\n\r\nGET /2 HTTP/1.1\r\nHost: a\r\n\r\n")
    support.wait_for(function() return #on.origin.requests == 1 end, "the slow one at the origin")
    term(on.gw)
    head:send("st: a\r\n\r\n")
    body:send("cd")
    on.go = true
    local a, b, c, d = head:read_response(), body:read_response(), piped:read_response(), piped:read_response()
    assert.same({ "/", "close" }, { a.body, a.headers.connection })
    assert.same({ "/abcd", "close" }, { b.body, b.headers.connection })
    assert.same({ "/slow", "close" }, { c.body, c.headers.connection })
    assert.is_nil(d)
    assert.same({ 0, 0 }, ended(on.gw))
  end))

  it("waits for a slow reader of an answer whose origin is done", async(function()
    local on = rig.start { config = { timeouts = { drain = 20 } }, files = { ["plugins/big.lua"] = [[
      local body = ("x"):rep(32 * 1024 * 1024)
      return { version = "1.0.0", priority = 1, schema = {}, access = function() return 200, body end }]] },
      route = { plugins = { big = {} }, targets = {} } }
    local c = on.gw:connect()
    c:pause()
    c:send_request {}
    on.gw:wait_access(1)
    term(on.gw)
    support.sleep(2500) -- longer than a connection lingers once all is written
    c:resume()
    assert.equal(32 * 1024 * 1024, #c:read_response().body)
    assert.same({ 0, 0 }, ended(on.gw))
  end))

  it("ends at once where nothing is owed, SIGINT too", async(function()
    for _, signal in ipairs { "sigterm", "sigint" } do
      local on = rig.start {}
      on.gw:request {}
      local c = on.gw:connect()
      on.gw.given_up = true
      on.gw:kill(signal)
      assert.is_true(c:wait_closed())
      assert.same({ 0, 0 }, ended(on.gw))
    end
  end))
end)

describe("what is left is cut off, so that it shows,", function()
  local function cut(minor, config, stop)
    local on = rig.start { config = config, handler = function(_, conn)
      conn:start {}
      conn:chunk("abc")
      conn:wait_closed()
    end }
    local c = on.gw:connect()
    c:send("GET / HTTP/1." .. minor .. "\r\nHost: a\r\n\r\n")
    local res = c:read_head()
    assert.equal("abc", res:read())
    local waiting = on.gw:connect()
    on.origin.handler = function(_, conn) conn:wait_closed() end
    waiting:send_request {}
    on.origin:wait_request(2)
    term(on.gw)
    stop(on)
    assert.same({ nil, minor == 0 and "reset" or "closed" }, { res:read() })
    assert.is_nil((waiting:read_response()))
    assert.same({ 0, 0 }, ended(on.gw))
    assert.equal(0, on.origin.open)
    for _, line in ipairs(on.gw.access()) do assert.equal("shutdown", line.ended) end
    assert.equal(2, #on.gw.access())
  end

  it("at the drain's limit", async(function()
    for minor = 0, 1 do
      cut(minor, { timeouts = { drain = 0.3 } }, function(on) on.gw:wait_log("drain: the limit") end)
    end
  end))

  it("at a second signal", async(function()
    for minor = 0, 1 do
      cut(minor, { timeouts = { drain = 60 } }, function(on)
        on.gw:kill("sigterm")
        on.gw:wait_log("stopping at once")
      end)
    end
  end))
end)

describe("a port that is taken", function()
  it("ends the start with exit code 1 and says which", async(function()
    local on = rig.start {}
    local dir = support.tmpdir()
    for key, what in pairs { listen = on.gw.port, admin = on.gw.admin_port } do
      local config = { listen = "127.0.0.1:0", admin = "127.0.0.1:0", data_dir = dir, redis = "redis://127.0.0.1:1",
        routes = { { name = "a", path = "/", targets = { { url = on.origin.url } } } } }
      config[key] = "127.0.0.1:" .. what
      support.write_file(dir .. "/gateway.lua", "return " .. support.literal(config))
      local res = support.tollgate { "run", "-c", dir .. "/gateway.lua" }
      assert.equal(1, res.code)
      assert.matches("cannot listen on 127.0.0.1:" .. what .. ": address already in use", res.err, 1, true)
    end
    assert.equal("hello", on.gw:request({}).body)
  end))
end)
