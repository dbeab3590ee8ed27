-- otel end to end: what a collector gets of requests, attempts and metrics, through outages, reloads and the gateway's end.
local uv = require "luv"
local support = require "spec.support"
local rig = require "spec.plugins.otel.rig"
local target_rig = require "spec.host.target_rig"
local async = support.async

local ID, PARENT = "4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7"

local function hello() return support.origin(function(_, conn) conn:respond { body = "hello" } end) end

local function plain_route(origin)
  return { { name = "plain", path = "/v1/*", targets = { { url = origin.url } } } }
end

local function by_kind(spans, kind)
  local list = {}
  for _, one in ipairs(spans) do
    if one.kind == kind then list[#list + 1] = one end
  end
  return list
end

local function outcome(gw, what)
  return support.prometheus.sum(gw:samples(), "otel_items_total", { signal = "spans", outcome = what }) or 0
end

local function wait_outcome(gw, what, n)
  support.wait_for(function() return outcome(gw, what) == n end, n .. " spans " .. what, 20000)
end

describe("otel's spans", function()
  it("tell of a request and its attempt, in the caller's trace", async(function()
    local collector, origin = rig.collector(), hello()
    local gw = rig.gateway { collector = collector, routes = plain_route(origin),
      otel = { service = "edge", resource = { ["deployment.environment.name"] = "test", zone = 3 },
        headers = { ["x-token"] = "t" } } }
    local res = gw:request { path = "/v1/a?secret=1", headers = { traceparent = ("00-%s-%s-01"):format(ID, PARENT),
      tracestate = "a=1" } }
    assert.equal(200, res.status)
    local spans = collector.wait(2)
    local server, client = by_kind(spans, 2)[1], by_kind(spans, 3)[1]
    assert.same({ ID, PARENT, "a=1", "GET /v1/*" }, { server.traceId, server.parentSpanId, server.traceState, server.name })
    assert.same({ ID, server.spanId, "GET" }, { client.traceId, client.parentSpanId, client.name })
    assert.equal(("00-%s-%s-01"):format(ID, client.spanId), origin.requests[1].headers.traceparent)
    local at = server.at
    assert.same({ "GET", "/v1/a", "/v1/*", "plain", 200, "http", "1.1", "127.0.0.1", res.headers["x-request-id"] },
      { at["http.request.method"], at["url.path"], at["http.route"], at["tollgate.route"], at["http.response.status_code"],
        at["url.scheme"], at["network.protocol.version"], at["client.address"], at["tollgate.request_id"] })
    assert.same({ 200, origin.port, "127.0.0.1" },
      { client.at["http.response.status_code"], client.at["server.port"], client.at["server.address"] })
    assert.is_nil(server.status)
    assert.is_true(tonumber(server.startTimeUnixNano) <= tonumber(client.startTimeUnixNano))
    assert.is_true(tonumber(client.endTimeUnixNano) >= tonumber(client.startTimeUnixNano))
    assert.same({ "edge", "test", 3 }, { server.resource["service.name"], server.resource["deployment.environment.name"],
      server.resource.zone })
    assert.matches("^.+%-%x+$", server.resource["service.instance.id"])
    assert.equal("t", collector.requests[1].headers["x-token"])
    for _, req in ipairs(collector.requests) do assert.is_nil(req.body:find("secret", 1, true)) end
  end))

  it("tell which attempts failed, and why", async(function()
    local collector, bad, good = rig.collector(), target_rig.origin "bad", target_rig.origin "good"
    bad.handler = function(_, conn) conn:respond { status = 503, body = "no" } end
    local gw = rig.gateway { collector = collector, routes = { { name = "r", path = "/*",
      retry = { on = { 503, "connect" } }, targets = { target_rig.target("bad", bad),
        target_rig.target("good", good, { tier = 2 }) } } } }
    assert.equal(200, gw:request({ path = "/" }).status)
    local attempts = by_kind(collector.wait(3), 3)
    table.sort(attempts, function(a) return a.at["http.request.resend_count"] == nil end)
    assert.same({ 503, "503", 2, 200, 1 }, { attempts[1].at["http.response.status_code"], attempts[1].at["error.type"],
      attempts[1].status.code, attempts[2].at["http.response.status_code"], attempts[2].at["http.request.resend_count"] })
    assert.is_nil(attempts[2].status)
  end))

  it("tell model and tokens of an LLM request, and nothing of the prompt", async(function()
    local collector = rig.collector()
    local gw = rig.gateway { collector = collector, config = { plugins = {
        otel = { endpoint = collector.url, interval = 0.05, metrics = false }, auth = { keys = "keys.jsonl" } } },
      files = { ["keys.jsonl"] = support.keys { { id = "k", tenant = "t", secret = "sk-hidden", monthly_tokens = 100000 } } },
      routes = { { name = "chat", path = "/v1/chat/completions", plugins = { quota = {} },
        targets = { { url = support.llm_origin().url, provider = "openai" } } } } }
    local res = gw:request { path = "/v1/chat/completions", headers = { authorization = "Bearer sk-hidden" },
      body = { model = "gpt-x", messages = { { role = "user", content = "a private word" } } } }
    assert.equal(200, res.status)
    local spans = collector.wait(2)
    local at = by_kind(spans, 2)[1].at
    assert.same({ "chat", "openai", "gpt-x", 9, 4, "k", "t" }, { at["gen_ai.operation.name"], at["gen_ai.provider.name"],
      at["gen_ai.request.model"], at["gen_ai.usage.input_tokens"], at["gen_ai.usage.output_tokens"], at["tollgate.consumer"],
      at["tollgate.tenant"] })
    assert.equal("gpt-x", by_kind(spans, 3)[1].at["gen_ai.request.model"])
    for _, req in ipairs(collector.requests) do
      assert.is_nil(req.body:find("private", 1, true))
      assert.is_nil(req.body:find("sk-hidden", 1, true))
    end
  end))

  it("are not made where the trace is not sampled, or the client's address is not to be told", async(function()
    local collector = rig.collector()
    local gw = rig.gateway { collector = collector, routes = plain_route(hello()), otel = { client_address = false } }
    gw:request { path = "/v1/x", headers = { traceparent = ("00-%s-%s-00"):format(ID, PARENT) } }
    gw:request { path = "/v1/y" }
    gw:wait_access(2)
    for _, one in ipairs(collector.wait(2)) do assert.is_not.equal(ID, one.traceId) end
    assert.is_nil(by_kind(collector.spans, 2)[1].at["client.address"])
    gw:stop()
    assert.equal(2, #collector.spans)
  end))

  it("tell of requests that fail, and of those without a target", async(function()
    local collector = rig.collector()
    local cut = support.origin(function(_, conn)
      conn:start { headers = { ["content-type"] = "text/plain" } }
      conn:chunk "begin"
      conn:close()
    end)
    local gw = rig.gateway { collector = collector, routes = {
      { name = "cut", path = "/cut", targets = { { url = cut.url } } },
      { name = "none", path = "/none", targets = { { url = "http://127.0.0.1:" .. support.dead_port() } } } } }
    gw:request { path = "/cut" }
    assert.equal(502, gw:request({ path = "/none", method = "PURGE" }).status)
    local spans, seen = collector.wait(4), {}
    for _, one in ipairs(by_kind(spans, 2)) do seen[one.at["tollgate.route"]] = one end
    assert.same({ "origin_cut", 2, 200 }, { seen.cut.at["error.type"], seen.cut.status.code,
      seen.cut.at["http.response.status_code"] })
    assert.same({ "502", 2, "_OTHER", "PURGE", "HTTP /none" }, { seen.none.at["error.type"], seen.none.status.code,
      seen.none.at["http.request.method"], seen.none.at["http.request.method_original"], seen.none.name })
    local errors = {}
    for _, one in ipairs(by_kind(spans, 3)) do errors[one.at["error.type"]] = one.status.code end
    assert.same({ cut = 2, connect = 2 }, errors)
  end))
end)

describe("otel's way out", function()
  it("sends a full batch at once, and each span once, from two workers", async(function()
    local collector = rig.collector()
    local gw = rig.gateway { collector = collector, routes = plain_route(hello()), config = { workers = 2 },
      otel = { batch = 10, interval = 0.2 } }
    for _ = 1, 50 do assert.equal(200, gw:request({ path = "/v1/x" }).status) end
    local seen, n = {}, 0
    for _, one in ipairs(collector.wait(100)) do
      assert.is_nil(seen[one.spanId])
      seen[one.spanId], n = true, n + 1
    end
    assert.equal(100, n)
    wait_outcome(gw, "exported", 100)
  end))

  it("comes through an outage: refusals to talk, 503, 429, and loses nothing", async(function()
    local collector = rig.collector { answer = function(n, _, conn)
      if n == 1 then conn:close() return true end
      if n == 2 then conn:respond { status = 503, body = "" } return true end
      if n == 3 then conn:respond { status = 429, headers = { ["retry-after"] = "1" }, body = "" } return true end
    end }
    local gw = rig.gateway { collector = collector, routes = plain_route(hello()) }
    assert.equal(200, gw:request({ path = "/v1/x" }).status)
    collector.wait(2)
    assert.equal(2, #collector.spans)
    wait_outcome(gw, "exported", 2)
    assert.equal(1, select(2, gw.log():gsub("otel: spans cannot be sent to", "")))
    gw:wait_log("otel: spans are taken again by")
  end))

  it("holds no request up where the collector hangs, and drops what finds no room", async(function()
    local hanging = {}
    local collector = rig.collector { answer = function(_, _, conn)
      hanging[#hanging + 1] = conn
      return true
    end }
    local gw = rig.gateway { collector = collector, routes = plain_route(hello()),
      otel = { queue = 10, batch = 10, timeout = 2, retry = 0.05 } }
    for _ = 1, 40 do assert.equal(200, gw:request({ path = "/v1/x" }).status) end
    support.wait_for(function() return outcome(gw, "dropped") > 0 end, "spans to be dropped", 20000)
    support.wait_for(function() return outcome(gw, "failed") + outcome(gw, "dropped") == 80 end, "all ends", 20000)
    assert.is_true(outcome(gw, "failed") >= 10)
  end))

  it("tells what the collector rejected, and does not repeat what it refuses", async(function()
    local collector = rig.collector { answer = function(n, _, conn)
      if n == 1 then
        conn:respond { headers = { ["content-type"] = "application/json" },
          body = '{"partialSuccess":{"rejectedSpans":"1","errorMessage":"too old"}}' }
        return true
      end
      conn:respond { status = 400, body = "" }
      return true
    end }
    local gw = rig.gateway { collector = collector, routes = plain_route(hello()) }
    gw:request { path = "/v1/x" }
    wait_outcome(gw, "rejected", 1)
    wait_outcome(gw, "exported", 1)
    gw:request { path = "/v1/x" }
    wait_outcome(gw, "failed", 2)
    assert.equal(2, #collector.requests)
    gw:wait_log("otel: spans cannot be sent to [^\n]*: too old")
  end))

  it("sends what is left at the gateway's end", async(function()
    local collector = rig.collector()
    local gw = rig.gateway { collector = collector, routes = plain_route(hello()), otel = { interval = 300, metrics = true,
      metrics_interval = 3600 } }
    for _ = 1, 5 do gw:request { path = "/v1/x" } end
    gw:stop()
    assert.equal(10, #collector.spans)
    assert.is_true(#collector.exports >= 1)
  end))

  it("loses nothing in reloads, of requests that began before them either", async(function()
    local collector, on = rig.collector(), { go = false }
    local origin = support.origin(function(req, conn)
      if req.path == "/v1/late" then support.wait_for(function() return on.go end, "leave to answer", 20000) end
      conn:respond { body = "hello" }
    end)
    local gw = rig.gateway { collector = collector, routes = plain_route(origin), otel = { interval = 300 },
      config = { reload = { watch = false } } }
    local late = support.spawn(function() return gw:request { path = "/v1/late" } end)
    origin:wait_request(1)
    for i = 1, 3 do
      gw:request { path = "/v1/x" }
      gw:write("gateway.lua", support.read_file(gw.dir .. "/gateway.lua") .. "-- " .. i .. "\n")
      assert.equal(0, gw:command("reload").code)
      collector.wait(2 * i)
    end
    on.go = true
    assert.equal(200, late:join().status)
    collector.wait(8)
    support.wait_for(function() return gw:status().workers[1].generations == 1 end, "the old generation's end", 20000)
    gw:stop()
    assert.equal(8, #collector.spans)
  end))

  it("ends with the gateway where the collector hangs", async(function()
    local collector = rig.collector { answer = function() return true end }
    local gw = rig.gateway { collector = collector, routes = plain_route(hello()), otel = { interval = 300 } }
    gw:request { path = "/v1/x" }
    gw:stop()
    assert.equal(1, #collector.requests)
  end))
end)

describe("otel's metrics", function()
  it("are those of the replica, once, and rise", async(function()
    local collector = rig.collector()
    local gw = rig.gateway { collector = collector, routes = plain_route(hello()), config = { workers = 2 },
      otel = { traces = false, metrics = true, metrics_interval = 0.1 } }
    for _ = 1, 20 do gw:request { path = "/v1/x" } end
    local function requests(export)
      return export.tollgate_requests_total.sum.dataPoints[1].asDouble
    end
    -- Of a request that has ended: it is counted behind the answer.
    local function ended(export)
      local metric, counted = export.tollgate_request_duration_seconds, 0
      for _, point in ipairs(metric and metric.histogram.dataPoints or {}) do
        if rig.plain(point.attributes).route == "plain" then counted = counted + tonumber(point.count) end
      end
      return counted
    end
    local last = support.wait_for(function()
      local one = collector.exports[#collector.exports]
      return one and ended(one) >= 20 and one
    end, "the count in an export", 20000)
    assert.equal("tollgate", last.resource["service.name"])
    assert.same({ 20, 20 }, { ended(last), requests(last) })
    for _, point in ipairs(last.tollgate_request_duration_seconds.histogram.dataPoints) do
      local sum = 0
      for _, n in ipairs(point.bucketCounts) do sum = sum + tonumber(n) end
      assert.equal(tonumber(point.count), sum)
      assert.equal(#point.explicitBounds + 1, #point.bucketCounts)
    end
    local before = 0
    for _, export in ipairs(collector.exports) do
      assert.is_true(requests(export) >= before)
      before = requests(export)
    end
  end))

  it("go on where a worker is killed, and lose nothing that it counted", async(function()
    local collector = rig.collector()
    local gw = rig.gateway { collector = collector, routes = plain_route(hello()), config = { workers = 2 },
      otel = { traces = false, metrics = true, metrics_interval = 0.1 } }
    local function total(n)
      return support.wait_for(function()
        local last = collector.exports[#collector.exports]
        local metric = last and last.tollgate_requests_total
        return metric and metric.sum.dataPoints[1].asDouble >= n and metric.sum.dataPoints[1]
      end, n .. " requests in an export", 20000)
    end
    for _ = 1, 10 do gw:request { path = "/v1/x" } end
    local begun = total(10).startTimeUnixNano
    for _, pid in ipairs(gw:workers()) do -- one of them is who sends the metrics
      uv.kill(pid, "sigkill")
      support.wait_for(function()
        local now = gw:workers()
        return #now == 2 and now[1] ~= pid and now[2] ~= pid
      end, "a worker in its place", 20000)
    end
    for _ = 1, 10 do assert.equal(200, gw:request({ path = "/v1/x" }).status) end
    assert.equal(begun, total(20).startTimeUnixNano)
  end))
end)

describe("otel refuses", function()
  local function faults(conf, config)
    local dir = support.tmpdir()
    local all = { plugins = { otel = conf },
      routes = { { name = "r", path = "/*", targets = { { url = "http://127.0.0.1:1" } } } } }
    for name, value in pairs(config or {}) do all[name] = value end
    support.write_file(dir .. "/gateway.lua", "return " .. support.literal(all))
    local res = support.tollgate { "check", "-c", dir .. "/gateway.lua" }
    return res.code, res.err
  end

  it("settings that make no sense, with what to do", async(function()
    for message, given in pairs {
      ["endpoint: must be http://host"] = { endpoint = "collector:4318" },
      ["endpoint: user information does not belong here"] = { endpoint = "http://me:secret@c:4318", traces = false },
      ["endpoint: the host is missing or not valid"] = { endpoint = "http://:4318", traces = false },
      ["traces: there are no traces to send: set tracing = {}"] = { endpoint = "http://c:4318" },
      ["otel: sends nothing"] = { endpoint = "http://c:4318", traces = false, metrics = false },
      ["tls: cert and key go together"] = { endpoint = "https://c:4318", traces = false, tls = { cert = "a.pem" } },
      ["queue: must hold at least one batch"] = { endpoint = "http://c:4318", traces = false, queue = 5 },
      ['headers["Content-Length"]: is set by the gateway itself'] = { endpoint = "http://c:4318", traces = false,
        headers = { ["Content-Length"] = "1" } },
      ['headers["x-token"]: must have no control character'] = { endpoint = "http://c:4318", traces = false,
        headers = { ["x-token"] = "secret\n" } },
      ["endpoint: is required"] = {},
    } do
      local code, err = faults(given)
      assert.equal(1, code)
      assert.is_truthy(err:find(message, 1, true), err)
      assert.is_nil(err:find("secret", 1, true))
    end
    local code, err = faults({ endpoint = "http://c:4318/otlp/" }, { tracing = {} })
    assert.same({ 0, "" }, { code, err })
  end))
end)
