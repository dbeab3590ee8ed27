-- tollgate breaker: what it lists, and overrides, which all workers see and which outlive reloads and workers.
local uv = require "luv"
local support = require "spec.support"
local rig = require "spec.plugins.breaker.rig"

local async = support.async

local function breaker(gw, ...)
  local run = gw:command("breaker", ...)
  return run.out, run.err, run.code
end

describe("tollgate breaker", function()
  it("lists breakers with their reasons, as text and as JSON", async(function()
    local o = rig.origin(503)
    local gw = rig.gateway { conf = { cooldown = 60 }, workers = 2, targets = { { provider = "a", model = "m", url = o.url },
      { provider = "backup", url = rig.origin().url, tier = 2 } } }
    local before = os.time()
    rig.ask(gw, 4)
    support.wait_for(function() return rig.state(gw, "backup").requests == 4 end, "all to be counted")
    local out, _, code = breaker(gw)
    assert.equal(0, code)
    local lines = {}
    for line in out:gmatch "[^\n]+" do lines[#lines + 1] = line end
    assert.equal(3, #lines)
    assert.matches("^target  +state  +for$", lines[1])
    assert.matches("^a:m  +open  +[%d.]+ s  probe in [%d.]+ s; 3 failures in a row$", lines[2])
    assert.matches("^backup  +closed  +%-  0 of 4 requests failed$", lines[3])
    local all = support.decode((breaker(gw, "--json"))).breakers
    assert.same({ "a:m", "backup" }, { all[1].name, all[2].name })
    assert.same({ "a", "m", "open", "consecutive", "3 failures in a row" },
      { all[1].provider, all[1].model, all[1].state, all[1].reason, all[1].why })
    assert.truthy(all[1].since >= before and all[1].since <= os.time() + 1)
    assert.truthy(math.abs(all[1]["until"] - all[1].since - 60) < 0.01)
    assert.same({ "closed", 4, 0 }, { all[2].state, all[2].requests, all[2].failures })
    assert.same(all[2], rig.state(gw, "backup"))
  end))

  it("keeps one open or closed for all workers until it is released", async(function()
    local o = rig.origin()
    local gw = rig.gateway { origin = o, workers = 2, conf = { cooldown = 60 } }
    local out, _, code = breaker(gw, "open", "a:m")
    assert.same({ "a:m is kept open by an operator\n", 0 }, { out, code })
    for _ = 1, 20 do
      local res = gw:request { path = "/" }
      assert.same({ 503, "60" }, { res.status, res.headers["retry-after"] })
    end
    assert.equal(0, o.count())
    assert.same({ "open", "open" }, { rig.state(gw).state, rig.state(gw).override })
    assert.matches("a:m  +open  +[%d.]+ s  kept so by an operator", (breaker(gw)))
    gw:wait_log "breaker a:m: kept open by an operator"

    out = breaker(gw, "close", "a:m")
    assert.equal("a:m is kept closed by an operator\n", out)
    o.mode = 503
    rig.ask(gw, 20)
    assert.same({ "closed", "close", 20 }, { rig.state(gw).state, rig.state(gw).override, o.count() })

    out = breaker(gw, "auto", "a:m", "--json")
    assert.equal("closed", support.decode(out).state)
    rig.ask(gw, 3)
    assert.is_nil(rig.wait(gw, "open").override)
    assert.same({ 503, 23 }, { rig.ask(gw, 3), o.count() })
    out = breaker(gw, "auto", "a:m")
    assert.equal("a:m is left to itself: open\n", out)

    breaker(gw, "open", "a:m")
    breaker(gw, "auto", "a:m")
    assert.equal("half-open", rig.state(gw).state)
    o.mode = 200
    assert.equal(200, rig.ask(gw, 1))
    assert.equal(1, support.prometheus.sum(gw:samples(), "breaker_transitions_total", { to = "closed", reason = "operator" }))
  end))

  it("says what is wrong", async(function()
    local gw = rig.gateway { targets = { { provider = "a", url = "http://127.0.0.1:1" }, { provider = "b", model = "m:1",
      url = "http://127.0.0.1:1" } } }
    local function fails(...)
      local out, err, code = breaker(gw, ...)
      assert.same({ "", 1 }, { out, code })
      return err
    end
    assert.equal('there is no breaker "c"; there are: a, b:m:1\n', fails("open", "c"))
    local usage = "the commands are: tollgate breaker; tollgate breaker open|close|auto PROVIDER:MODEL\n"
    assert.equal(usage, fails "open")
    assert.equal(usage, fails("shut", "a"))
    local _, err, code = breaker(gw, "open", "a", "b")
    assert.equal(2, code)
    assert.matches("unexpected argument b", err)
    assert.equal(0, select(3, breaker(gw, "close", "b:m:1")))
  end))

  it("holds through reloads and the deaths of workers, and where the dictionary has lost it", async(function()
    local o = rig.origin()
    local gw = support.gateway { files = { ["plugins/lose.lua"] = [[
      local tg = require "tollgate"
      return { priority = 999, schema = {}, access = function(_, ctx)
        if ctx.request.path == "/lose" then return 200, tostring(tg.shared.delete "breaker:a:m") end
      end }
    ]] }, config = { workers = 2, reload = { watch = false }, routes = { { name = "r", path = "/*",
      targets = { { provider = "a", model = "m", url = o.url } }, plugins = { lose = {}, breaker = rig.conf() } } } } }
    breaker(gw, "open", "a:m")
    assert.equal(0, gw:command("reload").code)
    assert.equal(503, rig.ask(gw, 4))
    for _, pid in ipairs(gw:workers()) do
      uv.kill(pid, "sigkill")
      support.wait_for(function()
        local now = gw:workers()
        return #now == 2 and now[1] ~= pid and now[2] ~= pid
      end, "another worker")
    end
    assert.equal(503, rig.ask(gw, 4))
    support.wait_for(function() -- each worker looks now and then
      gw:request { path = "/lose" }
      return support.wait_for(function() return rig.state(gw).override == "open" end, "the override to come back")
    end, "the override")
    assert.equal(503, rig.ask(gw, 4))
    assert.equal(0, o.count())
    breaker(gw, "auto", "a:m")
    assert.equal(200, rig.ask(gw, 4))
  end))

  it("is as before behind an upgrade", async(function()
    local o = rig.origin(503)
    local gw = rig.gateway { origin = o, conf = { cooldown = 200 } }
    rig.open(gw, o)
    assert.equal(0, gw:command("upgrade").code)
    assert.equal(503, rig.ask(gw, 3))
    assert.same({ "open", "consecutive", 3 }, { rig.state(gw).state, rig.state(gw).reason, o.count() })
  end))
end)
