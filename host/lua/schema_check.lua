-- Checks schemas themselves, so that a plugin author's slip is a sentence at load and not a strange refusal later.
--
-- A field is well formed when its kind is known, every attribute belongs to that kind and has the right type, bounds
-- are in order, and its default passes the field's own check.

local text = require "tollgate.schema_text"
local kinds = require "tollgate.schema_kinds"

local M = {}

local DEPTH_MAX = 32 -- a schema deeper than this contains itself

local COMMON = {
  type = "string", required = "boolean", default = "any", doc = "string", secret = "any", check = "function",
  one_of = "table",
}
local OWN = {
  string = { min = "number", max = "number", pattern = "string", hint = "string" },
  path = {},
  number = { min = "number", max = "number", exclusive_min = "number" },
  integer = { min = "number", max = "number", exclusive_min = "number" },
  boolean = {},
  duration = { min = "number", max = "number" },
  size = { min = "number", max = "number" },
  list = { of = "table", min = "number", max = "number" },
  map = { keys = "string", values = "table", hint = "string" },
  table = { fields = "table", first = "string" },
  any = {},
}
local ALTERNATIVES = {
  alternatives = "table", required = "boolean", default = "any", doc = "string", secret = "any", check = "function",
}

local check_field, check_fields

local function add(faults, path, message)
  faults[#faults + 1] = { path = path, message = message }
end

local function known_attributes(field)
  if field.alternatives ~= nil then return ALTERNATIVES end
  local known = {}
  for name, kind in pairs(COMMON) do known[name] = kind end
  for name, kind in pairs(OWN[field.type]) do known[name] = kind end
  return known
end

local function check_attributes(faults, field, path)
  local known = known_attributes(field)
  local names = text.sorted_keys(known)
  for _, name in ipairs(text.sorted_keys(field)) do
    local at, wanted = text.join(path, name), known[name]
    if not wanted then
      local of = field.alternatives and "a field with alternatives" or "a field of type " .. field.type
      add(faults, at, ("unknown attribute of %s%s"):format(of, text.suggest(name, names)))
    elseif wanted ~= "any" and type(field[name]) ~= wanted then
      add(faults, at, ("must be a %s, got a %s"):format(wanted, type(field[name])))
    end
  end
end

local function check_rules(faults, field, path)
  if field.required and field.default ~= nil then
    add(faults, path, "has both required and default")
  end
  if field.min and field.max and field.min > field.max then
    add(faults, path, ("min %s is above max %s"):format(text.number(field.min), text.number(field.max)))
  end
  if field.one_of and #field.one_of == 0 then add(faults, text.join(path, "one_of"), "must be a list of values") end
  if field.first and type(field.fields) == "table" and field.fields[field.first] == nil then
    add(faults, text.join(path, "first"), "names none of its fields")
  end
  if field.secret ~= nil and type(field.secret) ~= "boolean" and type(field.secret) ~= "function" then
    add(faults, text.join(path, "secret"), "must be true, or a function from the value to what is printed")
  end
  for _, name in ipairs { "pattern", "keys" } do
    local ok, err = pcall(string.find, "", field[name] or "")
    if not ok then add(faults, text.join(path, name), "is no Lua pattern: " .. tostring(err)) end
  end
end

local function check_parts(faults, field, path, depth)
  local part = ({ list = "of", map = "values", table = "fields" })[field.type]
  if field.alternatives then
    if #field.alternatives == 0 then
      add(faults, text.join(path, "alternatives"), "must be a list of fields")
    end
    for i, one in ipairs(field.alternatives) do
      check_field(faults, one, text.join(text.join(path, "alternatives"), i), depth + 1)
    end
  elseif part and field[part] == nil then
    add(faults, path, ("a field of type %s needs %s"):format(field.type, part))
  elseif part == "fields" then
    check_fields(faults, field.fields, text.join(path, "fields"), depth + 1)
  elseif part then
    check_field(faults, field[part], text.join(path, part), depth + 1)
  end
end

local function check_default(faults, field, path)
  if field.default == nil then return end
  local run = { faults = {} }
  kinds.walk(run, field, field.default, text.join(path, "default"))
  for _, one in ipairs(run.faults) do add(faults, one.path, one.message) end
end

function check_field(faults, field, path, depth)
  if depth > DEPTH_MAX then return add(faults, path, "contains itself") end
  if type(field) ~= "table" then
    return add(faults, path, ("must be a field such as { type = \"string\" }, got a %s"):format(type(field)))
  end
  if field.alternatives == nil then
    if field.type == nil then return add(faults, path, "has no type") end
    if not OWN[field.type] then
      local names = text.sorted_keys(OWN)
      return add(faults, text.join(path, "type"), ("unknown type %s%s; the types are %s"):format(
        text.render(field.type), text.suggest(field.type, names), table.concat(names, ", ")))
    end
  end
  local before = #faults
  check_attributes(faults, field, path)
  if #faults > before then return end
  check_rules(faults, field, path)
  check_parts(faults, field, path, depth)
  if #faults == before then check_default(faults, field, path) end
end

function check_fields(faults, fields, path, depth)
  if type(fields) ~= "table" then
    return add(faults, path, ("must be a table of fields, got a %s"):format(type(fields)))
  end
  for _, name in ipairs(text.sorted_keys(fields)) do
    local at = text.join(path, name)
    if type(name) ~= "string" then
      add(faults, at, "the name of a field must be a string")
    else
      check_field(faults, fields[name], at, depth)
    end
  end
end

--- Checks a table of fields.
-- @tparam table fields
-- @tparam[opt=""] string path what messages begin with
-- @treturn {table,...} faults, each { path, message }; empty where all is well
function M.check(fields, path)
  local faults = {}
  check_fields(faults, fields, path or "", 0)
  return faults
end

return M
