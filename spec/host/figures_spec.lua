-- What the gateway counts of itself: /metrics of a gateway that has seen every kind of request, as promtool reads it, and its
-- figures one by one.
local support = require "spec.support"
local rig = require "spec.host.plugin_rig"
local uv = require "luv"
local async = support.async

local ACTS = [[ local tg = require "tollgate"
  return { access = function(_, ctx)
    local path = ctx.request.path
    if path == "/boom" then error("boom") end
    if path == "/refuse" then return ctx:refusal(402, "pay_first", "Pay first.") end
    if path == "/wait" then tg.timer.sleep(0.2) end
    if path == "/spin" then local till = os.clock() + 0.05; while os.clock() < till do end end
    return tonumber(ctx.request.query) or 200, "ok"
  end } ]]

local function start()
  local redis = support.redis()
  local origin = support.chat_origin {}
  local config = { redis = redis.url, plugins = { auth = { keys = "keys.jsonl" } } }
  return { plugins = { acts = ACTS }, origin = origin, redis = redis, config = config,
    files = { ["keys.jsonl"] = support.keys { { id = "alice", secret = "tg-alice", monthly_tokens = 100000 },
      { id = "slow", secret = "tg-slow", rps = 0.001, burst = 1, monthly_tokens = 100 } } },
    routes = {
      { name = "chat", path = "/v1/chat/completions", plugins = { quota = {} },
        targets = { { provider = "local", model = "configured", url = origin.url } } },
      { name = "dead", path = "/dead", plugins = { auth = false }, targets = { { url = "http://127.0.0.1:1" } } },
      { name = "acts", path = "/*", plugins = { auth = false, acts = {} } },
    } }
end

local function chat(gw, fields)
  return gw:request { path = "/v1/chat/completions", headers = { authorization = "Bearer " .. (fields.secret or "tg-alice") },
    body = { model = fields.model or "m", max_tokens = 50, stream = fields.stream,
      messages = { { role = "user", content = "the prompt" } } } }
end

local function promtool(text)
  local path = support.tmpdir() .. "/metrics"
  support.write_file(path, text)
  return support.exec { cmd = "sh", args = { "-c", 'promtool check metrics < "$0"', path } }
end

describe("/metrics", function()
  local on, up, down = rig.shared(start)
  setup(up)
  teardown(down)

  it("is what promtool takes, on a gateway that has seen all kinds of requests", async(function()
    on.gw:wait_log("redis: usable")
    assert.equal(200, chat(on.gw, {}).status)
    assert.equal(200, chat(on.gw, { stream = true }).status)
    chat(on.gw, { secret = "tg-slow" })
    for _, path in ipairs { "/", "/boom", "/refuse", "/dead", "/?404", "/?302" } do on.gw:request { path = path } end
    on.gw:request { path = "/v1/chat/completions" }
    local c = on.gw:connect()
    c:send "GET / HTTP/9\r\n\r\n"
    c:read_response()
    assert.equal(0, on.gw:command("reload").code)
    on.gw:write("keys.jsonl", "nonsense")
    assert.not_equal(0, on.gw:command("reload").code)
    on.gw:write("keys.jsonl", on.options.files["keys.jsonl"])
    local text = on.gw:admin("/metrics").body
    local run = promtool(text)
    assert.same({ 0, "", "" }, { run.code, run.out, run.err })
    support.prometheus.parse(text)
    for _, secret in ipairs { "tg-alice", "the prompt", on.gw.dir } do assert.is_nil(text:find(secret, 1, true), secret) end
  end))

  it("is described in README.md: every metric with labels, with these labels", async(function()
    local described, missing = {}, {}
    for row in support.read_file("README.md"):gmatch "\n(| `tollgate_[^\n]*)" do
      local names, labels = row:match "^| (.-) | (.*) |$"
      for name in names:gmatch "`([%w_]+)`" do
        described[name] = {}
        for label in labels:gmatch "`(%l[%l_]*)`" do described[name][label] = true end
      end
    end
    local _, types = support.prometheus.parse(on.gw:admin("/metrics").body)
    for _, sample in ipairs(on.gw:samples()) do
      local name = sample.name:gsub("_bucket$", "")
      for label in pairs(sample.labels) do
        if label ~= "le" and types[name] and not (described[name] or {})[label] then missing[name .. " " .. label] = true end
      end
    end
    assert.same({}, missing)
  end))

  it("counts requests by route, status and end, and how long they took", async(function()
    local function ended(labels) return on.gw:metric("requests_ended_total", labels) end
    local before, all = ended { route = "acts", code = "200", ended = "ok" }, on.gw:metric("requests_total")
    local slow = on.gw:metric("request_duration_seconds_sum", { route = "acts", status = "2xx" })
    on.gw:request { path = "/" }
    on.gw:request { path = "/wait" }
    on.gw:request { path = "/boom" }
    on.gw:wait_metric("requests_ended_total", before + 2, { route = "acts", code = "200", ended = "ok" })
    on.gw:wait_metric("requests_total", all + 3)
    assert.is_true(ended { route = "acts", code = "500" } >= 1)
    assert.is_true(on.gw:metric("request_duration_seconds_sum", { route = "acts", status = "2xx" }) - slow >= 0.2)
    assert.equal(ended {}, on.gw:metric("request_duration_seconds_count"))
    assert.equal(on.gw:metric("requests_total"), ended {})
    assert.same({ 0, 0 }, { on.gw:metric("requests_in_flight"), on.gw:metric("requests_lost_total") })
  end))

  it("counts time to first byte where an origin answered, and attempts by target", async(function()
    local before = on.gw:metric("request_first_byte_seconds_count", { route = "chat", status = "2xx" })
    local attempts = on.gw:metric("origin_attempts_total", { route = "chat", target = "local:configured" })
    assert.equal(200, chat(on.gw, {}).status)
    on.gw:wait_metric("request_first_byte_seconds_count", before + 1, { route = "chat", status = "2xx" })
    on.gw:wait_metric("origin_attempts_total", attempts + 1, { route = "chat", target = "local:configured" })
    local failed = on.gw:metric("origin_errors_total", { route = "dead" })
    assert.equal(502, on.gw:request({ path = "/dead" }).status)
    on.gw:wait_metric("origin_errors_total", failed + 1, { route = "dead", error = "connect" })
    assert.equal(0, on.gw:metric("request_first_byte_seconds_count", { route = "dead" }))
  end))

  it("counts tokens by model and direction", async(function()
    local function used(direction) return on.gw:metric("tokens_used_total", { model = "m", direction = direction }) end
    local input, output = used "input", used "output"
    local over, reserved = on.gw:metric("tokens_over_reserved_total"), on.gw:metric("tokens_reserved_total")
    chat(on.gw, {})
    on.gw:wait_metric("tokens_used_total", input + 9, { model = "m", direction = "input" })
    assert.equal(output + 4, used "output")
    local now = on.gw:metric("tokens_reserved_total") - reserved
    assert.equal(now - 13, on.gw:metric("tokens_over_reserved_total") - over)
    assert.is_true(now > 50, now)
  end))

  it("gives a model series of its own only once an origin has answered it, or the configuration names it", async(function()
    local origin = on.options.origin
    local handler = origin.handler
    local function model_series(name)
      for _, sample in ipairs(on.gw:samples()) do
        if sample.labels.model == name then return true end
      end
      return false
    end
    origin.handler = function(_, conn) conn:respond { status = 404, body = { error = { message = "no such model" },
      usage = { prompt_tokens = 1, completion_tokens = 1, total_tokens = 2 } } } end
    for _, name in ipairs { "unknown-1", "configured" } do assert.equal(404, chat(on.gw, { model = name }).status) end
    origin.handler = handler
    for _, name in ipairs { ("x"):rep(65), "line\nbreak", "white space", "vendor/model-1.5:beta@eu" } do
      assert.equal(200, chat(on.gw, { model = name }).status)
    end
    on.gw:wait_metric("requests_in_flight", 0)
    assert.is_false(model_series "unknown-1")
    assert.is_true(model_series "configured")
    assert.is_true(model_series "vendor/model-1.5:beta@eu")
    assert.is_true(on.gw:metric("tokens_used_total", { model = "other" }) >= 39)
    for _, name in ipairs { ("x"):rep(65), "line\nbreak", "white space" } do assert.is_false(model_series(name), name) end
  end))

  it("counts refusals by limit", async(function()
    chat(on.gw, { secret = "tg-slow" })
    local before = on.gw:metric("refusals_total", { route = "chat", limit = "rate" })
    assert.equal(429, chat(on.gw, { secret = "tg-slow" }).status)
    on.gw:wait_metric("refusals_total", before + 1, { route = "chat", limit = "rate" })
    on.gw:request { path = "/refuse" }
    support.wait_for(function() return on.gw:metric("refusals_total", { route = "acts", limit = "pay_first" }) >= 1 end, "it")
    assert.is_true(on.gw:metric("quota_decisions_total", { verdict = "rate" }) >= 1)
  end))

  it("measures plugins by phase, without their waits, and counts their errors", async(function()
    local function of(name) return on.gw:metric("plugin_" .. name .. "_total", { plugin = "acts", phase = "access" }) end
    local calls, errors, seconds = of "calls", of "errors", of "seconds"
    on.gw:request { path = "/wait" }
    on.gw:request { path = "/boom" }
    on.gw:wait_metric("plugin_errors_total", errors + 1, { plugin = "acts", phase = "access" })
    assert.equal(calls + 2, of "calls")
    local waited = of "seconds" - seconds
    assert.is_true(waited < 0.15, waited)
    on.gw:request { path = "/spin" }
    on.gw:wait_metric("plugin_calls_total", calls + 3, { plugin = "acts", phase = "access" })
    local spun = of "seconds" - seconds - waited
    assert.is_true(spun >= 0.04, spun)
  end))

  it("measures Redis and the size of batches", async(function()
    local function count(name, labels) return on.gw:metric(name .. "_count", labels) end
    local admits = count("quota_batch_requests", { script = "admit" })
    local settles = count("quota_batch_requests", { script = "settle" })
    local replies = count("redis_duration_seconds", { command = "admit" })
    chat(on.gw, {})
    on.gw:wait_metric("quota_batch_requests_count", settles + 1, { script = "settle" })
    assert.equal(admits + 1, count("quota_batch_requests", { script = "admit" }))
    on.gw:wait_metric("redis_duration_seconds_count", replies + 1, { command = "admit" })
    assert.is_true(on.gw:metric("redis_duration_seconds_sum") > 0)
  end))

  it("keeps a route's series over a reload", async(function()
    local before = on.gw:metric("requests_ended_total", { route = "acts" })
    assert.equal(0, on.gw:command("reload").code)
    on.gw:request { path = "/" }
    on.gw:wait_metric("requests_ended_total", before + 1, { route = "acts" })
    assert.is_true(on.gw:metric("reloads_total", { outcome = "ok" }) >= 1)
  end))

  it("tells of the process: memory, connections, build, start", async(function()
    local c = on.gw:connect()
    c:request { path = "/" }
    assert.is_true(on.gw:metric "client_connections" >= 1)
    assert.is_true(on.gw:metric "client_connections_accepted_total" >= 1)
    c:close()
    for _, name in ipairs { "worker_resident_memory_bytes", "worker_lua_memory_bytes" } do
      assert.is_true(on.gw:metric(name, { worker = 0 }) > 100000, name)
    end
    assert.is_true(on.gw:metric("worker_buffer_bytes", { worker = 0 }) >= 0)
    assert.same({ 1, 1, 1 }, { on.gw:metric "build_info", on.gw:metric "config_info", on.gw:metric "ready" })
    local started = support.prometheus.sum(on.gw:samples(), "process_start_time_seconds")
    assert.is_true(math.abs(os.time() - started) < 300)
  end))
end)

it("Redis's errors are counted by kind", async(function()
  local redis = support.redis()
  local options = start()
  options.config.redis = { url = redis.url, timeout = 0.1 }
  local gw = rig.start(options)
  gw:wait_log("redis: usable")
  redis:pause()
  assert.equal(503, chat(gw, {}).status)
  assert.equal(503, chat(gw, {}).status)
  redis:resume()
  support.wait_for(function() return gw:metric("redis_errors_total", { error = "down" }) >= 1 end, "a refusal")
  gw:wait_metric("worker_redis_usable", 1)
end))

it("requests in a worker that is killed are counted as lost, and everything that had ended stays", async(function()
  local options = start()
  options.config.workers = 1
  local gw = rig.start(options)
  for _ = 1, 20 do gw:request { path = "/" } end
  local clients = {}
  for i = 1, 3 do
    clients[i] = gw:connect()
    clients[i]:send_request { path = "/wait" }
  end
  gw:wait_metric("requests_total", 23)
  uv.kill(gw:workers()[1], "sigstop") -- so that none of them ends meanwhile
  uv.kill(gw:workers()[1], "sigkill")
  support.wait_for(function() return gw:metric("worker_restarts_total", { reason = "signal" }) == 1 end, "the restart")
  local lost = gw:metric "requests_lost_total"
  assert.is_true(lost >= 1 and lost <= 3, lost)
  assert.equal(23, lost + gw:metric "requests_ended_total")
  assert.equal(0, gw:metric "requests_in_flight")
  for _, c in ipairs(clients) do c:close() end
end))
