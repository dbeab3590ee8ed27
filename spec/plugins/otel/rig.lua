-- What the specs of otel share: a collector that checks what it is sent against the messages of opentelemetry-proto in their
-- JSON mapping, field by field, and keeps spans and metrics.
local assert = require "luassert"
local support = require "spec.support"

local M = {}

-- Checks of single values: each returns whether the value may stand there.

local function text(v) return type(v) == "string" end
local function number(v) return type(v) == "number" end
local function boolean(v) return type(v) == "boolean" end
local function int64(v) return type(v) == "string" and v:match "^%-?%d+$" ~= nil end
local function hex(n) return function(v) return type(v) == "string" and #v == n and v:match "^[%da-f]+$" ~= nil end end
local function one_of(...)
  local set = {}
  for _, v in ipairs { ... } do set[v] = true end
  return function(v) return set[v] == true end
end

-- A message: its fields. `list` marks repeated ones.
local function list(of) return { list = of } end

local any = { stringValue = text, intValue = int64, doubleValue = number, boolValue = boolean }
local attribute = { key = text, value = any }
local resource = { attributes = list(attribute) }
local scope = { name = text, version = text }
local span = { traceId = hex(32), spanId = hex(16), parentSpanId = hex(16), traceState = text, name = text, kind = one_of(2, 3),
  startTimeUnixNano = int64, endTimeUnixNano = int64, attributes = list(attribute), status = { code = one_of(1, 2) } }
local point = { attributes = list(attribute), startTimeUnixNano = int64, timeUnixNano = int64, asInt = int64, asDouble = number }
local histogram_point = { attributes = list(attribute), startTimeUnixNano = int64, timeUnixNano = int64, count = int64,
  sum = number, bucketCounts = list(int64), explicitBounds = list(number) }
local metric = { name = text, description = text, unit = text, gauge = { dataPoints = list(point) },
  sum = { dataPoints = list(point), aggregationTemporality = one_of(2), isMonotonic = boolean },
  histogram = { dataPoints = list(histogram_point), aggregationTemporality = one_of(2) } }
local messages = {
  ["/v1/traces"] = { resourceSpans = list { resource = resource, scopeSpans = list { scope = scope, spans = list(span) } } },
  ["/v1/metrics"] = { resourceMetrics = list { resource = resource,
    scopeMetrics = list { scope = scope, metrics = list(metric) } } },
}

local function check(value, shape, path)
  if type(shape) == "function" then
    return assert(shape(value), path .. " has " .. type(value) .. " " .. tostring(value))
  end
  assert(type(value) == "table", path .. " is no table")
  if shape.list then
    for i, one in ipairs(value) do check(one, shape.list, ("%s[%d]"):format(path, i)) end
    return
  end
  for name, one in pairs(value) do
    assert(shape[name], path .. " has no field " .. tostring(name))
    check(one, shape[name], path .. "." .. name)
  end
end

local function plain(attributes)
  local map = {}
  for _, one in ipairs(attributes) do
    assert.is_nil(map[one.key])
    local kind, value = next(one.value)
    map[one.key] = kind == "intValue" and tonumber(value) or value
  end
  return map
end
M.plain = plain

--- Starts a collector.
-- @param options answer(n, req, conn): what becomes of request n, instead of taking it (return true once answered)
-- @return c: .url, .origin, .spans (each with .at, its attributes as a map, and .resource), .exports (of metrics: name →
--   metric), .requests
function M.collector(options)
  local c = { spans = {}, exports = {}, requests = {} }
  local function take(req)
    local body = support.decode(req.body)
    check(body, assert(messages[req.path], req.path), req.path)
    for _, r in ipairs(body.resourceSpans or {}) do
      for _, s in ipairs(r.scopeSpans[1].spans) do
        s.at, s.resource = plain(s.attributes), plain(r.resource.attributes)
        c.spans[#c.spans + 1] = s
      end
    end
    for _, r in ipairs(body.resourceMetrics or {}) do
      local by_name = { resource = plain(r.resource.attributes) }
      for _, one in ipairs(r.scopeMetrics[1].metrics) do by_name[one.name] = one end
      c.exports[#c.exports + 1] = by_name
    end
  end
  c.origin = support.origin(function(req, conn)
    c.requests[#c.requests + 1] = req
    if options and options.answer and options.answer(#c.requests, req, conn) then return end
    take(req)
    conn:respond { headers = { ["content-type"] = "application/json" }, body = "{}" }
  end)
  c.url = c.origin.url
  function c.wait(n)
    support.wait_for(function() return #c.spans >= n end, n .. " spans, there are " .. #c.spans, 20000)
    return c.spans
  end
  return c
end

--- A gateway with otel on all its routes.
-- @param options collector, otel (settings), routes, tracing, config (further fields), files
function M.gateway(options)
  local conf = { endpoint = options.collector.url, interval = 0.05, metrics = false }
  for name, value in pairs(options.otel or {}) do conf[name] = value end
  local config = { tracing = options.tracing or { accept = true }, plugins = { otel = conf }, routes = options.routes }
  for name, value in pairs(options.config or {}) do config[name] = value end
  return support.gateway { config = config, files = options.files }
end

return M
