-- The guide examples/first-plugin/README.md, read as its reader does it: each Lua block is saved under the name in its first
-- line, each command is run by a shell as it is printed, in order and in one folder, and each line that the text shows is in
-- what the commands print. Only the port is another.
local support = require "spec.support"
local gateway = require "spec.support.gateway"
local async = support.async

local GUIDE = "examples/first-plugin/README.md"

-- The fenced blocks in order, as { language, text }.
local function blocks()
  local list = {}
  for language, text in assert(support.read_file(GUIDE)):gmatch("\n```(%l+)\n(.-)\n```") do
    list[#list + 1] = { language = language, text = text .. "\n" }
  end
  return list
end

-- A shell whose `tollgate` is the binary under test, in the folder where the last command left it.
local function shell(home)
  local self = { dir = home, env = { PATH = home .. "/bin:" .. os.getenv "PATH", TOLLGATE_BIN = false } }
  support.write_file(home .. "/bin/tollgate", ("#!/bin/sh\nexec '%s' \"$@\"\n"):format(gateway.binary()))
  support.exec { cmd = "chmod", args = { "+x", home .. "/bin/tollgate" } }
  function self.run(text)
    local script = text .. "pwd >" .. home .. "/pwd"
    local res = support.exec { cmd = "bash", args = { "-e", "-c", script }, cwd = self.dir, env = self.env }
    assert.equal(0, res.code, text .. res.out .. res.err)
    self.dir = support.read_file(home .. "/pwd"):match("[^\n]+")
    return res.out .. res.err
  end
  return self
end

local function start(sh)
  local process = support.start { cmd = "bash", args = { "-c", "exec tollgate run" }, cwd = sh.dir, env = sh.env }
  support.on_end(function()
    process:kill("sigterm")
    assert.equal(0, (process:wait(10000)), process:err())
  end)
  support.wait_for(function() return process.exited or process:err():find("is ready", 1, true) end, "the gateway")
  assert.is_falsy(process.exited, process:err())
end

describe("the guide", function()
  it("does what it says, block by block", async(function()
    local port, sh, out = support.free_port(), shell(support.tmpdir()), nil
    local seen = { sh = 0, lua = 0, text = 0 }
    for _, block in ipairs(blocks()) do
      local text = block.text:gsub("127%.0%.0%.1:8080", "127.0.0.1:" .. port)
      seen[block.language] = seen[block.language] + 1
      if block.language == "lua" then
        support.write_file(sh.dir .. "/" .. text:match("^%-%- ([%w_/.-]+%.lua)"), text)
      elseif text == "tollgate run\n" then
        start(sh)
      elseif block.language == "sh" then
        out = sh.run(text)
      else
        for line in text:gmatch("[^\n]+") do assert.is_truthy(out:find(line, 1, true), line .. "\nis not in:\n" .. out) end
      end
    end
    assert.same({ sh = 6, lua = 3, text = 5 }, seen)
  end))

  it("shows Lua that luacheck has nothing against", async(function()
    local dir = support.tmpdir()
    for _, block in ipairs(blocks()) do
      if block.language == "lua" then support.write_file(dir .. "/" .. block.text:match("^%-%- ([%w_/.-]+%.lua)"), block.text) end
    end
    local res = support.exec { cmd = "luacheck", args = { "-q", "--no-color", "--no-config", "." }, cwd = dir }
    assert.equal(0, res.code, res.out)
  end))
end)
