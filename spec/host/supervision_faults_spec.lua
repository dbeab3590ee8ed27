-- What goes wrong around the master and its workers: a folder that is taken, closed streams, stray signals, workers that cannot
-- load or cannot be started.
local uv = require "luv"
local rig = require "spec.host.supervision_rig"
local binary = require("spec.support.gateway").binary
local support = require "spec.support"

local async = support.async

-- Runs another gateway to its end.
local function second(config)
  local dir = support.tmpdir()
  support.write_file(dir .. "/gateway.lua", ([[return { listen = "127.0.0.1:0", admin = %q, data_dir = "%s/own", run_dir = %q,
    routes = { { name = "a", path = "/*", targets = { { url = "http://127.0.0.1:1" } } } } }]]):format(
    config.admin or "127.0.0.1:0", dir, config.run_dir or dir .. "/run"))
  return support.tollgate({ "run", "-c", dir .. "/gateway.lua" }, { timeout = 20000 }), dir
end

-- Runs the gateway's program by a shell line, since a child's streams cannot be closed otherwise.
local function shell(line, port)
  local dir = support.tmpdir()
  support.write_file(dir .. "/gateway.lua", ([[return { listen = "127.0.0.1:%d", admin = false, data_dir = "%s/data", workers = 1,
    plugin_path = { "plugins" }, routes = { { name = "a", path = "/*", plugins = { answer = {} } } } }]]):format(port, dir))
  support.write_file(dir .. "/plugins/answer.lua", rig.plugin "one")
  return support.start { cmd = "sh", cwd = dir, args = { "-c", "exec " .. binary() .. " run " .. line } }
end

-- An answer's body; nil where there is none.
local function ask(port)
  local fine, res = pcall(support.request, { port = port, path = "/", timeout = 500 })
  return fine and res and res.body or nil
end

local function free_port()
  local probe = uv.new_tcp()
  probe:bind("127.0.0.1", 0)
  local port = probe:getsockname().port
  probe:close()
  return port
end

describe("a gateway whose run_dir another one uses", function()
  it("does not start, and leaves the other one's sockets alone", async(function()
    local gw = rig.start {}
    support.wait_for(function() return gw:admin("/readyz").status == 200 end, "readiness")
    local run = gw.dir .. "/data"
    local socket = uv.fs_stat(run .. "/redis.sock").ino
    local other = second { run_dir = run }
    assert.equal(1, other.code)
    assert.matches("run_dir .*: another gateway uses it", other.err)
    assert.equal(socket, uv.fs_stat(run .. "/redis.sock").ino)
    assert.equal(gw.pid .. "\n", support.read_file(run .. "/tollgate.pid"))
    assert.equal(0, gw:command("status").code)
  end))
end)

describe("a start that fails", function()
  it("leaves no file in run_dir and no Redis", async(function()
    local gw = rig.start {}
    for _ = 1, 10 do
      local other, dir = second { admin = "127.0.0.1:" .. gw.admin_port }
      assert.equal(1, other.code)
      assert.matches("cannot listen on 127.0.0.1:" .. gw.admin_port, other.err, 1, true)
      assert.is_nil(uv.fs_stat(dir .. "/run/admin.sock"))
      assert.is_nil(uv.fs_stat(dir .. "/run/tollgate.pid"))
      assert.equal(0, #rig.processes { dir = dir })
    end
  end))
end)

describe("closed standard streams", function()
  for _, line in ipairs { ">&-", "<&- >&- 2>&-" } do
    it("do not matter: " .. line, async(function()
      local port = free_port()
      local process = shell(line, port)
      for _ = 1, 3 do
        support.wait_for(function() return ask(port) == "one" end, "an answer")
      end
      process:kill("sigterm")
      assert.equal(0, (process:wait(8000)))
    end))
  end
end)

describe("SIGTERM to all processes of a gateway", function()
  it("drains as SIGTERM to the master does", async(function()
    local gw = rig.start { config = { workers = 2, timeouts = { drain = 20 } },
      plugin = rig.plugin("late", 'require("tollgate").timer.sleep(4)') }
    local request = support.spawn(function() return (rig.body(gw)) end)
    support.sleep(200)
    for _, pid in ipairs(gw:workers()) do uv.kill(pid, "sigterm") end
    gw.process:kill("sigterm")
    gw.given_up = true
    assert.equal("late", request:join(8000))
    assert.equal(0, (gw.process:wait(8000)))
  end))

  it("does not end workers whose master lives", async(function()
    local gw = rig.start {}
    local pid = gw:workers()[1]
    uv.kill(pid, "sigterm")
    support.sleep(2500)
    assert.equal(pid, gw:workers()[1])
    assert.equal("one", (rig.body(gw)))
  end))
end)

describe("a worker", function()
  it("that cannot load what is committed is started again until it can", async(function()
    local gw = rig.start { config = { reload = { watch = false } },
      files = { ["plugins/early.lua"] = [[
local M = { version = "1.0.0", priority = 2, schema = { file = { type = "string" } } }
function M.init(conf)
  if io.open(conf.file) then error "no luck" end
end
return M
]] } }
    local flag = gw.dir .. "/flag"
    local text = support.read_file(gw.dir .. "/gateway.lua")
    gw:write("gateway.lua", (text:gsub("answer = {", 'early = { file = "' .. flag .. '" }, answer = {', 1)))
    assert.equal(0, gw:command("reload").code)
    support.write_file(flag, "")
    uv.kill(gw:workers()[1], "sigkill")
    gw:wait_log("could not load generation 2: .*no luck")
    os.remove(flag)
    support.wait_for(function() return #gw:workers() == 1 end, "a worker that serves", 15000)
    assert.equal("one", (rig.body(gw)))
  end))

  it("that cannot be forked is started later, and no other process is harmed", async(function()
    local as = "setpriv --reuid 65531 --regid 65531 --clear-groups "
    local function start(line) return support.start { cmd = "sh", args = { "-c", "exec " .. as .. line } } end
    if os.execute(as .. "test -x " .. binary() .. " 2>/dev/null") ~= 0 then
      return pending "needs root, and a program that all may run"
    end
    local dir, port = uv.fs_mkdtemp("/tmp/tollgate-XXXXXX"), free_port()
    support.on_end(function() os.execute("rm -r " .. dir) end)
    support.write_file(dir .. "/gateway.lua", ([[return { listen = "127.0.0.1:%d", admin = false, data_dir = "%s/data",
      workers = 1, watchdog = 0.3,
      routes = { { name = "a", path = "/*", targets = { { url = "http://127.0.0.1:1" } } } } }]]):format(port, dir))
    os.execute("chmod -R a+rX " .. dir .. " && chown 65531 " .. dir)
    local bystander, master = start "sleep 30", start(binary() .. " run -c " .. dir .. "/gateway.lua")
    local function answers() return ask(port) end
    support.wait_for(answers, "an answer", 5000)
    os.execute(as .. "prlimit --nproc=1: --pid " .. master.pid)
    for line in io.popen("ps -o pid=,args= --ppid " .. master.pid):lines() do
      if line:find("tollgate worker", 1, true) then uv.kill(tonumber(line:match "%d+"), "sigkill") end
    end
    support.wait_for(function() return master:err():find("cannot be started now", 1, true) end, "a fork that fails")
    os.execute(as .. "prlimit --nproc=100: --pid " .. master.pid)
    support.wait_for(answers, "another worker", 8000)
    assert.is_falsy(bystander.exited)
    bystander:kill("sigterm")
    master:kill("sigterm")
    assert.equal(0, (master:wait(8000)))
  end, 30000))
end)
