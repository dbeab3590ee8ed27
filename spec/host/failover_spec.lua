-- What happens when an attempt fails: each way in which a target can fail goes to the next one, within limits, as long as
-- nothing has been sent to the client; a failure that nothing follows goes out as it came.
local support = require "spec.support"
local rig = require "spec.host.target_rig"
local async = support.async
local target = rig.target

local CHAT = "/v1/chat/completions"

-- Two targets, the first of which fails as it says.
local function pair(answer, route, more)
  local a, b = rig.origin("a", answer), rig.origin "b"
  route = route or {}
  route.targets = { target("a", a, more), target("b", b, { tier = 2 }) }
  route.plugins = route.plugins or { note = {} }
  return rig.gateway(route), a, b
end

local function status(code, more)
  return function(_, conn)
    local response = { status = code, body = "failed: " .. code }
    for key, value in pairs(more or {}) do response[key] = value end
    conn:respond(response)
    return true
  end
end

local function retries(gw, n)
  local line = gw:wait_access(n or 1)[n or 1]
  local first = line.retries and line.retries[1] or {}
  return { line.target, line.attempts, first.error, first.status }
end

describe("an attempt that fails", function()
  it("by a status goes to the next target", async(function()
    for _, code in ipairs { 429, 500, 502, 503, 504, 529 } do
      local gw, a, b = pair(status(code))
      local res = gw:request { path = "/" }
      assert.same({ 200, "b", 1, 1 }, { res.status, res.body, #a.requests, #b.requests })
      assert.equal(("?a ?b !a,%d,nil,1"):format(code), res.headers["x-notes"])
      assert.same({ "b", 2, nil, code }, retries(gw))
      gw:stop()
    end
  end))

  it("by another status does not, nor by one that the route leaves out", async(function()
    local gw, _, b = pair(function(req, conn) return status(tonumber(req.path:sub(2)))(req, conn) end,
      { retry = { on = { 503 } } })
    for _, code in ipairs { 400, 404, 408, 429, 500, 501 } do
      assert.equal(code, gw:request { path = "/" .. code }.status)
    end
    assert.equal(0, #b.requests)
    assert.equal("b", gw:request { path = "/503" }.body)
  end))

  it("by closing, resetting, or saying what is no HTTP goes to the next target", async(function()
    for way, error in pairs { close = "closed", reset = "closed", junk = "bad_answer", half = "closed",
      switch = "bad_answer" } do
      local gw = pair(function(_, conn)
        if way == "junk" then conn:send "HTTP/1.1 banana\r\n\r\n" end
        if way == "half" then conn:send "HTTP/1.1 200 OK\r\nContent-Le" end
        if way == "switch" then conn:send "HTTP/1.1 101 Switching Protocols\r\nUpgrade: x\r\nConnection: upgrade\r\n\r\n" end
        if way == "reset" then conn:reset() else conn:close() end
        return true
      end)
      assert.equal("b", gw:request { path = "/" }.body)
      assert.same({ "b", 2, error }, retries(gw), way)
      gw:stop()
    end
  end))

  it("by not answering in time goes to the next target", async(function()
    local gw = pair(function(_, conn) conn:wait_closed() return true end, nil, { timeouts = { first_byte = 0.1 } })
    assert.equal("b", gw:request { path = "/" }.body)
    assert.same({ "b", 2, "timeout" }, retries(gw))
  end))

  it("in the middle of a failing answer goes to the next target", async(function()
    local gw = pair(function(_, conn)
      conn:send "HTTP/1.1 503 Down\r\nContent-Length: 100\r\n\r\nhalf"
      conn:close()
      return true
    end)
    assert.equal("b", gw:request { path = "/" }.body)
    assert.same({ "b", 2, "cut", 503 }, retries(gw))
  end))

  it("with an endless failing answer goes to the next target, or relays it", async(function()
    local gw, _, b = pair(function(_, conn)
      conn:start { status = 503 }
      for _ = 1, 30 do
        if not conn:chunk(("x"):rep(10000)) then return true end
      end
      conn:finish()
      return true
    end)
    assert.equal("b", gw:request { path = "/" }.body)
    b.handler = function(_, conn) conn:respond { status = 503, body = "b is down too" } end
    local res = gw:request { path = "/" }
    assert.same({ 503, "b is down too" }, { res.status, res.body })
  end))

  it("is relayed as it came where nothing is left to try", async(function()
    local a, b = rig.origin("a", status(503)), rig.origin("b", status(429, { headers = { ["retry-after"] = "7",
      ["x-own"] = "yes", ["content-type"] = "text/odd" }, body = ("long"):rep(40000) }))
    local gw = rig.gateway { targets = { target("a", a), target("b", b, { tier = 2 }) }, plugins = { note = {} } }
    local res = gw:request { path = "/" }
    assert.same({ 429, "7", "yes", "text/odd", 160000 },
      { res.status, res.headers["retry-after"], res.headers["x-own"], res.headers["content-type"], #res.body })
    assert.same({ "b", 2, nil, 503 }, retries(gw))
  end))

  it("is relayed as it came where plugins pass over all that is left", async(function()
    for _, framing in ipairs { "length", "chunked", "close", "none" } do
      local a, b = rig.origin("a", function(_, conn)
        if framing == "length" then return status(503)(nil, conn) end
        if framing == "none" then conn:respond { status = 503 } return true end
        if framing == "close" then conn:respond { status = 503, body = "failed: 503", length = false } return true end
        conn:start { status = 503 }
        conn:chunk "failed: "
        conn:chunk "503"
        conn:finish()
        return true
      end), rig.origin "b"
      local gw = rig.gateway { targets = { target("a", a), target("b", b, { tier = 2 }) },
        plugins = { note = { over = { b = 30 } } } }
      for _ = 1, 3 do
        local res = gw:request { path = "/" }
        assert.same({ 503, framing == "none" and "" or "failed: 503" }, { res.status, res.body }, framing)
        assert.is_nil(res.headers["retry-after"])
        assert.equal("?a ?b", res.headers["x-notes"])
      end
      gw:wait_log("notes ?a ?b !a,503,nil,1 target a", true)
      gw:stop()
    end
  end))

  it("is given to plugins that wait for it whole, like any other answer", async(function()
    local a, b = rig.origin("a", status(503)), rig.origin("b", status(503))
    local gw = support.gateway { files = { ["plugins/note.lua"] = rig.NOTE, ["plugins/whole.lua"] = [[
      local tg = require "tollgate"
      return { response = function(_, ctx) tg.timer.sleep(0.01)
        ctx.response.headers["x-whole"] = ctx.response:body() end }]] },
      config = { routes = { { name = "r", path = "/*", targets = { target("a", a), target("b", b, { tier = 2 }) },
        plugins = { whole = {}, note = { over = { b = 1 } } } } } } }
    local res = gw:request { path = "/" }
    assert.same({ 503, "failed: 503", "failed: 503" }, { res.status, res.body, res.headers["x-whole"] })
  end))

  it("while the body still comes is followed, and the next target gets all of it", async(function()
    local a = support.origin(function(_, conn) conn:respond { status = 503, body = "at once" } end, { stream_body = true })
    local b = rig.origin("b", function(req, conn) conn:respond { body = req.body } return true end)
    local gw = rig.gateway { targets = { target("a", a), target("b", b, { tier = 2 }) } }
    local client = gw:connect()
    client:send "PUT / HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nfirst\r\n"
    support.wait_for(function() return b.connections == 1 end, "the next target")
    client:send "7\r\n second\r\n"
    client:send "0\r\n\r\n"
    assert.equal("first second", client:read_response().body)
  end))

  it("leaves nothing of its answer behind for a client that leaves in the next attempt", async(function()
    local a, b = rig.origin("a", status(503)), rig.origin("b", function(_, conn) conn:wait_closed() return true end)
    local gw = support.gateway { files = { ["plugins/tell.lua"] = [[return { log = function(_, ctx)
      require("tollgate").log.info("told ", ctx.response and ctx.response.status, " of ", ctx.target.name) end }]] },
      config = { routes = { { name = "r", path = "/*", plugins = { tell = {} },
        targets = { target("a", a), target("b", b, { tier = 2 }) } } } } }
    local client = gw:connect()
    client:send_request { path = "/" }
    b:wait_request(1)
    client:close()
    gw:wait_log("told nil of b", true)
    local line = gw:wait_access(1)[1]
    assert.same({ "client_gone", "b", 2 }, { line.ended, line.target, line.attempts })
    assert.is_nil(line.status)
  end))

  it("is not followed where the method is not idempotent and bytes have gone", async(function()
    local gw, a, b = pair(status(503))
    assert.equal(503, gw:request { method = "POST", path = "/", body = "x" }.status)
    assert.equal("b", gw:request { method = "PUT", path = "/", body = "x" }.body)
    assert.same({ 2, 1 }, { #a.requests, #b.requests })
    gw:stop()
    gw = pair(status(503), { retry = { unsafe = true } })
    assert.equal("b", gw:request { method = "POST", path = "/", body = "x" }.body)
    gw:stop()
    gw = pair(function(_, conn) conn:close() return true end)
    assert.equal(502, gw:request { method = "POST", path = "/", body = "x" }.status)
    gw:stop()
    local dead = rig.gateway { targets = { target("a", rig.dead()), target("b", b, { tier = 2 }) } }
    assert.equal("b", dead:request { method = "POST", path = "/", body = "x" }.body)
  end))

  it("is not followed where the body was too large to be kept", async(function()
    local gw, _, b = pair(status(503), { retry = { buffer = "100k" } })
    assert.equal(503, gw:request { method = "PUT", path = "/", body = ("x"):rep(200000) }.status)
    assert.equal(0, #b.requests)
    local body = ("y"):rep(100000)
    assert.equal("b", gw:request { method = "PUT", path = "/", body = body }.body)
    assert.equal(body, b.requests[1].body)
  end))

  it("is not followed where something of its answer has gone to the client", async(function()
    local gw, _, b = pair(function(_, conn)
      conn:send "HTTP/1.1 103 Early Hints\r\nLink: </x>; rel=preload\r\n\r\n"
      return status(503)(nil, conn)
    end)
    local client = gw:connect()
    client:send "GET / HTTP/1.1\r\nHost: h\r\n\r\n"
    client:read_until("103 Early Hints\r\n", true)
    client:read_until("\r\n\r\n", true)
    assert.equal(503, client:read_response().status)
    assert.equal(0, #b.requests)
  end))

  it("is followed no more often than attempts and time allow", async(function()
    local down = {}
    for i = 1, 5 do down[i] = target("t" .. i, rig.origin("t" .. i, status(503)), { tier = i }) end
    local gw = rig.gateway { targets = down, retry = { attempts = 3 } }
    assert.equal(503, gw:request { path = "/" }.status)
    assert.same({ "t3", 3 }, { gw:wait_access(1)[1].target, gw:access()[1].attempts })
    gw:stop()
    local slow = rig.origin("slow", function(_, conn) conn:wait_closed() return true end)
    gw = rig.gateway { retry = { attempts = 4, timeout = 0.4 },
      targets = { target("a", slow, { timeouts = { first_byte = 0.2 } }), target("b", slow, { tier = 2 }),
        target("c", rig.origin "c", { tier = 3 }) } }
    local res = gw:request { path = "/" }
    assert.same({ 504, "origin_timeout" }, { res.status, support.json(res).error.code })
    assert.same({ "b", 2, "timeout" }, retries(gw))
  end))

  it("is followed no more often than the budget allows", async(function()
    local gw, a, b = pair(status(503), { retry = { budget = 0.1 }, plugins = {} })
    local client = gw:connect()
    local good = 0
    for _ = 1, 60 do good = good + (client:request { path = "/" }.status == 200 and 1 or 0) end
    assert.is_true(good >= 10 and good < 40, good)
    assert.same({ 60, good }, { #a.requests, #b.requests })
    gw:wait_metric("retries_refused_total", 60 - good)
    gw:stop()
    gw = pair(status(503), { retry = { budget = 0 }, plugins = {} })
    assert.equal(503, gw:request { path = "/" }.status)
    gw:stop()
    -- A target that cannot be reached costs the budget nothing.
    local dead = rig.gateway { targets = { target("a", rig.dead()), target("b", b, { tier = 2 }) }, retry = { budget = 0 } }
    for _ = 1, 30 do assert.equal("b", dead:request { path = "/" }.body) end
  end))
end)

describe("Retry-After", function()
  local function limited(after)
    local down = true
    local a = rig.origin("a", function(_, conn)
      return down and status(429, { headers = { ["retry-after-ms"] = after } })(nil, conn)
    end)
    local gw = rig.gateway({ path = CHAT, targets = { target("a", a), target("b", rig.origin "b", { tier = 2 }) } },
      { workers = 2 })
    local function ask() return gw:request { method = "POST", path = CHAT, body = '{"model":"m"}' } end
    assert.equal("b", ask().body)
    down = false
    return gw, ask, a
  end

  it("takes a target out for all workers, over a reload", async(function()
    local gw, ask, a = limited "50000"
    for _ = 1, 8 do assert.equal("b", ask().body) end
    assert.equal(0, gw:command("reload").code)
    for _ = 1, 8 do assert.equal("b", ask().body) end
    assert.equal(1, #a.requests)
  end))

  it("lets a target come back", async(function()
    local _, ask = limited "200"
    support.wait_for(function() return ask().body == "a" end, "a to come back")
  end))

  it("that is long is bounded, and all out are a 503 with the nearest", async(function()
    local function busy(seconds) return status(503, { headers = { ["retry-after"] = seconds } }) end
    local a, b = rig.origin("a", busy "3000"), rig.origin("b", busy "20")
    local gw = rig.gateway { path = CHAT, retry = { retry_after = 100 }, targets = { target("a", a), target("b", b) } }
    local function ask() return gw:request { method = "POST", path = CHAT, body = '{"model":"m"}' } end
    local first = ask()
    assert.equal(503, first.status)
    assert.truthy(first.headers["retry-after"] == "20" or first.headers["retry-after"] == "3000")
    local res = ask()
    assert.same({ 503, "no_target_available" }, { res.status, support.json(res).error.code })
    local ms = tonumber(res.headers["retry-after-ms"])
    assert.is_true(ms > 10000 and ms <= 20000, ms)
    assert.equal(math.ceil(ms / 1000), tonumber(res.headers["retry-after"]))
    assert.same({ 1, 1 }, { #a.requests, #b.requests })
  end))

  it("is not obeyed on a plain route, where one client's limit is not another's", async(function()
    local gw, a = pair(status(429, { headers = { ["retry-after"] = "30" } }))
    for n = 1, 3 do
      assert.equal("b", gw:request { path = "/" }.body)
      assert.equal(n, #a.requests)
    end
  end))
end)
