-- The documents against the tree, so that they stay true: the configuration and the plugin in README.md work,
-- the files and commands that the READMEs name are there, and the table of modules in host/README.md names
-- every source file and gives the one direction in which files include each other.
local uv = require "luv"
local support = require "spec.support"
local async = support.async

local DOCUMENTS = { "README.md", "CONTRIBUTING.md", "SECURITY.md", "host/README.md", "plugins/README.md", "scripts/README.md",
  "host/lua/README.md", "examples/quickstart/README.md", "examples/plugins/README.md", "examples/first-plugin/README.md",
  "examples/tls/README.md", "examples/failover/README.md", "examples/monitoring/README.md" }

local function read(path) return assert(support.read_file(path)) end

local function exists(path) return uv.fs_stat(path) ~= nil end

local function names_in(dir, pattern)
  local scan, names = assert(uv.fs_scandir(dir)), {}
  for name in function() return uv.fs_scandir_next(scan) end do
    if name:match(pattern) then names[#names + 1] = name end
  end
  table.sort(names)
  return names
end

-- The fenced blocks of a language, in order.
local function blocks(text, language)
  local list = {}
  for block in text:gmatch("\n```" .. language .. "\n(.-)\n```") do list[#list + 1] = block .. "\n" end
  return list
end

-- A Lua block says in its first line which file it is: "-- plugins/stamp.lua: …".
local function lua_files(text)
  local files = {}
  for _, block in ipairs(blocks(text, "lua")) do
    local name = block:match("^%-%- ([%w_/.-]+%.lua)")
    assert(name, "a Lua block does not begin with the name of its file:\n" .. block)
    files[name] = block
  end
  return files
end

-- The rows of the table of modules: lists of files, from the top.
local function modules()
  local section = read("host/README.md"):match("\n## Modules\n(.-)\n## ")
  local rows = {}
  for cell in section:gmatch("\n| (`[^|]*) |") do
    local row = {}
    for name in cell:gmatch("`([^`]+)`") do
      local stem = name:match("^(.*)%.%[ch%]$")
      for _, file in ipairs(stem and { stem .. ".h", stem .. ".c" } or { name }) do row[#row + 1] = file end
    end
    rows[#rows + 1] = row
  end
  return rows
end

local function row_of_each()
  local rows = {}
  for at, row in ipairs(modules()) do
    for _, file in ipairs(row) do
      assert(not rows[file], file .. " stands in host/README.md's list twice")
      rows[file] = at
    end
  end
  return rows
end

local function host_files()
  local files = names_in("host", "%.[ch]$")
  for _, name in ipairs(names_in("host/lua", "%.lua$")) do files[#files + 1] = "lua/" .. name end
  return files
end

local function keys_of(map)
  local keys = {}
  for key in pairs(map) do keys[#keys + 1] = key end
  table.sort(keys)
  return keys
end

describe("host/README.md", function()
  it("lists every source file of the host, and only those", function()
    local files, rows = host_files(), row_of_each()
    assert.is_true(#files > 100)
    local not_listed = {}
    for _, file in ipairs(files) do
      if not rows[file] then not_listed[#not_listed + 1] = file end
      rows[file] = nil
    end
    assert.same({ not_listed = {}, not_there = {} }, { not_listed = not_listed, not_there = keys_of(rows) })
  end)

  it("lists files so that each includes only headers of its own row and above", function()
    local rows, upwards = row_of_each(), {}
    for file, row in pairs(rows) do
      for header in read("host/" .. file):gmatch('\n#include "([^"]+)"') do
        local there = rows[header] or error(file .. " includes " .. header .. ", which the list does not have")
        if there > row then upwards[#upwards + 1] = file .. " includes " .. header end
      end
    end
    table.sort(upwards)
    assert.same({}, upwards)
  end)

  it("gives the only files that know a library or resume Lua", function()
    local owners = {
      ["lua_resume%("] = "^task%.c$", ["<http_parser%.h>"] = "^parse%.c$", ["<ares%.h>"] = "^dns%.c$",
      ["<hiredis/"] = "^rds[%w_]*%.[ch]$",
    }
    for pattern, owner in pairs(owners) do
      local found = 0
      for _, name in ipairs(names_in("host", "%.[ch]$")) do
        if read("host/" .. name):find(pattern) then
          found = found + 1
          assert(name:match(owner), name .. " has " .. pattern)
        end
      end
      assert(found > 0, "no file has " .. pattern)
    end
  end)

  it("lists Lua modules so that each requires only those before it", function()
    local before = {}
    for _, row in ipairs(modules()) do
      for _, file in ipairs(row) do
        local name = file:match("^lua/(.*)%.lua$")
        if name then
          local code = read("host/" .. file):gsub("%-%-[^\n]*", "")
          for needed in code:gmatch('require%(?%s*"tollgate%.([%w_]+)"') do
            assert(before[needed], file .. " requires " .. needed .. ", which stands below it")
          end
          before[name] = true
        end
      end
    end
  end)
end)

describe("the documents", function()
  it("name files that are there", function()
    local places = { "", "host/", "plugins/", "scripts/", "spec/", "examples/quickstart/" }
    local missing = {}
    local function look(document, name)
      local own = document:match("^(.*/)") or ""
      for _, place in ipairs { own, unpack(places) } do
        if exists(place .. name) then return end
      end
      missing[#missing + 1] = document .. ": " .. name
    end
    for _, document in ipairs(DOCUMENTS) do
      local text = exists(document) and read(document) or ""
      for target in text:gmatch("%]%(([^)#]+)[^)]*%)") do
        if not target:match("^%a+:") then look(document, target) end
      end
      -- In code spans: what has a slash and an extension, and scripts.
      for span in text:gmatch("`([%w_./-]+)`") do
        local is_file = span:match("^[%l_-]+/[%w_./-]+%.%a+$") or span:match("^scripts/[%w_-]+$")
        if is_file and not text:find("-- " .. span, 1, true) then look(document, span) end
      end
    end
    assert.same({}, missing)
  end)

  it("name commands that are there", async(function()
    local help = support.tollgate({ "--help" }).out
    local text = read("README.md") .. read("CONTRIBUTING.md")
    local seen = 0
    for command in text:gmatch("%f[%w/]tollgate ([a-z]+) ?[%w%-]*[`\n ]") do
      if help:find("\n  " .. command .. "%f[ \n]") then seen = seen + 1 end
    end
    assert.is_true(seen > 0)
    for span in text:gmatch("`tollgate ([a-z]+)[^`]*`") do
      assert(help:find("\n  " .. span .. "%f[ \n]"), "no command: tollgate " .. span)
    end
    for _, block in ipairs(blocks(text, "sh")) do
      for line in block:gmatch("[^\n]+") do
        local command = line:match("^(%S+)")
        local there = command:match("^[%w_]+=") or not command:find("/", 1, true) or command:match("^build/") or
          exists(command)
        assert(there, "no such command: " .. line)
      end
      for preset in block:gmatch("%-%-preset (%l+)") do
        assert(read("CMakePresets.json"):find('"name": "' .. preset .. '"', 1, true), "no preset: " .. preset)
      end
    end
  end))
end)

describe("README.md", function()
  it("begins with the two commands", function()
    local first = blocks(read("README.md"), "sh")[1]
    assert.matches("\nscripts/run[^\n]*\nscripts/test", "\n" .. first)
    assert.is_true(read("README.md"):find("scripts/run", 1, true) < 600)
  end)

  it("has a configuration that passes tollgate check", async(function()
    local dir = support.tmpdir()
    local files = lua_files(read("README.md"))
    assert(files["gateway.lua"], "README.md has no gateway.lua")
    for name, text in pairs(files) do support.write_file(dir .. "/" .. name, text) end
    support.write_file(dir .. "/keys.jsonl", support.keys { { id = "a", secret = "s" } })
    local run = { cwd = dir, env = { LLM_API_KEY = "provider-secret" } }
    local result = support.tollgate({ "check" }, run)
    assert.equal("", result.err)
    assert.equal(0, result.code)
    assert.equal(0, support.tollgate({ "check", "-c", "targets.lua" }, run).code)
    -- It is really read: the same with a slip in it is refused.
    support.write_file(dir .. "/gateway.lua", (files["gateway.lua"]:gsub("monthly_tokens", "monthly_token", 1)))
    local slip = support.tollgate({ "check" }, run)
    assert.equal(1, slip.code)
    assert.matches("monthly_tokens", slip.err)
  end))

  it("has a plugin that works in the quickstart as the text says", async(function()
    local text = read("README.md")
    local stamp = assert(lua_files(text)["plugins/stamp.lua"], "README.md has no plugins/stamp.lua")
    local before, after = "plugins = { quota = {} }", "plugins = { quota = {}, stamp = {} }"
    assert.is_truthy(text:find("`" .. after .. "`", 1, true))
    local example = read("examples/quickstart/gateway.lua")
    assert.is_truthy(example:find(before, 1, true))
    local port = support.free_port()
    local config = example:gsub(before:gsub("%p", "%%%0"), after)
      :gsub("127%.0%.0%.1:8080", "127.0.0.1:" .. port):gsub("127%.0%.0%.1:8081", "127.0.0.1:0")
    local gw = support.gateway { config = config, files = {
      ["plugins/stamp.lua"] = stamp,
      ["plugins/standin.lua"] = read("examples/quickstart/plugins/standin.lua"),
      ["keys.jsonl"] = read("examples/quickstart/keys.jsonl"),
    } }
    local res = gw:request { path = "/v1/chat/completions", headers = { authorization = "Bearer tg-demo-key" },
      body = { model = "demo", messages = { { role = "user", content = "Hello!" } } } }
    assert.equal(200, res.status)
    local name, value = text:match("`([%w-]+): (chat)`")
    assert.equal(value, res.headers[name])
  end))
end)
