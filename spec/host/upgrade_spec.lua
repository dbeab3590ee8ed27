-- An upgrade in place: another program takes over with the same pid, sockets and Redis, and replaces the workers one at a time.
local uv = require "luv"
local files = require "spec.support.files"
local gateway = require "spec.support.gateway"
local rig = require "spec.host.supervision_rig"
local support = require "spec.support"

local async = support.async

-- A copy of the program, so that it can be replaced.
local function install(path)
  files.write_file(path .. ".new", files.read_file(gateway.binary()))
  uv.fs_chmod(path .. ".new", tonumber("755", 8))
  os.rename(path .. ".new", path)
end

local function start(config)
  local dir = support.tmpdir()
  install(dir .. "/tollgate")
  config.routes = { { name = "all", path = "/*", plugins = { answer = {} } } }
  return support.gateway { dir = dir, bin = dir .. "/tollgate", config = config,
    files = { ["plugins/answer.lua"] = rig.plugin "one" } }
end

local function image(pid) return uv.fs_stat("/proc/" .. pid .. "/exe").ino end

describe("an upgrade", function()
  it("replaces program and workers without a refused connection, and keeps pid, port, Redis and figures", async(function()
    local gw = start { workers = 2 }
    local old, workers = image(gw.pid), gw:workers()
    support.wait_for(function() return gw:admin("/readyz").status == 200 end, "readiness")
    for _ = 1, 10 do rig.body(gw) end
    local stop = rig.load(gw, { clients = 4 })
    install(gw.dir .. "/tollgate")
    local run = gw:command("upgrade")
    assert.equal(0, run.code, run.err)
    local figures = stop()
    -- A connection that is kept alive ends with the worker that has it.
    assert.equal(0, figures.failed, table.concat(figures.errors, " "))
    assert.is_true(figures.reopened <= 4, figures.reopened)
    assert.is_true(image(gw.pid) ~= old)
    local now = gw:workers()
    assert.equal(2, #now)
    for i = 1, 2 do
      assert.is_true(now[i] ~= workers[1] and now[i] ~= workers[2])
      assert.equal(image(gw.pid), image(now[i]))
    end
    support.wait_for(function() return gw:admin("/readyz").status == 200 end, "readiness")
    local counted = tonumber(gw:admin("/metrics").body:match("\ntollgate_requests_total (%d+)"))
    assert.is_true(counted >= 10 + figures.sent, counted)
    assert.equal("one", (rig.body(gw)))
    gw:write("plugins/answer.lua", rig.plugin "two")
    gw:command("reload")
    support.wait_for(function() return rig.body(gw) == "two" end, "a reload afterwards")
  end, 60000))

  it("goes by SIGUSR2 too, and again", async(function()
    local gw = start { workers = 1 }
    for i = 1, 3 do
      local worker = gw:workers()[1]
      gw.process:kill("sigusr2")
      support.wait_for(function() return select(2, gw.log():gsub("upgraded: ", "")) == i end, "upgrade " .. i, 10000)
      assert.is_true(gw:workers()[1] ~= worker)
    end
    assert.equal("one", (rig.body(gw)))
  end))

  it("lets requests end on the old worker", async(function()
    local gw = start { workers = 1 }
    gw:write("plugins/answer.lua", rig.plugin("late", 'require("tollgate").timer.sleep(1)'))
    gw:command("reload")
    local late = support.spawn(function() return rig.body(gw) end)
    support.sleep(100)
    assert.equal(0, gw:command("upgrade").code)
    assert.equal("late", (late:join(5000)))
  end))

  it("is refused where the new program does not run, or does not take the configuration", async(function()
    local gw = start { workers = 1, reload = { watch = false } }
    local path = gw.dir .. "/tollgate"
    os.rename(path, path .. ".old")
    files.write_file(path, "#!/bin/sh\nexit 1\n")
    uv.fs_chmod(path, tonumber("755", 8))
    gw.process:kill("sigusr2")
    gw:wait_log("upgrade refused: ", true)
    assert.equal("one", (rig.body(gw)))
    install(path)
    gw:write("plugins/answer.lua", "return {")
    local run = gw:command("upgrade")
    assert.equal(1, run.code)
    assert.matches("answer.lua:1: ", run.err)
    assert.equal("one", (rig.body(gw)))
  end))

  it("is refused where the new program lays out shared memory differently", async(function()
    local gw = start { workers = 1, reload = { watch = false } }
    local text, n = files.read_file(gateway.binary()):gsub("zone %%x: ", "ZONE %%x: ")
    assert.equal(1, n)
    os.rename(gw.dir .. "/tollgate", gw.dir .. "/tollgate.old")
    files.write_file(gw.dir .. "/tollgate", text)
    uv.fs_chmod(gw.dir .. "/tollgate", tonumber("755", 8))
    local run = gw:command("upgrade")
    assert.equal(1, run.code)
    assert.matches("lays out shared memory differently, which needs a restart", run.err)
    assert.equal("one", (rig.body(gw)))
  end))

  it("may be followed by the end before all workers are replaced", async(function()
    for _ = 1, 4 do
      local gw = start { workers = 2 }
      gw.process:kill("sigusr2")
      gw:wait_log("takes over.*admin on")
      gw.process:kill("sigterm")
      gw:wait_log("stopping: ", true)
      assert.same({ 0, 0 }, { gw.process:wait() })
    end
  end, 60000))

  it("is not ended by a signal that comes while one program becomes the other", async(function()
    local gw = start { workers = 1, reload = { watch = false } }
    support.wait_for(function()
      gw.process:kill("sigusr2")
      return gw.process.exited or select(2, gw.log():gsub("upgraded: ", "")) >= 20
    end, "many upgrades", 20000)
    assert.equal("one", (rig.body(gw)))
  end, 60000))
end)
