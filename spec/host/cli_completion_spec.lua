-- tollgate completion: real bash completes commands, options, values and files by what it prints; zsh and fish find no fault in
-- theirs, and each has all there is.
local support = require "spec.support"
local async = support.async

local function script(shell)
  local res = support.tollgate { "completion", shell }
  assert.same({ 0, "" }, { res.code, res.err })
  return res.out
end

-- As readline calls it: the words of the line, the last one being completed.
local COMPLETE = [[
source "$1" || exit 9
shift
COMP_WORDS=("$@") COMP_CWORD=$(($# - 1))
_tollgate
printf '%s\n' "${COMPREPLY[@]}"
]]

local function bash(dir, ...)
  support.write_file(dir .. "/.completion", script "bash")
  support.write_file(dir .. "/.complete", COMPLETE)
  local res = support.exec { cmd = "bash", cwd = dir, args = { "--norc", ".complete", ".completion", "tollgate", ... } }
  assert.same({ 0, "" }, { res.code, res.err })
  local words = {}
  for word in res.out:gmatch "[^\n]+" do words[#words + 1] = word end
  table.sort(words)
  return words
end

describe("in bash", function()
  it("commands are completed, and words behind them", async(function()
    local dir = support.tmpdir()
    assert.same({ "status" }, bash(dir, "sta"))
    assert.same({ "plugin", "publish" }, bash(dir, "p"))
    assert.same({}, bash(dir, "rnu"))
    assert.same({ "new" }, bash(dir, "key", ""))
    assert.same({ "plugin" }, bash(dir, "new", "p"))
    assert.same({ "--json", "-c", "auto", "close", "open" }, bash(dir, "breaker", ""))
    assert.same({ "bash", "fish", "zsh" }, bash(dir, "completion", ""))
    assert.same({ "reload" }, bash(dir, "help", "rel"))
    local all = bash(dir, "")
    for _, name in ipairs { "run", "check", "usage", "key", "exec", "test", "new", "help" } do
      assert.is_truthy((" " .. table.concat(all, " ") .. " "):find(" " .. name .. " ", 1, true), name)
    end
  end))

  it("options are a command's own", async(function()
    local dir = support.tmpdir()
    assert.same({ "--json" }, bash(dir, "reload", "--"))
    assert.same({ "--json", "--print" }, bash(dir, "check", "-c", "gateway.lua", "--"))
    assert.same({ "--route", "--rps" }, bash(dir, "key", "new", "--r"))
    assert.same({ "--rollback" }, bash(dir, "publish", "--r"))
    assert.same({}, bash(dir, "key", "newer", "--r"))
    assert.same({}, bash(dir, "run", "--j"))
  end))

  it("values are completed: words, files, or nothing", async(function()
    local dir = support.tmpdir()
    support.write_file(dir .. "/a file.lua", "")
    support.write_file(dir .. "/b.lua", "")
    assert.same({ "always", "auto" }, bash(dir, "status", "--color", "a"))
    assert.same({ "never" }, bash(dir, "usage", "--color", "=", "n"))
    assert.same({ "always", "auto", "never" }, bash(dir, "usage", "--color", "="))
    assert.same({ "a file.lua" }, bash(dir, "run", "-c", "a"))
    assert.same({ "b.lua" }, bash(dir, "check", "--config", "b"))
    assert.same({ "b.lua" }, bash(dir, "exec", "b"))
    assert.same({ "--redis" }, bash(dir, "exec", "-"))
    assert.same({}, bash(dir, "key", "new", "--id", ""))
  end))
end)

local function have(name) return os.execute("command -v " .. name .. " >/dev/null 2>&1") == 0 end

for _, shell in ipairs { "zsh", "fish" } do
  it("in " .. shell .. ": it parses, and has every option of every command", async(function()
    local text, path = script(shell), support.tmpdir() .. "/completion"
    for name in support.tollgate({ "help" }).out:gmatch "\n  (%l[%l ]-) *[ \n]" do
      local words = {}
      for word in name:gmatch "%S+" do words[#words + 1] = word end
      assert.is_truthy(text:find(words[1], 1, true), name)
      for option in support.tollgate({ "help", unpack(words) }).out:gmatch "\n  %-%-?([%-%l]+)" do
        assert.is_truthy(text:find(option, 1, true), name .. " " .. option)
      end
    end
    if not have(shell) then return end -- then a machine that has it looks
    support.write_file(path, text)
    local res = support.exec { cmd = shell, args = { "-n", path } }
    assert.same({ 0, "", "" }, { res.code, res.out, res.err })
  end))
end

if have "fish" then
  it("fish completes by it", async(function()
    local path = support.tmpdir() .. "/tollgate.fish"
    support.write_file(path, script "fish")
    local function fish(line)
      local res = support.exec { cmd = "fish", env = { HOME = path:match "^(.*)/" },
        args = { "--no-config", "-c", "source $argv[1]; complete -C $argv[2]", path, line } }
      assert.same({ 0, "" }, { res.code, res.err })
      return (res.out:gsub("\t[^\n]*", ""))
    end
    assert.equal("status\n", fish "tollgate sta")
    assert.equal("new\n", fish "tollgate key n")
    assert.equal("--json\n", fish "tollgate reload --j")
    assert.equal("always\nauto\n", fish "tollgate status --color a")
  end))
end
