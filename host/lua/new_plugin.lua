-- tollgate new plugin NAME: a plugin and its spec to begin with, in the current folder, and settings for busted where there
-- are none. What is written works as it is; nothing is ever overwritten, and where one file is in the way none is written.

local json = require("tollgate").json

local M = {}

local NAME_MAX = 40 -- bytes

local PLUGIN = [==[
-- @NAME@: tells the target, and the client, a word of its settings in a header. Change it into what you need.
--
-- A request passes `access` before it goes out, which may answer it by `return status, body, headers`, and
-- `response` when the answer's head is there; `body` would see each piece of the answer, and `log` the end. All but
-- `body` may wait: for Redis, HTTP or a timer, all of it in `require "tollgate"`. Run its spec: tollgate test

local M = {
  version = "0.1.0",
  priority = 500, -- of several plugins the one with the higher number is first
  schema = { -- what may be configured; anything else keeps the gateway from starting
    word = { type = "string", min = 1, default = "hello", doc = "what the header @HEADER@ says" },
  },
}

function M.access(conf, ctx)
  ctx.request.headers["@HEADER@"] = conf.word
end

function M.response(conf, ctx)
  ctx.response.headers["@HEADER@"] = conf.word
end

return M
]==]

local SPEC = [==[
-- The plugin @NAME@ in a real gateway, on a route that answers with the request that arrived there, as JSON.
-- Run it with: tollgate test
local testing = require "tollgate.testing"

local function start(conf)
  local gateway = testing.gateway { plugins = { @NAME@ = conf } }
  finally(function() gateway:stop() end) -- fails where the gateway logged a leak or did not end well
  return gateway
end

describe("@NAME@", function()
  it("tells the target the word", function()
    local res = start { word = "hi" }:request("GET", "/any/path")
    assert.equal(200, res.status)
    assert.equal("hi", res:json().headers["@HEADER@"])
  end)

  it("tells the client the word, hello where none is configured", function()
    assert.equal("hello", start {}:request("GET", "/").headers["@HEADER@"])
  end)

  it("refuses a setting that it does not have", function()
    assert.error_matches(function() start { wrod = "hi" } end, "unknown key %(did you mean word%?%)")
  end)
end)
]==]

local BUSTED = [==[
-- Settings of busted. Specs of plugins need the gateway around them, so that plain `busted` hands over to `tollgate test`,
-- which reads this file again. TOLLGATE_BIN names the tollgate to take where it is not the one on the PATH.
if not package.loaded.tollgate then
  local command = { "exec", os.getenv "TOLLGATE_BIN" or "tollgate", "test" }
  for _, word in ipairs(arg) do command[#command + 1] = word end
  for i = 2, #command do command[i] = "'" .. command[i]:gsub("'", "'\\''") .. "'" end
  local status, _, code = os.execute(table.concat(command, " "))
  code = code or math.ceil(status / 256) -- Lua 5.1 gives what wait() did
  if code == 127 then io.stderr:write(".busted: tollgate is not on the PATH, and TOLLGATE_BIN does not name it\n") end
  os.exit(code)
end

-- Modules of a plugin have the same names in specs as in the plugin.
return { default = { ROOT = { "spec" }, lpath = "./plugins/?.lua;./plugins/?/init.lua" } }
]==]

local function exists(path)
  local file = io.open(path, "rb")
  if file then file:close() end
  return file ~= nil
end

local function write(path, text)
  local file, err = io.open(path, "wb")
  if not file then return nil, err end
  local ok, why = file:write(text)
  file:close()
  return ok, why and path .. ": " .. why
end

local function fill(template, name)
  local values = { NAME = name, HEADER = "x-" .. name:gsub("_", "-") }
  return (template:gsub("@(%u+)@", values))
end

-- What is wrong with a name, or nil.
local function fault_of(name, shipped)
  if not name:match("^%l[%l%d_]*$") or #name > NAME_MAX then
    return ("a name is at most %d lower-case letters, digits and _, and begins with a letter"):format(NAME_MAX)
  end
  if not loadstring("local " .. name) then return "it is a word of Lua's own" end
  if exists(shipped .. "/" .. name .. ".lua") or exists(shipped .. "/" .. name .. "/init.lua") then
    return "a plugin of this name comes with tollgate"
  end
end

--- Runs the command.
-- @tparam string shipped folder of the plugins that ship
-- @tparam {string,string} args the name, and "json" or "text"
-- @treturn integer exit code: 0; 1 where a file is in the way or cannot be written; 2 where the name will not do
function M.command(shipped, args)
  local name, as_json = args[1], args[2] == "json"
  local function fail(code, message)
    io.stderr:write(as_json and json.encode { error = message } or "tollgate new plugin: " .. message, "\n")
    return code
  end
  local function say(text)
    if not as_json then print(text) end
  end

  local fault = fault_of(name, shipped)
  if fault then return fail(2, ("'%s': %s"):format(name, fault)) end
  local plugin, spec = "plugins/" .. name .. ".lua", "spec/" .. name .. "_spec.lua"
  for _, path in ipairs { plugin, "plugins/" .. name .. "/init.lua", spec } do
    if exists(path) then return fail(1, path .. " is there already; nothing was written") end
  end
  local files, wrote = { { plugin, PLUGIN }, { spec, SPEC } }, {}
  if not exists ".busted" then files[3] = { ".busted", BUSTED } end
  if os.execute "mkdir -p plugins spec" ~= 0 then return fail(1, "cannot make the folders plugins and spec") end
  for i, file in ipairs(files) do
    local ok, err = write(file[1], fill(file[2], name))
    if not ok then return fail(1, err) end
    wrote[i] = file[1]
    say("wrote " .. file[1])
  end
  if as_json then print(json.encode { wrote = wrote }) end
  if not files[3] then say "kept  .busted" end
  say("Next: tollgate test. To serve it: plugin_path = { \"plugins\" } in gateway.lua, and on a route plugins = { "
    .. name .. " = {} }")
  return 0
end

return M
