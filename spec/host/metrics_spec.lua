-- tg.metrics: what plugins count, as /metrics of the admin listener shows it.
local support = require "spec.support"
local probe = require "spec.host.probe"
local async = support.async

local on, up, down = probe.shared()
setup(up)
teardown(down)

-- The samples of /metrics: "name{labels}" → text of the value.
local function samples(gw)
  local res = (gw or on.gw):admin "/metrics"
  assert.equal(200, res.status)
  local all, help, types = {}, {}, {}
  for line in res.body:gmatch "([^\n]+)\n" do
    local name, text = line:match "^# HELP (%S+) (.*)$"
    if name then
      assert.is_nil(help[name], name .. " has HELP twice")
      help[name] = text
    elseif line:match "^# TYPE" then
      name, text = line:match "^# TYPE (%S+) (%a+)$"
      types[name] = text
    else
      name, text = line:match "^([%a_][%w_]*%b{}) (%S+)$"
      if not name then name, text = line:match "^([%a_][%w_]*) (%S+)$" end
      assert(name, line)
      assert.is_nil(all[name], name .. " is there twice")
      all[name] = text
    end
  end
  return all, help, types
end

it("counts", async(function()
  on.eval [[
    local plain = tg.metrics.counter("plain_total", "Without labels")
    plain:inc()
    plain:inc(2)
    plain:inc(0.5)
    tg.metrics.counter("idle_total", "Not counted yet")
    local c = tg.metrics.counter("asked_total", "Requests by method", { "method", "status", "hit" })
    c:inc(1, "GET", 200, true)
    c:inc(nil, "GET", 200, true)
    c:inc(3, { status = 200, method = "GET", hit = true })
    c:inc({ status = "x", method = 'a"b\n', hit = false })
  ]]
  local all, help, types = samples()
  assert.same({ "3.5", "0", "5", "1" }, { all.plain_total, all.idle_total,
    all['asked_total{method="GET",status="200",hit="true"}'],
    all['asked_total{method="a\\"b\\n",status="x",hit="false"}'] })
  assert.same({ "Requests by method", "counter" }, { help.asked_total, types.asked_total })
  assert.equal("counter", types.tollgate_requests_total)
end))

it("measures what goes up and down", async(function()
  on.eval [[
    local g = tg.metrics.gauge("depth", "Depth", { "queue" })
    g:set(5, "a")
    g:inc(nil, "a")
    g:inc(2, "a")
    g:dec(0.5, "a")
    g:dec({ queue = "b" })
    g:set(1/0, "c")
  ]]
  local all, _, types = samples()
  assert.same({ "7.5", "-1", "+Inf", "gauge" },
    { all['depth{queue="a"}'], all['depth{queue="b"}'], all['depth{queue="c"}'], types.depth })
end))

it("counts by size", async(function()
  on.eval [[
    local h = tg.metrics.histogram("took_seconds", "Time", { "what" }, { 0.1, 1, 10 })
    for _, v in ipairs { 0.05, 0.1, 0.5, 5, 50 } do h:observe(v, "x") end
    h:observe(2, { what = "y" })
    tg.metrics.histogram("default_seconds", "Time"):observe(0.3)
  ]]
  local all, _, types = samples()
  assert.equal("histogram", types.took_seconds)
  assert.same({ "2", "3", "4", "5", "55.65", "5" }, { all['took_seconds_bucket{what="x",le="0.1"}'],
    all['took_seconds_bucket{what="x",le="1"}'], all['took_seconds_bucket{what="x",le="10"}'],
    all['took_seconds_bucket{what="x",le="+Inf"}'], all['took_seconds_sum{what="x"}'], all['took_seconds_count{what="x"}'] })
  assert.equal("0", all['took_seconds_bucket{what="y",le="1"}'])
  assert.same({ "0", "1", "1" },
    { all['default_seconds_bucket{le="0.25"}'], all['default_seconds_bucket{le="0.5"}'], all.default_seconds_count })
end))

it("keeps a bounded number of series", async(function()
  on.eval [[
    local c = tg.metrics.counter("many_total", "Many", { "id", "half" })
    for round = 1, 2 do
      for i = 1, 1500 do c:inc(1, i, i % 2) end
    end
    local few = tg.metrics.counter("few_total", "Few", { "id" }, { series = 2 })
    for i = 1, 5 do few:inc(1, i) end
  ]]
  local all = samples()
  local n = 0
  for name in pairs(all) do n = n + (name:find "^many_total" and 1 or 0) end
  assert.same({ 1001, "2", "2", "1000" }, { n, all['many_total{id="1",half="1"}'], all['many_total{id="1000",half="0"}'],
    all['many_total{id="other",half="other"}'] })
  assert.same({ "1", "1", "3" }, { all['few_total{id="1"}'], all['few_total{id="2"}'], all['few_total{id="other"}'] })
  assert.is_nil(all['few_total{id="3"}'])
  on.gw:wait_log 'metric many_total: more than 1000 combinations of labels; the others are counted as "other"'
  assert.equal(1, select(2, on.gw:log():gsub("metric few_total", "")))
end))

it("gives the same metric to all who register it", async(function()
  on.eval [[ tg.metrics.counter("again_total", "Again", { "a" }):inc(1, "x") ]]
  on.eval [[ tg.metrics.counter("again_total", "Again", { "a" }):inc(1, "x") ]]
  assert.equal("2", samples()['again_total{a="x"}'])
  on.eval "tg.metrics.histogram('again', 'h')"
  for code, message in pairs {
    ["tg.metrics.gauge('again', 'h')"] =
      "tg.metrics.gauge: again: it is registered already, as another kind of metric",
    ["tg.metrics.counter('again_total', 'Again', { 'b' })"] =
      "tg.metrics.counter: again_total: it is registered already, with other labels",
    ["tg.metrics.counter('again_total', 'Again')"] = "it is registered already, with other labels",
    ["tg.metrics.histogram('again', 'h', nil, { 1 })"] = "it is registered already, with other buckets",
  } do
    assert.truthy(on.raised(code):find(message, 1, true), code .. ": " .. on.raised(code))
  end
end))

it("makes no garbage where labels are given in order", async(function()
  assert.equal(0, on.eval [[
    local c = tg.metrics.counter("lean_total", "Lean", { "a", "b", "c" })
    local h = tg.metrics.histogram("lean_seconds", "Lean", { "a" })
    local function run()
      for i = 1, 1000 do
        c:inc(1, "GET", 200, true)
        h:observe(0.5, "x")
      end
    end
    run()
    collectgarbage() collectgarbage()
    collectgarbage "stop"
    local before = collectgarbage "count"
    run()
    local after = collectgarbage "count"
    collectgarbage "restart"
    return math.floor(after - before)
  ]])
end))

it("is there while files load, and serves every phase", async(function()
  local gw = support.gateway {
    config = { redis = "redis://127.0.0.1:1", routes = { { name = "r", path = "/*", plugins = { counts = {} } } } },
    files = { ["plugins/counts.lua"] = [[
      local tg = require "tollgate"
      local phases = tg.metrics.counter("phases_total", "Phases", { "phase" })
      phases:inc(1, "load")
      return { version = "1.0.0", priority = 1, schema = {},
        init = function() phases:inc(1, "init") end,
        access = function() phases:inc(1, "access") return 200 end,
        log = function() phases:inc(1, "log") end,
      }
    ]] },
  }
  assert.equal(200, gw:request({ path = "/" }).status)
  assert.equal(200, gw:request({ path = "/" }).status)
  gw:wait_access(2)
  local all = samples(gw)
  assert.same({ "1", "1", "2", "2" }, { all['phases_total{phase="load"}'], all['phases_total{phase="init"}'],
    all['phases_total{phase="access"}'], all['phases_total{phase="log"}'] })
  local res = support.tollgate({ "check", "-c", gw.dir .. "/gateway.lua" })
  assert.equal(0, res.code, res.err)
end))

it("are read by a plugin as /metrics shows them, the counts of all workers up to its call", async(function()
  local gw = support.gateway {
    config = { workers = 2, routes = { { name = "r", path = "/*", plugins = { reads = {} } } } },
    files = { ["plugins/reads.lua"] = [[
      local tg = require "tollgate"
      local seen = tg.metrics.counter("seen_total", "Requests", { "path" })
      return { version = "1.0.0", priority = 1, schema = {},
        access = function(_, ctx)
          seen:inc(1, ctx.request.path)
          if ctx.request.path == "/read" then return 200, assert(tg.metrics.read()) end
          return 200
        end,
      }
    ]] },
  }
  for _ = 1, 20 do assert.equal(200, gw:request({ path = "/plain" }).status) end
  local text
  support.wait_for(function()
    text = gw:request({ path = "/read" }).body
    return text:find('seen_total{path="/plain"} 20\n', 1, true)
  end, "what the other worker has counted")
  local reads = tonumber(text:match 'seen_total{path="/read"} (%d+)')
  assert.is_true(reads >= 1)
  local function names(body)
    local list = {}
    for name in body:gmatch "# TYPE (%S+)" do list[#list + 1] = name end
    return list
  end
  assert.same(names(gw:admin("/metrics").body), names(text))
end))

it("are read by ever so many at once, with one question at a time on its way to the master", async(function()
  local gw = support.gateway {
    config = { watchdog = 60, routes = { { name = "r", path = "/*", plugins = { reads = {} } } } },
    files = { ["plugins/reads.lua"] = [[
      local tg = require "tollgate"
      local read = tg.metrics.counter("read_total", "Texts", { "fine" })
      local seen = tg.metrics.counter("seen_total", "Calls")
      local calls = 0
      local function one()
        seen:inc()
        calls = calls + 1
        local mine = calls
        local text = tg.metrics.read()
        read:inc(1, tostring(text ~= nil and tonumber(text:match "\nseen_total (%d+)") >= mine))
      end
      return { version = "1.0.0", priority = 1, schema = {},
        access = function()
          for _ = 1, 800 do tg.timer.after(0, one) end
          return 200
        end,
      }
    ]] },
  }
  local pids = gw:workers()
  for _ = 1, 2 do assert.equal(200, gw:request({ path = "/" }).status) end
  support.wait_for(function() return support.prometheus.sum(gw:samples(), "read_total", { fine = "true" }) == 1600 end,
    "all to have read", 20000)
  assert.same(pids, gw:workers())
end))

it("are not there to be read without a gateway", async(function()
  local file = support.tmpdir() .. "/read.lua"
  support.write_file(file, 'print(require("tollgate").metrics.read())')
  assert.equal("nil\tunavailable\n", support.tollgate({ "exec", file }).out)
end))

it("names the function and says what to do where it is misused", async(function()
  local c, g, h = "tg.metrics.counter('misused_total', 'h', { 'a', 'b' })", "tg.metrics.gauge('misused', 'h')",
    "tg.metrics.histogram('misused_seconds', 'h', { 'a' })"
  for code, message in pairs {
    ["tg.metrics.counter()"] = "tg.metrics.counter: the name must be a string, not no value",
    ["tg.metrics.counter('a_total')"] = "tg.metrics.counter: the help must be a string, not no value",
    ["tg.metrics.counter('requests', 'h')"] = "tg.metrics.counter: requests: a counter's name must end in _total",
    ["tg.metrics.counter('a-b_total', 'h')"] = "tg.metrics.counter: a-b_total: a name is made of letters, digits and _",
    ["tg.metrics.gauge('tollgate_x', 'h')"] = "names that begin with tollgate_ are the gateway's own",
    ["tg.metrics.gauge('x', 'h', 'a')"] = "tg.metrics.gauge: labels must be a list, not string",
    ["tg.metrics.gauge('x', 'h', { 1 })"] = "tg.metrics.gauge: a label must be a string, not number",
    ["tg.metrics.gauge('x', 'h', { 'a b' })"] = "tg.metrics.gauge: x: a label is made of",
    ["tg.metrics.gauge('x', 'h', nil, { limit = 1 })"] = "tg.metrics.gauge: unknown option; there is: series",
    ["tg.metrics.gauge('x', 'h', nil, { series = 0 })"] = "tg.metrics.gauge: series must be an integer from 1 to 100000",
    ["tg.metrics.histogram('x', 'h', nil, { 2, 1 })"] = "tg.metrics.histogram: x: buckets are finite numbers, each greater",
    ["tg.metrics.histogram('x', 'h', nil, { 'a' })"] = "tg.metrics.histogram: a bucket must be a number, not string",
    ["tg.metrics.histogram('x', 'h', nil, {})"] = "tg.metrics.histogram: x: a histogram needs a bucket",
    [c .. ":inc('GET', 'x')"] = "misused_total:inc: the number must come first, not a string",
    [c .. ":inc(1, 'x')"] = "misused_total:inc: the metric has 2 labels, but 1 values were given",
    [c .. ":inc()"] = "misused_total:inc: the metric has 2 labels, but 0 values were given",
    [c .. ":inc(1, 'x', nil)"] = "misused_total:inc: label 'b' must be a string, a number or a boolean, not nil",
    [c .. ":inc(1, 'x', {})"] = "misused_total:inc: label 'b' must be a string, a number or a boolean, not table",
    [c .. ":inc(1, { a = 1 })"] = "misused_total:inc: label 'b' must be a string, a number or a boolean, not nil",
    [c .. ":inc(1, { a = 1, b = 1, c = 1 })"] = "misused_total:inc: the table of labels has names that the metric has not",
    [c .. ":inc(-1, 'x', 'y')"] = "misused_total:inc: the number must be finite, and 0 or greater: a counter only rises",
    [c .. ":inc(0/0, 'x', 'y')"] = "misused_total:inc: the number must be finite",
    [c .. ".inc(1, 'x', 'y')"] = "bad argument #1 to 'inc' (tollgate.metrics.counter expected",
    [g .. ":set()"] = "misused:set: the number must come first, not a no value",
    [g .. ":set(1, 'x')"] = "misused:set: the metric has 0 labels, but 1 values were given",
    [g .. ":inc(1/0)"] = "misused:inc: the number must be finite",
    [h .. ":observe(0/0, 'x')"] = "misused_seconds:observe: the number must not be NaN",
    [h .. ":observe(1)"] = "misused_seconds:observe: the metric has 1 labels, but 0 values were given",
  } do
    code = "local _ = " .. code
    assert.truthy(on.raised(code):find(message, 1, true), code .. ": " .. on.raised(code))
  end
end))
