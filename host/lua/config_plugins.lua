-- Which plugins run on a route, with which settings, and in which order.
--
-- A route's settings of a plugin take the place of the global ones, `false` switches it off, a list of settings makes
-- it stand several times. Settings are checked against the plugin's own schema, where each plugin also has `on_error`:
-- "fail" (a plugin that raises makes its request a 500) or "skip" (the request goes on without it).

local schema = require "tollgate.schema"

local M = {}

local PRIORITY = 100 -- of a plugin that names none
local ON_ERROR = { type = "string", one_of = { "fail", "skip" }, default = "fail",
  doc = "what becomes of a request in which the plugin raises" }

-- The settings of one plugin as a list, each { name, index, conf, path }.
local function instances(name, value, path)
  if value == nil or value == false then return {} end
  if value[1] == nil then return { { name = name, index = 1, conf = value, path = path } } end
  local list = {}
  for i, conf in ipairs(value) do
    list[i] = { name = name, index = i, conf = conf, path = schema.join(path, i) }
  end
  return list
end

--- The plugins of one route, with settings as they were written, by name.
-- @tparam table global `plugins` of the configuration
-- @tparam table own `plugins` of the route
-- @tparam string path of the route's plugins
-- @treturn {table,...} each { name, index, conf, path }
function M.chain(global, own, path)
  local all, chain = {}, {}
  for name in pairs(global) do all[name] = true end
  for name in pairs(own) do all[name] = true end
  for _, name in ipairs(schema.sorted_keys(all)) do
    local at, value = schema.join(path, name), own[name]
    if value == nil then at, value = schema.join("plugins", name), global[name] end
    for _, one in ipairs(instances(name, value, at)) do chain[#chain + 1] = one end
  end
  return chain
end

-- Plugins of scope "gateway" serve no route: they stand in the gateway's `plugins` alone, and run once in each worker.
local GATEWAY = "(gateway)" -- in the place of a route's name
local REQUEST_PHASES = { "access", "target", "attempt", "response", "body", "finish", "log" }

local Resolver = {}
Resolver.__index = Resolver

-- Global settings are looked at once for each route they serve; a fault is told once.
function Resolver:fault(path, message)
  local key = path .. "\n" .. message
  if self.seen[key] then return end
  self.seen[key] = true
  self.faults[#self.faults + 1] = { path = path, message = message }
end

function Resolver:load(name)
  local known = self.plugins[name]
  if known then return known end
  local plugin, message, names = self.load_plugin(name)
  if plugin ~= nil and type(plugin) ~= "table" then plugin, message = nil, "the plugin returned no table" end
  known = { plugin = plugin, message = message, names = names, usable = plugin ~= nil }
  self.plugins[name] = known
  if not plugin then return known end

  local at = "plugin " .. name
  local fields = plugin.schema or {}
  local _, faults = schema.check(fields, at .. ": schema")
  for _, one in ipairs(faults) do self:fault(one.path, one.message) end
  if plugin.priority ~= nil and type(plugin.priority) ~= "number" then
    self:fault(at, "priority must be a number")
    known.usable = false
  end
  if plugin.scope ~= nil and plugin.scope ~= "gateway" then
    self:fault(at, 'scope must be "gateway", or absent')
    known.usable = false
  end
  for _, phase in ipairs(plugin.scope == "gateway" and REQUEST_PHASES or {}) do
    if plugin[phase] then self:fault(at, "a plugin of scope \"gateway\" serves no request, so it cannot have " .. phase) end
  end
  if #faults > 0 then
    known.usable = false
    return known
  end
  if fields.on_error then
    self:fault(at .. ": schema.on_error", "every plugin has on_error; choose another name")
    known.usable = false
  end
  known.fields = { on_error = ON_ERROR }
  for key, field in pairs(fields) do known.fields[key] = field end
  return known
end

-- Checks one instance by its schema; returns what a chain holds, or nil.
function Resolver:instance(one)
  local known = self:load(one.name)
  if not known.plugin then
    local hint = known.names and schema.suggest(one.name, known.names) or ""
    return self:fault(one.path, (known.message or "unknown plugin") .. hint)
  end
  if not known.usable then return nil end
  local conf, faults = schema.validate(known.fields, one.conf, { path = one.path, dir = self.config.dir })
  for _, fault in ipairs(faults) do self:fault(fault.path, fault.message) end
  if not conf then return nil end
  local masked = schema.mask(known.fields, conf)
  local skip = conf.on_error == "skip"
  conf.on_error = nil
  return {
    name = one.name, index = one.index, path = one.path, conf = conf, masked = masked, skip_on_error = skip,
    plugin = known.plugin, priority = known.plugin.priority or PRIORITY,
  }
end

-- The plugin's own check of what a schema cannot say.
function Resolver:check(entry, route)
  local check = entry.plugin.check
  if not check then return end
  local ok, found = pcall(check, entry.conf, entry.path, { config = self.config, route = route })
  if not ok then return self:fault(entry.path, "the plugin's check raised: " .. tostring(found)) end
  if type(found) == "string" then found = { { message = found } } end
  for _, one in ipairs(found or {}) do self:fault(one.path or entry.path, one.message) end
end

local function by_priority(a, b)
  if a.priority ~= b.priority then return a.priority > b.priority end
  if a.name ~= b.name then return a.name < b.name end
  return a.index < b.index
end

-- What of the gateway's plugins serves no route.
function Resolver:gateway(global)
  local chain = {}
  for _, entry in ipairs(global) do
    if entry.plugin.scope == "gateway" then
      if entry.index > 1 then self:fault(entry.path, entry.name .. " may stand only once") end
      self:check(entry)
      chain[#chain + 1] = entry
    end
  end
  table.sort(chain, by_priority)
  return chain
end

function Resolver:route(route)
  local chain = {}
  for _, one in ipairs(route.chain) do
    local entry = self:instance(one)
    if entry and entry.plugin.scope == "gateway" then
      if one.path:find("^routes") then
        self:fault(one.path, one.name .. " serves no route; it belongs into the gateway's own plugins")
      end
    elseif entry then
      if entry.plugin.once and entry.index > 1 then
        self:fault(entry.path, entry.name .. " may stand only once on a route")
      end
      self:check(entry, route)
      chain[#chain + 1] = entry
    end
  end
  table.sort(chain, by_priority)
  return chain
end

-- What --print shows: one instance plain, several as a list, a switched-off plugin as false.
local function shown(entries, before)
  local groups, out = {}, {}
  for name, value in pairs(before) do
    if value == false then out[name] = false end
  end
  for _, entry in ipairs(entries) do
    groups[entry.name] = groups[entry.name] or {}
    groups[entry.name][entry.index] = entry.masked
    entry.masked = nil
  end
  for name, list in pairs(groups) do out[name] = #list == 1 and list[1] or list end
  return out
end

--- Checks the settings of all plugins and puts each route's chain in order; changes the configuration.
-- @tparam table config of `config.load`
-- @tparam function load_plugin (name) gives the plugin's table, or nil, a message (nil: unknown), and known names
-- @treturn {table,...} faults, each { path, message }; where there are some the chains are not to be used
function M.resolve(config, load_plugin)
  local self = setmetatable({
    config = config, load_plugin = load_plugin, faults = {}, seen = {}, plugins = {},
  }, Resolver)
  local global = {}
  for _, one in ipairs(M.chain(config.plugins, {}, "plugins")) do
    global[#global + 1] = self:instance(one)
  end
  config.effective.plugins = shown(global, config.plugins)
  config.chains = {}
  local gateway = self:gateway(global)
  for i, route in ipairs(config.routes) do
    route.chain = self:route(route)
    config.chains[i] = { name = route.name, chain = route.chain }
    config.effective.routes[i].plugins = shown(route.chain, config.effective.routes[i].plugins)
  end
  config.chains[#config.chains + 1] = { name = GATEWAY, chain = gateway }
  return self.faults
end

return M
