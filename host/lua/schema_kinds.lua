-- The kinds of value that a schema may name, and the walk that checks a value against them.
--
-- A walk collects every fault and goes on; it builds a new value with defaults filled in and never touches the one it
-- was given. `run` is { faults = {…}, dir = directory that paths are relative to, or nil }.

local text = require "tollgate.schema_text"

local M = {}
local kinds = {}
M.kinds = kinds

local DEPTH_MAX = 32   -- of free-form data; deeper is a cycle or a mistake
local QUOTE_MAX = 40   -- bytes of a wrong value that a message repeats
local UNITS = { [""] = 1, k = 1024, m = 1024 ^ 2, g = 1024 ^ 3 }
local INTEGER_MAX = 2 ^ 53 -- above it doubles skip integers

local function fault(run, path, message)
  run.faults[#run.faults + 1] = { path = path, message = message }
end

local function article(word)
  return (word:find("^[aeiou]") and "an " or "a ") .. word
end

local function got(value)
  return value == nil and "nothing" or article(type(value))
end

local function mismatch(run, path, wanted, value)
  fault(run, path, ("must be %s, got %s"):format(wanted, got(value)))
end

local function bounds(run, field, n, path, unit)
  if field.min and n < field.min then
    fault(run, path, ("must be at least %s%s"):format(text.number(field.min), unit))
  elseif field.exclusive_min and n <= field.exclusive_min then
    fault(run, path, ("must be more than %s%s"):format(text.number(field.exclusive_min), unit))
  elseif field.max and n > field.max then
    fault(run, path, ("must be at most %s%s"):format(text.number(field.max), unit))
  end
  return n
end

-- Each kind: `wanted` for messages, `lua` the Lua types it may be written as, `walk` the check.

kinds.string = {
  wanted = "a string", lua = { string = true },
  walk = function(run, field, value, path)
    if value == "" and field.min and field.min > 0 then return fault(run, path, "must not be empty") end
    bounds(run, field, #value, path, " bytes long")
    if field.pattern and not value:find(field.pattern) then
      fault(run, path, field.hint or "does not match the pattern " .. field.pattern)
    end
    return value
  end,
}

kinds.path = {
  wanted = "a path (a string)", lua = { string = true },
  walk = function(run, _, value, path)
    if value == "" then return fault(run, path, "must not be empty") end
    if value:find("%z") then return fault(run, path, "must not hold a zero byte") end
    return text.resolve(run.dir, value)
  end,
}

kinds.number = {
  wanted = "a number", lua = { number = true },
  walk = function(run, field, value, path)
    if value ~= value or value == math.huge or value == -math.huge then
      return fault(run, path, "must be a finite number")
    end
    return bounds(run, field, value, path, "")
  end,
}

kinds.integer = {
  wanted = "an integer", lua = { number = true },
  walk = function(run, field, value, path)
    if value ~= math.floor(value) or math.abs(value) >= INTEGER_MAX then
      return fault(run, path, "must be an integer below 2^53")
    end
    return bounds(run, field, value, path, "")
  end,
}

kinds.boolean = {
  wanted = "true or false", lua = { boolean = true },
  walk = function(_, _, value) return value end,
}

kinds.duration = {
  wanted = "a number of seconds", lua = { number = true },
  walk = function(run, field, value, path)
    if not (value > 0 and value < math.huge) then
      return fault(run, path, "must be a number of seconds above 0")
    end
    return bounds(run, field, value, path, " seconds")
  end,
}

kinds.size = {
  wanted = 'a size in bytes (65536 or "64k")', lua = { number = true, string = true },
  walk = function(run, field, value, path)
    local n = value
    if type(value) == "string" then
      local digits, unit = value:lower():match("^(%d+)([kmg]?)$")
      n = digits and tonumber(digits) * UNITS[unit]
    end
    if not n or n ~= math.floor(n) or n < 0 or n >= INTEGER_MAX then
      return fault(run, path, 'must be a size in bytes: an integer, or one with k, m or g such as "64k"')
    end
    return bounds(run, field, n, path, " bytes")
  end,
}

kinds.list = {
  wanted = "a list", lua = { table = true },
  walk = function(run, field, value, path)
    local n = 0
    for key in pairs(value) do
      if type(key) ~= "number" then
        return fault(run, path, ("must be a list, but has the key %s"):format(text.quote(tostring(key), QUOTE_MAX)))
      end
      n = n + 1
    end
    for i = 1, n do
      if value[i] == nil then return fault(run, path, "must be a list without holes: item " .. i .. " is missing") end
    end
    if field.min and n < field.min then
      fault(run, path, ("must have at least %d item%s"):format(field.min, field.min == 1 and "" or "s"))
    elseif field.max and n > field.max then
      fault(run, path, ("must have at most %d item%s, has %d"):format(field.max, field.max == 1 and "" or "s", n))
    end
    local out = {}
    for i = 1, n do out[i] = M.walk(run, field.of, value[i], text.join(path, i)) end
    return out
  end,
}

kinds.map = {
  wanted = "a table", lua = { table = true },
  walk = function(run, field, value, path)
    local out = {}
    for _, key in ipairs(text.sorted_keys(value)) do
      local at = text.join(path, key)
      if type(key) ~= "string" then
        fault(run, at, "must have a name, not " .. got(key) .. " for a key")
      elseif field.keys and not key:find(field.keys) then
        fault(run, at, field.hint or "the name does not match the pattern " .. field.keys)
      else
        out[key] = M.walk(run, field.values, value[key], at)
      end
    end
    return out
  end,
}

-- A table whose item 1, which has no name, stands for the field `first`.
local function with_first(run, first, value, path)
  if value[1] == nil then return value end
  if value[first] ~= nil then
    fault(run, text.join(path, first), "is there twice: by name, and as the item without a name")
  end
  local named = {}
  for key, item in pairs(value) do named[key] = item end
  named[first], named[1] = value[1], nil
  return named
end

kinds.table = {
  wanted = "a table", lua = { table = true },
  walk = function(run, field, value, path)
    if field.first then value = with_first(run, field.first, value, path) end
    return M.fields(run, field.fields, value, path)
  end,
}

local function copy(run, value, path, depth)
  if type(value) ~= "table" then
    local plain = type(value) == "string" or type(value) == "number" or type(value) == "boolean"
    if not plain then fault(run, path, "must be plain data, got " .. got(value)) end
    return value
  end
  if depth >= DEPTH_MAX then return fault(run, path, ("is nested more than %d deep"):format(DEPTH_MAX)) end
  local out = {}
  for _, key in ipairs(text.sorted_keys(value)) do
    local at = text.join(path, key)
    if type(key) ~= "string" and type(key) ~= "number" then
      fault(run, at, "must have a string or a number for a key, got " .. got(key))
    else
      out[key] = copy(run, value[key], at, depth + 1)
    end
  end
  return out
end

kinds.any = {
  wanted = "a value", lua = { string = true, number = true, boolean = true, table = true },
  walk = function(run, _, value, path) return copy(run, value, path, 0) end,
}

local function has_names(value)
  for key in pairs(value) do
    if type(key) ~= "number" then return true end
  end
  return false
end

--- Whether a value may be meant for a field, judged by its Lua type (a table with an item 1 is a list, unless the field
-- has a `first` and the table names too).
-- @tparam table field
-- @param value
-- @treturn boolean
function M.fits(field, value)
  if field.alternatives then
    for _, one in ipairs(field.alternatives) do
      if M.fits(one, value) then return true end
    end
    return false
  end
  if not kinds[field.type].lua[type(value)] then return false end
  if type(value) == "table" and field.first then return has_names(value) and value[2] == nil end
  if type(value) ~= "table" or field.type == "any" or next(value) == nil then return true end
  return (value[1] ~= nil) == (field.type == "list")
end

local function wanted(field)
  if field.alternatives then
    local names = {}
    for i, one in ipairs(field.alternatives) do names[i] = wanted(one) end
    return table.concat(names, " or ")
  end
  if field.type == "boolean" and field.one_of and #field.one_of == 1 then return tostring(field.one_of[1]) end
  return kinds[field.type].wanted
end

-- The first alternative that takes the value; where none does, the faults of the first that it may be meant for.
local function walk_alternatives(run, field, value, path)
  local first
  for _, one in ipairs(field.alternatives) do
    if M.fits(one, value) then
      local trial = { faults = {}, dir = run.dir }
      local out = M.walk(trial, one, value, path)
      if #trial.faults == 0 then return out end
      first = first or trial.faults
    end
  end
  if not first then return mismatch(run, path, wanted(field), value) end
  for _, one in ipairs(first) do fault(run, one.path, one.message) end
end

local function check_one_of(run, field, value, path)
  local names = {}
  for i, one in ipairs(field.one_of) do
    if one == value then return end
    names[i] = text.render(one)
  end
  local message = "must be " .. (#names > 1 and "one of " or "") .. table.concat(names, ", ")
  if type(value) == "string" and not field.secret then
    local near = text.nearest(value, field.one_of)
    message = message .. ", got " .. text.quote(value, QUOTE_MAX)
      .. (near and (" (did you mean %s?)"):format(text.quote(near)) or "")
  end
  fault(run, path, message)
end

local function check_custom(run, field, value, path)
  local ok, found = pcall(field.check, value, path)
  if not ok then return fault(run, path, "its check raised: " .. tostring(found)) end
  if type(found) == "string" then return fault(run, path, found) end
  for _, one in ipairs(found or {}) do fault(run, one.path or path, one.message) end
end

--- Checks one value; faults go to `run.faults`.
-- @tparam table run
-- @tparam table field
-- @param value
-- @tparam string path
-- @return the new value, of no meaning where a fault was found
function M.walk(run, field, value, path)
  local before = #run.faults
  local out
  if field.alternatives then
    out = walk_alternatives(run, field, value, path)
  else
    local kind = kinds[field.type]
    if not kind.lua[type(value)] then return mismatch(run, path, wanted(field), value) end
    out = kind.walk(run, field, value, path)
  end
  if #run.faults == before and field.one_of then check_one_of(run, field, out, path) end
  if #run.faults == before and field.check then check_custom(run, field, out, path) end
  return out
end

--- Checks a table against named fields; unknown names are faults.
-- @tparam table run
-- @tparam table fields name to field
-- @tparam table value
-- @tparam string path
-- @treturn table a new table with defaults filled in
function M.fields(run, fields, value, path)
  local names, out = text.sorted_keys(fields), {}
  for _, key in ipairs(text.sorted_keys(value)) do
    if fields[key] == nil then
      fault(run, text.join(path, key), "unknown key" .. text.suggest(key, names))
    end
  end
  for _, name in ipairs(names) do
    local field, given, at = fields[name], value[name], text.join(path, name)
    if given == nil then given = field.default end
    if given ~= nil then
      out[name] = M.walk(run, field, given, at)
    elseif field.required then
      fault(run, at, "is required")
    end
  end
  return out
end

return M
