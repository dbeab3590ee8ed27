-- `cmake --install` puts binary, plugins, Redis scripts and examples in their places, and what is installed
-- runs from anywhere by itself: the files that it uses are the installed ones, not those of the source tree
-- that it was built in.
local uv = require "luv"
local support = require "spec.support"
local gateway = require "spec.support.gateway"
local async = support.async

-- Installs the build that the binary under test belongs to; returns the prefix.
local function install()
  local prefix = support.tmpdir() .. "/usr"
  local result = support.exec { cmd = "cmake", args = { "--install", gateway.binary():match("^(.*)/"), "--prefix", prefix } }
  assert.equal(0, result.code, result.err)
  return prefix
end

local function lua_names(dir)
  local names = {}
  local function walk(under)
    local scan = assert(uv.fs_scandir(dir .. "/" .. under))
    for name, kind in function() return uv.fs_scandir_next(scan) end do
      if kind == "directory" then walk(under .. name .. "/") end
      if name:match("%.lua$") then names[#names + 1] = under .. name end
    end
  end
  walk("")
  table.sort(names)
  return names
end

-- A copy of the installed quickstart, as a user makes one.
local function copy_example(prefix)
  local dir = support.tmpdir()
  for _, name in ipairs { "gateway.lua", "keys.jsonl", "plugins/standin.lua" } do
    support.write_file(dir .. "/" .. name,
      assert(support.read_file(prefix .. "/share/tollgate/examples/quickstart/" .. name)))
  end
  return dir
end

describe("an installation", function()
  it("has every plugin and script in its place", async(function()
    local share = install() .. "/share/tollgate/"
    for _, dir in ipairs { "plugins", "scripts/redis" } do
      assert.same(lua_names(dir), lua_names(share .. dir))
    end
    assert.is_nil(uv.fs_stat(share .. "examples/quickstart/data"))
    for _, file in ipairs { "man/man5/gateway.lua.5", "man/man1/tollgate.1", "bash-completion/completions/tollgate",
      "zsh/site-functions/_tollgate", "fish/vendor_completions.d/tollgate.fish" } do
      assert.matches("tollgate", support.read_file(share .. "../" .. file), 1, true)
    end
  end))

  it("runs the quickstart from another folder", async(function()
    local prefix = install()
    local dir = copy_example(prefix)
    local port = support.free_port()
    local config = assert(support.read_file(dir .. "/gateway.lua"))
      :gsub("127%.0%.0%.1:8080", "127.0.0.1:" .. port):gsub("127%.0%.0%.1:8081", "127.0.0.1:0")
    local gw = support.gateway { bin = prefix .. "/bin/tollgate", dir = dir, config = config }
    local res = gw:request { path = "/v1/chat/completions", headers = { authorization = "Bearer tg-demo-key" },
      body = { model = "demo", messages = { { role = "user", content = "Hello!" } } } }
    assert.equal(200, res.status)
    -- The example's origin is a route of the same gateway; either line may be the first.
    local lines = gw:wait_access(2)
    assert.equal("demo", lines[1].consumer or lines[2].consumer)
  end))

  it("uses its own plugins, and runs where it was moved to", async(function()
    local prefix = install()
    local dir, moved = copy_example(prefix), support.tmpdir() .. "/moved"
    assert(uv.fs_rename(prefix, moved))
    local function check()
      return support.exec { cmd = moved .. "/bin/tollgate", args = { "check" }, cwd = dir }
    end
    assert.equal(0, check().code)
    assert(uv.fs_unlink(moved .. "/share/tollgate/plugins/auth.lua"))
    local result = check()
    assert.equal(1, result.code)
    assert.matches("auth", result.err)
  end))
end)
