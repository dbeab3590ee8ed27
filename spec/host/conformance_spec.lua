-- The cases of conformance_requests.lua and conformance_answers.lua at a real gateway: what is refused, and what the origin, or
-- the client, gets of what is not. host/README.md lists the rules.
local support = require "spec.support"
local rig = require "spec.host.proxy_rig"
local answers = require "spec.host.conformance_answers"
local requests = require "spec.host.conformance_requests"
local async = support.async

local on, up, down = rig.shared { config = { limits = { head = 4096, url = 256, fields = 30 }, timeouts = { first_byte = 30 } } }
setup(up)
teardown(down)

-- What the gateway writes by itself, as it should be.
local OWN = { host = true, ["x-forwarded-for"] = true, ["x-forwarded-proto"] = true, ["x-forwarded-host"] = true, via = true,
  ["x-request-id"] = true, ["content-length"] = true, ["transfer-encoding"] = true, connection = true }

local SMUGGLED = "GET /smuggled HTTP/1.1\r\nHost: a.test\r\n\r\n"

local function others(req)
  local list = {}
  for _, field in ipairs(req.list) do
    local name = field[1]:lower()
    if not OWN[name] then list[#list + 1] = name .. "=" .. field[2] end
  end
  return table.concat(list, "; ")
end

local function check_own(req)
  local own = on.origin.url:match "//(.*)"
  assert.same({ own, "127.0.0.1", "http", "string" }, { req.headers.host, req.headers["x-forwarded-for"],
    req.headers["x-forwarded-proto"], type(req.headers["x-request-id"]) })
  assert.is_nil(req.headers.connection)
  assert.equal("1.1", req.version)
end

local function check_refusal(c, res, status, name)
  assert.same({ status, "close", "application/json" },
    { res and res.status, res and res.headers.connection, res and res.headers["content-type"] }, name)
  local err = support.json(res).error
  assert.same({ "string", "string" }, { type(err.message), type(err.type) }, name)
  assert.same({ "", "closed" }, { c:read_all() }, name)
  assert.same({}, on.origin.requests, name)
end

local function expected_of(e)
  local via, xfh = e.via or "1.1 tollgate", e.xfh
  if not xfh and not e.via then xfh = "a.test" end
  return { method = e.method or "GET", target = e.target, body = e.body or "", fields = e.fields or "", via = via, xfh = xfh }
end

local function check_forwarded(c, res, e, name)
  assert.equal(e.status or 200, res and res.status, name)
  for i, path in ipairs(e.more or {}) do
    assert.equal(200, c:read_response().status, name)
    assert.equal(path, on.origin.requests[1 + i].target, name)
  end
  if e.closes then
    assert.same({ "", "closed" }, { c:read_all() }, name)
  else
    c:send("GET /again HTTP/1.1\r\nHost: a.test\r\n\r\n")
    assert.equal(200, c:read_response().status, name)
    assert.equal("/again", table.remove(on.origin.requests).target)
    c:close()
  end
  if e.none then return assert.same({}, on.origin.requests, name) end
  local req = on.origin.requests[1]
  check_own(req)
  local got = { method = req.method, target = req.target, body = req.body, fields = others(req), via = req.headers.via,
    xfh = req.headers["x-forwarded-host"] }
  local wanted = expected_of(e)
  if wanted.via:match "^1.0 t" or not wanted.xfh then wanted.xfh = got.xfh end
  assert.same(wanted, got, name)
  local framing = req.headers["transfer-encoding"] or req.headers["content-length"]
  assert.equal(e.length, framing, name)
end

-- Goes through all cases, and tells all that fail.
local function each(cases, check)
  local failures = {}
  for _, case in ipairs(cases) do
    local name = case[1] .. ": " .. case[2]
    on.origin.requests, on.origin.handler = {}, rig.hello
    local ok, err = pcall(check, case, name)
    if not ok then failures[#failures + 1] = name .. ": " .. tostring(type(err) == "table" and err.message or err) end
  end
  assert.equal("", table.concat(failures, "\n"))
end

it("a request is refused, or goes on in one form", async(function()
  each(requests, function(case, name)
    local _, _, bytes, expected = unpack(case)
    local refused = type(expected) == "number"
    -- What stands behind a refused request is not read.
    local c, res = rig.raw(on.gw, refused and bytes .. SMUGGLED or bytes, { method = bytes:match "^HEAD" })
    if refused then return check_refusal(c, res, expected, name) end
    check_forwarded(c, res, expected, name)
  end)
  assert.is_true(#requests >= 150)
end, 60000))

-- Fields of an answer that are not the gateway's own.
local function answer_fields(res)
  local list = {}
  for _, field in ipairs(res.list) do
    local name = field[1]:lower()
    if not OWN[name] and name ~= "date" then list[#list + 1] = name .. "=" .. field[2] end
  end
  return table.concat(list, "; ")
end

local function check_answer(res, part, e, name)
  local got = res or part
  assert.is_truthy(got, name)
  assert.same({ status = e.status or 200, body = e.body or "", fields = e.fields or "", cut = e.cut or false },
    { status = got.status, body = got.body or "", fields = answer_fields(got), cut = not got.complete }, name)
end

it("an answer is a 502, or goes on in one form, and a connection is used again only where nothing is left of it", async(function()
  each(answers, function(case, name)
    local _, _, bytes, expected, how = unpack(case)
    on.origin.handler = function(_, conn)
      conn:write(bytes)
      if not how.stay then return conn:close() end
    end
    local method = how.method or "GET"
    local c = on.gw:connect()
    c:send(("%s / HTTP/%s\r\nHost: a.test\r\n\r\n"):format(method, how.version or "1.1"))
    local res, _, part = c:read_response { method = method }
    local used = on.origin.connections
    if expected == 502 then
      assert.equal(502, res and res.status, name)
      assert.equal(how.code or "bad_origin_answer", support.json(res).error.code, name)
    else
      check_answer(res, part, expected, name)
    end
    on.origin.handler = rig.hello
    assert.equal("hello", on.gw:request({}).body, name)
    assert.equal(expected ~= 502 and expected.reuse and used or used + 1, on.origin.connections, name)
    c:close()
  end)
end, 60000))
