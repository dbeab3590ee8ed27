-- Shows reading and editing JSON bodies by place, requests and answers: what is edited, that nothing else changes by a byte, and
-- that lengths are right. And whole answers in the response phase.

local support = require "spec.support"

local function gateway(origin, code, route)
  local entry = { name = "r", path = "/*", targets = { { url = origin.url } }, plugins = { edit = {} } }
  for key, value in pairs(route or {}) do entry[key] = value end
  return support.gateway {
    config = { routes = { entry } },
    files = { ["plugins/edit.lua"] = "local tg = require 'tollgate'\nlocal M = { version = '1', schema = {} }\n" .. code
      .. "\nreturn M" },
  }
end

local function echo()
  return support.origin(function(req, conn)
    conn:respond { headers = { ["content-type"] = "application/json" }, body = req.body }
  end)
end

local ODD = '{ "model" : "a\\u0041" ,"big":12345678901234567890, "e":[],"o":{},"s":"\\ud800", "list":[{"x":1},{"x":2}] }'

describe("ctx.request.json", function()
  it("replaces one value and nothing else", support.async(function()
    local origin = echo()
    local g = gateway(origin, [[
      function M.access(_, ctx)
        assert(ctx.request.json:set("model", "b"))
        assert(ctx.request.json:set({ "list", 2, "x" }, tg.json.null))
        assert(ctx.request.json:set("new", { 1, 2 }))
        assert(ctx.request.json:remove("o") == true)
        assert(ctx.request.json:remove("gone") == false)
        assert(ctx.request.json:get("model") == "b")
        assert(ctx.request.json:get("gone") == nil)
        assert(tostring(ctx.request.json:get("big")) == "12345678901234567890")
        local ok, err = ctx.request.json:set({ "model", "deeper" }, 1)
        assert(ok == nil and err == "absent")
      end]])
    for _, chunked in ipairs { false, { ODD:sub(1, 20), ODD:sub(21) } } do
      local res = g:request { method = "POST", path = "/", body = not chunked and ODD or nil, chunked = chunked or nil }
      assert.equal(200, res.status)
      assert.equal('{ "model" : "b" ,"big":12345678901234567890, "e":[],"s":"\\ud800", "list":[{"x":1},{"x":null}] '
        .. ',"new":[1,2]}', res.body)
    end
    for _, req in ipairs(origin.requests) do
      assert.equal(tostring(#req.body), req.headers["content-length"])
    end
  end))

  it("says what is wrong with a body that is no JSON, or names a member twice", support.async(function()
    local g = gateway(echo(), [[
      function M.access(_, ctx)
        local value, err = ctx.request.json:get("a")
        return 200, tostring(value) .. " " .. tostring(err)
      end]])
    local function ask(body) return g:request({ method = "POST", path = "/", body = body }).body end
    assert.equal("1 nil", ask '{"a":1}')
    assert.truthy(ask("{"):find("^nil invalid: "))
    assert.truthy(ask('{"a":1,"a":2}'):find("twice in its object at byte 8", 1, true))
    assert.truthy(ask(""):find("^nil invalid: "))
  end))
end)

describe("ctx.response", function()
  it("hands over the whole answer, and takes another", support.async(function()
    local origin = support.origin(function(req, conn)
      if req.target == "/chunked" then
        conn:start { headers = { ["content-type"] = "application/json" } }
        for i = 1, #ODD do conn:chunk(ODD:sub(i, i)) end
        conn:finish()
      elseif req.target == "/close" then
        conn:respond { length = false, body = ODD }
        conn:close()
      else
        conn:respond { body = ODD }
      end
    end)
    local g = gateway(origin, [[
      function M.response(_, ctx)
        local before = ctx.response:body()
        assert(before == ctx.response:body())
        tg.timer.sleep(0.01)
        assert(ctx.response.json:set("model", "b"))
        ctx.response.headers["x-was"] = #before
      end]])
    for _, path in ipairs { "/length", "/chunked", "/close" } do
      local res = g:request { path = path }
      assert.equal(200, res.status)
      assert.equal(tostring(#ODD), res.headers["x-was"])
      assert.equal(ODD:gsub('"a\\u0041"', '"b"'), res.body)
      assert.equal(tostring(#res.body), res.headers["content-length"])
    end
  end))

  it("takes set_body, for an empty answer too, and leaves HEAD and 204 without one", support.async(function()
    local origin = support.origin(function(req, conn)
      conn:respond { status = req.target == "/204" and 204 or 200, body = req.target == "/empty" and "" or nil }
    end)
    local g = gateway(origin, [[
      function M.response(_, ctx)
        ctx.response:read()
        ctx.response:set_body("mine")
      end]])
    local res = g:request { path = "/empty" }
    assert.equal("mine", res.body)
    assert.equal("4", res.headers["content-length"])
    assert.equal(204, g:request({ path = "/204" }).status)
    assert.equal(200, g:request({ method = "HEAD", path = "/empty" }).status)
  end))

  it("passes a gateway's own answer through as well", support.async(function()
    local g = gateway(echo(), [[
      function M.access(_, ctx) return ctx:refusal(403, "no", "Not today") end
      function M.response(_, ctx)
        assert(ctx.response.json:set({ "error", "message" }, "Never"))
      end]])
    local res = g:request { path = "/" }
    assert.equal(403, res.status)
    assert.equal("Never", support.json(res).error.message)
  end))

  it("refuses an answer above the route's limit, and goes on with the next", support.async(function()
    local origin = support.origin(function(req, conn)
      conn:respond { body = ("x"):rep(req.target == "/big" and 3000 or 10) }
    end)
    local g = gateway(origin, [[
      function M.response(_, ctx)
        if ctx.response.source == "origin" then ctx.response:read() end
      end]], { limits = { body = 2000 } })
    assert.equal(502, g:request({ path = "/big" }).status)
    assert.equal(200, g:request({ path = "/small" }).status)
  end))

  it("turns an origin that dies midway into a 502, and a client that leaves into nothing", support.async(function()
    local origin = support.origin(function(req, conn)
      conn:write "HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nhalf"
      if req.target == "/dies" then conn:close() else conn:wait_closed() end
    end)
    local g = gateway(origin, [[
      function M.response(_, ctx)
        if ctx.response.source == "origin" then ctx.response:body() end
      end]])
    assert.equal(502, g:request({ path = "/dies" }).status)
    local c = g:connect()
    c:send "GET /waits HTTP/1.1\r\nHost: a\r\n\r\n"
    origin:wait_request(2)
    c:close()
    support.wait_for(function() return origin.open == 0 end, "the origin's connection to close")
  end))

  it("is not there for a function's answer, nor outside the response phase", support.async(function()
    local g = gateway(echo(), [[
      function M.access(_, ctx)
        local left = 1
        return 200, function() left = left - 1 return left >= 0 and "x" or nil end
      end
      function M.response(_, ctx)
        local ok, err = pcall(ctx.response.body, ctx.response)
        ctx.response.headers["x-err"] = ok and "none" or err:match("[^:]+$")
      end]])
    local res = g:request { path = "/" }
    assert.equal("x", res.body)
    assert.truthy(res.headers["x-err"]:find("made by a plugin's function", 1, true))
  end))
end)
