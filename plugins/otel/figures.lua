-- The gateway's metrics, from Prometheus' text format to OTLP's JSON mapping: a counter is a monotonic sum, a histogram one
-- with explicit bounds, both cumulative since the gateway's start; names stay as they are. Without I/O.

local attributes = require "otel.attributes"

local M = {}

local CUMULATIVE = 2 -- AggregationTemporality
-- By the ending of a name; UCUM, as OpenTelemetry has it.
local UNITS = { { "_seconds$", "s" }, { "_seconds_total$", "s" }, { "_bytes$", "By" }, { "_bytes_total$", "By" } }

local function number_point(point, value)
  -- Of one type for ever: who tells series apart by it would else see another one in seconds that happen to be whole.
  point.asDouble = value
  return point
end

local function finite(value) return value and math.abs(value) < math.huge end

local function histogram_point(point, series, array)
  local bounds, counts, before = array {}, {}, 0
  for i, bucket in ipairs(series.buckets) do
    if bucket.bound < math.huge then bounds[#bounds + 1] = bucket.bound end
    counts[i] = ("%.0f"):format(bucket.count - before)
    before = bucket.count
  end
  point.count = ("%.0f"):format(series._count)
  if finite(series._sum) then point.sum = series._sum end
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
    elseif family.kind ~= "histogram" and finite(series.value) then
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

--- Cuts a text between families, so that its reader can let others go on in between: all of it at once takes a tenth of a
-- second where there are 30,000 series.
-- @tparam string text as tollgate.prometheus reads it
-- @tparam number size bytes that a piece has at least, but for the last one
-- @treturn function iterator over the pieces
function M.pieces(text, size)
  local from = 1
  return function()
    if from > #text then return end
    local cut = text:find("\n# HELP ", from + size, true) or #text
    local piece = text:sub(from, cut)
    from = cut + 1
    return piece
  end
end

--- When the gateway began.
-- @tparam string text as tollgate.prometheus reads it
-- @treturn number|nil seconds since the epoch
function M.started(text) return tonumber((("\n" .. text):match "\nprocess_start_time_seconds (%S+)")) end

--- Metrics of OTLP.
-- @tparam {table,...} families as tollgate.prometheus reads them
-- @tparam number now seconds since the epoch
-- @tparam number|nil started the same, of the gateway
-- @tparam function array marks a list, so that it encodes as one where it is empty
-- @treturn {table,...} Metric messages; none for a family without a sample
function M.metrics(families, now, started, array)
  local times = { now = attributes.nanoseconds(now), started = attributes.nanoseconds(started or now) }
  local list = {}
  for _, family in ipairs(families) do list[#list + 1] = metric_of(family, times, array) end
  return list
end

return M
