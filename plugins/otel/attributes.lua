-- Values in the JSON mapping of OTLP (opentelemetry-proto, docs/specification.md, "JSON Protobuf Encoding"): 64-bit integers
-- are strings, ids hexadecimal, enumerations numbers. Without I/O.

local M = {}

local function whole(n) return n == math.floor(n) and math.abs(n) < 2 ^ 53 end

--- A value as AnyValue.
-- @tparam string|number|boolean value a number must be finite
-- @treturn table
function M.value(value)
  if type(value) == "boolean" then return { boolValue = value } end
  if type(value) ~= "number" then return { stringValue = tostring(value) } end
  if whole(value) then return { intValue = ("%.0f"):format(value) } end
  return { doubleValue = value }
end

--- Attributes as a list of KeyValue, sorted by name.
-- @tparam table map name → string, number or boolean
-- @treturn {table,...}
function M.list(map)
  local names, list = {}, {}
  for name in pairs(map) do names[#names + 1] = name end
  table.sort(names)
  for i, name in ipairs(names) do list[i] = { key = name, value = M.value(map[name]) } end
  return list
end

--- A time as fixed64 text.
-- @tparam number seconds since the epoch
-- @treturn string nanoseconds
function M.nanoseconds(seconds)
  return ("%.0f000"):format(seconds * 1e6)
end

return M
