-- Runs a configuration file: a Lua file that returns a table and sees of the system only `env` and `file`.
--
-- What it sees beside them is pure: no clock, no random numbers, no I/O, no loading of code, so that one file with one
-- environment gives one configuration. Reading or assigning a name that does not exist is an error with its line. A
-- variable or file that is missing is remembered and the file runs on, so that all of them are reported at once.

local text = require "tollgate.schema_text"

local M = {}

-- A short chunk name, since long paths are cut in messages; the path is put in its place below.
local CHUNK = "=config"
local LEVELS_MAX = 100 -- frames looked through for the line of a call

local PURE = {
  "assert", "error", "ipairs", "next", "pairs", "select", "tonumber", "tostring", "type", "unpack",
}
local LIBRARIES = { string = string, table = table, math = math }
local LEFT_OUT = { dump = true, random = true, randomseed = true }

local function pure_names()
  local names = {}
  for _, name in ipairs(PURE) do names[name] = _G[name] end
  for name, library in pairs(LIBRARIES) do
    names[name] = {}
    for key, value in pairs(library) do
      if not LEFT_OUT[key] then names[name][key] = value end
    end
  end
  return names
end

local function guarded(names)
  return setmetatable({}, {
    __index = function(_, name)
      local value = names[name]
      if value == nil and _G[name] ~= nil then
        error(("%s is not available in a configuration file"):format(tostring(name)), 2)
      elseif value == nil then
        error(("unknown name %s%s"):format(tostring(name), text.suggest(name, text.sorted_keys(names))), 2)
      end
      return value
    end,
    __newindex = function(_, name)
      error(("assignment to the global %s: write local %s"):format(tostring(name), tostring(name)), 2)
    end,
    __metatable = false,
  })
end

-- Where the configuration file is at this moment: "gateway.lua:12".
local function position(path)
  for level = 3, LEVELS_MAX do
    local info = debug.getinfo(level, "Sl")
    if not info then break end
    if info.source == CHUNK then return path .. ":" .. info.currentline end
  end
  return path
end

local function fault_of_error(path, err, raised)
  if raised and err == raised then return raised end
  if type(err) ~= "string" then
    return { path = path, message = "raised " .. type(err) .. ", not a message" }
  end
  local line, message = err:match("^" .. CHUNK:sub(2) .. ":(%d+): (.*)$")
  if not line then return { path = path, message = err } end
  return { path = path .. ":" .. line, message = message }
end

local function reader(state, path, host)
  local function missing(at, message)
    state.faults[#state.faults + 1] = { path = at, message = message }
    return ""
  end
  local function secret(value)
    if value ~= "" then state.secrets[#state.secrets + 1] = value end
    return value
  end
  -- Not error's own level: a tail call leaves no frame that could be named.
  local function name_of(what, name)
    if type(name) == "string" and name ~= "" then return name end
    state.raised = { path = position(path), message = what .. ", a string" }
    error(state.raised, 0)
  end

  local names = pure_names()
  function names.env(name, ...)
    local value = host.env(name_of("env needs the name of a variable", name), ...)
    if value ~= nil then return secret(value) end
    if select("#", ...) > 0 then return (...) end
    return missing(position(path), "the environment variable " .. name .. " is not set")
  end
  function names.file(name)
    local full = text.resolve(M.dir(path), name_of("file needs a path", name))
    local content, err = host.read(full)
    if content then return secret((content:gsub("\r?\n$", ""))) end
    return missing(position(path), ("the file %s cannot be read: %s"):format(full, err or "unknown error"))
  end
  return names
end

--- The directory of a file, "." where the path names none.
-- @tparam string path
-- @treturn string
function M.dir(path)
  local dir = path:match("^(.*)/[^/]*$")
  if dir == "" then return "/" end
  return dir or "."
end

--- Runs a configuration file.
-- @tparam string path for messages, and what `file` is relative to
-- @tparam string source
-- @tparam table host `env(name, default)` gives a string or nil, `read(path)` the text or nil and why
-- @treturn table|nil what the file returned, unchecked; nil where there are faults
-- @treturn {table,...} faults, each { path = "gateway.lua:3", message }
-- @treturn {string,...} what came from `env` and `file`
function M.run(path, source, host)
  local state = { faults = {}, secrets = {} }
  local chunk, err = load(source, CHUNK, "t")
  if not chunk then return nil, { fault_of_error(path, err) }, state.secrets end
  setfenv(chunk, guarded(reader(state, path, host)))
  local ok, result = pcall(chunk)
  -- What is raised after something was missing is most likely its consequence.
  if #state.faults > 0 then return nil, state.faults, state.secrets end
  if not ok then return nil, { fault_of_error(path, result, state.raised) }, state.secrets end
  if type(result) ~= "table" then
    return nil, { { path = path, message = "must return a table, got " .. type(result) } }, state.secrets
  end
  return result, {}, state.secrets
end

return M
