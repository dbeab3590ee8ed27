-- What the plugin otel sends, read by OpenTelemetry's own messages and names (@opentelemetry/otlp-transformer and
-- semantic-conventions), so that not only our own idea of OTLP is tested.
local support = require "spec.support"
local clients = require "spec.clients.rig"
local rig = require "spec.plugins.otel.rig"
local async = support.async

-- What is wrong with exports.
local function faults(exports)
  local file = support.tmpdir() .. "/exports.json"
  support.write_file(file, support.encode(exports))
  local result = support.npm.node { script = "spec/clients/otlp.js", args = { file }, timeout = 60000 }
  assert(result.code == 0, result.err)
  return support.decode(result.out)
end

local function of_collector(collector)
  local list = {}
  for i, req in ipairs(collector.requests) do list[i] = { path = req.path, body = req.body } end
  return list
end

describe("otel's exports", function()
  setup(function()
    clients.require_package "@opentelemetry/otlp-transformer"
    clients.require_package "@opentelemetry/semantic-conventions"
  end)

  it("are what OpenTelemetry's own messages and conventions have", async(function()
    local collector, bad = rig.collector(), support.origin(function(_, conn) conn:respond { status = 503, body = "no" } end)
    local gw = rig.gateway { collector = collector, config = { plugins = { auth = { keys = "keys.jsonl" },
        otel = { endpoint = collector.url, interval = 0.05, metrics_interval = 0.1,
          resource = { ["deployment.environment.name"] = "test" } } } },
      files = { ["keys.jsonl"] = support.keys { { id = "k", tenant = "t", secret = "sk", monthly_tokens = 100000 } } },
      routes = {
        { name = "chat", path = "/v1/chat/completions", plugins = { quota = {} }, retry = { on = { 503, "connect" } },
          targets = { { url = bad.url, provider = "first" },
            { url = support.llm_origin().url, provider = "openai", tier = 2 } } },
        { name = "none", path = "/none", plugins = { auth = false },
          targets = { { url = "http://127.0.0.1:" .. support.dead_port() } } } } }
    local headers = { authorization = "Bearer sk", tracestate = "a=1",
      traceparent = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01" }
    assert.equal(200, gw:request({ path = "/v1/chat/completions", headers = headers,
      body = { model = "gpt-x", messages = { { role = "user", content = "hello" } } } }).status)
    assert.equal(502, gw:request({ path = "/none", method = "PURGE" }).status)
    collector.wait(5)
    support.wait_for(function()
      local last = collector.exports[#collector.exports]
      return last and last.tollgate_requests_total and last.tollgate_requests_total.sum.dataPoints[1].asDouble >= 2
    end, "metrics of these requests", 20000)
    gw:stop()
    assert.same({}, faults(of_collector(collector)))
  end))

  it("would be found wrong if they were", async(function()
    local function span(fields)
      local one = { traceId = ("a"):rep(32), spanId = ("b"):rep(16), name = "n", kind = 2, startTimeUnixNano = "1" }
      for name, value in pairs(fields) do one[name] = value end
      local body = { resourceSpans = { { resource = { attributes = { { key = "service.name", value = { stringValue = "s" } } } },
        scopeSpans = { { spans = { one } } } } } }
      return { { path = "/v1/traces", body = support.encode(body) } }
    end
    assert.same({}, faults(span { attributes = { { key = "url.path", value = { stringValue = "/" } } } }))
    for wanted, fields in pairs {
      ["spanId is no id"] = { spanId = "bm8gaWQ=" },
      ["startTimeUnixNano is 1, read as \"1\""] = { startTimeUnixNano = 1 },
      ["kind is \"SPAN_KIND_SERVER\", read as 2"] = { kind = "SPAN_KIND_SERVER" },
      ["flavour is \"x\""] = { flavour = "x" },
      ["intValue is 5, read as \"5\""] = { attributes = { { key = "server.port", value = { intValue = 5 } } } },
      ["n has http.url.path, of no convention"] = { attributes = { { key = "http.url.path", value = { stringValue = "/" } } } },
    } do
      fields.attributes = fields.attributes or { { key = "url.path", value = { stringValue = "/" } } }
      local found = faults(span(fields))
      assert.truthy(found[1] and found[1]:find(wanted, 1, true), wanted .. ", not " .. tostring(found[1]))
    end
  end))
end)
