-- The settings of the plugins that ship, as Markdown: for each the comment that opens its file, and a row for each field of
-- its schema.

local schema = require "reference_schema"
local text = require "reference_text"

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
      out[#out + 1] = ("| `%s%s` | %s | %s | %s |"):format(prefix, name, schema.kind(field), schema.default(field),
        text.escape(field.doc or ""):gsub("|", "\\|"))
    end
    local inner = field.fields or field.values and field.values.fields
    if inner then rows(out, inner, prefix .. name .. (field.fields and "." or ".NAME."), top) end
  end
end

local function section(root, name, path, plugin)
  local comment = text.opening(text.read(root, path)):gsub("^" .. name .. ": ", ""):gsub("^%l", string.upper)
  local out = { ("## %s (priority %d%s)\n\n%s\n"):format(name, plugin.priority or schema.PRIORITY,
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
  local all = schema.plugins(root)
  for i, one in ipairs(all) do all[i] = section(root, one.name, one.path, one.plugin) end
  return table.concat(all, "\n")
end
