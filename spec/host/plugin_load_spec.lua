-- What keeps a gateway from serving: settings that a plugin's schema refuses, and plugins that do not load. `run` ends with
-- exit code 1 and `check` finds what can be found without running init; each fault names its place.
local support = require "spec.support"
local rig = require "spec.host.plugin_rig"
local async = support.async

local stamp = [[
  return { version = "1.0.0", priority = 10,
    schema = { name = { type = "string", required = true, pattern = "^x%-", hint = "must begin with x-" },
      times = { type = "integer", min = 1, max = 9, default = 1 } },
    response = function(conf, ctx) ctx.response.headers[conf.name] = ("*"):rep(conf.times) end }
]]

local function route(plugins) return { { name = "r", path = "/*", plugins = plugins } } end

-- Both commands refuse, with the same text; returns it.
local function refused(options)
  local run, check = rig.try("run", options), rig.try("check", options)
  assert.equal(1, run.code, run.err)
  assert.equal(1, check.code)
  assert.equal(run.err, check.err)
  assert.equal("", check.out)
  assert.is_nil(run.err:find("ready", 1, true))
  return check.err
end

local function refused_source(source)
  return refused { plugins = { odd = source } }
end

describe("settings", function()
  it("are checked against the schema, and every fault has its path", async(function()
    local err = refused { plugins = { stamp = stamp }, routes = route { stamp = { { name = "y", times = 0 }, {},
      { name = "x-a", tims = 2 }, { name = "x-b", on_error = "skp" } } } }
    assert.matches("routes[1].plugins.stamp[1].name: must begin with x-", err, 1, true)
    assert.matches("routes[1].plugins.stamp[1].times: must be at least 1", err, 1, true)
    assert.matches("routes[1].plugins.stamp[2].name: is required", err, 1, true)
    assert.matches("routes[1].plugins.stamp[3].tims: unknown key (did you mean times?)", err, 1, true)
    assert.matches('routes[1].plugins.stamp[4].on_error: must be one of "fail", "skip"', err, 1, true)
  end))

  it("a global plugin's are told once, by the global path", async(function()
    local err = refused { plugins = { stamp = stamp }, config = { plugins = { stamp = {} } },
      routes = { { name = "a", path = "/a" }, { name = "b", path = "/b" } } }
    assert.equal("plugins.stamp.name: is required\n", err)
  end))

  it("a plugin's own check is asked, and its error is a fault with the path", async(function()
    local source = [[ return { schema = { a = { type = "integer" } }, check = function(conf)
      if conf.a == 1 then return "one is not enough" end
      if conf.a == 2 then error "a slip" end
    end } ]]
    local function told(a) return refused { plugins = { own = source }, routes = route { own = { a = a } } } end
    assert.equal("routes[1].plugins.own: one is not enough\n", told(1))
    assert.matches("^routes%[1%]%.plugins%.own: the plugin's check raised: DIR/plugins/own.lua:3: a slip\n$", told(2))
    assert.equal(0, rig.try("check", { plugins = { own = source }, routes = route { own = { a = 3 } } }).code)
  end))

  it("a schema that is itself malformed is a fault of the plugin", async(function()
    assert.matches("plugin odd: schema.a.type: unknown type \"strng\" (did you mean string?)",
      refused_source [[ return { schema = { a = { type = "strng" } } } ]], 1, true)
    assert.matches("plugin odd: schema.on_error: every plugin has on_error",
      refused_source [[ return { schema = { on_error = { type = "string" } } } ]], 1, true)
    assert.matches("plugin odd: priority must be a number", refused_source [[ return { priority = "high" } ]], 1, true)
  end))

  it("a plugin that may stand once stands once", async(function()
    local err = refused { plugins = { one = [[ return { once = true } ]] }, routes = route { one = { {}, {} } } }
    assert.equal("routes[1].plugins.one[2]: one may stand only once on a route\n", err)
  end))
end)

describe("a plugin that does not exist", function()
  it("is refused with the nearest name: of files and folders of plugin_path, and of those that ship", async(function()
    local plugins = { stamp = stamp, ["folder/init"] = "return {}", ["nothing/words"] = "return {}" }
    local function told(name)
      return refused { plugins = plugins, routes = route { [name] = {} } }
    end
    assert.equal("routes[1].plugins.stmp: unknown plugin (did you mean stamp?)\n", told "stmp")
    assert.equal("routes[1].plugins.floder: unknown plugin (did you mean folder?)\n", told "floder")
    assert.equal("routes[1].plugins.quotas: unknown plugin (did you mean quota?)\n", told "quotas")
    assert.equal("routes[1].plugins.nothin: unknown plugin\n", told "nothin")
  end))
end)

it("a name that stands for two files is refused, with both", async(function()
  local err = refused { plugins = { auth = "return {}" } }
  assert.matches("^routes%[1%]%.plugins%.auth: there is more than one plugin of this name, DIR/plugins/auth%.lua and ", err)
end))

describe("a plugin file", function()
  it("with a syntax error is refused with its line", async(function()
    assert.matches("^routes%[1%]%.plugins%.odd: DIR/plugins/odd%.lua:2: .*'then' expected near",
      refused_source "local a = 1\nif a that\n")
  end))

  it("that raises is refused with its line, also where it raises no message", async(function()
    assert.matches("^routes%[1%]%.plugins%.odd: DIR/plugins/odd%.lua:2: boom\n$", refused_source "local a = 1\nerror 'boom'\n")
    assert.matches("^routes%[1%]%.plugins%.odd: DIR/plugins/odd%.lua: raised a table", refused_source "error {}")
  end))

  it("that returns no table is refused", async(function()
    assert.matches("DIR/plugins/odd%.lua: a plugin file must return a table, not nil\n$", refused_source "local M = {}")
    assert.matches("must return a table, not function\n$", refused_source "return function() end")
  end))

  it("whose phase is no function is refused", async(function()
    for _, phase in ipairs { "init", "stop", "access", "response", "body", "finish", "log", "check" } do
      assert.matches("DIR/plugins/odd%.lua: " .. phase .. " must be a function, not table\n$",
        refused_source("return { " .. phase .. " = {} }"))
    end
  end))

  it("that assigns to a global is refused with its line; so is a module of its own", async(function()
    assert.matches("DIR/plugins/odd%.lua:2: assignment to the undeclared global 'helper'; write: local helper",
      refused_source "local M = {}\nfunction helper() end\nreturn M\n")
    local err = refused { plugins = { ["odd/init"] = 'return require "odd.words"',
      ["odd/words"] = "\nwords = {}\nreturn words" } }
    assert.matches("DIR/plugins/odd/words%.lua:2: assignment to the undeclared global 'words'", err)
  end))

  it("that waits, or starts a timer, while it loads is refused", async(function()
    local function told(code) return refused_source('local tg = require "tollgate"\n' .. code .. "\nreturn {}") end
    assert.matches("odd%.lua:2: tg%.timer%.sleep cannot wait here: it is called while a file is loaded",
      told "tg.timer.sleep(0.01)")
    assert.matches("odd%.lua:2: tg%.redis%.call cannot wait here", told 'tg.redis.call("PING")')
    assert.matches("odd%.lua:2: tg%.timer%.after: not while a file is loaded; call it in init",
      told "tg.timer.after(1, function() end)")
  end))

  it("in bytecode is refused", async(function()
    local err = refused { plugins = { odd = string.dump(function() return {} end) } }
    assert.equal("routes[1].plugins.odd: DIR/plugins/odd.lua: attempt to load chunk with wrong mode\n", err)
  end))
end)

describe("init", function()
  -- What check and run say, which is the same.
  local function told(code)
    local source = 'local tg = require "tollgate"\nreturn { init = function(conf)\n' .. code .. "\nend }"
    local options = { plugins = { odd = source } }
    local checked, res = rig.try("check", options), rig.try("run", options)
    assert.same({ 1, 1 }, { checked.code, res.code })
    assert.is_nil(res.err:find("is ready", 1, true))
    assert.truthy(res.err:find(checked.err:match("^[^\n]+"), 1, true), res.err)
    return checked.err
  end

  it("that raises keeps the gateway from serving, with path, line and traceback", async(function()
    assert.matches("routes%[1%]%.plugins%.odd: init: DIR/plugins/odd%.lua:3: boom\nstack traceback:", told "error 'boom'")
  end))

  it("that waits is refused", async(function()
    assert.matches("routes%[1%]%.plugins%.odd: init must not wait; start a timer with tg%.timer%.after",
      told "tg.timer.sleep(60)")
    assert.matches("init must not wait", told 'tg.redis.call("PING")')
  end))

  it("that assigns to a global is refused", async(function()
    assert.matches("odd%.lua:3: assignment to the undeclared global 'state'", told "state = conf")
  end))

  it("faults of all plugins are told at once", async(function()
    local source = [[ return { init = function() error "boom" end } ]]
    local res = rig.try("run", { plugins = { a = source, b = source } })
    assert.matches("routes%[1%]%.plugins%.a: init: .*routes%[1%]%.plugins%.b: init: ", res.err)
  end))
end)
