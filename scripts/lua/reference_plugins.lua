-- The settings of the plugins that ship, as Markdown: for each the comment that opens its file, and a row for each field of
-- its schema.

local text = require "reference_text"

local PRIORITY = 100 -- of a plugin that names none
local EXACT_MAX = 2 ^ 53 - 1

-- Plugins are loaded for their schemas alone: whatever they call of the host at file level gives this.
local nothing = setmetatable({}, {})
getmetatable(nothing).__index = function() return nothing end
getmetatable(nothing).__call = function() return nothing end
setmetatable(package.preload, { __index = function(_, name)
  return name:match("^tollgate%f[.%z]") and function() return nothing end or nil
end })

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

local function kind(field)
  if field.alternatives then
    local parts = {}
    for i, one in ipairs(field.alternatives) do parts[i] = kind(one) end
    return table.concat(parts, ", or ")
  elseif field.one_of then
    local parts = {}
    for i, value in ipairs(field.one_of) do parts[i] = "`" .. literal(value) .. "`" end
    return table.concat(parts, ", ")
  elseif field.type == "list" then
    return "list of " .. kind(field.of) .. bounds(field)
  elseif field.type == "map" then
    return "name → " .. kind(field.values)
  elseif field.type == "table" then
    return "table of `" .. table.concat(text.sorted(field.fields), "`, `") .. "`"
  end
  return (field.type == "duration" and "seconds" or field.type) .. bounds(field)
end

local function default(field)
  if field.required then return "required" end
  return field.default ~= nil and "`" .. literal(field.default) .. "`" or ""
end

-- Rows of a schema's fields, required ones first. A field of a nested table is left out where its like stands at the top.
local function rows(out, fields, prefix, top)
  local names = text.sorted(fields)
  table.sort(names, function(a, b)
    local first, second = fields[a].required or false, fields[b].required or false
    if first ~= second then return first end
    return a < b
  end)
  for _, name in ipairs(names) do
    local field = fields[name]
    if prefix == "" or not (top[name] and top[name].doc == field.doc) then
      out[#out + 1] = ("| `%s%s` | %s | %s | %s |"):format(prefix, name, kind(field), default(field),
        text.escape(field.doc or ""):gsub("|", "\\|"))
    end
    local inner = field.fields or field.values and field.values.fields
    if inner then rows(out, inner, prefix .. name .. (field.fields and "." or ".NAME."), top) end
  end
end

local function section(root, name, path, plugin)
  local comment = text.opening(text.read(root, path)):gsub("^" .. name .. ": ", ""):gsub("^%l", string.upper)
  local out = { ("## %s (priority %d%s)\n\n%s\n"):format(name, plugin.priority or PRIORITY,
    plugin.once and ", once a route" or "", comment) }
  if next(plugin.schema or {}) then
    out[#out + 1] = "| setting | type | default | |\n|---|---|---|---|"
    rows(out, plugin.schema, "", plugin.schema)
  end
  return table.concat(out, "\n") .. "\n"
end

--- What plugins/README.md says of each plugin, by priority.
-- @tparam string root of the source tree
-- @treturn string Markdown
return function(root)
  local all = {}
  package.path = root .. "/plugins/?.lua;" .. root .. "/plugins/?/init.lua;" .. package.path
  for _, path in ipairs(text.list(root, "plugins/*.lua plugins/*/init.lua")) do
    local name = path:match("^plugins/([^/.]+)")
    all[#all + 1] = { name = name, path = path, plugin = require(name) }
  end
  table.sort(all, function(a, b) return (a.plugin.priority or PRIORITY) > (b.plugin.priority or PRIORITY) end)
  for i, one in ipairs(all) do all[i] = section(root, one.name, one.path, one.plugin) end
  return table.concat(all, "\n")
end
