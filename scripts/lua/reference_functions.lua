-- The functions that plugins call, as Markdown: those of C by the comments above them in host/api*.c, those of Lua modules by
-- their LDoc comments.

local md = require "reference_text"

local WIDTH = 120 -- bytes of a line

-- Of host/lua, those that authors call: in which group they are, and how their functions and objects are called there.
local LUA_MODULES = {
  { file = "testing", group = "tollgate.testing", names = { M = "testing", Gateway = "gateway" } },
  { file = "body", group = "ctx.request.json and ctx.response.json", names = { Json = "ctx.request.json" } },
}
local ORDER = { "^tg", "^ctx", "^tollgate" } -- of the groups

-- An entry is { name, text }: "tg.timer.sleep" and what becomes a list item. A comment in the short form is
-- "tg.x.y(arguments) → results: text"; one in the long form is LDoc's, with @function.

local function short_entry(comment)
  local name, rest = comment:match("^([%a][%w_.:|]+)(.*)$")
  local loop, object = comment:match("^(for [%w_, ]+ in (%l+):[%w_]+%([^)]*%) do)")
  if loop then return { name = object .. ":" .. loop, text = ("`%s`%s"):format(loop, md.escape(comment:sub(#loop + 1))) } end
  if not name or not (name:match("^tg%.") or name:match("^process%.") or name:match("^%l+:%l")) then return nil end
  name = name:gsub(":$", "")
  local args = rest:match("^%b()") or rest:match("^%b{}") or ""
  if args == "" and not name:match("^tg%.") then return nil end
  local tail = comment:sub(#name + #args + 1)
  local spans, head, last = {}, name:match("^(.-)([%w_]+|.*)$")
  for each in (last or name):gmatch("[^|]+") do spans[#spans + 1] = ("`%s%s%s`"):format(head or "", each, args) end
  return { name = name, text = table.concat(spans, " ") .. md.escape(tail) }
end

-- The description, and the tags in order: { tag, text }.
local function ldoc(comment)
  local text, tags = comment:match("^(.-)%s*%f[@%z](@?.*)$")
  local list_of = {}
  for tag, words in (tags .. "@"):gmatch("@(%w+)([^@]*)") do
    list_of[#list_of + 1] = { tag = tag, text = words:gsub("%s+", " "):match("^ ?(.-) ?$") }
  end
  return text, list_of
end

-- "[opt] table t words", or "[opt=1] …" → type, name, words, optional.
local function parameter(text)
  local optional, rest = text:match("^(%[opt[^%]]*%]) ?(.*)$")
  local type_of, name, words = (rest or text):match("^(%b{}) ([%w_]+) ?(.*)$")
  if not type_of then type_of, name, words = (rest or text):match("^(%S+) ([%w_.]+) ?(.*)$") end
  return type_of, name, words, optional ~= nil
end

local function types(text) return (text:gsub("|", " or ")) end

local function long_entry(comment, name, args)
  local text, tags = ldoc(comment)
  local names, items = {}, {}
  for _, one in ipairs(tags) do
    if one.tag == "function" then
      name = one.text
    elseif one.tag == "tparam" then
      local type_of, param, words, optional = parameter(one.text)
      names[#names + 1] = optional and "[" .. param .. "]" or param
      items[#items + 1] = ("  - `%s`: %s%s"):format(param, types(type_of), words ~= "" and ", " .. md.escape(words) or "")
    elseif one.tag == "return" then
      items[#items + 1] = "  - returns " .. md.escape(one.text)
    elseif one.tag == "treturn" then
      local type_of, words = one.text:match("^(%b{}) ?(.*)$")
      if not type_of then type_of, words = one.text:match("^(%S+) ?(.*)$") end
      items[#items + 1] = ("  - returns %s%s"):format(types(type_of), words ~= "" and ", " .. md.escape(words) or "")
    end
  end
  local signature = args or "(" .. table.concat(names, ", ") .. ")"
  table.insert(items, 1, ("`%s%s`: %s"):format(name, signature, md.escape(text)))
  return { name = name, text = table.concat(items, "\n") }
end

-- What a C comment says, the lines of each paragraph joined.
local function plain(comment)
  local text = comment:gsub("\n%s*%*[ \t]*", "\n"):gsub("\n\n+", "\1"):gsub("%s+", " "):gsub("\1", "\n\n")
  return text:match("^%s*(.-)%s*$")
end

-- Lines of at most WIDTH bytes, each but the first indented; a word that would begin a list, a heading or a quote begins none.
local function wrap(text, indent)
  local lines, line = {}, ""
  for word in text:gmatch("[^ ]+") do
    if #line + 1 + #word > WIDTH and not word:match("^[-+#>]") and not word:match("^%d+[.)]$") then
      lines[#lines + 1] = line
      line = indent .. word
    else
      line = line == "" and word or line .. " " .. word
    end
  end
  lines[#lines + 1] = line
  return table.concat(lines, "\n")
end

-- A list item of several paragraphs, or with a list in it, whose items begin with two spaces and a dash.
local function item(text)
  local out = {}
  for part in (text .. "\n"):gmatch("([^\n]*)\n") do
    local inner = part:match("^  (%- .*)$")
    out[#out + 1] = inner and "  " .. wrap(inner, "    ") or part ~= "" and (#out == 0 and "- " or "  ") .. wrap(part, "  ") or ""
  end
  return table.concat(out, "\n")
end

-- Adds the entries of one C file to the groups; its opening comment introduces a group where it names it.
local function c_file(groups, root, path)
  local group = path:match("api_(%l+)")
  group = group == "process" and "tollgate.process" or group and "tg." .. group or "tg"
  local text = md.read(root, path)
  for at, stars, comment in text:gmatch("()/%*(%*?%*?) ?(.-)%s*%*/") do
    comment = plain(comment)
    if at == 1 then
      local about = comment:match("^" .. group:gsub("%p", "%%%0") .. ": (.*)$") or group == "tollgate.process" and comment
      if about then groups[group].about = about end
    else
      local entry = stars == "**" and comment:find("@function", 1, true) and long_entry(comment) or short_entry(comment)
      local into = entry and entry.name:match("^tg%.%a+$") and "tg" or group
      if entry then table.insert(groups[into], entry) end
    end
  end
end

local function lua_file(groups, root, module)
  local group = groups[module.group]
  local text = md.read(root, "host/lua/" .. module.file .. ".lua")
  group.about = md.opening(text):gsub("^" .. module.group:gsub("%p", "%%%0") .. ": ", "")
  for comment, signature in text:gmatch("\n%-%-%- (.-)\nfunction ([^\n]*)") do
    local called, args = signature:match("^([%w_.:]+)(%b())")
    called = called:gsub("^%w+", module.names)
    table.insert(group, long_entry(comment:gsub("\n%-%- ?", " "), called, args))
  end
end

-- Sentences about the source are for readers of the source.
local function about(text)
  if text:find("\n\n  ", 1, true) then -- ends with an example
    return (text:gsub("\n\n  ", "\n\n```lua\n", 1):gsub("\n  ", "\n") .. "\n```")
  end
  local kept = {}
  for sentence in (text:gsub("\n+", " ") .. " "):gmatch("(.-[.:]) %f[%u%z]") do
    if not sentence:match("[Tt]his file") and not sentence:match("%w%.h%f[%W]") then kept[#kept + 1] = sentence end
  end
  return wrap(md.escape((table.concat(kept, " "):gsub("^%l", string.upper))), "")
end

local function in_order(groups)
  local names = {}
  for _, pattern in ipairs(ORDER) do
    for _, name in ipairs(md.sorted(groups)) do
      if name:find(pattern) then names[#names + 1] = name end
    end
  end
  return names
end

--- What host/lua/README.md says of each function, by the table that it is in.
-- @tparam string root of the source tree
-- @treturn string Markdown
return function(root)
  local groups = setmetatable({}, { __index = function(all, name)
    all[name] = {}
    return all[name]
  end })
  for _, path in ipairs(md.list(root, "host/api.c host/api_*.c")) do
    if not path:match("api_ctx") and not path:match("api_headers") then c_file(groups, root, path) end
  end
  for _, module in ipairs(LUA_MODULES) do lua_file(groups, root, module) end
  local out = {}
  for _, name in ipairs(in_order(groups)) do
    local group, functions_first, methods = groups[name], {}, {}
    for _, entry in ipairs(group) do
      table.insert(entry.name:find(":", 1, true) and methods or functions_first, item(entry.text))
    end
    for _, text in ipairs(methods) do table.insert(functions_first, text) end
    if #group > 0 then
      out[#out + 1] = ("### %s\n%s\n%s\n"):format(name, group.about and "\n" .. about(group.about) .. "\n" or "",
        table.concat(functions_first, "\n"))
    end
  end
  return table.concat(out, "\n")
end
