-- Targets by the model that a request names, and the model's name on its way: every other byte of the body is as it came.
local support = require "spec.support"
local rig = require "spec.host.target_rig"
local async = support.async
local target = rig.target

local CHAT = "/v1/chat/completions"

local function echo(name)
  return rig.origin(name, function(req, conn) conn:respond { headers = { ["x-name"] = name }, body = req.body } return true end)
end

local function post(gw, body, more)
  local options = { method = "POST", path = CHAT, body = body, headers = { ["content-type"] = "application/json" } }
  for key, value in pairs(more or {}) do options[key] = value end
  return gw:request(options)
end

describe("models", function()
  it("choose targets, whose own name goes up", async(function()
    local a, b = echo "a", echo "b"
    local gw = rig.gateway { path = CHAT, models = {
      fast = { target("a", a, { model = 'small "1"' }) }, exact = { target("a", a) },
    }, targets = { target("b", b) } }
    local odd = '{ "n":12345678901234567890 ,"tools":[],"x":{},"model" : "%s","s":"\\u00e9\\/  é","e":1E+2,"model2":"fast"}  '
    local res = post(gw, odd:format "fast")
    assert.same({ "a", odd:format 'small \\"1\\"' }, { res.headers["x-name"], res.body })
    assert.equal("a", post(gw, odd:format "exact").headers["x-name"])
    assert.equal(odd:format "exact", post(gw, odd:format "exact").body)
    res = post(gw, odd:format "other")
    assert.same({ "b", odd:format "other" }, { res.headers["x-name"], res.body })
    assert.equal("a", post(gw, '{"mod\\u0065l":"f\\u0061st"}').headers["x-name"])
    assert.equal('{"mod\\u0065l":"small \\"1\\""}', post(gw, '{"mod\\u0065l":"f\\u0061st"}').body)
    local line = gw:wait_access(1)[1]
    assert.same({ 'a:small "1"', "fast" }, { line.target, line.model })
  end))

  it("that are not there are a 404 in the API's shape", async(function()
    local a = echo "a"
    local gw = support.gateway { config = { routes = {
      { name = "chat", path = CHAT, models = { fast = { target("a", a) } } },
      { name = "messages", path = "/v1/messages", models = { fast = { target("a", a) } } },
    } } }
    local res = post(gw, '{"model":"nope"}')
    local err = support.json(res).error
    assert.same({ 404, "model_not_found", "The model 'nope' does not exist." }, { res.status, err.code, err.message })
    res = post(gw, '{"model":"nope"}', { path = "/v1/messages" })
    assert.same({ 404, "error", "not_found_error" },
      { res.status, support.json(res).type, support.json(res).error.type })
    for body, code in pairs { ["{}"] = "missing_required_parameter", ['{"model":null}'] = "missing_required_parameter",
      ["{"] = "invalid_json", ['{"model":"fast","model":"x"}'] = "duplicate_parameter", ["[]"] = "invalid_type" } do
      res = post(gw, body)
      assert.same({ 400, code }, { res.status, support.json(res).error.code })
    end
    assert.equal(400, gw:request { path = CHAT }.status)
    assert.equal(415, post(gw, "x", { headers = { ["content-encoding"] = "gzip" } }).status)
    assert.equal(0, #a.requests)
  end))

  it("are replaced anew for each attempt, behind what plugins make of the body", async(function()
    local b = echo "b"
    local gw = support.gateway { files = { ["plugins/edit.lua"] = [[return { access = function(_, ctx)
      ctx.request:body(); ctx.request:set_body('{"pad":"' .. ("x"):rep(50) .. '","model":"fast"}') end,
      log = function(_, ctx) require("tollgate").log.info("asked ", ctx.model, " got ", ctx.target.model) end }]] },
      config = { routes = { { name = "r", path = CHAT, plugins = { edit = {} },
        models = { fast = { target("a", rig.dead(), { model = "a-very-long-name-of-a-model" }),
          target("b", b, { tier = 2, model = "é" }) } } } } } }
    assert.equal('{"pad":"' .. ("x"):rep(50) .. '","model":"é"}', post(gw, '{"model":"other"}').body)
    gw:wait_log("asked fast got é", true)
  end))

  it("come in chunks, slowly, behind Expect, and with a client that leaves", async(function()
    local a = echo "a"
    local gw = rig.gateway { path = CHAT, targets = { target("a", a, { model = "m" }) } }
    local client = gw:connect()
    client:send("POST " .. CHAT .. " HTTP/1.1\r\nHost: h\r\nExpect: 100-continue\r\nTransfer-Encoding: chunked\r\n\r\n")
    client:read_until("100 Continue\r\n\r\n", true)
    client:send '9\r\n{"model":\r\n'
    assert.equal(0, #a.requests)
    client:send '8\r\n"other"}\r\n0\r\n\r\n'
    local res = client:read_response()
    assert.same({ '{"model":"m"}', "13" }, { res.body, a.requests[1].headers["content-length"] })
    local gone = gw:connect()
    gone:send("POST " .. CHAT .. " HTTP/1.1\r\nHost: h\r\nContent-Length: 100\r\n\r\n{\"model\":")
    gone:close()
    assert.equal("client_gone", gw:wait_access(2)[2].ended)
    assert.equal(1, #a.requests)
  end))
end)
