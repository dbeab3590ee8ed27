-- Metrics out of Prometheus' text format, version 0.0.4, as /metrics of the gateway has it. No I/O.

local M = {}

local UNESCAPED = { ["\\\\"] = "\\", ['\\"'] = '"', ["\\n"] = "\n" }

local function labels_of(text)
  local map = {}
  for name, value in text:gmatch '([%a_][%w_]*)="(.-)"[,}]' do map[name] = value end
  if text:find("\\", 1, true) then
    map = {}
    local at = 2
    while true do
      local name, from = text:match('^,?([%a_][%w_]*)="()', at)
      if not name then break end
      local to = from
      while text:sub(to, to) ~= '"' do to = to + (text:sub(to, to) == "\\" and 2 or 1) end
      map[name] = text:sub(from, to - 1):gsub("\\.", UNESCAPED)
      at = to + 1
    end
  end
  return map
end

local function number_of(text)
  if text == "+Inf" then return math.huge elseif text == "-Inf" then return -math.huge end
  return tonumber(text)
end

-- Family, part ("" or "_bucket", "_sum", "_count"), of a sample's name.
local function family_of(families, name)
  if families[name] then return families[name], "" end
  local base, part = name:match "^(.*)(_bucket)$"
  if not base then base, part = name:match "^(.*)(_sum)$" end
  if not base then base, part = name:match "^(.*)(_count)$" end
  return base and families[base], part
end

local function series_of(family, labels)
  local names = {}
  for name in pairs(labels) do names[#names + 1] = name end
  table.sort(names)
  local parts = {}
  for i, name in ipairs(names) do parts[i] = name .. "\1" .. labels[name] end
  local key = table.concat(parts, "\2")
  local series = family.by_key[key]
  if not series then
    series = { labels = labels, buckets = {} }
    family.by_key[key], family.series[#family.series + 1] = series, series
  end
  return series
end

local function take(families, line)
  local name, labels, text = line:match "^([%a_:][%w_:]*)(%b{}) (%S+)$"
  if not name or #name + #labels + #text + 1 ~= #line then
    -- braces in a label's value
    name, labels, text = line:match "^([%a_:][%w_:]*)({.*}) (%S+)$"
  end
  if not name then
    name, text = line:match "^([%a_:][%w_:]*) (%S+)$"
    labels = "{}"
  end
  local value = text and number_of(text)
  local family, part
  if value then family, part = family_of(families, name) end
  if not family then return end
  local map = labels_of(labels)
  if part == "_bucket" then
    local bound = number_of(map.le)
    map.le = nil
    local buckets = series_of(family, map).buckets
    buckets[#buckets + 1] = { bound = bound, count = value }
  else
    series_of(family, map)[part == "" and "value" or part] = value
  end
end

--- The families of a text.
-- @tparam string text Prometheus' text format, version 0.0.4
-- @treturn {table,...} in order: name, kind ("counter", "gauge", "histogram"), help, series ({ labels, value } or
--   { labels, buckets = {{ bound, count }, …} (cumulative), _sum, _count })
function M.parse(text)
  local families, list = {}, {}
  for line in text:gmatch "[^\n]+" do
    local what, name, rest = line:match "^# (%u+) (%S+) (.*)$"
    if what then
      local family = families[name]
      if not family then
        family = { name = name, series = {}, by_key = {} }
        families[name], list[#list + 1] = family, family
      end
      if what == "TYPE" then family.kind = rest elseif what == "HELP" then family.help = rest end
    else
      take(families, line)
    end
  end
  return list
end

return M
