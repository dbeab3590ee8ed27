-- The gateway's metrics, from Prometheus' text format to OTLP's JSON mapping: a counter is a monotonic sum, a histogram one
-- with explicit bounds, both cumulative since the gateway's start; names stay as they are. Without I/O.

local attributes = require "otel.attributes"

local M = {}

local CUMULATIVE = 2 -- AggregationTemporality
-- By the ending of a name; UCUM, as OpenTelemetry has it.
local UNITS = { { "_seconds$", "s" }, { "_seconds_total$", "s" }, { "_bytes$", "By" }, { "_bytes_total$", "By" } }

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

local function number_point(point, value)
  if value == math.floor(value) and math.abs(value) < 2 ^ 53 then
    point.asInt = ("%.0f"):format(value)
  else
    point.asDouble = value
  end
  return point
end

local function histogram_point(point, series, array)
  local bounds, counts, before = array {}, {}, 0
  for i, bucket in ipairs(series.buckets) do
    if bucket.bound < math.huge then bounds[#bounds + 1] = bucket.bound end
    counts[i] = ("%.0f"):format(bucket.count - before)
    before = bucket.count
  end
  point.count, point.sum = ("%.0f"):format(series._count), series._sum
  point.explicitBounds, point.bucketCounts = bounds, counts
  return point
end

local function unit_of(name)
  for _, one in ipairs(UNITS) do
    if name:find(one[1]) then return one[2] end
  end
  return "1"
end

local function metric_of(family, times, array)
  local points = {}
  for _, series in ipairs(family.series) do
    local point = { attributes = array(attributes.list(series.labels)), timeUnixNano = times.now }
    if family.kind ~= "gauge" then point.startTimeUnixNano = times.started end
    if family.kind == "histogram" and series._count then
      points[#points + 1] = histogram_point(point, series, array)
    elseif family.kind ~= "histogram" and series.value and math.abs(series.value) < math.huge then
      points[#points + 1] = number_point(point, series.value)
    end
  end
  if #points == 0 then return end
  local metric = { name = family.name, description = family.help, unit = unit_of(family.name) }
  if family.kind == "counter" then
    metric.sum = { dataPoints = points, aggregationTemporality = CUMULATIVE, isMonotonic = true }
  elseif family.kind == "histogram" then
    metric.histogram = { dataPoints = points, aggregationTemporality = CUMULATIVE }
  else
    metric.gauge = { dataPoints = points }
  end
  return metric
end

--- Metrics of OTLP.
-- @tparam {table,...} families as of parse
-- @tparam number now seconds since the epoch
-- @tparam function array marks a list, so that it encodes as one where it is empty
-- @treturn {table,...} Metric messages; none for a family without a sample
function M.metrics(families, now, array)
  local times = { now = attributes.nanoseconds(now), started = attributes.nanoseconds(now) }
  for _, family in ipairs(families) do
    if family.name == "process_start_time_seconds" and family.series[1] then
      times.started = attributes.nanoseconds(family.series[1].value)
    end
  end
  local list = {}
  for _, family in ipairs(families) do list[#list + 1] = metric_of(family, times, array) end
  return list
end

return M
