-- `Expect: 100-continue`: the gateway asks for the body once, and only when it wants it; what is refused before is
-- refused without it. The origin never sees the expectation.
local support = require "spec.support"
local rig = require "spec.host.proxy_rig"
local async = support.async

local reader = [[
return { version = "1.0.0", priority = 1, schema = {},
  access = function(conf, ctx) return 200, "read " .. #ctx.request:body() end }
]]
local slow = [[
local tg = require "tollgate"
return { version = "1.0.0", priority = 1, schema = {}, access = function() tg.timer.sleep(0.4) end }
]]

local on, up, down = rig.shared {
  handler = function(req, conn) conn:respond { body = req.body } end,
  files = { ["plugins/reader.lua"] = reader, ["plugins/slow.lua"] = slow },
  config = { limits = { body = 1000 } },
  routes = function(url)
    local dead = "http://127.0.0.1:" .. support.free_port()
    return {
      { name = "plain", path = "/plain", methods = { "POST" }, targets = { { url = url } } },
      { name = "dead", path = "/dead", targets = { { url = dead } } },
      { name = "reader", path = "/reader", plugins = { reader = {} } },
      { name = "slow", path = "/slow", plugins = { slow = {} }, targets = { { url = url } }, timeouts = { body = 0.15 } },
    }
  end,
}
setup(up)
teardown(down)

local function head(path, fields, method)
  return (method or "POST") .. " " .. path .. " HTTP/1.1\r\nHost: a\r\nExpect: 100-continue\r\n"
    .. (fields or "Content-Length: 3\r\n") .. "\r\n"
end

local continue = "HTTP/1.1 100 Continue\r\n\r\n"

local function asked(c)
  assert.equal(continue, c:read_n(#continue))
end

it("is answered once, when the origin is there, and the origin does not hear of it", async(function()
  local c = on.gw:connect()
  for _, fields in ipairs { "Content-Length: 3\r\n", "Transfer-Encoding: chunked\r\n" } do
    c:send(head("/plain", fields))
    asked(c)
    c:send(fields:find "chunked" and "3\r\nabc\r\n0\r\n\r\n" or "abc")
    local res = c:read_response()
    assert.same({ 200, "abc", 0 }, { res.status, res.body, #res.interim })
    assert.is_nil(on.origin.requests[#on.origin.requests].headers.expect)
  end
end))

it("is answered when a plugin wants the body", async(function()
  local c = on.gw:connect()
  c:send(head "/reader")
  asked(c)
  c:send("abc")
  local res = c:read_response()
  assert.same({ "read 3", 0 }, { res.body, #res.interim })
end))

it("needs no answer where the body has come already, or there is none", async(function()
  local c, res = rig.raw(on.gw, head "/plain" .. "abc")
  assert.same({ 200, "abc", 0 }, { res.status, res.body, #res.interim })
  c:send(head("/plain", "Content-Length: 0\r\n"))
  res = c:read_response()
  assert.same({ 200, "", 0 }, { res.status, res.body, #res.interim })
end))

it("is not answered before what needs no body has refused", async(function()
  local before = #on.origin.requests
  local cases = {
    [404] = head "/none",
    [405] = head("/plain", nil, "PUT"),
    [413] = head("/plain", "Content-Length: 1001\r\n"),
    [502] = head "/dead",
    [417] = "POST /plain HTTP/1.1\r\nHost: a\r\nExpect: 100-continue, magic\r\nContent-Length: 3\r\n\r\n",
  }
  for status, bytes in pairs(cases) do
    local c, res = rig.raw(on.gw, bytes)
    assert.same({ status, 0, "close" }, { res.status, #res.interim, res.headers.connection })
    assert.is_true(c:wait_closed())
  end
  assert.equal(before, #on.origin.requests)
end))

it("does not let the body's deadline run before the gateway has asked", async(function()
  local c = on.gw:connect()
  c:send(head "/slow")
  asked(c)
  c:send("abc")
  assert.equal("abc", c:read_response().body)
  c:send(head "/slow")
  asked(c)
  local res = c:read_response()
  assert.same({ 408, "close" }, { res.status, res.headers.connection })
end))

it("may be refused by the origin before the body has come", async(function()
  -- By then the gateway has asked for the body.
  local refusing = rig.start { origin = { stream_body = true }, handler = function(_, conn)
    conn:respond { status = 403, headers = { connection = "close" }, body = "no" }
    conn:close()
  end }
  local c = refusing.gw:connect()
  c:send(head("/", "Content-Length: 500\r\n"))
  local res = c:read_response()
  assert.same({ 403, "no" }, { res.status, res.body })
end))
