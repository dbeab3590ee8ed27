-- Targets under load: how requests are shared by two workers, an outage that loses none, reloads in the middle, and that
-- plugins hear of everything that they let pass, whatever clients and origins do.
local support = require "spec.support"
local rig = require "spec.host.target_rig"
local async = support.async
local target = rig.target

local CHAT = "/v1/chat/completions"

-- Sends n requests on one connection, `depth` of them ahead; calls on_answer with each answer.
local function pipeline(gw, n, depth, request, on_answer)
  local client, sent = gw:connect(), 0
  for got = 1, n do
    while sent < n and sent - got < depth do
      client:send(request)
      sent = sent + 1
    end
    on_answer(assert(client:read_response()))
  end
  client:close()
end

-- Keeps `n` clients asking until stop() is called; returns stop, which gives the number of answers by status.
local function load(gw, n, options)
  local done, counts, tasks = false, {}, {}
  for i = 1, n do
    tasks[i] = support.spawn(function()
      local client = gw:connect()
      while not done do
        local res = assert(client:request(options))
        counts[res.status] = (counts[res.status] or 0) + 1
      end
      client:close()
    end)
  end
  support.on_end(function() done = true end)
  return function()
    done = true
    for _, task in ipairs(tasks) do task:join() end
    return counts
  end, counts
end

describe("targets under load", function()
  it("share 10,000 requests of two workers by weight, within two hundredths", async(function()
    local back = support.gateway { files = { ["plugins/name.lua"] = [[return { access = function(_, ctx)
      return 200, ctx.request.path end }]] },
      config = { workers = 2, log = { access = false }, routes = { { name = "r", path = "/*", plugins = { name = {} } } } } }
    local url = "http://127.0.0.1:" .. back.port
    local gw = rig.gateway({ targets = { target("a", { url = url .. "/a" }, { weight = 6 }),
      target("b", { url = url .. "/b" }, { weight = 3 }), target("c", { url = url .. "/c" }) } },
      { workers = 2, log = { access = false } })
    local count, clients = {}, {}
    for i = 1, 20 do
      clients[i] = function()
        pipeline(gw, 500, 20, "GET / HTTP/1.1\r\nHost: h\r\n\r\n", function(res)
          count[res.body] = (count[res.body] or 0) + 1
        end)
      end
    end
    support.all(clients)
    for name, share in pairs { ["/a/"] = 0.6, ["/b/"] = 0.3, ["/c/"] = 0.1 } do
      assert.is_true(math.abs(count[name] / 10000 - share) <= 0.02, name .. " " .. count[name])
    end
  end))

  it("lose no request in the outage of one", async(function()
    for _, way in ipairs { "dies", "fails" } do
      local down = false
      local a = rig.origin("a", function(_, conn)
        if not down then return end
        conn:respond { status = 503 }
        return true
      end)
      local b = rig.origin "b"
      local gw = rig.gateway({ path = CHAT, targets = { target("a", a), target("b", b) },
        retry = { budget = way == "dies" and 0.2 or 1 } }, { workers = 2 })
      local stop, counts = load(gw, 8, { method = "POST", path = CHAT, body = '{"model":"m"}' })
      support.wait_for(function() return (counts[200] or 0) > 100 end, "load")
      if way == "dies" then a:close() else down = true end
      support.wait_for(function() return counts[200] > 600 end, "load in the outage", 15000)
      local seen = stop()
      assert.same({ [200] = seen[200] }, seen)
      gw:stop()
    end
  end))

  it("lose no request in reloads that change them", async(function()
    local a, b = rig.origin "a", rig.origin "b"
    local gw = rig.gateway({ targets = { target("a", a), target("gone", rig.dead()) } }, { workers = 2 })
    local stop, counts = load(gw, 6, { path = "/" })
    local text = support.read_file(gw.dir .. "/gateway.lua")
    for i = 1, 4 do
      local before = counts[200] or 0
      support.wait_for(function() return (counts[200] or 0) > before + 50 end, "load")
      gw:write("gateway.lua", i % 2 == 1 and text:gsub(a.url, b.url) or text)
      assert.equal(0, gw:command("reload").code)
    end
    local seen = stop()
    assert.same({ [200] = seen[200] }, seen)
    assert.is_true(#b.requests > 50)
  end))

  it("tell plugins of each target that they let pass, whatever happens", async(function()
    local COUNT = [[
      local tg = require "tollgate"
      local passed = tg.metrics.counter("passed_total", "x")
      local told = tg.metrics.counter("told_total", "x")
      return { priority = 60, target = function() passed:inc() end, attempt = function() told:inc() end }]]
    local OVER = [[return { priority = 10, target = function(_, ctx)
      if ctx.request.headers["x-over"] then return false end end }]]
    local ways = { "fine", "503", "close", "half", "slow", "error", "cut" }
    local function moody(req, conn)
      local way = ways[math.random(#ways)]
      if way == "fine" then conn:respond { body = req.body } end
      if way == "503" then conn:respond { status = 503, body = "x" } end
      if way == "half" then conn:send "HTTP/1.1 200 OK\r\nContent-Length: 50\r\n\r\nhalf" end
      if way == "slow" then support.sleep(math.random(30)) conn:respond { body = "slow" } end
      if way == "error" or way == "cut" then
        conn:start { headers = { ["content-type"] = "text/event-stream" } }
        conn:chunk(way == "error" and 'data: {"error":{}}\n\n' or "data: {")
      end
      if way == "close" or way == "half" or way == "cut" then conn:close() elseif way == "error" then conn:finish() end
      return true
    end
    local gw = support.gateway { files = { ["plugins/count.lua"] = COUNT, ["plugins/over.lua"] = OVER },
      config = { workers = 2, timeouts = { first_byte = 0.02 }, routes = { { name = "r", path = CHAT,
        retry = { attempts = 3, budget = 1 }, plugins = { count = {}, over = {} },
        targets = { target("a", rig.origin("a", moody)), target("b", rig.origin("b", moody)),
          target("c", rig.dead()), target("d", rig.origin("d", moody), { tier = 2 }) } } } } }
    local clients = {}
    for i = 1, 12 do
      clients[i] = function()
        for n = 1, 30 do
          local client = gw:connect()
          client:send_request { method = "POST", path = CHAT, body = '{"model":"m"}',
            headers = n % 10 == 0 and { ["x-over"] = "1" } or {} }
          if math.random(3) == 1 then support.sleep(math.random(0, 20)) else client:read_response() end
          client:close()
        end
      end
    end
    support.all(clients)
    gw:wait_metric("requests_in_flight", 0)
    local passed, told
    support.wait_for(function()
      local text = gw:admin("/metrics").body
      passed, told = tonumber(text:match "\npassed_total (%d+)"), tonumber(text:match "\ntold_total (%d+)")
      return passed and passed > 300 and passed == told
    end, "everything to be told of")
  end))
end)
