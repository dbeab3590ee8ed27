-- The support library against itself: a fault in a helper would make other specs pass or fail for the
-- wrong reason, so that each is shown to see what it claims to see.
local support = require "spec.support"
local async = support.async

local function fails(fn, limit_ms)
  local ok, err = pcall(support.run, fn, limit_ms)
  assert.is_false(ok)
  return tostring(type(err) == "table" and err.message or err)
end

describe("the loop", function()
  it("runs coroutines side by side and joins them", async(function()
    local order = {}
    local results = support.all {
      function() support.sleep(20); order[#order + 1] = "slow"; return 1 end,
      function() support.sleep(1); order[#order + 1] = "fast"; return 2 end,
    }
    assert.same({ 1, 2 }, results)
    assert.same({ "fast", "slow" }, order)
  end))

  it("fails a test whose body, or spawned coroutine, raises, and names the line of the spec", function()
    assert.matches("support_spec%.lua:%d+: .*boom", fails(function() error("boom") end))
    local message = fails(function()
      support.spawn(function() support.sleep(1); assert.equal(1, 2) end)
      support.sleep(5000)
    end)
    assert.matches("support_spec%.lua:%d+", message)
    assert.matches("Expected", message)
  end)

  it("fails a test that takes too long, with the place where it waits", function()
    local message = fails(function() support.sleep(5000) end, 20)
    assert.matches("took more than 20 ms", message)
    assert.matches("support_spec%.lua:%d+", message)
  end)

  it("fails a test whose clean-up raises, and still does the others", function()
    local done = false
    assert.matches("not clean", fails(function()
      support.on_end(function() done = true end)
      support.on_end(function() error("not clean") end)
    end))
    assert.is_true(done)
  end)

  it("waits for a condition, with a limit", async(function()
    local ready
    support.spawn(function() support.sleep(5); ready = "yes" end)
    assert.equal("yes", support.wait_for(function() return ready end, "ready"))
    assert.has_error(function() support.wait_for(function() end, "a miracle", 10) end)
  end))
end)

describe("files and processes", function()
  it("removes temporary directories", function()
    local dir
    support.run(function()
      dir = support.tmpdir()
      support.write_file(dir .. "/a/b.txt", "text")
      assert.equal("text", support.read_file(dir .. "/a/b.txt"))
    end)
    assert.is_nil(support.read_file(dir .. "/a/b.txt"))
    assert.is_nil(io.open(dir))
  end)

  it("collects output, exit code and environment", async(function()
    local res = support.exec { cmd = "sh", args = { "-c", "cat; echo $GREETING >&2; exit 3" }, stdin = "in",
      env = { GREETING = "hi" } }
    assert.same({ code = 3, signal = 0, out = "in", err = "hi\n" }, res)
    local killed = support.exec { cmd = "sh", args = { "-c", "kill -9 $$" } }
    assert.same({ 137, 9 }, { killed.code, killed.signal })
  end))

  it("ends what a failing test has left running", function()
    local process
    fails(function()
      process = support.start { cmd = "sleep", args = { "100" } }
      error("boom")
    end)
    assert.is_true(process.exited)
  end)
end)

describe("client and origin", function()
  it("exchange bodies by length, on one connection", async(function()
    local origin = support.origin(function(req, conn)
      conn:respond { status = 201, reason = "Made", headers = { { "X-A", "1" }, { "x-a", "2" } }, body = req.body .. "!" }
    end)
    local c = support.connect(origin.port)
    local res = c:request { path = "/p?q=1", body = "one" }
    assert.same({ 201, "Made", "one!", "1, 2" }, { res.status, res.reason, res.body, res.headers["x-a"] })
    assert.equal("two!", c:request({ body = "two" }).body)
    assert.same({ 1, 2 }, { origin.connections, #origin.requests })
    assert.same({ "POST", "/p", "q=1" }, { origin.requests[1].method, origin.requests[1].path, origin.requests[1].query })
    assert.is_nil(c:request({ method = "HEAD" }).body:match("."))
  end))

  it("exchange chunked bodies, however they are split", async(function()
    local origin = support.origin(function(req, conn)
      conn:start { headers = { ["content-type"] = "text/plain" } }
      for byte in req.body:gmatch(".") do conn:chunk(byte) end
      conn:finish { ["x-sum"] = #req.body }
    end)
    local c = support.connect(origin.port)
    for byte in ("POST / HTTP/1.1\r\ntransfer-encoding: chunked\r\n\r\n3\r\nabc\r\n2\r\nde\r\n0\r\n\r\n"):gmatch(".") do
      c:send(byte)
    end
    local res = c:read_response()
    assert.equal("abcde", res.body)
    assert.same({ 1, 1, 1, 1, 1 }, res.chunks)
    assert.equal("5", res.trailers["x-sum"])
    assert.is_true(res.complete)
  end))

  it("see bodies that end by closing, and answers that are cut", async(function()
    local origin = support.origin(function(req, conn)
      if req.path == "/close" then return conn:respond { body = "all", length = false } end
      conn:write("HTTP/1.1 200 OK\r\ncontent-length: 10\r\n\r\nabc")
      if req.path == "/cut" then return conn:close() end
      support.sleep(10)
      conn:reset()
    end)
    assert.equal("all", support.request({ port = origin.port, path = "/close" }).body)
    local res, err, part = support.request { port = origin.port, path = "/cut" }
    assert.same({ nil, "closed", "abc" }, { res, err, part.body })
    local _, reset = support.request { port = origin.port, path = "/reset" }
    assert.equal("reset", reset)
  end))

  it("see a client that leaves by FIN or by reset", async(function()
    local seen = {}
    local origin = support.origin(function(_, conn)
      conn:wait_closed()
      seen[#seen + 1] = conn.err or "fin"
    end)
    for _, leave in ipairs { "close", "reset" } do
      local c = support.connect(origin.port)
      c:send_request { path = "/" }
      origin:wait_request(#seen + 1)
      c[leave](c)
      support.wait_for(function() return #seen == (leave == "close" and 1 or 2) end, leave)
    end
    assert.same({ "fin", "reset" }, seen)
  end))

  it("stall when a reader pauses", async(function()
    local sent
    local origin = support.origin(function(_, conn)
      sent = { conn:write(("x"):rep(32 * 1024 * 1024), 50) }
      conn:close()
    end)
    local c = support.connect(origin.port)
    c:send_request { path = "/" }
    c:pause()
    support.wait_for(function() return sent end, "the write's end")
    assert.same({ nil, "timeout" }, { sent[1], sent[2] })
    c:resume()
    assert.is_true(#c:read_all() > 0)
  end))

  it("time out", async(function()
    local origin = support.origin(function(_, conn) conn:wait_closed() end)
    local res, err = support.request { port = origin.port, timeout = 20 }
    assert.same({ nil, "timeout" }, { res, err })
  end))
end)

describe("the chat origin", function()
  local request = { model = "m", messages = { { role = "user", content = "hi" } } }

  it("answers with usage", async(function()
    local origin = support.chat_origin { usage = { prompt_tokens = 1, completion_tokens = 2, total_tokens = 3 } }
    local answer = support.json(support.request { port = origin.port, body = request })
    assert.equal("Hello, world!", answer.choices[1].message.content)
    assert.equal(3, answer.usage.total_tokens)
    assert.equal("m", origin.bodies()[1].model)
  end))

  it("streams, with usage only when asked, and gzips", async(function()
    local origin = support.chat_origin { split = 3, eol = "\r\n" }
    request.stream = true
    local plain = support.sse(support.request({ port = origin.port, body = request }).body)
    request.stream_options = { include_usage = true }
    local asked = support.sse(support.request({ port = origin.port, body = request }).body)
    request.stream, request.stream_options = nil, nil
    assert.equal("[DONE]", plain[#plain].data)
    assert.equal(#plain + 1, #asked)
    assert.equal(13, support.decode(asked[#asked - 1].data).usage.total_tokens)
    local zipped = support.chat_origin { gzip = true }
    local body = support.request({ port = zipped.port, body = request }).body
    assert.matches("Hello", support.gunzip(body))
  end))

  it("the LLM stand-in answers each API with its own usage, streams what streams, and breaks off where told", async(function()
    local origin = support.llm_origin { usage = { input = 3, output = 2 },
      each = function(_, body) return { cut_after = body.cut } end }
    local function ask(path, body) return support.request { port = origin.port, path = path, body = body } end
    local usage = {
      ["/v1/chat/completions"] = { prompt_tokens = 3, completion_tokens = 2, total_tokens = 5 },
      ["/v1/embeddings"] = { prompt_tokens = 3, total_tokens = 3 },
    }
    for path, expected in pairs(usage) do assert.same(expected, support.json(ask(path, { input = "a", messages = {} })).usage) end
    assert.equal(5, support.json(ask("/v1/responses", { input = "a" })).usage.total_tokens)
    assert.equal(2, support.json(ask("/v1/messages", { messages = {} })).usage.output_tokens)

    local last = { ["/v1/responses"] = "response.completed", ["/v1/messages"] = "message_stop" }
    for path, name in pairs(last) do
      local events = support.sse(ask(path, { stream = true }).body)
      assert.equal(name, events[#events].event)
      local res, err, part = ask(path, { stream = true, cut = 3 })
      assert.is_nil(res)
      assert.same({ "closed", 3 }, { err, #support.sse(part.body) })
    end
  end))

  it("is cut after an event, which an iterator over events sees", async(function()
    local origin = support.chat_origin { cut_after = 2 }
    local c = support.connect(origin.port)
    c:send_request { body = { model = "m", stream = true } }
    local next_event = support.events(c:read_head())
    assert.is_table(next_event())
    assert.is_table(next_event())
    assert.same({ nil, "closed" }, { next_event() })
  end))
end)

it("parses events with any line end", function()
  local expected = { { data = "a\nb", event = "x" }, { data = "c", id = "1" } }
  for _, eol in ipairs { "\n", "\r\n", "\r" } do
    local text = (": ping\nevent: x\ndata: a\ndata:b\n\nevent: none\n\nid: 1\ndata: c\n\ndata: unfinished"):gsub("\n", eol)
    assert.same(expected, support.sse(text))
  end
end)

it("knows SHA-256, and writes key records and configurations", function()
  assert.equal("ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad", support.sha256("abc"))
  local record = support.decode(support.keys { { id = "k", secret = "abc", rps = 1 } })
  assert.same({ id = "k", rps = 1, secret_sha256 = support.sha256("abc") }, record)
  local text = "return " .. support.literal { a = { 1, "x\ny" }, ["b-c"] = { d = true }, e = support.raw('env "E"') }
  local value = setfenv(loadstring(text), { env = function(name) return "env " .. name end })()
  assert.same({ a = { 1, "x\ny" }, ["b-c"] = { d = true }, e = "env E" }, value)
end)

describe("the gateway helper", function()
  -- Behaves as the host does towards the helper; the first argument after the configuration says how it ends.
  local stand_in = [[#!/usr/bin/env luajit
local uv = require "luv"
local mode = arg[4] or "good"
local function log(...) io.stderr:write("info: ", string.format(...), "\n") end
if mode == "refuse" then log("gateway.lua:3: unknown key") os.exit(2) end
local function listen(what)
  local server = uv.new_tcp()
  server:bind("127.0.0.1", 0)
  server:listen(16, function()
    local client = uv.new_tcp()
    server:accept(client)
    client:read_start(function(_, data)
      if not data then return client:close() end
      client:write("HTTP/1.1 200 OK\r\ncontent-length: " .. #what .. "\r\n\r\n" .. what)
      io.stdout:write('{"status":200}\n') io.stdout:flush()
    end)
  end)
  log("%s on 127.0.0.1:%d", what, server:getsockname().port)
end
listen "listening" listen "admin"
local term = uv.new_signal()
term:start("sigterm", function() log "stopping" os.exit(mode == "leak" and 1 or 0) end)
log "ready"
uv.run()
]]

  local function start(mode)
    local bin = support.write_file(support.tmpdir() .. "/tollgate", stand_in)
    os.execute("chmod +x " .. bin)
    return support.gateway { bin = bin, config = { routes = {} }, args = { mode }, files = { ["plugins/x.lua"] = "return {}" } }
  end

  it("starts, finds the ports, reads the logs, stops", async(function()
    local gw = start "good"
    assert.equal("listening", gw:request({ path = "/" }).body)
    assert.equal("admin", gw:admin("/healthz").body)
    assert.same({ { status = 200 }, { status = 200 } }, gw:wait_access(2))
    local config = support.read_file(gw.dir .. "/gateway.lua")
    assert.matches('listen = "127.0.0.1:0"', config, 1, true)
    assert.matches('plugin_path = {%s*"plugins"', config)
    gw:stop()
    assert.is_true(gw.process.exited)
  end))

  it("fails the test when the gateway ends badly, with its log", function()
    assert.matches("ended with code 1.*stopping", fails(function() start "leak" end))
  end)

  it("shows why a gateway did not start", function()
    assert.matches("exit code 2.*unknown key", fails(function() start "refuse" end))
  end)
end)

it("runs node with the pinned npm packages", async(function()
  local res = support.npm.node { source = "console.log(typeof require('openai').OpenAI, process.argv[1])", args = { "a" } }
  assert.same({ "", "function a\n", 0 }, { res.err, res.out, res.code })
end))

describe("redis", function()
  local up, down, r
  up, down = support.shared(function() r = support.redis() end)
  setup(up)
  teardown(down)
  before_each(async(function() r:must("FLUSHALL") end))

  it("answers values, nil, lists and errors", async(function()
    assert.equal("OK", r:cmd("SET", "a", "1\r\n2"))
    assert.equal("1\r\n2", r:cmd("GET", "a"))
    assert.is_nil(r:cmd("GET", "none"))
    assert.same({ "1\r\n2", false }, r:cmd("MGET", "a", "none"))
    assert.matches("^WRONGTYPE", r:cmd("HGET", "a", "b").err)
    assert.same({ "OK", 2 }, r:pipeline { { "SET", "n", 1 }, { "INCR", "n" } })
  end))

  it("dumps everything, equal until something is written", async(function()
    r:pipeline { { "SET", "s", "v", "PX", 60000 }, { "HSET", "h", "f", "1" }, { "SADD", "m", "b", "a" } }
    local before = r:dump()
    assert.same({ f = "1" }, before.h.value)
    assert.same({ "a", "b" }, before.m.value)
    assert.equal(-1, before.h.expires_at)
    support.sleep(3)
    assert.same(before, r:dump())
    r:cmd("PEXPIRE", "s", 60000)
    assert.not_same(before, r:dump())
  end))

  it("pauses and restarts", async(function()
    r:cmd("SET", "a", 1)
    r:pause()
    local c = support.connect(r.port)
    c:send("PING\r\n")
    assert.same({ nil, "timeout" }, { c:read_some(30) })
    r:resume()
    assert.equal("+PONG\r\n", c:read_some())
    r:restart()
    assert.same({}, r:dump())
  end))

  describe("through the proxy", function()
    local p, c

    local function fresh()
      c = support.connect(p.port)
    end

    local function start()
      p = support.proxy { to = r.socket, resp = true }
      fresh()
    end

    it("loses the reply of a command that has run", async(function()
      start()
      p:cut_after { commands = 2 }
      c:send("*2\r\n$4\r\nINCR\r\n$1\r\nn\r\n*2\r\n$4\r\nINCR\r\n$1\r\nn\r\n")
      assert.same({ ":1\r\n", "closed" }, { c:read_all() })
      assert.equal("2", r:cmd("GET", "n"))
    end))

    it("cuts the client and runs the command late", async(function()
      start()
      p:on_command(function(args) return args[1] == "INCR" and "hold_cut" or "pass" end)
      c:send("*1\r\n$4\r\nPING\r\n")
      assert.equal("+PONG\r\n", c:read_some())
      c:send("*2\r\n$4\r\nINCR\r\n$1\r\nn\r\n")
      assert.same({ "", "closed" }, { c:read_all() })
      assert.is_nil(r:cmd("GET", "n"))
      p:release("up")
      support.wait_for(function() return r:cmd("GET", "n") == "1" end, "the late command")
    end))

    it("cuts after a reply, and refuses", async(function()
      start()
      p:cut_after { replies = 1 }
      c:send("*1\r\n$4\r\nPING\r\n*1\r\n$4\r\nPING\r\n")
      assert.same({ "+PONG\r\n", "closed" }, { c:read_all() })
      p:refuse(true)
      -- The reset may come before or after the connection counts as made.
      assert.has_error(function()
        fresh()
        assert(c:read_some())
      end)
      support.wait_for(function() return p.connections == 2 end, "a connection")
    end))
  end)
end)

describe("the proxy", function()
  it("passes, holds, delays and cuts at a byte", async(function()
    local origin = support.origin(function(_, conn) conn:respond { body = "0123456789" } end)
    local p = support.proxy { to = origin.port }
    local c = support.connect(p.port)
    assert.equal("0123456789", c:request({}).body)
    p:hold("down")
    assert.same({ nil, "timeout", "" }, { c:request { timeout = 30 } })
    p:release("down")
    assert.equal(200, c:read_response().status)
    p:delay("up", 20)
    assert.same({ nil, "timeout", "" }, { c:request { timeout = 5 } })
    assert.equal(200, c:read_response().status)
    p:delay("up", nil)
    p:cut_after { down = 20 }
    c:send_request {}
    local bytes, err = c:read_all()
    assert.same({ 20, "closed" }, { #bytes, err })
    assert.equal(0, p:open())
  end))

  it("passes on a FIN and a reset", async(function()
    local seen
    local server = support.server(function(s)
      s:wait_closed()
      seen = s.err or "fin"
    end)
    local p = support.proxy { to = server.port }
    local c = support.connect(p.port)
    support.wait_for(function() return p:open() == 1 end)
    c:shutdown()
    support.wait_for(function() return seen == "fin" end, "a FIN")
    c = support.connect(p.port)
    support.wait_for(function() return p:open() >= 1 and p.connections == 2 end)
    support.sleep(10)
    c:reset()
    support.wait_for(function() return seen == "reset" end, "a reset")
  end))
end)

describe("the gateway killed at each Redis command", function()
  local writer = [[
    local tg = require "tollgate"
    return { access = function()
      tg.redis.call("SET", "first", 1, "EX", 10)
      tg.redis.call("SET", "second", 1, "EX", 10)
      return 204
    end }
  ]]

  local function sweep(redis, source, check)
    return support.redis_tap.each { redis = redis, check = check, run = function(gw) return gw:request {} end,
      start = function(url)
        return support.gateway { files = { ["plugins/writer.lua"] = source },
          config = { redis = url, routes = { { name = "r", path = "/", plugins = { writer = {} } } } } }
      end }
  end

  it("leaves what the commands before it did, and that one's doing or not", async(function()
    local redis = support.redis()
    local left = {}
    local n = sweep(redis, writer, function(killed)
      local keys = redis:must("KEYS", "*")
      table.sort(keys)
      left[#left + 1] = tostring(killed) .. " " .. table.concat(keys, ",")
    end)
    assert.equal(2, n)
    assert.same({ "true ", "true first", "true first", "true first,second", "false first,second" }, left)
  end))

  it("shows a key that has no lifetime for a moment", function()
    local lasting = writer:gsub(', 1, "EX", 10%)', ", 1)", 1)
    assert.matches("first has no lifetime, killed at command 1 %(SET, unread%)", fails(function()
      sweep(support.redis(), lasting)
    end))
  end)
end)
