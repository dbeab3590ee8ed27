-- What an event says: its type, its id, and the fields that keys are made of. Plain functions over a decoded body.
--
-- A place is a dotted path into the body ("data.object.id"; in a list by number, from 1), or { header = name }, as senders
-- such as GitHub tell type and id.

local M = {}

local TEXT_MAX = 512 -- bytes of a value that becomes part of a key

--- Whether a text is a path.
-- @tparam string text
-- @treturn string|nil what is wrong
function M.check_path(text)
  for segment in (text .. "."):gmatch("([^.]*)%.") do
    if segment == "" then return "must be names with dots between them, such as data.tenantId" end
  end
end

local function step(value, segment)
  if type(value) ~= "table" then return nil end
  local found = value[segment]
  if found == nil and segment:find("^%d+$") then found = value[tonumber(segment)] end
  return found
end

local function at_path(body, path)
  local value = body
  for segment in path:gmatch("[^.]+") do
    value = step(value, segment)
    if value == nil then return nil end
  end
  return value
end

-- A string, or a whole number, as text; nil for all else. Numbers that Lua cannot hold come as `number` objects.
local function text_of(value, json)
  if type(value) == "number" and value == math.floor(value) and math.abs(value) < 2 ^ 53 then
    return ("%.0f"):format(value)
  end
  if type(value) == "userdata" and value ~= json.null then
    value = tostring(value)
    if not value:find("^%-?%d+$") then return nil end
  end
  if type(value) ~= "string" or value == "" or #value > TEXT_MAX then return nil end
  return value
end

--- A value as text.
-- @tparam table request { body = decoded, headers }
-- @tparam string|table place
-- @tparam table json with null: tg.json
-- @treturn string|nil nil where there is none, or it is no text and no whole number, or is empty or too long
function M.value(request, place, json)
  if type(place) == "table" then return text_of(request.headers[place.header], json) end
  return text_of(at_path(request.body, place), json)
end

--- A place as people read it.
-- @treturn string
function M.name(place)
  return type(place) == "table" and "the header " .. place.header or place
end

--- The keys that an event drops, each once.
-- @tparam {table,...} templates of cached_keys.parse
-- @tparam table request as for `value`
-- @tparam table places by field; a field that is not in it is looked for under its own name
-- @tparam table tools { keys = cached_keys, json = tg.json, redis = tg.redis }
-- @treturn {string,...}|nil
-- @treturn string where the value of a field is missing
function M.keys(templates, request, places, tools)
  local values, list, seen = {}, {}, {}
  for _, template in ipairs(templates) do
    for _, field in ipairs(template.fields) do
      local place = places[field] or field
      values[field] = M.value(request, place, tools.json)
      if not values[field] then return nil, M.name(place) end
    end
    local key = tools.keys.key(template, values, tools.redis)
    if not seen[key] then list[#list + 1] = key end
    seen[key] = true
  end
  return list
end

return M
