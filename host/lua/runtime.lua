-- What runs first in every generation's Lua state: coroutines that let a host wait pass outwards, globals that cannot be
-- made by accident, and the loading of configuration and plugins. The host calls the functions of the table returned.
local WAIT = ...

require "tollgate.iteration"

local M = {}

-- A wait of the host leaves a coroutine by a yield of WAIT. A plugin's own coroutine hands it on to whoever resumed it, so
-- tg.timer.sleep and the like work at any depth.
local resume, yield, create, isyieldable = coroutine.resume, coroutine.yield, coroutine.create, coroutine.isyieldable
local error = error

local function pass(co, ok, first, ...)
  if ok and first == WAIT then
    if not isyieldable() then
      error("a coroutine cannot wait here: LuaJIT cannot yield across the C function that called the code which resumed it "
        .. "(table.sort, string.gsub, require, …)", 2)
    end
    return pass(co, resume(co, yield(WAIT)))
  end
  return ok, first, ...
end

function coroutine.resume(co, ...)
  return pass(co, resume(co, ...))
end

local function unwrap(ok, ...)
  if not ok then
    error((...), 0)
  end
  return ...
end

function coroutine.wrap(fn)
  local co = create(fn)
  return function(...)
    return unwrap(pass(co, resume(co, ...)))
  end
end

-- LuaJIT begins with the same numbers in every state. Who draws one in order to keep out of others' way, as before another
-- try, would go in step with all workers and replicas.
math.randomseed(tonumber(require("tollgate").crypto.random(6, "hex"), 16))

-- Reads a file; set by M.load. What is read here is what a reload looks at, and what every worker loads.
local read

-- As loadfile, which skips a first line that begins with #.
local function compile(path, text)
  return load(text:gsub("^#[^\n]*", ""), "@" .. path, "t")
end

-- In the place of the searcher for Lua files, so that modules are read as plugins are.
local function search(name)
  local tried = {}
  for template in package.path:gmatch("[^;]+") do
    local path = template:gsub("%?", (name:gsub("%.", "/")))
    local text = read(path)
    if text then
      local chunk, err = compile(path, text)
      return chunk or error(("error loading module '%s' from file '%s':\n\t%s"):format(name, path, err), 0)
    end
    tried[#tried + 1] = "\n\tno file '" .. path .. "'"
  end
  return table.concat(tried)
end

-- From now on an assignment to an undeclared global is an error that names its place, for code too that does not come from a
-- file of a plugin (see plugin_loader.lua).
local function seal()
  setmetatable(_G, {
    __newindex = function(_, name)
      error(("assignment to the undeclared global '%s'; write: local %s"):format(tostring(name), tostring(name)), 2)
    end,
  })
end

--- Loads the configuration and its plugins.
-- @tparam string path of gateway.lua
-- @tparam string shipped folder of the plugins that ship
-- @tparam table host `read(path)` gives a file's text, or nil and why; `env(name)` a string or nil; `list(folder)` the names
-- in it; `real(path)` the path without links, or nil; `become(user)` makes us that user, or says why not; `policy(path)` the
-- text of a routing policy that is kept there, or nil
-- @treturn table the resolved configuration, or nil
-- @treturn string faults, one a line
function M.load(path, shipped, host)
  read = host.read
  host.json = require "tollgate".json
  package.loaders[2] = search
  local config = require "tollgate.config"
  local function text_of(faults)
    local lines = {}
    for i, fault in ipairs(faults) do
      lines[i] = config.format(fault)
    end
    return table.concat(lines, "\n")
  end
  local conf, faults = config.load(path, host)
  if not conf then
    return nil, text_of(faults)
  end
  local refused = conf.user and host.become(conf.user)
  if refused then
    return nil, "user: " .. refused
  end
  local dirs = {}
  for i, dir in ipairs(conf.plugin_path) do
    dirs[i] = dir
  end
  dirs[#dirs + 1] = shipped
  seal()
  conf, faults = config.resolve_plugins(conf, require("tollgate.plugin_loader").new(dirs, host))
  if not conf then
    return nil, text_of(faults)
  end
  return conf
end

--- The effective configuration as Lua text, secrets masked.
function M.print(conf)
  return require("tollgate.config").print(conf)
end

return M
