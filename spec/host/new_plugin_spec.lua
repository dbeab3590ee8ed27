-- tollgate new plugin NAME: an author's path, from the command through the spec that it wrote to a request that the plugin has
-- passed; and what the command refuses.
local uv = require "luv"
local support = require "spec.support"
local gateway = require "spec.support.gateway"
local async = support.async

local function new(dir, ...) return support.tollgate({ "new", ... }, { cwd = dir }) end

local function names(dir)
  return support.exec { cmd = "find", args = { dir, "-type", "f", "-printf", "%P\n" } }.out
end

local function lines(path)
  local _, n = assert(support.read_file(path)):gsub("\n", "")
  return n
end

describe("tollgate new plugin", function()
  it("writes a plugin and a spec that pass as they are, and serve", async(function()
    local dir = support.tmpdir()
    local res = new(dir, "plugin", "my_stamp")
    assert.same({ 0, "" }, { res.code, res.err })
    assert.equal("wrote plugins/my_stamp.lua\nwrote spec/my_stamp_spec.lua\nwrote .busted\n", res.out:match("^(.*\n)Next: "))

    local test = support.tollgate({ "test", "-o", "TAP" }, { cwd = dir })
    assert.same({ 0, "" }, { test.code, test.err }, test.out)
    local passed = select(2, test.out:gsub("ok %d", ""))
    assert.is_true(passed >= 3)

    local gw = support.gateway { dir = dir, config = { plugin_path = { "plugins" },
      routes = { { name = "r", path = "/*", plugins = { my_stamp = { word = "mine" } } } } } }
    assert.equal("mine", gw:request { path = "/" }.headers["x-my-stamp"])
  end))

  it("writes what is short, clean, and explains itself first", async(function()
    local dir = support.tmpdir()
    assert.equal(0, new(dir, "plugin", "a1").code)
    for _, path in ipairs { dir .. "/plugins/a1.lua", dir .. "/spec/a1_spec.lua" } do
      local n = lines(path)
      assert.is_true(n >= 15 and n <= 35, path .. " has " .. n .. " lines")
      assert.matches("^%-%- [^\n]+\n%-%-", support.read_file(path))
      assert.is_nil(support.read_file(path):find("@", 1, true))
    end
    local check = support.exec { cmd = "luacheck", args = { "-q", "--no-color", "--no-config", "." }, cwd = dir }
    assert.equal(0, check.code, check.out)
  end))

  it("writes a spec that fails when the plugin is broken", async(function()
    local dir = support.tmpdir()
    assert.equal(0, new(dir, "plugin", "stamp").code)
    local path = dir .. "/plugins/stamp.lua"
    local broken = assert(support.read_file(path)):gsub("ctx%.request%.headers%[", "ctx.other = ctx; ({})[")
    support.write_file(path, broken)
    assert.equal(1, support.tollgate({ "test" }, { cwd = dir }).code)
    support.write_file(path, "retrun {}")
    local res = support.tollgate({ "test" }, { cwd = dir })
    assert.equal(1, res.code)
    assert.matches("plugins/stamp.lua:1: ", res.out, 1, true)
  end))

  it("runs with plain busted too", async(function()
    local dir = support.tmpdir()
    assert.equal(0, new(dir, "plugin", "stamp").code)
    local res = support.exec { cmd = "/usr/bin/busted", args = { "-o", "TAP" }, cwd = dir,
      env = { TOLLGATE_BIN = gateway.binary() } }
    assert.same({ 0, "" }, { res.code, res.err })
    assert.matches("^ok 1 .*\n1%.%.3\n$", res.out)
  end))

  it("makes a second one beside the first, and leaves .busted as it is", async(function()
    local dir = support.tmpdir()
    support.write_file(dir .. "/.busted", "return {}\n")
    assert.equal(0, new(dir, "plugin", "one").code)
    local res = new(dir, "plugin", "two")
    assert.equal(0, res.code)
    assert.matches("kept  .busted\n", res.out, 1, true)
    assert.equal("return {}\n", support.read_file(dir .. "/.busted"))
    assert.equal(0, support.tollgate({ "test" }, { cwd = dir }).code)
  end))

  it("overwrites nothing: where one file is in the way, none is written", async(function()
    for _, path in ipairs { "plugins/stamp.lua", "plugins/stamp/init.lua", "spec/stamp_spec.lua" } do
      local dir = support.tmpdir()
      support.write_file(dir .. "/" .. path, "mine\n")
      local res = new(dir, "plugin", "stamp")
      assert.same({ 1, "" }, { res.code, res.out })
      assert.equal("tollgate new plugin: " .. path .. " is there already; nothing was written\n", res.err)
      assert.equal(path .. "\n", names(dir))
      assert.equal("mine\n", support.read_file(dir .. "/" .. path))
    end
  end))

  it("refuses names that would not work, and says why", async(function()
    local dir = support.tmpdir()
    local function told(name)
      local res = new(dir, "plugin", name)
      assert.same({ 2, "" }, { res.code, res.out })
      return (res.err:gsub("^tollgate new plugin: ", ""))
    end
    for _, name in ipairs { "", "Stamp", "1st", "_x", "a-b", "a.b", "../up", "a b", "a\n", "é", ("x"):rep(41) } do
      assert.equal("'" .. name .. "': a name is at most 40 lower-case letters, digits and _, and begins with a letter\n",
        told(name))
    end
    assert.equal("'end': it is a word of Lua's own\n", told "end")
    assert.equal("'quota': a plugin of this name comes with tollgate\n", told "quota")
    assert.equal("'cors': a plugin of this name comes with tollgate\n", told "cors")
    assert.equal("", names(dir))
  end))

  it("says how it is called where arguments are missing or too many", async(function()
    local dir = support.tmpdir()
    for fault, calls in pairs {
      ["the command is: tollgate new plugin [--json] NAME"] = { {}, { "thing", "x" } },
      ["the name of the plugin is missing"] = { { "plugin" } },
      ["unexpected argument b (tollgate help new plugin tells what there is)"] = { { "plugin", "a", "b" } },
    } do
      for _, args in ipairs(calls) do
        local res = new(dir, unpack(args))
        assert.same({ 2, "" }, { res.code, res.out })
        assert.matches("^tollgate new", res.err)
        assert.equal(": " .. fault .. "\n", res.err:sub(-#fault - 3))
      end
    end
    assert.equal("", names(dir))
  end))

  it("tells programs what it wrote, and what is wrong, as JSON", async(function()
    local dir = support.tmpdir()
    local res = new(dir, "plugin", "stamp", "--json")
    assert.same({ 0, "" }, { res.code, res.err })
    assert.same({ wrote = { "plugins/stamp.lua", "spec/stamp_spec.lua", ".busted" } }, support.decode(res.out))
    for fault, args in pairs { ["plugins/stamp.lua is there already; nothing was written"] = { 1, "stamp" },
      ["'end': it is a word of Lua's own"] = { 2, "end" } } do
      res = new(dir, "plugin", "--json", args[2])
      assert.same({ args[1], "" }, { res.code, res.out })
      assert.same({ error = fault }, support.decode(res.err))
    end
  end))

  it("says so where it cannot write", async(function()
    local dir = support.tmpdir()
    support.write_file(dir .. "/plugins", "a file")
    local res = new(dir, "plugin", "stamp")
    assert.equal(1, res.code)
    assert.matches("tollgate new plugin: cannot make the folders plugins and spec\n", res.err, 1, true)
    assert.is_nil(uv.fs_stat(dir .. "/spec/stamp_spec.lua"))
  end))
end)
