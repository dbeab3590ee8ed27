-- Active health checks of targets: what takes one down and brings it up, who makes them, and where requests go meanwhile.
local support = require "spec.support"
local rig = require "spec.host.target_rig"
local async = support.async
local target = rig.target

local UP, DOWN = true, false

-- An origin whose health is `says`: a status, "hang" or "drop". Its checks are counted.
local function checked(name)
  local self = { says = 200, checks = 0 }
  self.origin = rig.origin(name, function(req, conn)
    if req.path ~= "/healthz" then return false end
    self.checks, self.last = self.checks + 1, req
    if self.says == "drop" then
      conn:close()
    elseif self.says == "hang" then
      support.wait_for(function() return self.says ~= "hang" end, "the end of a hang", 60000)
      conn:close()
    else
      conn:respond { status = self.says }
    end
    return true
  end)
  self.url = self.origin.url
  return self
end

local function health(more)
  local conf = { path = "/healthz", interval = 0.1, timeout = 1, healthy = 2, unhealthy = 2 }
  for key, value in pairs(more or {}) do conf[key] = value end
  return conf
end

local function known(gw, label)
  for _, one in ipairs(gw:status().targets) do
    if one.target == label then return one.healthy end
  end
end

local function wait_health(gw, one, value)
  support.wait_for(function() return known(gw, one.label) == value end, "the health of " .. one.label, 20000)
end

local function two(more, config)
  local a, b = checked "a", checked "b"
  a.label, b.label = "a " .. a.url, "b " .. b.url
  local gw = rig.gateway({ targets = { target("a", a, { health = health(more) }),
    target("b", b, { tier = 2, health = health(more) }) } }, config)
  return gw, a, b
end

local function who(gw) return gw:request { path = "/" }.body end

describe("a health check", function()
  it("takes a target down after failures in a row, and brings it back", async(function()
    local gw, a, b = two()
    wait_health(gw, a, UP)
    assert.equal("a", who(gw))
    for _, fault in ipairs { 503, "drop", 404 } do
      a.says = fault
      wait_health(gw, a, DOWN)
      assert.equal("b", who(gw))
      a.says = 204
      wait_health(gw, a, UP)
      assert.equal("a", who(gw))
    end
    local text = gw.log()
    local _, downs = text:gsub("target a %(" .. a.url:gsub("%p", "%%%0") .. "%) is unhealthy, 2 checks in a row failed", "")
    local _, ups = text:gsub("target a %([^)]*%) is healthy again", "")
    assert.same({ 3, 3 }, { downs, ups })
    assert.truthy(text:find("it answered with status 503", 1, true))
    assert.equal("tollgate-health-check", a.last.headers["user-agent"])
    wait_health(gw, b, UP)
    gw:wait_metric("target_healthy", 1, { target = b.label })
  end))

  it("fails where the answer does not come in time", async(function()
    local gw, a = two { timeout = 0.2 }
    wait_health(gw, a, UP)
    a.says = "hang"
    wait_health(gw, a, DOWN)
    assert.equal("b", who(gw))
    a.says = 200
    wait_health(gw, a, UP)
  end))

  it("fails where nobody listens, by a connection alone too", async(function()
    local up = rig.origin "up"
    local dead = rig.dead()
    local gw = rig.gateway { targets = {
      target("dead", dead, { health = { tcp = true, interval = 0.1, unhealthy = 1 } }),
      target("gone", dead, { health = health { unhealthy = 1 } }),
      target("up", up, { tier = 2, health = { tcp = true, interval = 0.1, healthy = 1 } }) } }
    for name, value in pairs { ["dead " .. dead.url] = DOWN, ["gone " .. dead.url] = DOWN, ["up " .. up.url] = UP } do
      wait_health(gw, { label = name }, value)
    end
    local res = gw:request { path = "/" }
    assert.same({ 200, "up" }, { res.status, res.body })
    assert.equal(1, gw:wait_access(1)[1].attempts)
  end))

  it("goes by the statuses and fields that are configured", async(function()
    local gw, a = two { status = { 418, "5xx", "200-201" }, headers = { ["x-check"] = "yes", host = "check.test" } }
    for says, value in pairs { [418] = UP, [503] = UP, [201] = UP } do
      a.says = says
      wait_health(gw, a, value)
    end
    a.says = 204
    wait_health(gw, a, DOWN)
    assert.same({ "yes", "check.test" }, { a.last.headers["x-check"], a.last.headers.host })
  end))

  it("leaves a target that is down as the last resort", async(function()
    local gw, a, b = two()
    a.says, b.says = 500, 500
    wait_health(gw, a, DOWN)
    wait_health(gw, b, DOWN)
    assert.equal("a", who(gw)) -- the check is wrong: the requests themselves fare well
    local status = gw:status()
    table.sort(status.targets, function(x, y) return x.target < y.target end)
    assert.same({ { target = a.label, healthy = false }, { target = b.label, healthy = false } }, status.targets)
  end))

  it("is made once for two workers, two routes and two models", async(function()
    local a, b = checked "a", rig.origin "b"
    a.label = "a " .. a.url
    local one = target("a", a, { health = health { interval = 0.5, healthy = 1 } })
    local gw = support.gateway { config = { workers = 2, routes = {
      { name = "r", path = "/r", targets = { one, target("b", b, { tier = 2 }) } },
      { name = "s", path = "/s", targets = { one, target("b", b) } } } } }
    wait_health(gw, a, UP)
    local before, began = a.checks, require("luv").hrtime()
    support.wait_for(function() return a.checks >= before + 4 end, "checks", 20000)
    -- four more take one checker 1.5 s at that interval, and two of them at most 1 s
    assert.is_true((require("luv").hrtime() - began) / 1e9 > 1.1)
  end))

  it("goes on by another worker when the one that made it dies", async(function()
    local a, b = checked "a", rig.origin "b"
    a.label = "a " .. a.url
    local gw = support.gateway { config = { workers = 2, routes = { { name = "r", path = "/*",
      targets = { target("a", a, { health = health() }), target("b", b, { tier = 2 }) } } } } }
    wait_health(gw, a, UP)
    for _, worker in ipairs(gw:workers()) do require("luv").kill(worker, "sigkill") end
    a.says = 500
    wait_health(gw, a, DOWN)
    assert.equal("b", who(gw))
  end))

  it("outlives a reload with what it knows, and ends with its configuration", async(function()
    local a, b = checked "a", rig.origin "b"
    a.label = "a " .. a.url
    local dir = support.tmpdir()
    local function config(with)
      return "return " .. support.literal { listen = "127.0.0.1:0", admin = "127.0.0.1:0", data_dir = dir .. "/data",
        workers = 1, reload = { watch = false }, routes = { { name = "r", path = "/*", targets = {
          target("a", a, { health = with }), target("b", b, { tier = 2 }) } } } }
    end
    local gw = support.gateway { dir = dir, config = config(health()) }
    wait_health(gw, a, UP)
    a.says = "hang"
    local quick = config(health { timeout = 0.3 })
    gw:write("gateway.lua", quick)
    assert.equal(0, gw:command("reload").code)
    wait_health(gw, a, DOWN)
    assert.equal(0, gw:command("reload").code)
    assert.is_false(known(gw, a.label))
    assert.equal("b", who(gw)) -- known still
    gw:write("gateway.lua", config(nil))
    assert.equal(0, gw:command("reload").code)
    assert.is_nil(known(gw, a.label))
    assert.equal("a", who(gw))
    a.says = 200
  end))
end)

describe("the configuration of a health check", function()
  local function refused(conf)
    local dir = support.tmpdir()
    local text = "return { listen = '127.0.0.1:0', routes = { { name = 'r', path = '/', targets = { { " ..
      "url = 'http://127.0.0.1:1', health = " .. support.literal(conf) .. " } } } } }"
    support.write_file(dir .. "/gateway.lua", text)
    local res = support.tollgate { "check", "-c", dir .. "/gateway.lua" }
    assert.not_equal(0, res.code)
    return res.err .. res.out
  end

  for what, case in pairs {
    ["without a path"] = { {}, "routes[1].targets[1].health.path: is required, or tcp = true" },
    ["with both"] = { { path = "/", tcp = true }, "routes[1].targets[1].health.path: has no use where tcp = true" },
    ["with a path that is none"] = { { path = "x" }, 'health.path: must begin with "/"' },
    ["with a bad status"] = { { path = "/", status = { "9xx" } }, "health.status[1]" },
    ["with a range upside down"] = { { path = "/", status = { "300-200" } }, 'must be a range such as "200-299"' },
    ["with an interval of nothing"] = { { path = "/", interval = 0 }, "health.interval" },
    ["with an unknown key"] = { { path = "/", intervall = 1 }, "interval" },
    ["with a field of the gateway's own"] = { { path = "/", headers = { ["content-length"] = "1" } },
      "health.headers" },
  } do
    it("is refused " .. what, async(function()
      assert.truthy(refused(case[1]):find(case[2], 1, true))
    end))
  end
end)
