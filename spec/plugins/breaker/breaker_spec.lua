-- The breaker in a gateway: what opens it, who gets past it, what closes it, and what is told of it.
local support = require "spec.support"
local rig = require "spec.plugins.breaker.rig"

local async = support.async

describe("breaker", function()
  it("opens at failures in a row, answers 503 with the time of the probe, and closes by one", async(function()
    local o = rig.origin(503)
    local gw = rig.gateway { origin = o, conf = { cooldown = 60 } }
    assert.equal(503, rig.ask(gw, 3))
    local res = gw:request { path = "/" }
    assert.equal("no_target_available", support.json(res).error.code)
    local seconds = tonumber(res.headers["retry-after"])
    assert.truthy(seconds >= 55 and seconds <= 60, res.headers["retry-after"])
    assert.equal(3, o.count())
    local s = rig.state(gw)
    assert.same({ "open", "consecutive", 3, 3, "a", "m" },
      { s.state, s.reason, s.opened_failures, s.opened_requests, s.provider, s.model })
    gw:wait_log "warn +%S* *breaker a:m: open for 60 s: 3 failures in a row %(503%)"
    gw:wait_metric("no_target_total", 1)
  end))

  it("lets exactly one of a hundred requests through as the probe, in two workers", async(function()
    local o = rig.origin(503)
    local gw = rig.gateway { origin = o, workers = 2 }
    rig.open(gw, o)
    assert.equal(3, o.count())
    o.mode = "hang"
    support.wait_for(function() return rig.state(gw).probe_in == 0 end, "the cooldown's end")
    local statuses, clients = {}, {}
    for i = 1, 100 do
      clients[i] = function()
        local status = gw:request({ path = "/" }).status
        statuses[status] = (statuses[status] or 0) + 1
      end
    end
    local all = support.spawn(function() support.all(clients) end)
    support.wait_for(function() return (statuses[503] or 0) == 99 end, "99 refusals")
    o:wait_request(4)
    assert.same({ "half-open", true }, { rig.state(gw).state, rig.state(gw).probing })
    o.mode = 200
    all:join(10000)
    assert.same({ [200] = 1, [503] = 99 }, statuses)
    assert.equal(4, o.count())
    assert.equal("closed", rig.state(gw).state)
    assert.equal(200, rig.ask(gw, 1))
    for text, n in pairs { ["breaker a:m: open for"] = 1, ["breaker a:m: half-open"] = 1, ["breaker a:m: closed"] = 1 } do
      assert.equal(n, rig.lines(gw, text), text)
    end
    local function counted(name, labels) return support.prometheus.sum(gw:samples(), name, labels) end
    assert.equal(99, counted("breaker_passed_over_total", { provider = "a", model = "m" }))
    assert.equal(1, counted("breaker_probes_total", { outcome = "success" }))
    assert.equal(1, counted("breaker_transitions_total", { to = "open", reason = "consecutive" }))
    assert.equal(1, counted("breaker_transitions_total", { to = "half_open", reason = "cooldown" }))
    assert.equal(1, counted("breaker_transitions_total", { to = "closed", reason = "probe" }))
  end))

  it("shows its state as a gauge, once for all workers", async(function()
    local o = rig.origin(503)
    local gw = rig.gateway { origin = o, workers = 2, conf = { cooldown = 60 } }
    local function level() return support.prometheus.sum(gw:samples(), "breaker_state", { provider = "a", model = "m" }) end
    support.wait_for(function() return level() == 0 end, "the gauge")
    rig.open(gw, o)
    support.wait_for(function() return level() == 2 end, "the gauge to show that it is open")
  end))

  it("closes at the good head of a probe, however long its body takes", async(function()
    local o = rig.origin()
    local gw = rig.gateway { origin = o }
    rig.open(gw, o)
    local done = false
    o.mode = function(_, conn)
      conn:start()
      conn:chunk "first"
      support.wait_for(function() return done end, "the end", 20000)
      conn:chunk "last"
      conn:finish()
    end
    support.wait_for(function() return rig.state(gw).probe_in == 0 end, "the cooldown's end")
    local long = support.spawn(function() return gw:request { path = "/long" } end)
    rig.wait(gw, "closed")
    assert.equal(4, o.count())
    done = true
    local res = long:join(5000)
    assert.equal("firstlast", res.body)
  end))

  it("opens for longer where a probe fails, and counts a body that breaks off behind a good head", async(function()
    local o = rig.origin()
    local gw = rig.gateway { origin = o, conf = { cooldown_factor = 100, cooldown_max = 50 } }
    rig.open(gw, o)
    support.wait_for(function() return rig.state(gw).probe_in == 0 end, "the cooldown's end")
    assert.equal(503, rig.ask(gw, 1))
    local s = rig.state(gw)
    assert.same({ "open", "probe" }, { s.state, s.reason })
    assert.truthy(s.probe_in > 20, s.probe_in)
    assert.equal(4, o.count())
    assert.equal(0, gw:command("breaker", "auto", "a:m").code) -- changes nothing
    assert.equal("open", rig.state(gw).state)

    o.mode = function(_, conn)
      conn:start()
      conn:chunk "first"
      conn:close()
    end
    gw:command("breaker", "open", "a:m")
    gw:command("breaker", "auto", "a:m")
    local conn = gw:connect()
    conn:request { path = "/" }
    rig.wait(gw, "closed")
    support.wait_for(function() return rig.state(gw).failures == 1 end, "the cut to count")
  end))

  it("has the next request probe where a probe's client leaves", async(function()
    local o = rig.origin()
    local gw = rig.gateway { origin = o, conf = { probe_lease = 60 } }
    rig.open(gw, o)
    o.mode = "hang"
    support.wait_for(function() return rig.state(gw).probe_in == 0 end, "the cooldown's end")
    local conn = gw:connect()
    conn:write "GET / HTTP/1.1\r\nHost: h\r\n\r\n"
    o:wait_request(4)
    assert.equal(503, rig.ask(gw, 1))
    conn:close()
    support.wait_for(function() return not rig.state(gw).probing end, "the lease to be given back")
    assert.equal("half-open", rig.state(gw).state)
    o.mode = 200
    assert.equal(200, rig.ask(gw, 1))
    assert.equal("closed", rig.state(gw).state)
    assert.equal(1, support.prometheus.sum(gw:samples(), "breaker_probes_total", { outcome = "undecided" }))
  end))

  it("gives the lease back where another plugin passes over the target behind it", async(function()
    local o = rig.origin()
    local gw = support.gateway { files = { ["plugins/over.lua"] = [[
      local over = false
      return { priority = 1, schema = {},
        access = function(_, ctx) over = ctx.request.path == "/over" end,
        target = function() if over then return false end end }
    ]] }, config = { workers = 1, routes = { { name = "r", path = "/*",
      targets = { { provider = "a", model = "m", url = o.url } }, plugins = { over = {}, breaker = rig.conf() } } } } }
    rig.open(gw, o)
    o.mode = 200
    support.wait_for(function() return rig.state(gw).probe_in == 0 end, "the cooldown's end")
    assert.equal(503, rig.ask(gw, 1, "/over"))
    local s = rig.state(gw)
    assert.same({ "half-open", 3 }, { s.state, o.count() })
    assert.equal(200, rig.ask(gw, 1))
    assert.equal("closed", rig.state(gw).state)
  end))

  it("has another probe once the lease of one that hangs has ended", async(function()
    local o = rig.origin()
    local gw = rig.gateway { origin = o, conf = { probe_lease = 0.3 } }
    rig.open(gw, o)
    o.mode = "hang"
    support.wait_for(function() return rig.state(gw).probe_in == 0 end, "the cooldown's end")
    local first = support.spawn(function() return gw:request({ path = "/" }).status end)
    o:wait_request(4)
    support.wait_for(function() return not rig.state(gw).probing end, "the lease's end")
    local second = support.spawn(function() return gw:request({ path = "/" }).status end)
    o:wait_request(5)
    o.mode = 200
    assert.same({ 200, 200 }, { first:join(5000), second:join(5000) })
    assert.equal("closed", rig.state(gw).state)
    assert.equal(1, support.prometheus.sum(gw:samples(), "breaker_probes_total", { outcome = "expired" }))
  end))

  it("opens by connections that are refused, by time and by ratio", async(function()
    local fine = rig.origin()
    local gw = rig.gateway { targets = { { provider = "dead", url = "http://127.0.0.1:" .. support.dead_port() } },
      conf = { cooldown = 60 } }
    assert.equal(502, rig.ask(gw, 3))
    assert.same({ "open", nil }, { rig.state(gw, "dead").state, rig.state(gw, "dead").model })
    gw:wait_log "breaker dead: open for 60 s: 3 failures in a row %(connect%)"

    fine.mode = "hang"
    gw = rig.gateway { origin = fine, conf = { cooldown = 60, consecutive = 1 }, route = { timeouts = { first_byte = 0.1 } } }
    assert.equal(504, rig.ask(gw, 1))
    assert.equal("open", rig.state(gw).state)

    gw = rig.gateway { origin = fine, conf = { cooldown = 60, consecutive = false, ratio = 0.5, min_requests = 6 } }
    for i = 1, 5 do
      fine.mode = i % 2 == 0 and 500 or 200
      rig.ask(gw, 1)
    end
    assert.equal("closed", rig.state(gw).state)
    fine.mode = 500
    rig.ask(gw, 1)
    local s = rig.state(gw)
    assert.same({ "open", "ratio", 6, 3, "3 of 6 requests failed" },
      { s.state, s.reason, s.opened_requests, s.opened_failures, s.why })
  end))

  it("does not open by answers that clients caused, nor by a budget that is spent", async(function()
    local o = rig.origin(404)
    local gw = rig.gateway { origin = o, conf = { cooldown = 60 } }
    rig.ask(gw, 5)
    o.mode = function(_, conn) conn:respond { status = 429, body = { error = { code = "insufficient_quota" } } } end
    rig.ask(gw, 5)
    assert.same({ "closed", 0, 10 }, { rig.state(gw).state, rig.state(gw).failures, rig.state(gw).requests })
    o.mode = function(_, conn) conn:respond { status = 429, body = { error = { code = "rate_limit_exceeded" } } } end
    assert.equal(503, rig.ask(gw, 4))
    assert.equal("open", rig.state(gw).state)
  end))

  it("sends requests to the other targets, also those that began before it opened", async(function()
    local o, other = rig.origin(503), rig.origin()
    local gw = rig.gateway { conf = { cooldown = 60 }, targets = { { provider = "a", model = "m", url = o.url },
      { provider = "b", model = "m", url = other.url, tier = 2 } } }
    for _ = 1, 20 do assert.equal(200, rig.ask(gw, 1)) end
    assert.same({ 3, 20 }, { o.count(), other.count() })
    assert.same({ "open", "closed" }, { rig.state(gw).state, rig.state(gw, "b:m").state })
  end))

  it("does not count what began before it closed", async(function()
    local o, released, status = rig.origin(), false, 503
    local gw = rig.gateway { origin = o }
    o.mode = function(req, conn)
      if req.target ~= "/late" then return conn:respond { status = status } end
      support.wait_for(function() return released end, "the late ones to be released", 20000)
      conn:respond { status = 500 }
    end
    local late = {}
    for i = 1, 4 do late[i] = support.spawn(function() return gw:request({ path = "/late" }).status end) end
    o:wait_request(4)
    rig.ask(gw, 3)
    assert.equal("open", rig.state(gw).state)
    status = 200
    support.wait_for(function() return rig.state(gw).probe_in == 0 end, "the cooldown's end")
    assert.equal(200, rig.ask(gw, 1))
    released = true
    for i = 1, 4 do assert.equal(500, late[i]:join(5000)) end
    assert.same({ "closed", 0, 1 }, { rig.state(gw).state, rig.state(gw).failures, rig.state(gw).requests }) -- the probe
    assert.equal(200, rig.ask(gw, 1))
  end))
end)

describe("breaker's settings", function()
  local function check(routes)
    local dir = support.tmpdir()
    support.write_file(dir .. "/gateway.lua", "return " .. support.literal { routes = routes })
    return support.tollgate({ "check", "-c", dir .. "/gateway.lua" })
  end
  local targets = { { provider = "a", url = "http://127.0.0.1:1" } }

  it("are refused where they make no sense", async(function()
    for key, case in pairs {
      ratio = { 0, "routes[1].plugins.breaker.ratio: must be" }, ["ratio "] = { 1.5, "breaker.ratio" },
      min_requests = { 0, "breaker.min_requests: must be at least 1" }, consecutive = { 0, "breaker.consecutive" },
      window = { 0, "breaker.window" }, jitter = { 2, "breaker.jitter: must be at most 1" },
      cooldown_max = { 1, "breaker.cooldown_max: is below cooldown: write 10 or more" },
      failures = { { "6xx" }, "breaker.failures[1]" }, ["failures "] = { {}, "breaker.failures" },
      hint = { "close", "breaker.hint: must be one of" }, cooldwn = { 1, "unknown key (did you mean cooldown?)" },
    } do
      local res = check { { name = "r", path = "/", targets = targets, plugins = { breaker = { [key:match "%S+"] = case[1] } } } }
      assert.equal(1, res.code, key)
      assert.truthy(res.err:find(case[2], 1, true), key .. ": " .. res.err)
    end
    local never = { ratio = false, consecutive = false }
    local res = check { { name = "r", path = "/", targets = targets, plugins = { breaker = never } } }
    assert.truthy(res.err:find("breaker: ratio and consecutive are both false: it would never open", 1, true), res.err)
    res = check { { name = "r", path = "/", targets = targets, plugins = { breaker = { {}, {} } } } }
    assert.truthy(res.err:find("may stand only once on a route", 1, true), res.err)
  end))

  it("have to agree where routes share a target", async(function()
    local function routes(more)
      return { { name = "r", path = "/r", targets = targets, plugins = { breaker = {} } },
        { name = "s", path = "/s", targets = targets, plugins = { breaker = more } } }
    end
    assert.equal(0, check(routes {}).code)
    assert.equal(0, check(routes { window = 30 }).code)
    local res = check(routes { window = 20 })
    assert.equal("routes[2].plugins.breaker: differs from routes[1].plugins.breaker, and a is a target of both: it has one "
      .. "breaker, so the settings must be the same\n", res.err)
  end))
end)
