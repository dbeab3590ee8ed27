-- The monitoring example: promtool takes its files and runs the tests of its alerts, and a real Prometheus that scrapes a live
-- gateway knows every metric and label of the rules and the dashboard.
local support = require "spec.support"
local async = support.async

local DIR = "examples/monitoring/"

-- There only where something happened that this spec does not bring about: named in the host's source instead.
local RARE = { tollgate_plugin_quarantined = true, tollgate_tls_certificate_expiry_timestamp_seconds = true,
  tollgate_target_healthy = true }
-- Of Prometheus itself.
local OTHERS = { up = true }

local function read(name) return assert(support.read_file(DIR .. name)) end

local function promtool(...)
  local run = support.exec { cmd = "promtool", args = { ... }, cwd = DIR }
  assert.equal(0, run.code, run.out .. run.err)
  return run.out
end

-- Every expression of the dashboard, at any depth, with its variables filled in.
local function dashboard_expressions()
  local list = {}
  local function walk(value)
    if type(value) ~= "table" then return end
    if type(value.expr) == "string" then
      list[#list + 1] = value.expr:gsub("%$__rate_interval", "1m"):gsub("%$instance", ".+")
    end
    for _, inner in pairs(value) do walk(inner) end
  end
  walk(support.decode(read "dashboard.json"))
  return list
end

local function rule_expressions(text)
  local list = {}
  for line in text:gmatch "\n%s+expr: ([^|\n][^\n]*)" do list[#list + 1] = line end
  for indent, first in text:gmatch "\n(%s+)expr: |\n(.-)\n%s+for:" do list[#list + 1] = indent and first end
  return list
end

-- The metrics that an expression names, and the labels that it selects by: name → { label = true }.
local function metrics_in(expression)
  local found = {}
  for name, rest in expression:gmatch "%f[%w_]([%a][%w_]*)%f[^%w_]%s*(%b{})" do
    found[name] = found[name] or {}
    for label in rest:gmatch "([%w_]+)%s*[=!]" do found[name][label] = true end
  end
  for name in expression:gmatch "%f[%w_](tollgate_[%w_]+)" do found[name] = found[name] or {} end
  for name in expression:gmatch "%f[%w_](breaker_%w+)" do found[name] = found[name] or {} end
  for name in expression:gmatch "%f[%w_](cache_[%w_]+)" do found[name] = found[name] or {} end
  return found
end

local function start()
  local redis, origin = support.redis(), support.chat_origin {}
  return support.gateway { config = { redis = redis.url, plugins = { auth = { keys = "keys.jsonl" } }, routes = {
      { name = "chat", path = "/v1/chat/completions", plugins = { quota = {}, cache = {}, breaker = {} },
        targets = { { provider = "a", model = "m", url = origin.url } } },
      { name = "broken", path = "/broken", plugins = { auth = false, boom = {} } },
      { name = "dead", path = "/dead", plugins = { auth = false }, targets = { { url = "http://127.0.0.1:1" } } } } },
    files = { ["keys.jsonl"] = support.keys { { id = "a", secret = "tg-a", monthly_tokens = 100000 } },
      ["plugins/boom.lua"] = 'return { access = function() error "boom" end }' } }
end

local function load_it(gw)
  gw:wait_log "redis: usable"
  for _ = 1, 2 do
    local res = gw:request { path = "/v1/chat/completions", headers = { authorization = "Bearer tg-a" },
      body = { model = "m", max_tokens = 50, messages = { { role = "user", content = "x" } } } }
    assert.equal(200, res.status)
  end
  gw:request { path = "/broken" }
  gw:request { path = "/dead" }
  gw:request { path = "/v1/chat/completions" }
end

local function check_names(expressions, gw)
  local source = assert(support.read_file "host/master_metrics.c")
  local samples, types = gw:samples()
  local text = gw:admin("/metrics").body
  local labels = {}
  for _, sample in ipairs(samples) do
    labels[sample.name] = labels[sample.name] or { instance = true, job = true }
    for label in pairs(sample.labels) do labels[sample.name][label] = true end
  end
  local count, unknown = 0, {}
  for _, expression in ipairs(expressions) do
    for name, used in pairs(metrics_in(expression)) do
      local base = name:gsub("_bucket$", ""):gsub("_sum$", ""):gsub("_count$", "")
      local there = labels[name] or text:find("# TYPE " .. base .. " ", 1, true) or (types or {})[base]
      if RARE[name] then there = source:find('"' .. name .. '"', 1, true) end
      if not there and not OTHERS[name] then unknown[#unknown + 1] = name end
      for label in pairs(labels[name] and used or {}) do
        if not labels[name][label] then unknown[#unknown + 1] = name .. " " .. label end
      end
      count = count + 1
    end
  end
  assert.same({}, unknown)
  assert.is_true(count > 20)
end

local function start_prometheus(gw)
  local dir, port = support.tmpdir(), support.free_port()
  local config = read "prometheus.yml":gsub("127%.0%.0%.1:8081", "127.0.0.1:" .. gw.admin_port):gsub("15s", "1s")
  support.write_file(dir .. "/prometheus.yml", config)
  support.write_file(dir .. "/alerts.yml", read "alerts.yml")
  local process = support.start { cmd = "prometheus", args = { "--config.file=" .. dir .. "/prometheus.yml",
    "--storage.tsdb.path=" .. dir .. "/data", "--web.listen-address=127.0.0.1:" .. port } }
  support.on_end(function()
    process:kill "sigterm"
    process:wait(10000)
  end)
  return port
end

local function query(port, expression)
  local encoded = expression:gsub("[^%w]", function(c) return ("%%%02X"):format(c:byte()) end)
  local ok, res = pcall(support.request, { port = port, path = "/api/v1/query?query=" .. encoded })
  return ok and res.status == 200 and support.decode(res.body).data.result or nil, ok and res.body
end

describe("examples/monitoring", function()
  it("is what promtool takes, and its alerts pass their tests", async(function()
    assert.matches("SUCCESS", promtool("check", "config", "prometheus.yml"))
    assert.matches("SUCCESS: %d+ rules found", promtool("check", "rules", "alerts.yml"))
    promtool("test", "rules", "alerts_test.yml")
  end))

  it("tests every alert: that it fires, and that it stays silent", async(function()
    local tests, n = read "alerts_test.yml", 0
    for name in read("alerts.yml"):gmatch "alert: (%w+)" do
      assert.is_truthy(tests:find("eval_time: 60m, alertname: " .. name .. " }", 1, true), name)
      assert.is_truthy(tests:find("alertname: " .. name .. "\n        exp_alerts:\n          - exp_labels", 1, true), name)
      n = n + 1
    end
    assert.is_true(n > 15)
  end))

  it("names metrics and labels that a gateway has, in expressions that Prometheus computes", async(function()
    local gw = start()
    load_it(gw)
    local expressions = dashboard_expressions()
    assert.is_true(#expressions > 30)
    for _, one in ipairs(rule_expressions(read "alerts.yml")) do expressions[#expressions + 1] = one end
    check_names(expressions, gw)
    local port = start_prometheus(gw)
    support.wait_for(function()
      local up = query(port, 'up{job="tollgate"} == 1')
      return up and #up == 1
    end, "Prometheus to have scraped the gateway", 20000)
    for _, one in ipairs(expressions) do
      local result, answer = query(port, one)
      assert(result, one .. ": " .. tostring(answer))
    end
    assert.equal(1, #query(port, 'tollgate_requests_total{job="tollgate"}'))
  end))
end)
