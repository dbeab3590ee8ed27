-- Reload: all workers take a configuration or none does; requests end on the generation that they began on.
local rig = require "spec.host.supervision_rig"
local support = require "spec.support"

local async = support.async
local quiet = { watch = false }

local function write_plugin(gw, text) gw:write("plugins/answer.lua", text) end

-- Writes a plugin, reloads, and expects it to be refused with a text while the old one serves.
local function refused(gw, text, pattern)
  write_plugin(gw, text)
  local run = gw:command("reload")
  assert.equal(1, run.code)
  assert.matches(pattern, run.err)
  assert.equal("one", (rig.body(gw)))
end

describe("reload", function()
  it("replaces a plugin in all workers, by command and by SIGHUP", async(function()
    local gw = rig.start { config = { workers = 2, reload = quiet } }
    write_plugin(gw, rig.plugin "two")
    local run = gw:command("reload")
    assert.equal(0, run.code, run.err)
    for _ = 1, 10 do assert.equal("two", (rig.body(gw))) end
    write_plugin(gw, rig.plugin "three")
    gw.process:kill("sighup")
    gw:wait_log("generation 3 serves", true)
    for _ = 1, 10 do assert.equal("three", (rig.body(gw))) end
  end))

  it("follows changed files, also by a rename, and files that appear", async(function()
    local gw = rig.start { config = { workers = 2 } }
    write_plugin(gw, rig.plugin "two")
    support.wait_for(function() return rig.body(gw) == "two" end, "the change")
    gw:write("plugins/new.tmp", rig.plugin "three")
    os.rename(gw.dir .. "/plugins/new.tmp", gw.dir .. "/plugins/answer.lua")
    support.wait_for(function() return rig.body(gw) == "three" end, "the rename")
    assert.equal(3, gw:status().generation)
  end))

  it("follows a change that comes while what was read before it is loaded", async(function()
    local gw = rig.start { config = { workers = 1 } }
    local begun = gw.dir .. "/begun"
    local slow = ([[function M.init()
      local file = io.open(%q, "a")
      file:write("x")
      file:close()
      local till = os.clock() + 0.4
      while os.clock() < till do end
    end
    function M.access]]):format(begun)
    write_plugin(gw, (rig.plugin("two"):gsub("function M.access", slow)))
    support.wait_for(function() return support.read_file(begun) == "xx" end, "the worker's load, behind the trial", 4000)
    support.sleep(300)
    write_plugin(gw, rig.plugin "three")
    support.wait_for(function() return rig.body(gw) == "three" end, "the later change", 4000)
  end))

  it("does not wait for a program that a plugin leaves behind", async(function()
    local gw = rig.start { config = { reload = { watch = false, check = 5 } } }
    write_plugin(gw, 'os.execute("setsid sleep 8 >/dev/null 2>&1 & sleep 0.1")\n' .. rig.plugin "two")
    local begun = require("luv").hrtime()
    assert.equal(0, gw:command("reload").code)
    assert.is_true((require("luv").hrtime() - begun) / 1e9 < 7)
    assert.equal("two", (rig.body(gw)))
  end))

  it("does nothing where nothing has changed", async(function()
    local gw = rig.start {}
    local run = gw:command("reload")
    assert.equal(0, run.code)
    assert.matches("nothing has changed", run.out)
    assert.equal(1, gw:status().generation)
  end))

  it("is refused, and the old generation serves, where something is wrong", async(function()
    local gw = rig.start { config = { workers = 2, reload = { watch = false, check = 1 } } }
    refused(gw, "return {", "answer.lua:1: ")
    refused(gw, "error('no luck')", "answer.lua:1: no luck")
    refused(gw, "return { schema = 1 }", "schema")
    refused(gw, "return { version = '1', priority = 1, schema = {}, init = function() error 'boom' end }", "init: .*boom")
    refused(gw, "while true do end", "did not load within 1 s")
    refused(gw, "return { version = '1', priority = 1, schema = {}, init = function() while true do end end }",
      "did not load within 1 s")
    refused(gw, "os.exit(0)", "ended by itself")
    refused(gw, "require('ffi').cast('int *', 8)[0] = 1", "ended by")
    assert.equal(1, gw:status().generation)
    assert.is_false(gw:status().last_reload.ok)
    write_plugin(gw, rig.plugin "two")
    assert.equal(0, gw:command("reload").code)
    assert.equal("two", (rig.body(gw)))
  end))

  it("tells what is wrong where the configuration itself is broken", async(function()
    local gw = rig.start { config = { reload = quiet } }
    gw:write("gateway.lua", "return {")
    local run = gw:command("reload")
    assert.equal(1, run.code)
    assert.matches("gateway.lua:", run.err)
    assert.equal("one", (rig.body(gw)))
  end))

  it("names the keys that need a restart", async(function()
    local gw = rig.start { config = { reload = quiet } }
    local text = support.read_file(gw.dir .. "/gateway.lua")
    gw:write("gateway.lua", (text:gsub("return {", 'return { workers = 2, ', 1):gsub("workers = 1,?", "", 1)))
    local run = gw:command("reload")
    assert.equal(1, run.code)
    assert.matches("workers: changed, which needs a restart", run.err)
    local check = gw:command("check")
    assert.matches("workers: needs a restart", check.out)
    assert.equal(0, check.code)
    assert.equal(1, #gw:workers())
  end))

  it("lets a worker that restarts load what is committed, never the disk", async(function()
    local gw = rig.start { config = { reload = quiet } }
    write_plugin(gw, "return {")
    require("luv").kill(gw:workers()[1], "sigkill")
    gw:wait_log("was ended by signal 9")
    assert.equal("one", (rig.body(gw)))
  end))

  it("reads key files again, and refuses one with a fault", async(function()
    local function record(id) return support.encode { id = id, secret_sha256 = support.sha256("secret-" .. id) } .. "\n" end
    local gw = rig.start { config = { reload = quiet,
      routes = { { name = "all", path = "/*", plugins = { auth = { keys = "keys.jsonl" }, answer = {} } } } },
      files = { ["keys.jsonl"] = record "a" } }
    local function status(id) return gw:request { path = "/", headers = { ["x-api-key"] = "secret-" .. id } }.status end
    assert.equal(200, status "a")
    assert.equal(401, status "b")
    gw:write("keys.jsonl", record "a" .. "{}\n")
    local run = gw:command("reload")
    assert.equal(1, run.code)
    assert.matches("keys.jsonl:2: ", run.err)
    assert.equal(200, status "a")
    gw:write("keys.jsonl", record "b")
    assert.equal(0, gw:command("reload").code)
    assert.equal(401, status "a")
    assert.equal(200, status "b")
  end))

  it("reads modules again", async(function()
    local gw = rig.start { config = { reload = quiet }, plugin = rig.plugin("x", 'do return 200, require("words").word end'),
      files = { ["plugins/words.lua"] = 'return { word = "red" }' } }
    assert.equal("red", (rig.body(gw)))
    gw:write("plugins/words.lua", 'return { word = "blue" }')
    write_plugin(gw, 'local words = require("words")\n' .. rig.plugin("x", "do return 200, words.word end"))
    assert.equal(0, gw:command("reload").code)
    assert.equal("blue", (rig.body(gw)))
    gw:write("plugins/words.lua", 'return { word = "green" }')
    assert.equal(0, gw:command("reload").code)
    assert.equal("green", (rig.body(gw)))
  end))

  it("hands the state that stop returns to the next init, and back where the reload is called off", async(function()
    local plugin = [[
local M = { version = "1.0.0", priority = 1, schema = {} }
local n
function M.init(conf, state)
  n = state and state.n or 0
  if rawget(_G, "never") then error "x" end
end
function M.stop() return { n = n, list = { "a", { true } } } end
function M.access() n = n + 1 return 200, "%s" .. n end
return M
]]
    local gw = rig.start { config = { reload = quiet }, plugin = plugin:format "a" }
    assert.equal("a1", (rig.body(gw)))
    write_plugin(gw, plugin:format "b")
    assert.equal(0, gw:command("reload").code)
    assert.equal("b2", (rig.body(gw)))
    -- Good in the trial, which starts without a state, and bad in the worker.
    write_plugin(gw, (plugin:format("c"):gsub('rawget%(_G, "never"%)', "state")))
    local run = gw:command("reload")
    assert.equal(1, run.code)
    assert.equal("b3", (rig.body(gw)))
  end))

  it("lets requests end on their own generation, and frees it then", async(function()
    local gw = rig.start { config = { reload = quiet },
      plugin = rig.plugin("old", 'require("tollgate").timer.sleep(1)') }
    local running = {}
    for i = 1, 5 do running[i] = support.spawn(function() return (rig.body(gw)) end) end
    support.sleep(200)
    write_plugin(gw, rig.plugin "new")
    assert.equal(0, gw:command("reload").code)
    assert.equal("new", (rig.body(gw)))
    assert.equal(2, gw:status().workers[1].generations)
    for _, task in ipairs(running) do assert.equal("old", (task:join(3000))) end
    support.wait_for(function() return gw:status().workers[1].generations == 1 end, "the old one's end")
  end))

  it("ends the timers of a generation that is no longer used", async(function()
    local plugin = [[
local tg = require "tollgate"
local M = { version = "1.0.0", priority = 1, schema = {} }
function M.init() tg.timer.every(0.02, function() tg.shared.incr("%s", 1, 0) end) end
function M.access() return 200, tostring(tg.shared.get("%s")) end
return M
]]
    local gw = rig.start { config = { reload = quiet }, plugin = plugin:format("a", "a") }
    support.sleep(100)
    write_plugin(gw, plugin:format("b", "a"))
    assert.equal(0, gw:command("reload").code)
    local before = rig.body(gw)
    assert.is_true(tonumber(before) > 0, before)
    support.sleep(100)
    assert.equal(before, (rig.body(gw)))
  end))

  it("cuts off the oldest of more than four generations after reload.drain", async(function()
    local gw = rig.start { config = { reload = { watch = false, drain = 0.5 } },
      plugin = rig.plugin("held", 'if ctx.request.path == "/held" then require("tollgate").timer.sleep(20) end') }
    local held = {}
    for i = 1, 4 do
      held[i] = support.spawn(function() return gw:request { path = "/held" } end)
      support.sleep(100)
      write_plugin(gw, rig.plugin("held" .. i, 'if ctx.request.path == "/held" then require("tollgate").timer.sleep(20) end'))
      assert.equal(0, gw:command("reload").code)
    end
    assert.equal("held4", (rig.body(gw)))
    assert.is_nil(held[1]:join(2000))
    assert.is_true(gw:status().workers[1].generations <= 4)
    assert.is_false(held[4].done)
    gw:command("reload")
    gw.process:kill("sigterm")
    gw:wait_log("stopping: ", true)
    gw.process:kill("sigterm")
    gw.given_up = true
    assert.equal(0, (gw.process:wait(8000)))
  end))

  it("loses no request under load, on kept connections and new ones", async(function()
    local gw = rig.start { config = { workers = 2, reload = quiet } }
    local stop = rig.load(gw, { clients = 6 })
    for i = 1, 20 do
      write_plugin(gw, rig.plugin("v" .. i))
      local run = gw:command("reload")
      assert.equal(0, run.code, run.err)
    end
    local figures = stop()
    assert.equal(0, figures.failed, table.concat(figures.errors, " "))
    assert.equal(0, figures.reopened)
    assert.is_true(figures.sent > 100, figures.sent)
    assert.is_true(figures.slowest < 1000, figures.slowest)
    assert.equal("v20", (rig.body(gw)))
  end, 60000))

  it("keeps open streams through a reload", async(function()
    local go = false
    local origin = support.origin(function(_, conn)
      conn:start { headers = { ["content-type"] = "text/plain" } }
      conn:chunk "first "
      support.wait_for(function() return go end, "the signal", 15000)
      conn:chunk "last"
      conn:finish()
    end)
    local gw = support.gateway { config = { workers = 2, reload = quiet,
      routes = { { name = "all", path = "/*", targets = { { url = origin.url } } } } } }
    local streams = {}
    for i = 1, 100 do streams[i] = support.spawn(function() return (rig.body(gw)) end) end
    support.wait_for(function() return #origin.requests == 100 end, "all streams")
    local text = support.read_file(gw.dir .. "/gateway.lua")
    gw:write("gateway.lua", (text:gsub('"all"', '"other"')))
    assert.equal(0, gw:command("reload").code)
    go = true
    for _, task in ipairs(streams) do assert.equal("first last", (task:join(10000))) end
  end, 60000))

  it("leaves nothing behind after many", async(function()
    local gw = rig.start { config = { reload = quiet }, plugin = rig.plugin "v0" }
    local pid = gw:workers()[1]
    local function descriptors()
      local n = 0
      for _ in io.popen("ls /proc/" .. pid .. "/fd"):lines() do n = n + 1 end
      return n
    end
    local function reload(from, to)
      for i = from, to do
        write_plugin(gw, rig.plugin("v" .. i))
        assert.equal(0, gw:command("reload").code)
        assert.equal("v" .. i, (rig.body(gw)))
      end
    end
    reload(1, 5)
    support.sleep(100)
    local before = descriptors()
    reload(6, 25)
    support.sleep(100)
    assert.equal(before, descriptors())
    assert.equal(1, gw:status().workers[1].generations)
  end, 60000))
end)
