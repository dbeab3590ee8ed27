-- Schemas: what a table may hold, said once and used to check, to fill in defaults, and to print without secrets.
--
-- A schema is a table of fields by name. A field names its type: string (min, max, pattern, hint), path, number and
-- integer (min, max, exclusive_min), boolean, duration (seconds), size (bytes, or "64k"), list (of, min, max),
-- map (keys, values), table (fields; first: the field that an item without a name stands for), any; or it lists
-- `alternatives`. Every field may have required, default, doc, secret, one_of and check(value, path), which returns nil,
-- a message, or a list of { path, message }.
-- A table whose own fields have defaults needs `default = {}` for them to be filled in where it is left out.
--
-- All faults of a value are found at once, the value is never changed, and the result shares nothing with it.

local text = require "tollgate.schema_text"
local kinds = require "tollgate.schema_kinds"
local definition = require "tollgate.schema_check"

local M = {}

local MASK = "***"

M.nearest = text.nearest
M.suggest = text.suggest
M.join = text.join
M.render = text.render
M.sorted_keys = text.sorted_keys
M.resolve_path = text.resolve

--- Checks a table against a schema.
-- @tparam table fields
-- @param value what was configured
-- @tparam[opt] table options `path`: what fault paths begin with; `dir`: directory that `path` fields are relative to
-- @treturn table|nil a new table with defaults filled in; nil where there are faults
-- @treturn {table,...} faults, each { path, message }
function M.validate(fields, value, options)
  options = options or {}
  local path = options.path or ""
  local run = { faults = {}, dir = options.dir }
  local out = kinds.walk(run, { type = "table", fields = fields }, value, path)
  if #run.faults > 0 then return nil, run.faults end
  return out, run.faults
end

--- Checks a schema itself.
-- @tparam table fields
-- @tparam[opt=""] string path what messages begin with
-- @treturn boolean|nil true, or nil where it is malformed
-- @treturn {table,...} faults, each { path, message }
function M.check(fields, path)
  local faults = definition.check(fields, path)
  if #faults > 0 then return nil, faults end
  return true, faults
end

local function mask_field(field, value)
  field = field or {}
  if field.secret and (type(value) == "string" or type(value) == "number") then
    if type(field.secret) == "function" then return field.secret(value) end
    return MASK
  end
  if field.alternatives then
    for _, one in ipairs(field.alternatives) do
      if kinds.fits(one, value) then return mask_field(one, value) end
    end
  end
  if type(value) ~= "table" then return value end
  if field.secret then return MASK end
  local out = {}
  for key, item in pairs(value) do
    out[key] = mask_field(field.of or field.values or (field.fields or {})[key], item)
  end
  return out
end

--- Copies a value with its secrets masked.
-- @tparam table fields
-- @tparam table value as `validate` returned it
-- @treturn table
function M.mask(fields, value)
  return mask_field({ type = "table", fields = fields }, value)
end

--- A value as Lua source with sorted keys and secrets masked as "***".
-- @tparam table fields
-- @tparam table value as `validate` returned it
-- @treturn string
function M.print(fields, value)
  return text.render(M.mask(fields, value))
end

--- A fault as one line.
-- @tparam table fault { path, message }
-- @treturn string "routes[2].name: is required"
function M.format(fault)
  if fault.path == nil or fault.path == "" then return fault.message end
  return fault.path .. ": " .. fault.message
end

return M
