-- Writes a Lua value as Lua source, for configurations that specs build as tables: keys in a fixed order,
-- strings quoted, `raw(text)` for an expression such as `env "NAME"`.
local M = {}

local Raw = {}

--- An expression to be written as it is.
function M.raw(text) return setmetatable({ text = text }, Raw) end

local function format_key(key)
  if type(key) == "string" and key:match("^[%a_][%w_]*$") then return key end
  return "[" .. M.format(key) .. "]"
end

local function format_table(value, indent)
  local inner, parts, keys = indent .. "  ", {}, {}
  for i = 1, #value do parts[i] = inner .. M.format(value[i], inner) end
  for key in pairs(value) do
    if type(key) ~= "number" or key < 1 or key > #value or key % 1 ~= 0 then keys[#keys + 1] = key end
  end
  table.sort(keys, function(a, b) return tostring(a) < tostring(b) end)
  for _, key in ipairs(keys) do
    parts[#parts + 1] = inner .. format_key(key) .. " = " .. M.format(value[key], inner)
  end
  if #parts == 0 then return "{}" end
  return "{\n" .. table.concat(parts, ",\n") .. ",\n" .. indent .. "}"
end

function M.format(value, indent)
  if getmetatable(value) == Raw then return value.text end
  if type(value) == "table" then return format_table(value, indent or "") end
  if type(value) == "string" then return (("%q"):format(value):gsub("\\\n", "\\n"):gsub("\r", "\\r")) end
  if type(value) == "number" then return ("%.17g"):format(value) end
  return tostring(value)
end

return M
