-- Patterns of paths, such as "/tenants/{tenantId}/balance": segments that are literal or one field in braces. Plain
-- functions.

local M = {}

--- Reads a pattern.
-- @tparam string text
-- @treturn table|nil { pattern (of Lua), fields (names in order) }
-- @treturn string what is wrong
function M.parse(text)
  if text:sub(1, 1) ~= "/" then return nil, "must begin with /" end
  local out, fields, seen = {}, {}, {}
  for segment in (text:sub(2) .. "/"):gmatch("([^/]*)/") do
    local field = segment:match("^{([%a_][%w_]*)}$")
    if field and seen[field] then return nil, ("{%s} is there twice"):format(field) end
    if not field and segment:find("[{}]") then
      return nil, ("%q is neither a field in braces, such as {tenantId}, nor without braces"):format(segment)
    end
    if field then
      fields[#fields + 1], seen[field] = field, true
      out[#out + 1] = "([^/]+)"
    else
      out[#out + 1] = (segment:gsub("%p", "%%%0"))
    end
  end
  return { pattern = "^/" .. table.concat(out, "/") .. "$", fields = fields }
end

--- Percent-decodes (RFC 3986, section 2.1).
-- @tparam string text
-- @treturn string
function M.decode(text)
  return (text:gsub("%%(%x%x)", function(hex) return string.char(tonumber(hex, 16)) end))
end

--- The fields of a path.
-- @tparam table parsed of `parse`
-- @tparam string path as it came, percent-encoded
-- @treturn table|nil name → value; nil where the path is another one
function M.match(parsed, path)
  local found = { path:match(parsed.pattern) }
  if not found[1] then return nil end
  local values = {}
  for i, name in ipairs(parsed.fields) do values[name] = M.decode(found[i]) end
  return values
end

--- The parameters of a query.
-- @tparam string|nil query without "?"
-- @treturn table name → value, decoded; false where a parameter is there twice
function M.query(query)
  local values = {}
  for part in (query or ""):gmatch("[^&]+") do
    local name, value = part:match("^([^=]*)=?(.*)$")
    name, value = M.decode((name:gsub("+", " "))), M.decode((value:gsub("+", " ")))
    values[name] = values[name] == nil and value
  end
  return values
end

return M
