-- Several targets of a route: which one gets a request, what plugins say and hear of it, and where requests go when one
-- cannot be reached.
local support = require "spec.support"
local rig = require "spec.host.target_rig"
local async = support.async
local target = rig.target

describe("several targets", function()
  it("share requests by weight, exactly in a worker", async(function()
    local a, b = rig.origin "a", rig.origin "b"
    local gw = rig.gateway { targets = { target("a", a, { weight = 3 }), target("b", b) } }
    local client = gw:connect()
    local count = { a = 0, b = 0 }
    for _ = 1, 40 do
      local res = client:request { path = "/" }
      count[res.body] = count[res.body] + 1
    end
    assert.same({ a = 30, b = 10 }, count)
    local line = gw:wait_access(40)[40]
    assert.is_true(line.target == "a" or line.target == "b")
    assert.equal(1, line.attempts)
    assert.is_nil(line.retries)
  end))

  it("of a higher tier are for when none of the lower ones is left", async(function()
    local spare, dead = rig.origin "spare", rig.dead()
    local gw = rig.gateway { targets = { target("spare", spare, { tier = 2 }), target("main", dead, { model = "m" }) },
      plugins = { note = {} } }
    local res = gw:request { path = "/" }
    assert.same({ 200, "spare" }, { res.status, res.body })
    assert.equal("?main:m !main:m,nil,connect,1 ?spare", res.headers["x-notes"])
    gw:wait_log("notes ?main:m !main:m,nil,connect,1 ?spare !spare,200,nil,2 target spare", true)
    local line = gw:wait_access(1)[1]
    assert.same({ "spare", 2, { { target = "main:m", error = "connect" } } }, { line.target, line.attempts, line.retries })
    gw:wait_metric("retries_total", 1)
    gw:wait_metric("failovers_total", 1)
  end))

  it("are each sent their own headers and nobody else's", async(function()
    local a = rig.origin("a", function(_, conn) conn:close() return true end)
    local b = rig.origin "b"
    local gw = rig.gateway { targets = {
      target("a", a, { headers = { authorization = "Bearer a", ["x-a"] = "1", ["x-drop"] = false } }),
      target("b", b, { tier = 2, headers = { authorization = "Bearer b" } }) } }
    local res = gw:request { path = "/x", headers = { ["x-drop"] = "kept", authorization = "Bearer client" } }
    assert.equal("b", res.body)
    local first, second = a.requests[1].headers, b.requests[1].headers
    assert.same({ "Bearer a", "1" }, { first.authorization, first["x-a"] })
    assert.is_nil(first["x-drop"])
    assert.same({ "Bearer b", "kept" }, { second.authorization, second["x-drop"] })
    assert.is_nil(second["x-a"])
    assert.equal("127.0.0.1:" .. b.port, second.host)
    assert.equal(first["x-request-id"], second["x-request-id"])
  end))

  it("get a request's body again, and the client's upload goes on", async(function()
    local b = rig.origin("b", function(req, conn) conn:respond { body = req.body } return true end)
    local gw = rig.gateway { targets = { target("a", rig.dead()), target("b", b, { tier = 2 }) } }
    local body = ("0123456789"):rep(20000)
    assert.equal(body, gw:request { method = "PUT", path = "/", body = body }.body)
    local client = gw:connect()
    client:write "POST / HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n"
    b:wait_request(1)
    client:write "6\r\n world\r\n0\r\n\r\n"
    assert.equal("hello world", client:read_response().body)
  end))
end)

describe("the target phase", function()
  it("passes over targets, which others then hear of", async(function()
    local a, b = rig.origin "a", rig.origin "b"
    local gw = rig.gateway { targets = { target("a", a), target("b", b, { tier = 2 }) },
      plugins = { note = { {}, { over = { a = true } } } } }
    local res = gw:request { path = "/" }
    assert.equal("b", res.body)
    assert.equal("?a ?a !a,nil,not_tried,nil ?b ?b", res.headers["x-notes"])
    gw:wait_log("notes ?a ?a !a,nil,not_tried,nil ?b ?b !b,200,nil,1 !b,200,nil,1 target b", true)
    assert.equal(0, #a.requests)
  end))

  it("leaves nobody: 503 with the nearest time", async(function()
    local a = rig.origin "a"
    local gw = rig.gateway { targets = { target("a", a), target("b", a) },
      plugins = { note = { over = { a = 2.25, b = 40 } } } }
    local res = gw:request { path = "/v1/chat/completions" }
    assert.same({ 503, "3", "2250" }, { res.status, res.headers["retry-after"], res.headers["retry-after-ms"] })
    assert.equal("no_target_available", support.json(res).error.code)
    assert.equal(0, #a.requests)
    gw:wait_metric("no_target_total", 1)
  end))

  it("that is wrong makes its request a 500, or is skipped", async(function()
    local a = rig.origin "a"
    local gw = support.gateway { files = { ["plugins/note.lua"] = rig.NOTE }, config = { routes = {
      { name = "raises", path = "/raises", targets = { { url = a.url } }, plugins = { note = { raises = "target" } } },
      { name = "skips", path = "/skips", targets = { { url = a.url } },
        plugins = { note = { raises = "target", on_error = "skip" } } },
      { name = "misuse", path = "/misuse", targets = { target("a", a) }, plugins = { note = { over = { a = "misuse" } } } },
      { name = "attempt", path = "/attempt", targets = { { url = a.url } }, plugins = { note = { raises = "attempt" } } },
    } } }
    assert.equal(500, gw:request { path = "/raises" }.status)
    gw:wait_log "plugin note, phase target, route raises: [^\n]*note.lua:%d+: raised in target"
    assert.equal(200, gw:request { path = "/skips" }.status)
    assert.equal(500, gw:request { path = "/misuse" }.status)
    gw:wait_log "the target phase must return false"
    assert.equal(200, gw:request { path = "/attempt" }.status)
    gw:wait_log "raised in attempt"
    gw:wait_metric("plugin_errors_total", 4)
  end))
end)

describe("the watchdog", function()
  it("names and interrupts a plugin that is stuck in target or attempt", async(function()
    local a = rig.origin "a"
    local STUCK = [[local function spin() while true do end end
      require("jit").off(spin)
      return { %s = function(_, ctx) if ctx.request.path:match "stuck" then spin() end end }]]
    local gw = support.gateway { files = { ["plugins/one.lua"] = STUCK:format "target",
      ["plugins/two.lua"] = STUCK:format "attempt" },
      config = { watchdog = 0.3, routes = {
        { name = "one", path = "/one/*", targets = { target("a", a) }, plugins = { one = {} } },
        { name = "two", path = "/two/*", targets = { target("a", a) }, plugins = { two = {} } },
      } } }
    assert.equal(500, gw:request { path = "/one/stuck" }.status)
    gw:wait_log "plugin one, phase target, route one: [^\n]*the watchdog interrupts this code"
    assert.equal(200, gw:request { path = "/two/stuck" }.status)
    gw:wait_log "plugin two, phase attempt, route two: [^\n]*the watchdog interrupts this code"
    assert.equal(200, gw:request { path = "/one/" }.status)
    assert.equal(200, gw:request { path = "/two/" }.status)
  end))
end)

describe("the attempt phase", function()
  it("hears of the code of an error and of Retry-After, where nothing follows too", async(function()
    local body = '{"error":{"type":"requests","code":"insufficient_quota"}}'
    local function full(_, conn)
      conn:respond { status = 429, headers = { ["retry-after"] = "7" }, body = body }
      return true
    end
    local a, b = rig.origin("a", full), rig.origin("b", full)
    local gw = rig.gateway { targets = { target("a", a), target("b", b, { tier = 2 }) }, plugins = { note = {} } }
    local res = gw:request { path = "/" }
    assert.same({ 429, body, "?a ?b !a,429,nil,1 code=insufficient_quota after=7" },
      { res.status, res.body, res.headers["x-notes"] })
    gw:wait_log("!b,429,nil,2 code=insufficient_quota after=7 target b", true)
    gw:wait_log("target a, " .. a.url .. ": answered 429, insufficient_quota", true)
    gw:stop()
    gw = rig.gateway { targets = { target("a", a) }, plugins = { note = {} } }
    assert.equal(body, gw:request { path = "/" }.body)
    gw:wait_log("notes ?a !a,429,nil,1 code=insufficient_quota after=7 target a", true)
  end))

  it("hears once how an answer ended that went to the client", async(function()
    local ends = {
      cut = function(conn) conn:close() end,
      client_gone = function(conn, client) client:close() conn:wait_closed() end,
      whole = function(conn) conn:finish() end,
    }
    for name, way in pairs(ends) do
      local client
      local a = rig.origin("a", function(_, conn)
        conn:start()
        conn:chunk "begun"
        support.wait_for(function() return client.seen end, "the client to see it")
        way(conn, client)
        return true
      end)
      local gw = rig.gateway { targets = { target("a", a), target("b", a) }, plugins = { note = { over = { b = true } } } }
      client = gw:connect()
      client:send_request { path = "/" }
      client:read_until("begun", true)
      client.seen = true
      gw:wait_log(("!a,200,%s,1 target a"):format(name == "whole" and "nil" or name), true)
      client:close()
      gw:stop()
    end
  end))

  it("hears of what the gateway drops for reasons of its own", async(function()
    local a = rig.origin("a", function(_, conn) conn:respond { body = ("x"):rep(100) } return true end)
    local gw = support.gateway { files = { ["plugins/note.lua"] = rig.NOTE,
      ["plugins/bad.lua"] = "return { priority = 1, response = function() error 'bad' end }",
      ["plugins/whole.lua"] = "return { priority = 1, response = function(_, ctx) ctx.response:body() end }" },
      config = { routes = {
        { name = "bad", path = "/bad", targets = { target("a", a) }, plugins = { note = {}, bad = {} } },
        { name = "large", path = "/large", targets = { target("a", a) }, plugins = { note = {}, whole = {} },
          limits = { body = 50 } },
      } } }
    assert.equal(500, gw:request { path = "/bad" }.status)
    gw:wait_log("?a !a,200,dropped,1 target a", true)
    assert.equal(502, gw:request { path = "/large" }.status)
    support.wait_for(function() return select(2, gw.log():gsub("%?a !a,200,dropped,1 target a", "")) == 2 end, "the second")
  end))
end)
