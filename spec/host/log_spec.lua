-- The access log on stdout and the error log on stderr: what a line has, that one request id runs through all of them, what
-- never is in them, and that the gateway does not depend on anyone who reads them.
local support = require "spec.support"
local rig = require "spec.host.plugin_rig"
local async = support.async
local binary = require("spec.support.gateway").binary

local SECRET, PROVIDER = "tg-client-secret-1", "sk-provider-secret-1"

local talk = [[ local tg = require "tollgate"
  return { priority = 1, access = function(_, ctx)
    if ctx.request.path == "/boom" then error("boom") end
    if ctx.request.path == "/refuse" then return ctx:refusal(402, "pay_first", "Pay first.") end
    if ctx.request.path == "/inject" then tg.log.warn("a\r\n2026-01-01T00:00:00.000Z error [x] forged\27[31m\0end", nil, true) end
    for _, level in ipairs { "debug", "info", "warn", "error" } do tg.log[level]("told ", level, ";") end
    return 200, ("x"):rep(tonumber(ctx.request.query) or 6)
  end } ]]

describe("the access log", function()
  local on, up, down = rig.shared(function()
    local redis = support.redis()
    local origin = support.chat_origin {}
    return { plugins = { talk = talk }, origin = origin, config = { redis = redis.url },
      files = { ["keys.jsonl"] = support.keys { { id = "alice", tenant = "acme", secret = SECRET, monthly_tokens = 10000 } } },
      routes = {
        { name = "chat", path = "/v1/chat/completions", plugins = { auth = { keys = "keys.jsonl" }, quota = {} },
          targets = { { url = origin.url, headers = { authorization = "Bearer " .. PROVIDER } } } },
        { name = "talk", path = "/*", plugins = { talk = {} } },
      } }
  end)
  setup(up)
  teardown(down)

  -- The line of one request.
  local function line_of(res)
    local id = res.headers["x-request-id"]
    return support.wait_for(function()
      for _, line in ipairs(on.gw.access()) do
        if line.id == id then return line end
      end
    end, "the line of " .. tostring(id))
  end

  local function chat(fields)
    fields.headers = fields.headers or { authorization = "Bearer " .. SECRET }
    fields.path = fields.path or "/v1/chat/completions"
    fields.body = { model = "m", max_tokens = 50, stream = fields.stream,
      messages = { { role = "user", content = "the prompt" } } }
    return on.gw:request(fields)
  end

  it("has a line of JSON for each request, with every field", async(function()
    on.gw:wait_log("redis: usable")
    local res = chat {}
    local line = line_of(res)
    assert.matches("^%d%d%d%d%-%d%d%-%d%dT%d%d:%d%d:%d%d%.%d%d%dZ$", line.time)
    for _, name in ipairs { "seconds", "access_seconds", "connect_seconds", "first_byte_seconds", "origin_seconds" } do
      assert.is_true(line[name] >= 0 and line[name] < 60, name)
      line[name] = nil
    end
    assert.is_true(line.tokens.prompt_estimate > 0)
    assert.equal(line.tokens.prompt_estimate + 50, line.tokens.reserved)
    line.time, line.tokens.prompt_estimate, line.tokens.reserved = nil, nil, nil
    assert.is_true(line.bytes_in > 50)
    line.bytes_in = nil
    assert.same({ id = res.headers["x-request-id"], client = "127.0.0.1", method = "POST", path = "/v1/chat/completions",
      route = "chat", consumer = "alice", tenant = "acme", status = 200, ended = "ok", attempts = 1,
      target = on.options.origin.url:match("//(.*)"),
      bytes_out = #res.body, model = "m", stream = false, tokens = { used = 13, input = 9, output = 4 } }, line)
  end))

  it("leaves out what a request has not", async(function()
    local res = on.gw:request { path = "/plain?9" }
    local line = line_of(res)
    line.time, line.seconds = nil, nil
    assert.same({ id = res.headers["x-request-id"], client = "127.0.0.1", method = "GET", path = "/plain", route = "talk",
      status = 200, ended = "ok", bytes_in = 0, bytes_out = 9 }, line)
    assert.equal("pay_first", line_of(on.gw:request { path = "/refuse" }).refusal)
    line = line_of(chat { headers = { authorization = "Bearer wrong" } })
    assert.same({ 401, "invalid_api_key" }, { line.status, line.refusal })
    assert.is_nil(line.consumer)
  end))

  it("has requests that no route takes and that are malformed", async(function()
    local c = on.gw:connect()
    c:send "GET /mal?q=1 HTTP/1.1\r\nHost : a\r\n\r\n"
    local res = c:read_response()
    local line = line_of(res)
    assert.same({ 400, nil }, { line.status, line.route })
    assert.is_nil(line.path:find("q=1", 1, true))
  end))

  it("has the same id as the answer, the error log and the request that goes upstream", async(function()
    local res = on.gw:request { path = "/boom" }
    local id = res.headers["x-request-id"]
    assert.equal(500, line_of(res).status)
    on.gw:wait_log("error [" .. id .. "] plugin talk, phase access", true)
    assert.equal(id, support.json(res).error.request_id or id)
    res = on.gw:request { path = "/told" }
    on.gw:wait_log("warn  [" .. res.headers["x-request-id"] .. "] told warn;", true)
    res = chat {}
    local seen = on.options.origin.requests[#on.options.origin.requests]
    assert.equal(res.headers["x-request-id"], seen.headers["x-request-id"])
  end))

  it("no two requests have one id, and ids sort by time", async(function()
    local ids, last = {}, ""
    for _ = 1, 200 do
      local id = on.gw:request({ path = "/id" }).headers["x-request-id"]
      assert.is_nil(ids[id])
      assert.is_true(id:sub(1, 9) >= last:sub(1, 9))
      ids[id], last = true, id
    end
  end))

  it("neither log ever has a credential, a query string, or a prompt", async(function()
    for _, fields in ipairs { {}, { stream = true }, { path = "/v1/chat/completions?key=query-secret" },
      { headers = { ["x-api-key"] = SECRET .. "x" } }, { path = "/boom?key=query-secret" } } do
      chat(fields)
    end
    on.options.origin.handler = function(_, conn) conn:close() end
    assert.equal(502, chat({}).status)
    on.options.origin.handler = function(_, conn) conn:write("HTTP/1.1 nonsense " .. PROVIDER .. "\r\n\r\n"); conn:close() end
    assert.equal(502, chat({}).status)
    local res = on.gw:request { path = "/last?key=query-secret" }
    line_of(res)
    for _, text in ipairs { SECRET, PROVIDER, "query-secret", "the prompt", "Hello" } do
      assert.is_nil(on.gw.process:out():find(text, 1, true), text)
      assert.is_nil(on.gw.log():find(text, 1, true), text)
    end
  end))

  it("text from outside cannot forge a line of either log", async(function()
    local res = on.gw:request { path = "/inject" }
    on.gw:wait_log("[" .. res.headers["x-request-id"] .. "] a\\x0d\n\t2026", true)
    assert.is_nil(on.gw.log():find("\n2026-01-01", 1, true))
    assert.is_nil(on.gw.log():find("\27", 1, true))
    local c = on.gw:connect()
    c:send "GET /%22%0a\"x HTTP/1.1\r\nHost: a\r\n\r\n"
    c:read_response()
    on.gw:request { path = "/end" }
    on.gw.access() -- raises where a line is no JSON
  end))
end)

describe("log.level", function()
  -- At warn no line says that the gateway is ready, or on which port.
  local function start(level)
    local dir, port = support.tmpdir(), support.free_port()
    support.write_file(dir .. "/plugins/talk.lua", talk)
    support.write_file(dir .. "/gateway.lua", "return " .. support.literal { listen = "127.0.0.1:" .. port, admin = false,
      redis = "redis://127.0.0.1:1", plugin_path = { "plugins" }, log = { level = level, access = false },
      routes = { { name = "r", path = "/*", plugins = { talk = {} } } } })
    local process = support.start { cmd = binary(), args = { "run" }, cwd = dir }
    support.wait_for(function() return pcall(support.request, { port = port, path = "/levels" }) end, "the gateway")
    return process
  end

  it("is the least that the error log has", async(function()
    for i, level in ipairs { "debug", "info", "warn", "error" } do
      local process = start(level)
      support.wait_for(function() return process:err():find("told error;", 1, true) end, "the log")
      for k, other in ipairs { "debug", "info", "warn", "error" } do
        assert.equal(k >= i, process:err():find("told " .. other .. ";", 1, true) ~= nil, level .. ", " .. other)
      end
      process:kill "sigterm"
      assert.equal(0, process:wait())
    end
  end))
end)

describe("log.access = false", function()
  it("writes nothing to stdout", async(function()
    local gw = rig.start { plugins = { talk = talk }, config = { log = { access = false } } }
    assert.equal(200, gw:request({ path = "/" }).status)
    gw:stop()
    assert.equal("", gw.process:out())
  end))
end)

describe("who reads stdout", function()
  -- A gateway whose stdout goes to a shell command.
  local function piped(reader)
    local dir = support.tmpdir()
    support.write_file(dir .. "/plugins/talk.lua", talk)
    support.write_file(dir .. "/gateway.lua", "return " .. support.literal { listen = "127.0.0.1:0", admin = false,
      redis = "redis://127.0.0.1:1", plugin_path = { "plugins" }, data_dir = dir,
      routes = { { name = "r", path = "/*", plugins = { talk = {} } } } })
    local process = support.start { cmd = "bash", args = { "-c",
      ('exec "%s" run -c gateway.lua > >(%s)'):format(binary(), reader) }, cwd = dir }
    local port = support.wait_for(function()
      local log = process:err()
      return log:match("is ready") and tonumber(log:match("listening on 127%.0%.0%.1:(%d+)"))
    end, "the gateway")
    return process, port, dir
  end

  local function stop(process)
    process:kill "sigterm"
    return (process:wait())
  end

  it("may leave: the gateway goes on", async(function()
    local process, port = piped "true"
    for _ = 1, 20 do assert.equal(200, support.request({ port = port, path = "/" }).status) end
    assert.equal(0, stop(process))
  end))

  it("may take nothing: the gateway goes on, and whole lines are lost and counted, not parts of lines", async(function()
    local process, port, dir = piped "while ! [ -e go ]; do sleep 0.02; done; cat"
    local c = support.connect(port)
    local n, path = 0, "/" .. ("p"):rep(4000)
    while n < 600 do
      assert.equal(200, c:request({ path = path }).status)
      n = n + 1
    end
    support.write_file(dir .. "/go", "")
    support.wait_for(function() return process:err():match("access log: its reader was too slow; %d+ lines were dropped") end,
      "the count of lost lines")
    local lost = tonumber(process:err():match("too slow; (%d+) lines"))
    c:request { path = path }
    n = n + 1
    assert.equal(0, stop(process))
    local lines = 0
    for line in process:out():gmatch("([^\n]*)\n") do
      assert.equal(path, support.decode(line).path)
      lines = lines + 1
    end
    assert.equal(n, lines + lost)
    assert.is_true(lines > 100)
  end))
end)
