-- What people ask of plugins while the gateway runs: tollgate plugin, and what status shows of them.
local uv = require "luv"
local support = require "spec.support"

local async = support.async

local PLUGIN = [[
local tg = require "tollgate"
local n = 0
return { priority = 1, schema = { never = { type = "string" } },
  command = function(words)
    if words[1] == nil then return { asked = n, replica = tg.replica() }, "asked " .. n .. " times\n" end
    n = n + 1
    if words[1] == "data" then return { words = words } end
    if words[1] == "large" then return {}, ("x"):rep(200000) .. "\n" end
    if words[1] == "raise" then error "raised in command" end
    if words[1] == "odd" then return { print } end
    if words[1] == "wait" then tg.timer.sleep(0) end
    if words[1] == "spin" then while true do end end
    return nil, "no command " .. words[1]
  end,
  access = function() return 200, "fine" end }
]]
local SILENT = 'return { priority = 2, access = function() return 200, "silent" end }'

local function start(more)
  local config = { routes = { { name = "a", path = "/a", plugins = { said = {} } },
    { name = "b", path = "/b", plugins = { said = {}, silent = {} } } } }
  for key, value in pairs(more or {}) do config[key] = value end
  return support.gateway { config = config, files = { ["plugins/said.lua"] = PLUGIN, ["plugins/silent.lua"] = SILENT } }
end

local function said(gw, ...)
  local run = gw:command("plugin", ...)
  return { run.code, run.out, run.err }
end

describe("tollgate plugin", function()
  it("asks a plugin in one worker, whose words come back as text or as JSON", async(function()
    local gw = start { workers = 2 }
    assert.same({ 0, "asked 0 times\n", "" }, said(gw, "said"))
    local run = gw:command("plugin", "said", "--json")
    assert.equal(0, support.decode(run.out).asked)
    assert.same({ 0, '{"words":["data","a b","\\"c\\"\\n"]}\n', "" }, said(gw, "said", "data", "a b", '"c"\n', "--json"))
    assert.same({ 0, '{"words":["data"]}\n', "" }, said(gw, "said", "data"))
    assert.equal(200001, #gw:command("plugin", "said", "large").out)
    assert.equal("fine", gw:request({ path = "/a" }).body)
  end))

  it("says what is wrong, with exit code 1 or 2", async(function()
    local gw = start()
    assert.same({ 1, "", "no command other\n" }, said(gw, "said", "other"))
    assert.same({ 1, "", 'no plugin "silent" takes commands here; there are: said\n' }, said(gw, "silent"))
    assert.same({ 1, "", 'no plugin "breaker" takes commands here; there are: said\n' }, (function()
      local run = gw:command "breaker"
      return { run.code, run.out, run.err }
    end)())
    assert.same({ 1, "", "the plugin failed; see the gateway's log\n" }, said(gw, "said", "raise"))
    gw:wait_log "plugin said, command: [^\n]*said.lua:%d+: raised in command"
    assert.same({ 1, "", "the plugin failed; see the gateway's log\n" }, said(gw, "said", "odd"))
    assert.same({ 1, "", "the plugin's command waited, which it must not\n" }, said(gw, "said", "wait"))
    gw:wait_metric("plugin_errors_total", 2)
    assert.equal(2, gw:command("plugin").code)
    assert.equal(2, gw:command("plugin", "said", "--xml").code)
    assert.equal(2, gw:command("plugin", "said", "1", "2", "3", "4", "5", "6", "7", "8").code)
    assert.equal(1, #gw:workers())
  end))

  it("has an answer whatever becomes of the worker that was asked", async(function()
    local gw = start { watchdog = 60 }
    local pid = gw:workers()[1]
    local run
    local asker = support.spawn(function() run = gw:command("plugin", "said", "spin") end)
    support.wait_for(function() return gw:admin("/healthz").status == 200 and gw:status().plugins == nil end,
      "a worker that is stuck")
    uv.kill(pid, "sigkill")
    asker:join(15000)
    assert.same({ 1, "", "the worker that was asked has ended\n" }, { run.code, run.out, run.err })
  end))

  it("does not wait for a worker that does not answer", async(function()
    local gw = start { watchdog = 60 }
    gw:pause()
    assert.same({ 1, "", "the worker that was asked did not answer in time\n" }, said(gw, "said"))
    assert.is_nil(gw:status().plugins)
    gw:resume()
    support.wait_for(function() return gw:status().plugins ~= nil end, "what the plugin says")
  end))

  it("does without plugins that take commands", async(function()
    local gw = support.gateway { files = { ["plugins/silent.lua"] = SILENT },
      config = { routes = { { name = "a", path = "/*", plugins = { silent = {} } } } } }
    assert.same({ 1, "", "no plugin of the configuration takes commands\n" }, said(gw, "silent"))
    assert.is_nil(gw:status().plugins)
  end))
end)

describe("status", function()
  it("shows what plugins say, over the command and over HTTP, also behind a reload", async(function()
    local gw = start()
    local status = gw:status()
    assert.equal(0, status.plugins.said.asked)
    assert.is_nil(status.plugins.silent)
    assert.same(status.plugins, support.decode(gw:command("status", "--json").out).plugins)
    gw:write("plugins/said.lua", PLUGIN:gsub('"asked "', '"was asked "'))
    assert.equal(0, gw:command("reload").code)
    assert.same({ 0, "was asked 0 times\n", "" }, said(gw, "said"))
    gw:write("plugins/said.lua", PLUGIN:gsub("words%[1%] == nil", "false"))
    assert.equal(0, gw:command("reload").code)
    assert.is_nil(gw:status().plugins.said) -- it raises
  end))

  it("needs a function for command", async(function()
    local gw = start { reload = { watch = false } }
    gw:write("plugins/silent.lua", "return { priority = 1, command = 7 }")
    local run = gw:command "reload"
    assert.equal(1, run.code)
    assert.matches("silent.lua: command must be a function, not number", run.err)
  end))
end)
