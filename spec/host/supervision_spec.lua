-- Master and workers: connections survive workers, workers are replaced, and nothing is left behind.
local uv = require "luv"
local rig = require "spec.host.supervision_rig"
local support = require "spec.support"

local async = support.async

describe("the master", function()
  it("starts as many workers as `workers` says, which share the connections", async(function()
    local gw = rig.start { config = { workers = 3 } }
    assert.equal(3, #gw:workers())
    for _ = 1, 20 do assert.equal("one", (rig.body(gw))) end
    support.wait_for(function()
      return gw:admin("/metrics").body:find("tollgate_requests_total 20\n", 1, true)
    end, "the sum over workers")
  end))

  it("replaces a worker that died within a second, and new connections are served meanwhile", async(function()
    local gw = rig.start { config = { workers = 2 } }
    local pids = gw:workers()
    local stop = rig.load(gw, { clients = 8 })
    uv.kill(pids[1], "sigkill")
    support.wait_for(function()
      local now = gw:workers()
      return #now == 2 and now[1] ~= pids[1] and now[2] ~= pids[1]
    end, "another worker", 2000)
    support.sleep(300)
    local figures = stop()
    assert.is_true(figures.failed <= 8, table.concat(figures.errors, " ")) -- those that the worker had
    assert.is_true(figures.slowest < 1000, figures.slowest)
    assert.is_true(figures.sent > 20)
  end))

  it("keeps the figures of a worker that died", async(function()
    local gw = rig.start {}
    for _ = 1, 5 do rig.body(gw) end
    support.wait_for(function() -- a worker tells its figures once a turn
      return gw:admin("/metrics").body:find("tollgate_requests_total 5\n", 1, true)
    end, "the figures")
    uv.kill(gw:workers()[1], "sigkill")
    gw:wait_log("worker 0 %(pid %d+%) was ended by signal 9")
    for _ = 1, 5 do rig.body(gw) end
    support.wait_for(function()
      return gw:admin("/metrics").body:find("tollgate_requests_total 10\n", 1, true)
    end, "the sum")
  end))

  it("pauses longer and longer before a worker that keeps crashing is started again", async(function()
    local gw = rig.start { plugin = rig.plugin("one", 'if ctx.request.path == "/die" then os.exit(3) end') }
    for i = 1, 4 do
      gw:request { path = "/die", timeout = 3000 }
      support.wait_for(function() return select(2, gw.log():gsub("ended with code 3", "")) == i end, "death " .. i)
    end
    assert.equal("one", (rig.body(gw)))
    local times = {}
    for minute, second in gw.log():gmatch("T%d+:(%d+):([%d.]+)Z error worker 0 %(pid %d+%) ended") do
      times[#times + 1] = tonumber(minute) * 60 + tonumber(second)
    end
    assert.is_true(times[4] - times[3] > 0.15, times[4] - times[3])
  end))

  it("accepts for a worker whose loop is stuck", async(function()
    local gw = rig.start { config = { workers = 2, watchdog = 20 } }
    uv.kill(gw:workers()[1], "sigstop")
    local stopped = gw:workers()[1]
    support.on_end(function() uv.kill(stopped, "sigcont") end)
    for _ = 1, 20 do assert.equal("one", (rig.body(gw))) end
    assert.equal(stopped, gw:workers()[1])
    uv.kill(stopped, "sigcont")
  end))

  it("refuses to start where the port is taken, and says so", async(function()
    local gw = rig.start {}
    local dir = support.tmpdir()
    support.write_file(dir .. "/gateway.lua", ([[return { listen = "127.0.0.1:%d", admin = false, data_dir = "data",
      routes = { { name = "a", path = "/*", targets = { { url = "http://127.0.0.1:1" } } } } }]]):format(gw.port))
    local run = support.tollgate { "run", "-c", dir .. "/gateway.lua" }
    assert.equal(1, run.code)
    assert.matches("cannot listen on 127.0.0.1:" .. gw.port .. ": address already in use", run.err, 1, true)
  end))

  it("writes its pid, and takes the file and the socket away at the end", async(function()
    local gw = rig.start {}
    assert.equal(gw.pid .. "\n", support.read_file(gw.dir .. "/data/tollgate.pid"))
    assert.equal(tonumber("600", 8), uv.fs_stat(gw.dir .. "/data/admin.sock").mode % 512)
    gw:stop()
    assert.is_nil(uv.fs_stat(gw.dir .. "/data/tollgate.pid"))
    assert.is_nil(uv.fs_stat(gw.dir .. "/data/admin.sock"))
  end))

  it("drains on SIGTERM up to timeouts.drain, and ends at once on a second one", async(function()
    local gw = rig.start { config = { workers = 2, timeouts = { drain = 20 } },
      plugin = rig.plugin("late", 'require("tollgate").timer.sleep(ctx.request.path == "/long" and 15 or 0.5)') }
    local short = support.spawn(function() return rig.body(gw, "/short") end)
    local long = support.spawn(function() return gw:request { path = "/long" } end)
    support.sleep(200)
    gw.process:kill("sigterm")
    assert.equal("late", short:join(3000))
    assert.is_falsy(gw.process.exited)
    gw.process:kill("sigterm")
    long:join(3000)
    gw.given_up = true
    assert.equal(0, (gw.process:wait(5000)))
  end))

  it("leaves no process behind when it is killed", async(function()
    local gw = rig.start { config = { workers = 2, watchdog = 60 }, plugin = rig.plugin("one",
      'if ctx.request.path == "/loop" then while true do end end') }
    local pids = gw:workers()
    support.spawn(function() gw:request { path = "/loop" } end)
    support.sleep(300)
    assert.is_true(#rig.processes(gw) >= 3)
    gw:kill("sigkill")
    support.wait_for(function() return #rig.processes(gw) == 0 end, "the end of all processes", 8000)
    for _, pid in ipairs(pids) do assert.is_false(rig.alive(pid)) end
  end))

  it("tells systemd when it is ready, reloads and stops", async(function()
    local dir = support.tmpdir()
    local path, got = dir .. "/notify", support.tmpdir() .. "/got"
    local listener = support.start { cmd = "python3", args = { "-c", [[
import socket, sys
s = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
s.bind(sys.argv[1])
while True:
    open(sys.argv[2], "ab").write(s.recv(4096) + b"\n")
]], path, got } }
    support.wait_for(function() return uv.fs_stat(path) end, "the socket")
    local gw = rig.start { env = { NOTIFY_SOCKET = path } }
    local function told(what)
      return support.wait_for(function() return (support.read_file(got) or ""):find(what, 1, true) end, what)
    end
    told "READY=1"
    gw:command("reload")
    told "RELOADING=1\nMONOTONIC_USEC="
    gw:stop()
    told "STOPPING=1"
    listener:kill("sigkill")
  end))
end)
