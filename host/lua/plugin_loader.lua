-- Finds plugins and loads them, with the modules that they require.
--
-- A plugin is NAME.lua or NAME/init.lua in a folder of `plugin_path` or among those that ship. A name stands for one file:
-- where there are two, neither is taken, since which of them runs would hang on the order of the folders.
--
-- `require` in a file of a plugin looks first in the plugin's own folder, then in the folder that holds the plugin, then where
-- Lua itself looks. A module is known by its file and not by its name: plugins of different folders may have modules of the same
-- name, and plugins that require one file share it. It is Lua's own `require` that runs the file, so that a loop is found and
-- a wait at file level is refused.
--
-- Each file has globals of its own, a copy of Lua's: to assign another one raises with file and line, while it loads and
-- later (`rawset(_G, name, value)` is the way around); what a file puts in the place of a known one stays in it.

local M = {}

local PHASES = { "check", "init", "stop", "access", "target", "attempt", "response", "body", "finish", "log",
  "command" }

-- Reads a file; what is read is what a reload looks at, and what every worker loads. Set by M.new.
local read

local function exists(path)
  return read(path) ~= nil
end

-- As loadfile, which skips a first line that begins with #.
local function compile(path, env)
  local text, err = read(path)
  if not text then return nil, err end
  return load(text:gsub("^#[^\n]*", ""), "@" .. path, "t", env)
end

local function refuse_global(_, name)
  error(("assignment to the undeclared global '%s'; write: local %s"):format(tostring(name), tostring(name)), 2)
end

local Loader = {}
Loader.__index = Loader

-- The folders in which a file's `require` looks; two where the file belongs to a plugin that is a folder:
-- "…/plugins/stamp/words.lua" gives "…/plugins/stamp", "…/plugins".
function Loader:roots(path)
  local home = ""
  for _, dir in ipairs(self.dirs) do
    if #dir > #home and path:sub(1, #dir + 1) == dir .. "/" then home = dir end
  end
  local own = path:match("^[^/]+/", #home + 2)
  own = own and home .. "/" .. own:sub(1, -2)
  return own and exists(own .. "/init.lua") and { own, home } or { home }
end

-- A module's file; or nil and the files that are not there.
local function search(roots, name)
  local tried, file = {}, name:gsub("%.", "/")
  for _, root in ipairs(roots) do
    for _, tail in ipairs { ".lua", "/init.lua" } do
      local path = root .. "/" .. file .. tail
      if exists(path) then return path end
      tried[#tried + 1] = path
    end
  end
  return nil, tried
end

function Loader:require(roots, name)
  if type(name) ~= "string" then error("require needs the name of a module, not a " .. type(name), 3) end
  local path, tried = search(roots, name)
  if path then return self:run(path, name) end
  local ok, found = pcall(require, name)
  if ok then return found end
  if tostring(found):find("module '" .. name .. "' not found:", 1, true) then
    error(("module '%s' not found: there is no %s, and none where Lua looks for installed ones"):format(name,
      table.concat(tried, ", no ")), 3)
  end
  error(found, 0)
end

function Loader:environment(path)
  local env, roots = {}, self:roots(path)
  for name, value in pairs(_G) do env[name] = value end
  env.require = function(name) return (self:require(roots, name)) end
  return setmetatable(env, { __index = _G, __newindex = refuse_global })
end

-- Runs a file once, by Lua's require under the file's path; returns what require does, and what the file returned.
function Loader:run(path, name)
  if not package.loaded[path] then
    local chunk, err = compile(path, self:environment(path))
    if not chunk then error(err:find(":%d+: ") and err or path .. ": " .. err, 0) end
    package.preload[path] = function()
      local value = chunk(name)
      self.returned[path] = value
      return value
    end
  end
  return require(path), self.returned[path]
end

-- All files that could be meant by the name.
function Loader:find(name)
  local found = {}
  for _, dir in ipairs(self.dirs) do
    for _, path in ipairs { dir .. "/" .. name .. ".lua", dir .. "/" .. name .. "/init.lua" } do
      if exists(path) then found[#found + 1] = path end
    end
  end
  return found
end

-- The names of all plugins that could be loaded, for suggestions.
function Loader:names()
  local names = {}
  for _, dir in ipairs(self.dirs) do
    for _, entry in ipairs(self.list(dir)) do
      local name = entry:match("^(.+)%.lua$") or exists(dir .. "/" .. entry .. "/init.lua") and entry
      names[#names + 1] = name or nil
    end
  end
  return names
end

-- A plugin's table; or nil and what is wrong, with file and line where there is one.
function Loader:plugin(path, name)
  local ok, err, plugin = pcall(self.run, self, path, name)
  if not ok then
    return nil, type(err) == "string" and err or ("%s: raised a %s, not a message"):format(path, type(err))
  end
  if type(plugin) ~= "table" then
    return nil, path .. ": a plugin file must return a table, not " .. type(plugin)
  end
  for _, phase in ipairs(PHASES) do
    local kind = type(plugin[phase])
    if kind ~= "nil" and kind ~= "function" then
      return nil, ("%s: %s must be a function, not %s"):format(path, phase, kind)
    end
  end
  return plugin
end

--- Makes what `config.resolve_plugins` loads plugins by.
-- @tparam {string,...} dirs folders
-- @tparam table system `read(path)` gives a file's text, or nil and why; `list(folder)` the names in it; `real(path)` the path
-- without links, or nil
-- @treturn function (name) → the plugin's table; or nil, a message (nil: no such plugin), and the names that there are
function M.new(dirs, system)
  read = system.read
  local self = setmetatable({ dirs = {}, list = system.list, returned = {} }, Loader)
  local seen = {}
  for _, dir in ipairs(dirs) do
    local real = system.real(dir) or dir
    if not seen[real] then self.dirs[#self.dirs + 1] = (dir:gsub("(.)/+$", "%1")) end
    seen[real] = true
  end
  return function(name)
    local found = self:find(name)
    if #found == 0 then return nil, nil, self:names() end
    if #found > 1 then
      return nil, ("there is more than one plugin of this name, %s; rename or remove all but one"):format(
        table.concat(found, " and "))
    end
    return self:plugin(found[1], name)
  end
end

return M
