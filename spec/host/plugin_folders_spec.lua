-- Where plugins come from: several folders, a name that two of them have, and the modules that a plugin requires: its own
-- first, and never those of another folder.
local uv = require "luv"
local support = require "spec.support"
local rig = require "spec.host.plugin_rig"
local async = support.async

local TWO = { plugin_path = { "a", "b" } }

local function route(names)
  local plugins = {}
  for _, name in ipairs(names) do plugins[name] = {} end
  return { { name = "r", path = "/*", plugins = plugins } }
end

-- A plugin that says in a header of its own what a module returned.
local function teller(name, module)
  return ([[local word = require %q
    return { priority = 1, schema = {}, response = function(_, ctx) ctx.response.headers["x-%s"] = word end }
  ]]):format(module, name)
end

-- The headers of an answer from a gateway with these files beside gateway.lua.
local function headers(files, names)
  local gw = rig.start { plugins = {}, files = files, config = TWO, routes = route(names) }
  return gw:request { path = "/" }.headers
end

local function refused(files, names, config)
  local options = { plugins = {}, files = files, config = config or TWO, routes = route(names) }
  local res, check = rig.try("run", options), rig.try("check", options)
  assert.equal(1, res.code, res.err)
  assert.same({ 1, res.err }, { check.code, check.err })
  return res.err
end

describe("plugin_path", function()
  it("takes plugins from all of its folders, as files and as folders", async(function()
    local got = headers({
      ["a/one.lua"] = teller("one", "string"):gsub("word end", "'1' end"),
      ["b/two/init.lua"] = teller("two", "string"):gsub("word end", "'2' end"),
    }, { "one", "two" })
    assert.same({ "1", "2" }, { got["x-one"], got["x-two"] })
  end))

  it("refuses a name that two folders have, naming both files", async(function()
    assert.equal("routes[1].plugins.x: there is more than one plugin of this name, DIR/a/x.lua and DIR/b/x.lua; "
      .. "rename or remove all but one\n", refused({ ["a/x.lua"] = "return {}", ["b/x.lua"] = "return {}" }, { "x" }))
  end))

  it("refuses a name that is a file and a folder", async(function()
    assert.matches("DIR/a/x.lua and DIR/a/x/init.lua;",
      refused({ ["a/x.lua"] = "return {}", ["a/x/init.lua"] = "return {}" }, { "x" }), 1, true)
  end))

  it("refuses a name that a plugin which ships has", async(function()
    assert.matches("DIR/b/cors%.lua and /[^ ]*/plugins/cors%.lua;", refused({ ["b/cors.lua"] = "return {}" }, { "cors" }))
  end))

  it("does not mind a clash of names that nobody uses, nor a folder that is named twice", async(function()
    local dir = support.tmpdir()
    support.write_file(dir .. "/a/x.lua", teller("x", "y"))
    support.write_file(dir .. "/a/y.lua", "return 'mine'")
    support.write_file(dir .. "/b/y.lua", "return 'other'")
    assert(uv.fs_symlink("a", dir .. "/link"))
    local gw = support.gateway { dir = dir, config = { plugin_path = { "a", "link", "a/", "b" }, routes = route { "x" } } }
    assert.equal("mine", gw:request { path = "/" }.headers["x-x"])
  end))
end)

describe("require in a plugin", function()
  it("finds its own modules with and without its name before them, and both are one", async(function()
    local got = headers({
      ["a/x/init.lua"] = [[local plain, full = require "words", require "x.words"
        return { schema = {}, response = function(_, ctx)
          ctx.response.headers["x-got"] = plain.text .. " " .. tostring(plain == full) end }]],
      ["a/x/words.lua"] = 'return { text = require "deep.er" }',
      ["a/x/deep/er.lua"] = 'return "deep " .. require("deep")',
      ["a/x/deep/init.lua"] = 'return "folder"',
    }, { "x" })
    assert.equal("deep folder true", got["x-got"])
  end))

  it("never takes a module of another folder's plugin for its own", async(function()
    local got = headers({
      ["a/one.lua"] = teller("one", "words"), ["a/words.lua"] = "return 'a'",
      ["b/two.lua"] = teller("two", "words"), ["b/words.lua"] = "return 'b'",
      ["a/three/init.lua"] = teller("three", "words"), ["a/three/words.lua"] = "return 'three'",
      ["b/four/init.lua"] = 'return require "main"', ["b/four/main.lua"] = teller("four", "words"),
      ["b/four/words.lua"] = "return 'four'",
      ["a/five/init.lua"] = teller("five", "words"),
    }, { "one", "two", "three", "four", "five" })
    assert.same({ "a", "b", "three", "four", "a" },
      { got["x-one"], got["x-two"], got["x-three"], got["x-four"], got["x-five"] })
  end))

  it("does so too when it is called late, by a function of the module, or through pcall", async(function()
    local got = headers({
      ["a/one/init.lua"] = [[return { schema = {}, response = function(_, ctx)
        local ok, word = pcall(require, "words")
        ctx.response.headers["x-one"] = tostring(ok) .. " " .. word end }]],
      ["a/one/words.lua"] = "return 'mine'", ["b/words.lua"] = "return 'other'",
    }, { "one" })
    assert.equal("true mine", got["x-one"])
  end))

  it("gives plugins of one folder the same module", async(function()
    local got = headers({
      ["a/counter.lua"] = "local n = 0; return function() n = n + 1; return n end",
      ["a/one.lua"] = teller("one", "counter"):gsub("= word end", "= word() end"),
      ["a/two.lua"] = teller("two", "counter"):gsub("= word end", "= word() end"),
    }, { "one", "two" })
    assert.same({ "1", "2" }, { got["x-one"], got["x-two"] })
  end))

  it("finds the host's modules and installed ones", async(function()
    local got = headers({
      ["a/one.lua"] = [[local tg, bit, ffi = require "tollgate", require "bit", require "ffi"
        local schema = require "tollgate.schema"
        return { schema = {}, response = function(_, ctx)
          ctx.response.headers["x-one"] = type(tg.now()) .. type(bit.bor) .. ffi.os .. type(schema.check) end }]],
    }, { "one" })
    assert.equal("numberfunctionLinuxfunction", got["x-one"])
  end))

  it("says where it looked for a module that is not there, and who wanted it", async(function()
    assert.equal("routes[1].plugins.x: DIR/a/x/init.lua:2: module 'wrods' not found: there is no DIR/a/x/wrods.lua, no "
      .. "DIR/a/x/wrods/init.lua, no DIR/a/wrods.lua, no DIR/a/wrods/init.lua, and none where Lua looks for installed ones\n",
      refused({ ["a/x/init.lua"] = "\nlocal w = require 'wrods'\nreturn w" }, { "x" }))
    assert.matches("DIR/a/x.lua:1: require needs the name of a module, not a nil",
      refused({ ["a/x.lua"] = "local w = require(nil)\nreturn w" }, { "x" }), 1, true)
  end))

  it("tells a module's own fault as it is", async(function()
    local files = { ["a/x/init.lua"] = "local w = require 'words'\nreturn w", ["a/x/words.lua"] = "\nerror 'boom'" }
    assert.equal("routes[1].plugins.x: DIR/a/x/words.lua:2: boom\n", refused(files, { "x" }))
    files["a/x/words.lua"] = "local 1\n"
    assert.matches("^routes%[1%]%.plugins%.x: DIR/a/x/words%.lua:1: '<name>' expected", refused(files, { "x" }))
    files["a/x/words.lua"] = "local w = require 'words'\nreturn w"
    assert.matches("loop or previous error loading module 'DIR/a/x/words%.lua'", refused(files, { "x" }))
  end))

  it("refuses a wait at the file level of a module that is required while a request runs", async(function()
    local gw = rig.start { plugins = {
      ["x/init"] = [[return { schema = {}, access = function()
        local ok, err = pcall(require, "words")
        return 200, tostring(ok) .. " " .. err end }]],
      ["x/words"] = 'local tg = require "tollgate"\ntg.timer.sleep(0.01)\nreturn 1',
    } }
    assert.matches("^false .*/x/words%.lua:2: tg%.timer%.sleep cannot wait here", gw:request { path = "/" }.body)
  end))
end)

describe("a global", function()
  it("that is not declared cannot be assigned at file level, with file and line", async(function()
    assert.matches("x: DIR/a/x%.lua:2: assignment to the undeclared global 'count'; write: local count\n$",
      refused({ ["a/x.lua"] = "local M = {}\ncount = 0\nreturn M" }, { "x" }))
    assert.matches("x: DIR/a/x/deep/er%.lua:3: assignment to the undeclared global 'count'",
      refused({ ["a/x/init.lua"] = 'return require "deep.er"',
        ["a/x/deep/er.lua"] = "\n\nfunction count() end\nreturn {}" }, { "x" }))
    assert.matches("a/x%.lua:1: assignment to the undeclared global 'count'",
      refused({ ["a/x.lua"] = "_G.count = 1\nreturn {}" }, { "x" }))
  end))

  it("that is known stays as it is for others where one file puts something in its place", async(function()
    local got = headers({
      ["a/one.lua"] = "tostring = function() return 'mine' end\n"
        .. teller("one", "string"):gsub("= word end", "= tostring(1) end"),
      ["a/two.lua"] = teller("two", "string"):gsub("= word end", "= tostring(2) end"),
    }, { "one", "two" })
    assert.same({ "mine", "2" }, { got["x-one"], got["x-two"] })
  end))

  it("may be set by rawset, and is then there for all", async(function()
    local got = headers({
      ["a/one.lua"] = "rawset(_G, 'LIB', 'shared')\n" .. teller("one", "string"):gsub("= word end", "= LIB end"),
      ["a/two.lua"] = teller("two", "string"):gsub("= word end", "= LIB end"),
    }, { "one", "two" })
    assert.same({ "shared", "shared" }, { got["x-one"], got["x-two"] })
  end))
end)
