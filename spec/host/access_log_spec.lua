-- The access log's ways: formats, which lines are kept, files and their rotation, syslog, and that whatever becomes of its
-- reader, of a worker, of the log writer or of the whole program, each line comes out whole, or is counted.
local uv = require "luv"
local support = require "spec.support"
local rig = require "spec.host.plugin_rig"
local async = support.async
local gateway = require "spec.support.gateway"

local ACTS = [[ local tg = require "tollgate"
  return { access = function(_, ctx)
    if ctx.request.path == "/refuse" then return ctx:refusal(402, "pay_first", "Pay first.") end
    return tonumber(ctx.request.query) or 200, "ok", { ["cache-status"] = ctx.request.headers["x-cache"] }
  end } ]]

local function start(access, options)
  options = options or {}
  local config = { log = { access = access } }
  for key, value in pairs(options.config or {}) do config[key] = value end
  return rig.start { plugins = { acts = ACTS }, config = config, routes = options.routes or {
    { name = "one", path = "/one/*", plugins = { acts = {} } }, { name = "rest", path = "/*", plugins = { acts = {} } } } }
end

-- Sends n requests, each with its number in the path.
local function send(gw, n, from)
  local c = gw:connect()
  for i = from or 1, (from or 1) + n - 1 do assert.equal(200, c:request({ path = "/n/" .. i }).status) end
  c:close()
end

-- The numbers in lines of JSON, each of which must be whole; how many of each.
local function numbers(text)
  local seen, n = {}, 0
  for line in text:gmatch "([^\n]*)\n" do
    local i = tonumber(assert(support.decode(line), line).path:match "^/n/(%d+)$")
    if i then
      assert.is_nil(seen[i], "twice: " .. line)
      seen[i], n = true, n + 1
    end
  end
  return n, seen
end

local function wait_lines(read, n)
  local got
  local ok = pcall(support.wait_for, function()
    local text = read() or ""
    got = select(2, text:gsub("\n", "\n"))
    return got >= n and (text == "" or text:sub(-1) == "\n")
  end, nil, 10000)
  if not ok then error(("%d lines, not %d"):format(got, n), 2) end
  return read()
end

describe("log.access", function()
  it("takes a format with fields, whose values cannot break out of it", async(function()
    local gw = start { format = "v1|${id}|${method} ${path}|${route}|${status}|${header:User-Agent}|${cache}|"
      .. "${consumer}|${ended}" }
    local res = gw:request { path = "/one/x",
      headers = { ["user-agent"] = 'a "quoted"\tagent\\', ["x-cache"] = "tollgate; hit" } }
    local line = wait_lines(function() return gw.process:out() end, 1)
    assert.equal(("v1|%s|GET /one/x|one|200|a \\x22quoted\\x22\\x09agent\\x5c|tollgate; hit|-|ok\n"):format(
      res.headers["x-request-id"]), line)
  end))

  it("is Apache's where it is combined", async(function()
    local gw = start { format = "combined" }
    gw:request { path = "/one/x?secret=1", headers = { referer = "http://a/", ["user-agent"] = "agent/1" } }
    local line = wait_lines(function() return gw.process:out() end, 1)
    assert.matches('^127%.0%.0%.1 %- %- %[%d%d/%a%a%a/%d%d%d%d:%d%d:%d%d:%d%d %+0000%] "GET /one/x HTTP/1%.1" 200 2 '
      .. '"http://a/" "agent/1"\n$', line)
  end))

  it("has the answer's Cache-Status", async(function()
    local gw = start(true)
    gw:request { path = "/", headers = { ["x-cache"] = "tollgate; fwd=miss" } }
    assert.equal("tollgate; fwd=miss", gw:wait_access(1)[1].cache)
  end))

  it("leaves out lines by route and status, but neither errors nor refusals unless they are named", async(function()
    local gw = start { sample = { { route = "one", status = { 404, "5xx" }, keep = 0 }, { route = "one", keep = 0 },
      { route = "rest", keep = 0.5 } } }
    for _, path in ipairs { "/one/a", "/one/a?404", "/one/a?503", "/one/a?400", "/refuse", "/?500" } do
      gw:request { path = path }
    end
    send(gw, 200)
    gw:wait_metric("requests_ended_total", 206)
    local sampled = gw:metric "access_log_sampled_total"
    assert.is_true(sampled > 3 + 50 and sampled < 3 + 150, sampled)
    local kept = {}
    for _, line in ipairs(gw:wait_access(206 - sampled)) do
      if not line.path:match "^/n/" then kept[#kept + 1] = line.path .. " " .. line.status end
    end
    table.sort(kept)
    assert.same({ "/ 500", "/one/a 400", "/refuse 402" }, kept)
    gw:wait_metric("access_log_lines_total", 206 - sampled)
  end))

  for value, fault in pairs {
    ["'nowhere'"] = 'log.access: must be "stdout", "file:PATH", "syslog:" or "syslog:HOST:PORT"',
    ["'syslog:localhost'"] = 'log.access: must be "host:port"',
    ["'syslog:127.0.0.1:0'"] = "log.access: the port must be a number from 1",
    ["{ format = '${statsu}' }"] = "log.access.format: there is no field ${statsu}; there are: time",
    ["{ format = '${header:cookie}' }"] = "log.access.format: ${header:cookie} may hold a credential",
    ["{ sample = { { route = 'tow', keep = 1 } } }"] =
      'log.access.sample[1].route: there is no route "tow" (did you mean two?)',
    ["{ sample = { { status = '2x', keep = 1 } } }"] = "log.access.sample[1].status: must be a status, or a class",
    ["{ sample = { { keep = 2 } } }"] = "log.access.sample[1].keep: must be at most 1",
    ["{ too = 'stdout' }"] = "log.access.too: unknown",
  } do
    it("= " .. value .. " is refused", async(function()
      local dir = support.tmpdir()
      support.write_file(dir .. "/gateway.lua",
        ("return { log = { access = %s }, routes = { { name = 'two', path = '/' } } }"):format(value))
      local run = support.tollgate { "check", "-c", dir .. "/gateway.lua" }
      assert.equal(1, run.code)
      assert.matches(fault, run.out .. run.err, 1, true)
    end))
  end
end)

it("README.md lists the fields of a format", async(function()
  local dir = support.tmpdir()
  support.write_file(dir .. "/gateway.lua",
    "return { log = { access = { format = '${none}' } }, routes = { { name = 'r', path = '/' } } }")
  local run = support.tollgate { "check", "-c", dir .. "/gateway.lua" }
  local readme = support.read_file "README.md"
  for name in (run.out .. run.err):match("there are: ([^\n]*)"):gmatch "%S+" do
    assert.truthy(readme:find(("\n| `%s` | "):format(name), 1, true), name)
  end
end))

describe("a file", function()
  it("gets every line, over rotations under load, and is beside gateway.lua where its path is relative", async(function()
    local gw = start("file:access.log", { config = { workers = 2 } })
    local path = gw.dir .. "/access.log"
    local clients, stop, sent = {}, false, 0
    for i = 1, 4 do
      clients[i] = support.spawn(function()
        while not stop do
          sent = sent + 1
          send(gw, 1, sent)
        end
      end)
    end
    for i = 1, 5 do
      local before = sent
      support.wait_for(function() return sent > before + 50 end, "requests", 10000)
      assert(os.rename(path, path .. "." .. i))
      gw.process:kill "sigusr1"
      support.wait_for(function() return uv.fs_stat(path) end, "the new file")
    end
    stop = true
    for _, client in ipairs(clients) do client:join(5000) end
    local function all()
      local parts = { support.read_file(path) }
      for i = 1, 5 do parts[#parts + 1] = support.read_file(path .. "." .. i) end
      return table.concat(parts)
    end
    assert.equal(sent, (numbers(wait_lines(all, sent))))
    for i = 1, 5 do assert.is_true(uv.fs_stat(path .. "." .. i).size > 0) end
    assert.equal(tonumber("640", 8), uv.fs_stat(path).mode % 512)
    assert.equal("", gw.process:out())
  end))

  it("that cannot be written costs its lines, which are counted, and the log says so twice", async(function()
    local gw = start("file:missing/access.log")
    send(gw, 10)
    gw:wait_metric("log_dropped_total", 10, { log = "access", reason = "write_failed" })
    gw:wait_log("missing/access.log: No such file or directory; lines are lost", true)
    assert(uv.fs_mkdir(gw.dir .. "/missing", tonumber("755", 8)))
    send(gw, 5, 11)
    assert.equal(5, (numbers(wait_lines(function() return support.read_file(gw.dir .. "/missing/access.log") end, 5))))
    gw:wait_log("takes lines again; 10 were lost", true)
    assert.equal(1, select(2, gw.log():gsub("lines are lost", "")))
    assert.equal(5, gw:metric "access_log_lines_total")
  end))

  it("on a disk that is full costs its lines, and the gateway goes on", async(function()
    local gw = start("file:/dev/full")
    send(gw, 10)
    gw:wait_metric("log_dropped_total", 10, { log = "access", reason = "write_failed" })
    gw:wait_log("No space left on device; lines are lost", true)
  end))

  it("takes the place of stdout, or stdout its place, at a reload", async(function()
    local gw = start(true)
    send(gw, 3)
    gw:wait_access(3)
    local text = support.read_file(gw.dir .. "/gateway.lua")
    local other, n = text:gsub("access = true", 'access = "file:access.log"')
    assert.equal(1, n, text)
    gw:write("gateway.lua", other)
    assert.equal(0, gw:command("reload").code)
    send(gw, 3, 4)
    local read = wait_lines(function() return support.read_file(gw.dir .. "/access.log") end, 3)
    local _, seen = numbers(read)
    assert.same({ [4] = true, [5] = true, [6] = true }, seen)
    gw:write("gateway.lua", text)
    assert.equal(0, gw:command("reload").code)
    send(gw, 1, 7)
    assert.equal("/n/7", gw:wait_access(4)[4].path)
  end))
end)

describe("syslog", function()
  local RECEIVE = [[
import socket, sys
kind, where, got = sys.argv[1:]
s = socket.socket(socket.AF_UNIX if kind == "unix" else socket.AF_INET, socket.SOCK_DGRAM)
s.bind(where if kind == "unix" else ("127.0.0.1", int(where)))
open(got, "wb").close()
while True:
    open(got, "ab").write(s.recv(65536) + b"\n")
]]

  local function receiver(kind, where)
    local got = support.tmpdir() .. "/got"
    local process = support.start { cmd = "python3", args = { "-c", RECEIVE, kind, tostring(where), got } }
    support.wait_for(function() return uv.fs_stat(got) end, "the receiver")
    return function() return support.read_file(got) end, process
  end

  local function check(gw, read, n)
    local count = 0
    for line in wait_lines(read, n):gmatch "([^\n]*)\n" do
      local stamp, pid, json = line:match("^<134>1 (%S+) %S+ tollgate (%d+) access %- ({.*})$")
      assert.matches("^%d%d%d%d%-%d%d%-%d%dT%d%d:%d%d:%d%d%.%d%d%d%d%d%dZ$", stamp, line)
      assert.equal(gw.pid, tonumber(pid), line)
      assert.matches("^/n/", support.decode(json).path)
      count = count + 1
    end
    assert.equal(n, count)
  end

  it("gets lines as RFC 5424 has them over a Unix socket, and again once it is back", async(function()
    local path = support.tmpdir() .. "/log"
    local read, process = receiver("unix", path)
    local gw = start("syslog:" .. path)
    send(gw, 20)
    check(gw, read, 20)
    process:kill "sigkill"
    process:wait()
    uv.fs_unlink(path)
    send(gw, 5, 21)
    gw:wait_metric("log_dropped_total", 5, { log = "access", reason = "write_failed" })
    read = receiver("unix", path)
    send(gw, 5, 26)
    check(gw, read, 5)
  end))

  it("gets them over UDP", async(function()
    local port = support.free_port()
    local read = receiver("udp", port)
    local gw = start("syslog:127.0.0.1:" .. port)
    send(gw, 20)
    check(gw, read, 20)
  end))
end)

describe("lines that are on their way", function()
  it("outlive their worker", async(function()
    local gw = start("file:access.log")
    for round = 1, 3 do
      send(gw, 50, (round - 1) * 50 + 1)
      gw:wait_metric("requests_ended_total", round * 50)
      uv.kill(gw:workers()[1], "sigkill")
      gw:wait_metric("worker_restarts_total", round)
      support.wait_for(function() return #gw:workers() == 1 end, "another worker")
    end
    send(gw, 1, 151)
    local died
    support.wait_for(function()
      died = gw:metric("log_dropped_total", { reason = "worker_died" })
      return gw:metric("access_log_lines_total") + died == 151
    end, "all lines")
    -- At most the lines of the last turn of each died with it.
    local n = numbers(support.read_file(gw.dir .. "/access.log"))
    assert.equal(151 - died, n)
    assert.is_true(n >= 148, n)
  end))

  -- The log writer of a gateway, by its command line.
  local function writer_of(gw)
    for line in io.popen("ps -eo pid=,ppid=,args="):lines() do
      local pid, parent = line:match("^%s*(%d+)%s+(%d+)%s+.*log%-writer")
      if tonumber(parent) == gw.pid then return tonumber(pid) end
    end
  end

  it("outlive the log writer, which is replaced", async(function()
    local gw = start("file:access.log")
    local sent, lost = 0, nil
    for round = 1, 3 do
      send(gw, 40, sent + 1)
      local pid = writer_of(gw)
      uv.kill(pid, "sigkill")
      support.wait_for(function()
        return select(2, gw.log():gsub("the log writer %(pid %d+%) was ended", "")) == round
      end, "its end")
      send(gw, 40, sent + 41)
      sent = sent + 80
      support.wait_for(function() return writer_of(gw) and writer_of(gw) ~= pid end, "another one")
    end
    send(gw, 1, sent + 1)
    support.wait_for(function()
      lost = gw:metric("log_dropped_total", { reason = "write_failed" })
      return gw:metric("access_log_lines_total") + lost == sent + 1
    end, "all lines")
    local n = numbers(support.read_file(gw.dir .. "/access.log"))
    assert.is_true(n >= sent + 1 - lost, n)
  end))

  it("outlive an upgrade, under load", async(function()
    local dir = support.tmpdir()
    support.write_file(dir .. "/tollgate", support.read_file(gateway.binary()))
    uv.fs_chmod(dir .. "/tollgate", tonumber("755", 8))
    support.write_file(dir .. "/plugins/acts.lua", ACTS)
    local gw = support.gateway { dir = dir, bin = dir .. "/tollgate", config = { workers = 2, plugin_path = { "plugins" },
      log = { access = "file:access.log" }, routes = { { name = "rest", path = "/*", plugins = { acts = {} } } } } }
    local stop, sent, clients = false, 0, {}
    for i = 1, 4 do
      clients[i] = support.spawn(function()
        while not stop do
          sent = sent + 1
          send(gw, 1, sent)
        end
      end)
    end
    local before = writer_of(gw)
    for _ = 1, 2 do
      local run = gw:command "upgrade"
      assert.equal(0, run.code, run.err)
    end
    support.wait_for(function()
      local now = writer_of(gw)
      return now and now ~= before
    end, "a log writer of the new program")
    stop = true
    for _, client in ipairs(clients) do client:join(10000) end
    local text = wait_lines(function() return support.read_file(dir .. "/access.log") end, sent)
    assert.equal(sent, (numbers(text)))
    assert.is_true(sent > 50, sent)
  end))
end)

it("a reader of the error log that takes nothing stops nobody, and what it misses is counted", async(function()
  local dir = support.tmpdir()
  support.write_file(dir .. "/plugins/talk.lua", [[ local tg = require "tollgate"
    return { access = function() tg.log.warn(("x"):rep(4000)); return 200, "ok" end } ]])
  local admin = support.free_port()
  support.write_file(dir .. "/gateway.lua", "return " .. support.literal { listen = "127.0.0.1:0", workers = 1,
    admin = "127.0.0.1:" .. admin, redis = "redis://127.0.0.1:1", plugin_path = { "plugins" }, data_dir = dir,
    log = { access = false }, routes = { { name = "r", path = "/*", plugins = { talk = {} } } } })
  local process = support.start { cwd = dir, cmd = "bash", args = { "-c",
    ('exec "%s" run 2> >(head -n 4; while ! [ -e go ]; do sleep 0.02; done; cat)'):format(gateway.binary()) } }
  local port = support.wait_for(function()
    return tonumber(process:out():match("listening on 127%.0%.0%.1:(%d+)"))
  end, "the port")
  local c = support.wait_for(function()
    local ok, conn = pcall(support.connect, port)
    return ok and conn
  end, "the gateway")
  for _ = 1, 300 do assert.equal(200, c:request({ path = "/" }).status) end
  local function dropped()
    local res = support.request { port = admin, path = "/metrics", host = "127.0.0.1" }
    return support.prometheus.sum(support.prometheus.parse(res.body), "tollgate_log_dropped_total",
      { log = "error", reason = "slow_reader" })
  end
  assert.is_true(support.wait_for(function() return dropped() > 50 and dropped() end, "drops") < 300)
  support.write_file(dir .. "/go", "")
  support.wait_for(function()
    return process:out():match("log: its reader was too slow; %d+ entries were dropped")
  end, "the count")
  c:close()
  process:kill "sigterm"
  assert.equal(0, (process:wait()))
  for line in process:out():gmatch "([^\n]+)\n" do assert.matches("^%d%d%d%d%-%d%d%-%d%dT", line) end
end))
