-- The watchdog: a plugin that keeps a worker from turning is named, interrupted or killed with its worker, and quarantined.
local uv = require "luv"
local rig = require "spec.host.supervision_rig"
local support = require "spec.support"

local async = support.async

-- A loop that is compiled, so that no hook interrupts it.
local LOOP = 'if ctx.request.path == "/loop" then while true do end end'
-- One that stays in the interpreter.
local SLOW = [[if ctx.request.path == "/loop" then
    local function spin() while true do end end
    require("jit").off(spin)
    spin()
  end]]

describe("the watchdog", function()
  it("kills and replaces a worker in a compiled loop, names the plugin, and the others go on", async(function()
    local gw = rig.start { config = { workers = 2, watchdog = 1 }, plugin = rig.plugin("one", LOOP) }
    local stuck = support.spawn(function() return gw:request { path = "/loop" } end)
    support.sleep(50)
    local stop = rig.load(gw, { clients = 1 })
    gw:wait_log("the watchdog killed worker %d %(pid %d+%) in plugin answer, phase access, route all", false, 6000)
    support.wait_for(function() return #gw:workers() == 2 end, "a new worker", 2000)
    local figures = stop()
    assert.equal(0, figures.failed, table.concat(figures.errors, " "))
    assert.is_true(figures.slowest < 1000, figures.slowest)
    assert.is_nil((stuck:join(1000)))
  end))

  it("makes an interpreted loop an error of its request, with a traceback, and the worker lives", async(function()
    local gw = rig.start { config = { watchdog = 0.5 }, plugin = rig.plugin("one", SLOW) }
    local pid = gw:workers()[1]
    local res = gw:request { path = "/loop" }
    assert.equal(500, res.status)
    gw:wait_log("plugin answer, phase access, route all: .*answer.lua:%d+: the watchdog interrupts this code.*stack traceback")
    assert.equal("one", (rig.body(gw)))
    assert.equal(pid, gw:workers()[1])
  end))

  it("names timers", async(function()
    local gw = rig.start { config = { watchdog = 0.5 }, plugin = [[
local tg = require "tollgate"
local M = { version = "1.0.0", priority = 1, schema = {} }
function M.access() tg.timer.after(0.01, function() while true do end end) return 200, "soon" end
return M
]] }
    assert.equal("soon", (rig.body(gw)))
    gw:wait_log("the watchdog killed worker 0 %(pid %d+%) in plugin answer, phase timer, route all", false, 6000)
    support.wait_for(function() return #gw:workers() == 1 end, "a new worker", 2000)
  end))

  it("does not blame workers when the whole machine stood still", async(function()
    local gw = rig.start { config = { workers = 2, watchdog = 0.5 } }
    local pids = gw:workers()
    for _, pid in ipairs { gw.pid, pids[1], pids[2] } do uv.kill(pid, "sigstop") end
    support.sleep(1500)
    for _, pid in ipairs { gw.pid, pids[1], pids[2] } do uv.kill(pid, "sigcont") end
    support.sleep(300)
    assert.same(pids, gw:workers())
    assert.is_nil(gw.log():find("stuck", 1, true))
  end))

  it("health answers while the only worker is stuck", async(function()
    local gw = rig.start { config = { watchdog = 3 }, plugin = rig.plugin("one", LOOP) }
    support.spawn(function() gw:request { path = "/loop" } end)
    support.sleep(100)
    assert.equal(200, gw:admin("/healthz").status)
    gw:wait_log("the watchdog killed", true, 8000)
    support.wait_for(function() return gw:admin("/readyz").status == 200 end, "ready again", 3000)
  end))

  it("quarantines by policy: fail answers 503, shown in status, lifted by a reload", async(function()
    local gw = rig.start { config = { watchdog = 0.3, quarantine = { after = 1, policy = "fail" } },
      plugin = rig.plugin("one", LOOP) }
    gw:request { path = "/loop" }
    gw:wait_log("plugin answer is quarantined", true)
    support.wait_for(function() return #gw:workers() == 1 end, "a new worker", 2000)
    local body, status = rig.body(gw)
    assert.equal(503, status)
    assert.matches("plugin_quarantined", body)
    assert.same({ kills = 1, quarantined = true }, gw:status().quarantine.answer)
    assert.equal(0, gw:command("reload").code)
    assert.equal("one", (rig.body(gw)))
    assert.same({}, gw:status().quarantine)
  end))

  it("quarantines by policy: skip leaves the plugin out", async(function()
    local origin = support.origin(function(_, conn) conn:respond { body = "origin" } end)
    local gw = rig.start { config = { watchdog = 0.3, quarantine = { after = 2, policy = "skip" },
      routes = { { name = "all", path = "/*", plugins = { answer = {} }, targets = { { url = origin.url } } } } },
      plugin = rig.plugin("one", LOOP) }
    for i = 1, 2 do
      assert.equal("one", (rig.body(gw)))
      gw:request { path = "/loop" }
      support.wait_for(function() return select(2, gw.log():gsub("the watchdog killed", "")) == i end, "kill " .. i)
    end
    support.wait_for(function() return #gw:workers() == 1 end, "a new worker", 2000)
    assert.equal("origin", (rig.body(gw)))
  end))
end)
