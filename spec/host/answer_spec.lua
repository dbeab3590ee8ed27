-- Plugins that answer: what access may return for status, body and headers, how it is framed, and what of it is refused. A
-- refused answer is a 500 with the reason in the log, and with on_error = "skip" the request goes on.
local support = require "spec.support"
local rig = require "spec.host.plugin_rig"
local async = support.async

-- Each path runs the code of that name, which gets ctx and returns what access returns.
local cases = {
  text = 'return 201, "made", { ["content-type"] = "text/x-own", ["X-Own"] = "1" }',
  nothing = "return 200",
  number = "return 200, 12.5",
  json = 'return 200, { list = tg.json.array(), n = 1, deep = { tg.json.null } }',
  typed = 'return 200, { 1 }, { ["Content-Type"] = "application/problem+json" }',
  list = 'return 200, "x", { ["set-cookie"] = { "a=1", "b=2" }, ["x-number"] = 7 }',
  ["no-content"] = 'return 204, "left out"',
  ["not-modified"] = 'return 304, "left out", { etag = "\\"1\\"" }',
  refusal = 'return ctx:refusal(403, "not_yours", "That is not yours.", { ["x-why"] = "because" })',
  proceed = "return nil, 'left out'",
  ["status-text"] = 'return "hello"',
  ["status-false"] = "return false",
  ["status-low"] = "return 101",
  ["status-high"] = "return 600",
  ["status-half"] = "return 200.5",
  ["status-nan"] = "return 0/0",
  ["body-boolean"] = "return 200, true",
  ["body-cdata"] = "return 200, 1LL",
  ["body-unencodable"] = "return 200, { f = function() end }",
  ["headers-text"] = 'return 200, "x", "a: b"',
  ["headers-list"] = 'return 200, "x", { "a: b" }',
  ["headers-boolean"] = 'return 200, "x", { a = true }',
  ["headers-crlf"] = 'return 200, "x", { a = "b\\r\\nc: d" }',
  ["headers-lf"] = 'return 200, "x", { a = { "b", "c\\nd" } }',
  ["headers-nul"] = 'return 200, "x", { a = "b\\0" }',
  ["headers-name"] = 'return 200, "x", { ["a b"] = "c" }',
  ["headers-name-crlf"] = 'return 200, "x", { ["a\\r\\nb"] = "c" }',
  ["headers-empty"] = 'return 200, "x", { [""] = "c" }',
}
for _, name in ipairs { "content-length", "Transfer-Encoding", "connection", "keep-alive", "upgrade", "trailer", "te",
  "proxy-connection", "host", "expect" } do
  cases["framing-" .. name] = ('return 200, "x", { [%q] = "1" }'):format(name)
end

local function plugin()
  local parts = { 'local tg = require "tollgate"\nlocal cases = {}\n' }
  for name, code in pairs(cases) do
    parts[#parts + 1] = ("cases[%q] = function(ctx) %s end\n"):format(name, code)
  end
  parts[#parts + 1] = [[
    return { access = function(_, ctx)
      local case = cases[ctx.request.path:match("[^/]+$")]
      return case(ctx)
    end } ]]
  return table.concat(parts)
end

local on, up, down = rig.shared(function()
  local origin = support.origin(function(_, conn) conn:respond { body = "origin" } end)
  return { plugins = { cases = plugin() }, routes = {
    { name = "fail", path = "/fail/*", plugins = { cases = {} }, targets = { { url = origin.url } } },
    { name = "skip", path = "/skip/*", plugins = { cases = { on_error = "skip" } }, targets = { { url = origin.url } } },
    { name = "chat", path = "/chat/*", api = "openai-chat", plugins = { cases = {} } },
    { name = "messages", path = "/messages/*", api = "anthropic-messages", plugins = { cases = {} } },
  } }
end)
setup(up)
teardown(down)

local function get(name, options)
  return assert(on.gw:request(setmetatable({ path = "/fail/" .. name }, { __index = options })))
end

describe("an answer", function()
  it("of a string, with headers", async(function()
    local res = get "text"
    assert.same({ 201, "made", "text/x-own", "1", "4" }, { res.status, res.body, res.headers["content-type"],
      res.headers["x-own"], res.headers["content-length"] })
    assert.is_string(res.headers.date)
    assert.is_string(res.headers["x-request-id"])
  end))

  it("of nothing is empty, of a number its text", async(function()
    local res = get "nothing"
    assert.same({ 200, "", "0" }, { res.status, res.body, res.headers["content-length"] })
    assert.equal("12.5", get("number").body)
  end))

  it("of a table is JSON, with that content type unless another is given", async(function()
    local res = get "json"
    assert.same({ '{"deep":[null],"list":[],"n":1}', "application/json" }, { res.body, res.headers["content-type"] })
    res = get "typed"
    assert.same({ "[1]", "application/problem+json" }, { res.body, res.headers["content-type"] })
  end))

  it("may repeat a header by a list, and take a number for a value", async(function()
    local res = get "list"
    local cookies = {}
    for _, pair in ipairs(res.list) do
      if pair[1]:lower() == "set-cookie" then cookies[#cookies + 1] = pair[2] end
    end
    assert.same({ { "a=1", "b=2" }, "7" }, { cookies, res.headers["x-number"] })
  end))

  it("to HEAD has the length and not the body; 204 and 304 have neither; the connection goes on", async(function()
    local c = on.gw:connect()
    c:send_request { method = "HEAD", path = "/fail/text" }
    local res = c:read_response { method = "HEAD" }
    assert.same({ 201, "4", "" }, { res.status, res.headers["content-length"], res.body })
    for name, status in pairs { ["no-content"] = 204, ["not-modified"] = 304 } do
      res = c:request { path = "/fail/" .. name }
      assert.same({ status, "" }, { res.status, res.body })
      assert.is_nil(res.headers["transfer-encoding"])
    end
    assert.equal("made", c:request({ path = "/fail/text" }).body)
  end))

  it("made by ctx:refusal has the shape of the route's API, and is named in the access log", async(function()
    local res = on.gw:request { path = "/chat/refusal" }
    assert.same({ 403, "not_yours", "That is not yours.", "because", "application/json" }, { res.status,
      support.json(res).error.code, support.json(res).error.message, res.headers["x-why"], res.headers["content-type"] })
    local other = support.json(on.gw:request { path = "/messages/refusal" })
    assert.same({ "error", "That is not yours." }, { other.type, other.error.message })
    local line = support.wait_for(function()
      for _, one in ipairs(on.gw.access()) do
        if one.id == res.headers["x-request-id"] then return one end
      end
    end, "the line of the access log")
    assert.equal("not_yours", line.refusal)
  end))

  it("of nil first lets the request go on", async(function()
    assert.equal("origin", get("proceed").body)
  end))

  it("does not wait for a body that the plugin did not read, and the connection stays in step", async(function()
    local c = on.gw:connect()
    assert.equal("made", c:request({ path = "/fail/text", body = ("x"):rep(40000) }).body)
    assert.equal("made", c:request({ path = "/fail/text" }).body)
  end))
end)

describe("an answer that is none", function()
  local reasons = {
    ["status-text"] = "access returned a string first; it must be a status, or nil to go on",
    ["status-false"] = "access returned a boolean first",
    ["status-low"] = "access returned the status 101; it must be an integer from 200 to 599",
    ["status-high"] = "the status 600", ["status-half"] = "the status 200.5", ["status-nan"] = "the status %-?nan",
    ["body-boolean"] = "access returned a boolean for a body", ["body-cdata"] = "access returned a cdata for a body",
    ["body-unencodable"] = "function",
    ["headers-text"] = "access returned a string for headers; it must be a table",
    ["headers-list"] = "headers must be a table of name = value",
    ["headers-boolean"] = "header 'a': a value must be a string, a number or a list",
    ["headers-crlf"] = "header 'a': the value has a control character",
    ["headers-lf"] = "header 'a': the value has a control character",
    ["headers-nul"] = "header 'a': the value has a control character",
    ["headers-name"] = "'a b' is not a valid header name", ["headers-name-crlf"] = "'a\\x0d$",
    ["headers-empty"] = "'' is not a valid header name",
  }
  for name in pairs(cases) do
    local field = name:match("^framing%-(.*)")
    if field then reasons[name] = "the header '" .. field:gsub("%-", "%%-") .. "' is set by the gateway itself" end
  end

  for name, reason in pairs(reasons) do
    it("(" .. name .. ") is a 500, told with the reason and the function's place; or skipped", async(function()
      local res = get(name)
      assert.equal(500, res.status)
      assert.is_nil(res.headers.a)
      assert.is_nil(res.headers.c)
      on.gw:wait_log("[" .. res.headers["x-request-id"] .. "] plugin cases, phase access", true)
      local line = on.gw.log():match("%[" .. res.headers["x-request-id"] .. "%] plugin cases, phase access, route fail: ([^\n]*)")
      assert.matches("plugins/cases%.lua:%d+: ", line)
      assert.matches(reason, line)
      assert.same({ 200, "origin" }, { on.gw:request({ path = "/skip/" .. name }).status,
        on.gw:request({ path = "/skip/" .. name }).body })
    end))
  end
end)
