-- From Prometheus' text to OTLP's metrics.
package.path = "plugins/?.lua;" .. package.path
local figures = require "otel.figures"
local prometheus = assert(loadfile "host/lua/prometheus.lua")()
local rig = require "spec.plugins.otel.rig"

local function array(t) return t end

local TEXT = [[
# HELP process_start_time_seconds Start
# TYPE process_start_time_seconds gauge
process_start_time_seconds 1700000000.25
# HELP a_total Things
# TYPE a_total counter
a_total{route="x",status="200"} 5
a_total{route="q\"{}\\n\n",status=""} 1.5
# TYPE empty_total counter
# HELP b_seconds Times
# TYPE b_seconds histogram
b_seconds_bucket{route="x",le="0.1"} 2
b_seconds_bucket{route="x",le="1"} 3
b_seconds_bucket{route="x",le="+Inf"} 5
b_seconds_sum{route="x"} 7.5
b_seconds_count{route="x"} 5
b_seconds_bucket{route="y",le="0.1"} 0
b_seconds_bucket{route="y",le="1"} 0
b_seconds_bucket{route="y",le="+Inf"} 1
b_seconds_sum{route="y"} +Inf
b_seconds_count{route="y"} 1
b_seconds_bucket{route="{",le="0.1"} 0
b_seconds_bucket{route="{",le="1"} 0
b_seconds_bucket{route="{",le="+Inf"} 0
b_seconds_sum{route="{"} 0
b_seconds_count{route="{"} 0
# TYPE c_bytes gauge
c_bytes 12345678901
# TYPE odd gauge
odd{a="1"} NaN
odd{a="2"} +Inf
odd{a="3"} -0.5
# TYPE my_count gauge
my_count 3
]]

local function by_name()
  local map = {}
  local list = figures.metrics(prometheus.parse(TEXT), 1700000060, figures.started(TEXT), array)
  for _, one in ipairs(list) do map[one.name] = one end
  return map
end

it("counters are monotonic sums since the gateway's start, labels whatever stands in them", function()
  local a = by_name().a_total
  assert.same({ "Things", "1", 2, true }, { a.description, a.unit, a.sum.aggregationTemporality, a.sum.isMonotonic })
  local one, two = unpack(a.sum.dataPoints)
  assert.same({ 5, "1700000000250000000", "1700000060000000000" }, { one.asDouble, one.startTimeUnixNano, one.timeUnixNano })
  assert.same({ route = "x", status = "200" }, rig.plain(one.attributes))
  assert.equal(1.5, two.asDouble)
  assert.same({ route = 'q"{}\\n\n', status = "" }, rig.plain(two.attributes))
end)

it("histograms have counts by bucket, not up to it", function()
  local b = by_name().b_seconds
  assert.equal("s", b.unit)
  local one, infinite, two = unpack(b.histogram.dataPoints)
  assert.same({ { 0.1, 1 }, { "2", "1", "2" }, "5", 7.5 }, { one.explicitBounds, one.bucketCounts, one.count, one.sum })
  assert.same({ "1" }, { infinite.count, infinite.sum })
  assert.same({ "{", { "0", "0", "0" } }, { rig.plain(two.attributes).route, two.bucketCounts })
end)

it("gauges have no start, and figures that are none are left out", function()
  local all = by_name()
  local c = all.c_bytes.gauge.dataPoints[1]
  assert.same({ "By", 12345678901 }, { all.c_bytes.unit, c.asDouble })
  assert.is_nil(c.startTimeUnixNano)
  assert.equal(1, #all.odd.gauge.dataPoints)
  assert.equal(-0.5, all.odd.gauge.dataPoints[1].asDouble)
  assert.is_nil(all.empty_total)
  assert.equal(3, all.my_count.gauge.dataPoints[1].asDouble)
end)

it("a text is cut between families, whatever the size of pieces", function()
  local text = "# HELP a A\n# TYPE a gauge\na 1\n# HELP b B\n# TYPE b gauge\nb 2\n# HELP process_start_time_seconds S\n"
    .. "# TYPE process_start_time_seconds gauge\nprocess_start_time_seconds 7.5\n"
  for size, wanted in pairs { [1] = 3, [40] = 2, [#text - 1] = 1, [10000] = 1 } do
    local names, n = {}, 0
    for piece in figures.pieces(text, size) do
      n = n + 1
      for _, family in ipairs(prometheus.parse(piece)) do names[#names + 1] = family.name .. family.series[1].value end
    end
    assert.same({ wanted, { "a1", "b2", "process_start_time_seconds7.5" } }, { n, names })
  end
  assert.equal(7.5, figures.started(text))
  assert.is_nil(figures.started "other_process_start_time_seconds 3\n")
end)
