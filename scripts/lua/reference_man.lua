-- The manual page gateway.lua(5): what a configuration file is, each of its settings by the schema, and those of the plugins
-- that ship.

local schema = require "reference_schema"
local text = require "reference_text"

local INTRODUCTION = [[
.SH NAME
gateway.lua \- configuration of tollgate
.SH DESCRIPTION
The file is Lua 5.1 and returns a table of settings.
It sees nothing of the system but
.BR "env \(dqNAME\(dq" ,
the value of an environment variable, and
.BR "file \(dqPATH\(dq" ,
the content of a file without its last line break, and has what Lua has of pure functions.
What it reads by them is masked wherever it would be shown.
Paths are relative to the folder of the file.
.PP
An unknown key, a wrong value or a missing variable keeps the gateway from starting, or from taking the file in place of what it
runs with;
.B tollgate check
tells all of them at once, and
.B "tollgate check \-\-print"
shows what the settings amount to.
.SH EXAMPLE
.nf
return {
  listen = "0.0.0.0:8080",
  routes = {
    { name = "chat", path = "/v1/chat/completions",
      targets = { { url = "https://api.example.com",
        headers = { authorization = "Bearer " .. env "API_KEY" } } },
      plugins = { auth = { keys = "keys.jsonl" }, quota = {} } },
  },
}
.fi
.SH SETTINGS
Seconds may have a fraction.
A size is a number of bytes, or text with k, m or g behind it.
.B [\&]
stands for each item of a list, NAME for a name of your choice.
]]

local FILES = [[
.SH SEE ALSO
.BR tollgate (1)
]]

-- Text for roff: no request at the beginning of a line, backslashes and hyphens as they are written, `code` in bold.
local function roff(words)
  local plain = words:gsub("%s+", " "):gsub("\\", "\\e"):gsub("%-", "\\-"):gsub("`([^`]*)`", "\\fB%1\\fR")
  return (plain:gsub("^[.']", "\\&%0"):gsub("\226\134\146", "\\(->"):gsub("\226\137\165", ">="):gsub("\226\137\164", "<=")
    :gsub("\226\128\166", "..."))
end

-- The tables within a field, each with the path that its fields have in front of them.
local function tables_in(field, path, out)
  if field.fields then out[#out + 1] = { path = path, fields = field.fields } end
  if field.of then tables_in(field.of, path .. "[]", out) end
  if field.values then tables_in(field.values, path .. ".NAME", out) end
  for _, one in ipairs(field.alternatives or {}) do tables_in(one, path, out) end
  return out
end

local function sorted_names(fields)
  local names = text.sorted(fields)
  table.sort(names, function(a, b)
    local first, second = fields[a].required or false, fields[b].required or false
    if first ~= second then return first end
    return a < b
  end)
  return names
end

local Page = {}
Page.__index = Page

function Page:add(line, ...) self.lines[#self.lines + 1] = select("#", ...) > 0 and line:format(...) or line end

local function sentence(doc)
  local words = roff(doc):gsub("%.$", "")
  if words:find("^%l+[%s,;]") or words:find("^%l+$") then words = words:gsub("^%l", string.upper) end
  return words .. "."
end

function Page:field(path, field)
  local default = schema.default(field)
  if default == "`{}`" then default = "" end
  local said = roff(schema.kind(field, true)) .. (default == "" and "" or default == "required" and "; required"
    or "; default " .. roff(default))
  self:add(".TP\n.BR \"%s\" \" (%s)\"", roff(path), (said:gsub('"', "\\(dq")))
  self:add(field.doc and sentence(field.doc) or ".br")
  for _, inner in ipairs(tables_in(field, path, {})) do
    local there = self.seen[inner.fields]
    if there then
      self:add("Its fields are those of\n.BR \"%s\" .", roff(there))
    else
      self.waiting[#self.waiting + 1] = inner
    end
  end
end

-- A table's fields, then those of the tables in it, each under a heading of its own. What two places share is described at the
-- shorter path.
function Page:tables(first)
  self.waiting = { first }
  while #self.waiting > 0 do
    table.sort(self.waiting, function(a, b)
      if #a.path ~= #b.path then return #a.path < #b.path end
      return a.path < b.path
    end)
    local one = table.remove(self.waiting, 1)
    local there = self.seen[one.fields]
    if one.path ~= "" then self:add(".SS %s", roff(one.path)) end
    if there then
      self:add("The fields are those of\n.BR \"%s\" .", roff(there))
    else
      self.seen[one.fields] = one.path
      for _, name in ipairs(sorted_names(one.fields)) do
        self:field(one.path == "" and name or one.path .. "." .. name, one.fields[name])
      end
    end
  end
end

local function add_plugin(page, root, one)
  local comment = text.opening(text.read(root, one.path)):match("^(.-)\n\n") or text.opening(text.read(root, one.path))
  page:add(".SH PLUGIN %s", one.name:upper())
  page:add(roff(comment:gsub("^" .. one.name .. ": ", ""):gsub("^%l", string.upper)))
  page:tables { path = "", fields = one.plugin.schema or {} }
end

--- The page.
-- @tparam string root of the source tree
-- @treturn string roff, macros of man(7)
return function(root)
  local page = setmetatable({ lines = {}, seen = {} }, Page)
  page:add('.\\" Written by scripts/reference from the schemas in host/lua and plugins.')
  page:add('.TH GATEWAY.LUA 5 "" tollgate "Tollgate Manual"')
  page:add(INTRODUCTION:sub(1, -2))
  page:tables { path = "", fields = schema.configuration(root) }
  page:add(".SH PLUGINS\nSettings of a plugin stand in\n.BR plugins.NAME ,\nof the whole gateway or of a route.\n"
    .. "Those that ship follow, in the order in which requests pass them.")
  for _, one in ipairs(schema.plugins(root)) do add_plugin(page, root, one) end
  page:add(FILES:sub(1, -2))
  return table.concat(page.lines, "\n") .. "\n"
end
