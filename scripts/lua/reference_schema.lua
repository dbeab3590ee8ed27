-- Schemas of the configuration and of plugins, read from the sources, and their fields in words: for documents in Markdown
-- and for manual pages.

local text = require "reference_text"

local M = { PRIORITY = 100 } -- of a plugin that names none

local EXACT_MAX = 2 ^ 53 - 1

local function literal(value)
  if type(value) == "table" then
    local parts = {}
    for i, item in ipairs(value) do parts[i] = literal(item) end
    return #parts == 0 and "{}" or "{ " .. table.concat(parts, ", ") .. " }"
  end
  return type(value) == "string" and ("%q"):format(value) or tostring(value)
end

local function bound(n) return n == EXACT_MAX and "2^53 - 1" or ("%.15g"):format(n) end

local function size(n)
  for _, unit in ipairs { "g", "m", "k" } do
    local bytes = ({ k = 2 ^ 10, m = 2 ^ 20, g = 2 ^ 30 })[unit]
    if n > 0 and n % bytes == 0 then return ("%d%s"):format(n / bytes, unit) end
  end
  return bound(n)
end

local function bounds(field)
  local low, high = field.min, field.max
  local show = field.type == "size" and size or bound
  if field.type == "string" then return low and low > 1 and (", at least %d bytes"):format(low) or "" end
  if field.type == "list" then return low and (", at least %d"):format(low) or "" end
  if field.exclusive_min then return " > " .. show(field.exclusive_min) end
  if low and high then return (" %s to %s"):format(show(low), show(high)) end
  return low and " ≥ " .. show(low) or high and " ≤ " .. show(high) or ""
end

--- A field's type and bounds; values in `code spans`.
-- @tparam table field
-- @tparam[opt] boolean short of a table only that it is one
-- @treturn string
function M.kind(field, short)
  if field.alternatives then
    local parts = {}
    for i, one in ipairs(field.alternatives) do parts[i] = M.kind(one, short) end
    return table.concat(parts, ", or ")
  elseif field.one_of then
    local parts = {}
    for i, value in ipairs(field.one_of) do parts[i] = "`" .. literal(value) .. "`" end
    return table.concat(parts, ", ")
  elseif field.type == "list" then
    return "list of " .. M.kind(field.of, short) .. bounds(field)
  elseif field.type == "map" then
    return "name → " .. M.kind(field.values, short)
  elseif field.type == "table" and not short then
    return "table of `" .. table.concat(text.sorted(field.fields), "`, `") .. "`"
  end
  return (field.type == "duration" and "seconds" or field.type) .. bounds(field)
end

--- What a field is where it is left out, or "required"; "" where there is nothing to say.
function M.default(field)
  if field.required then return "required" end
  return field.default ~= nil and "`" .. literal(field.default) .. "`" or ""
end

-- A module that is loaded for its schema alone: whatever it calls of the host at file level gives this.
local nothing = setmetatable({}, {})
getmetatable(nothing).__index = function() return nothing end
getmetatable(nothing).__call = function() return nothing end

--- The plugins that ship, by priority.
-- @tparam string root of the source tree
-- @treturn {table,...} each { name, path, plugin }
function M.plugins(root)
  setmetatable(package.preload, { __index = function(_, name)
    return name:match("^tollgate%f[.%z]") and function() return nothing end or nil
  end })
  package.path = root .. "/plugins/?.lua;" .. root .. "/plugins/?/init.lua;" .. package.path
  local all = {}
  for _, path in ipairs(text.list(root, "plugins/*.lua plugins/*/init.lua")) do
    local name = path:match("^plugins/([^/.]+)")
    all[#all + 1] = { name = name, path = path, plugin = require(name) }
  end
  table.sort(all, function(a, b) return (a.plugin.priority or M.PRIORITY) > (b.plugin.priority or M.PRIORITY) end)
  return all
end

--- The fields of gateway.lua.
-- @tparam string root of the source tree
-- @treturn table name → field
function M.configuration(root)
  local loaded = {}
  local function load_module(name)
    local file = name:match("^tollgate%.([%w_]+)$")
    if not file then return nothing end
    if not loaded[name] then
      local chunk = assert(loadfile(root .. "/host/lua/" .. file .. ".lua"))
      setfenv(chunk, setmetatable({ require = load_module }, { __index = _G }))
      loaded[name] = chunk()
    end
    return loaded[name]
  end
  return load_module "tollgate.config_schema"
end

return M
