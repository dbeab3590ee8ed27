-- A breaker through reloads and the deaths of workers, and an outage under load.
local uv = require "luv"
local support = require "spec.support"
local rig = require "spec.plugins.breaker.rig"

local async = support.async

local function half_open(gw) support.wait_for(function() return rig.state(gw).probe_in == 0 end, "the cooldown's end") end

local function gone(gw, pid)
  support.wait_for(function()
    for _, one in ipairs(gw:workers()) do
      if one == pid then return false end
    end
    return #gw:workers() > 0
  end, "another worker")
end

describe("a breaker", function()
  it("goes through a reload as it is, with a probe that began before", async(function()
    local o = rig.origin()
    local gw = rig.gateway { origin = o, workers = 2, conf = { probe_lease = 60 }, config = { reload = { watch = false } } }
    rig.open(gw, o)
    assert.equal(0, gw:command("reload").code)
    assert.equal("open", rig.state(gw).state)
    o.mode = "hang"
    half_open(gw)
    local probe = support.spawn(function() return gw:request({ path = "/" }).status end)
    o:wait_request(4)
    assert.equal(0, gw:command("reload").code)
    assert.equal(503, rig.ask(gw, 10))
    assert.equal(4, o.count())
    o.mode = 200
    assert.equal(200, probe:join(5000))
    assert.equal("closed", rig.state(gw).state)
    assert.equal(200, rig.ask(gw, 4))
  end))

  it("takes new settings", async(function()
    local o = rig.origin()
    local gw = rig.gateway { origin = o, config = { reload = { watch = false } } }
    o.mode = 503
    rig.ask(gw, 2)
    local text = support.read_file(gw.dir .. "/gateway.lua")
    gw:write("gateway.lua", (text:gsub("consecutive = 3", "consecutive = 7")))
    assert.equal(0, gw:command("reload").code)
    rig.ask(gw, 4)
    assert.equal("closed", rig.state(gw).state)
    rig.ask(gw, 1)
    assert.equal("open", rig.state(gw).state)
  end))

  it("tells other replicas what requests of an old generation have shown", async(function()
    local redis, o = support.redis(), rig.origin "hang"
    local gw = rig.gateway { origin = o, redis = redis.url, conf = { consecutive = 1, cooldown = 60 },
      config = { reload = { watch = false } } }
    local old = support.spawn(function() return gw:request({ path = "/" }).status end)
    o:wait_request(1)
    assert.equal(0, gw:command("reload").code)
    o.mode = 503
    assert.equal(503, old:join(5000))
    assert.equal("open", rig.state(gw).state)
    support.wait_for(function() return redis:must("GET", "cb:hint:a:m") end, "the hint")
  end))

  it("has another probe where the worker of one was killed", async(function()
    local o = rig.origin()
    local gw = rig.gateway { origin = o, workers = 2, conf = { probe_lease = 1 } }
    rig.open(gw, o)
    half_open(gw)
    local pids = {}
    o.mode = function(req, conn)
      pids[#pids + 1] = req.headers["x-pid"]
      conn:wait_closed()
    end
    local probe = support.spawn(function() return gw:request { path = "/" } end)
    o:wait_request(4)
    for _, pid in ipairs(gw:workers()) do uv.kill(pid, "sigkill") end
    probe:join(5000)
    o.mode = 200
    support.wait_for(function() return gw:request({ path = "/" }) and rig.state(gw).state == "closed" end, "a probe to succeed")
    assert.equal(1, rig.lines(gw, "breaker a:m: closed"))
    gone(gw, 0)
  end))
end)

describe("while the dictionary is not to be had", function()
  -- /busy and /free switch it.
  local BUSY = [[
    local tg = require "tollgate"
    local busy, get, swap = false, tg.shared.get, tg.shared.swap
    function tg.shared.get(...) if busy then return nil, "busy" end return get(...) end
    function tg.shared.swap(...) if busy then return nil, "busy" end return swap(...) end
    return { priority = 999, schema = {}, access = function(_, ctx)
      if ctx.request.path == "/busy" then busy = true return 200 end
      if ctx.request.path == "/free" then busy = false return 200 end
    end }
  ]]

  it("a breaker goes by what it saw last, lets nobody probe, and takes a probe's outcome in later", async(function()
    local o = rig.origin()
    local gw = support.gateway { files = { ["plugins/busy.lua"] = BUSY }, config = { workers = 1, routes = { { name = "r",
      path = "/*", targets = { { provider = "a", model = "m", url = o.url } },
      plugins = { busy = {}, breaker = rig.conf { probe_lease = 600 } } } } } }
    rig.ask(gw, 1, "/busy")
    assert.equal(200, rig.ask(gw, 3))
    rig.ask(gw, 1, "/free")
    rig.open(gw, o)
    half_open(gw)
    rig.ask(gw, 1, "/busy")
    assert.equal(503, rig.ask(gw, 3))
    assert.equal(6, o.count())
    rig.ask(gw, 1, "/free")
    o.mode = "hang"
    local probe = support.spawn(function() return gw:request({ path = "/" }).status end)
    o:wait_request(7)
    rig.ask(gw, 1, "/busy")
    o.mode = 200
    assert.equal(200, probe:join(5000))
    rig.ask(gw, 1, "/free")
    rig.wait(gw, "closed")
    assert.equal(7, o.count())
  end))
end)

describe("an outage of one of two targets under load", function()
  local function run(down, up)
    local a, b = rig.origin(), rig.origin()
    local gw = rig.gateway { workers = 2, conf = { cooldown = 0.2, consecutive = 3 },
      targets = { { provider = "a", model = "m", url = a.url }, { provider = "b", model = "m", url = b.url } } }
    local stop, asked, failed, clients = false, 0, {}, {}
    for i = 1, 8 do
      clients[i] = function()
        local conn = gw:connect()
        while not stop do
          local res, err = conn:request { path = "/" }
          asked = asked + 1
          if not res or res.status ~= 200 then
            failed[#failed + 1] = res and res.status or err
            conn = gw:connect()
          end
        end
      end
    end
    local load = support.spawn(function() support.all(clients) end)
    local function more(n)
      local target = asked + n
      support.wait_for(function() return asked >= target end, "requests")
    end
    more(300)
    assert.truthy(a.count() > 50 and b.count() > 50)
    down(a)
    rig.wait(gw, "open")
    support.wait_for(function() return rig.lines(gw, "the probe failed") >= 2 end, "probes that fail")
    local before = a.count()
    more(500)
    assert.truthy(a.count() - before < 20, a.count() - before)
    up(a)
    rig.wait(gw, "closed")
    before = a.count()
    more(300)
    assert.truthy(a.count() - before > 50)
    stop = true
    load:join(10000)
    assert.same({}, failed)
    assert.equal(1, rig.lines(gw, "failures in a row"))
    return gw
  end

  it("that answers 503 loses none", async(function()
    run(function(o) o.mode = 503 end, function(o) o.mode = 200 end)
  end))

  it("that closes its connections loses none", async(function()
    run(function(o) o.mode = "close" end, function(o) o.mode = 200 end)
  end))
end)
