-- limits.buffered: what plugins have a worker keep of bodies and answers has a bound. Who needs more is refused; who has begun
-- comes to its end; what only passes through is not held up.
local support = require "spec.support"
local rig = require "spec.host.plugin_rig"
local async = support.async

local LARGE = ("x"):rep(5000000)

local plugins = {
  whole = [[
    return { access = function(_, ctx) ctx.length = #ctx.request:body() end,
      response = function(_, ctx) ctx.response.headers["x-length"] = tostring(ctx.length) end }
  ]],
  answer = [[
    return { response = function(_, ctx) ctx.response:set_body(#ctx.response:body() .. "") end }
  ]],
  copy = [[
    local tg = require "tollgate"
    return { access = function(_, ctx) ctx:record(10000000) end,
      finish = function(_, ctx)
        local body, why = ctx:recorded()
        tg.log.info("copied ", body and #body or why, ";")
      end }
  ]],
}

local function start()
  local origin = support.origin(function(req, conn)
    conn:respond { body = req.path == "/through" and tostring(#req.body) or #req.body > 0 and "got it" or LARGE }
  end)
  local to = { { url = origin.url } }
  local gw = rig.start { plugins = plugins, config = { limits = { body = "8m", buffered = "6m" } }, routes = {
    { name = "whole", path = "/whole", plugins = { whole = {} }, targets = to },
    { name = "answer", path = "/answer", plugins = { answer = {} }, targets = to },
    { name = "copy", path = "/copy", plugins = { copy = {} }, targets = to },
    { name = "all", path = "/*", targets = to },
  } }
  return gw
end

-- A request whose million bytes are there but for the last one.
local function held(gw)
  local c = gw:connect()
  c:send("POST /whole HTTP/1.1\r\nHost: a\r\nContent-Length: 1000000\r\n\r\n" .. ("x"):rep(999999))
  return c
end

local function buffered(gw) return gw:metric("worker_buffered_bytes", { worker = 0 }) end

-- Two of them, which the gateway keeps.
local function occupy(gw)
  local all = { held(gw), held(gw) }
  support.wait_for(function() return buffered(gw) >= 1999998 end, "two bodies to be kept", 20000)
  return all
end

local function finish(gw, all)
  for _, c in ipairs(all) do
    c:send("x")
    local res = c:read_response()
    assert.same({ 200, "1000000" }, { res.status, res.headers["x-length"] })
  end
  gw:wait_metric("worker_buffered_bytes", 0, { worker = 0 })
end

local function overloaded(res)
  assert.same({ 503, "1", "overloaded" }, { res.status, res.headers["retry-after"], support.json(res).error.code })
end

it("a body that a plugin reads gets 503 where there is no room, and others come to their end", async(function()
  local gw = start()
  local all = occupy(gw)
  for i = 1, 2 do
    local c = gw:connect()
    c:send("POST /whole HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n" ..
      ("%x\r\n"):format(#LARGE) .. LARGE .. "\r\n0\r\n\r\n")
    overloaded(c:read_response())
    assert.is_true(gw:metric("buffered_refused_total") >= i)
  end
  finish(gw, all)
  assert.equal(200, gw:request({ path = "/whole", body = ("x"):rep(2500000) }).status)
  gw:wait_metric("worker_buffered_bytes", 0, { worker = 0 })
  local _, lines = gw.log():gsub("limits.buffered: %d+ of 6291456 bytes are taken", "")
  assert.equal(1, lines)
end))

it("an answer that a plugin wants whole gets 503 likewise", async(function()
  local gw = start()
  local all = occupy(gw)
  overloaded(gw:request { path = "/answer" })
  finish(gw, all)
end))

it("a copy of an answer is given up, and the answer goes on", async(function()
  local gw = start()
  local all = occupy(gw)
  assert.equal(#LARGE, #gw:request({ path = "/copy" }).body)
  gw:wait_log("copied too_large;", true)
  finish(gw, all)
end))

it("what passes through goes on", async(function()
  local gw = start()
  local all = occupy(gw)
  assert.equal(tostring(#LARGE), gw:request({ path = "/through", body = LARGE }).body)
  assert.equal(#LARGE, #gw:request({ path = "/large" }).body)
  finish(gw, all)
end))

it("nothing is counted of clients that left", async(function()
  local gw = start()
  for _, c in ipairs(occupy(gw)) do c:reset() end
  gw:wait_metric("worker_buffered_bytes", 0, { worker = 0 })
  assert.equal(0, gw:metric("buffered_refused_total"))
end))
