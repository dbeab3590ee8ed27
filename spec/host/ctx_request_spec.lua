-- What plugins do to a request and its answer through ctx, as client and origin see it: bodies read and replaced, headers,
-- path and query, status; how a request ended; and a ctx that outlives its request.
local support = require "spec.support"
local rig = require "spec.host.plugin_rig"
local async = support.async

-- Each path runs the code of that name in its phase.
local plugin = [[
  local tg = require "tollgate"
  local access, response, kept = {}, {}, nil
  function access.read(ctx) ctx.size = #ctx.request:body() end
  function response.read(ctx)
    if ctx.size then ctx.response.headers["x-size"] = ctx.size .. "," .. #ctx.request:body() end
  end
  function access.upper(ctx) ctx.request:set_body(ctx.request:body():upper()) end
  function access.empty(ctx) ctx.request:body(); ctx.request:set_body("") end
  function access.double(ctx) ctx.request:set_body(ctx.request:body():rep(2)); ctx.request:set_body(ctx.request:body():rep(2)) end
  function access.unread(ctx) ctx.request:set_body("x") end
  function access.headers(ctx)
    local h, lines = ctx.request.headers, {}
    for name, value in ctx.request:each_header() do
      if name:lower():match("^x%-") then lines[#lines + 1] = name .. "=" .. value end
    end
    h["x-lines"] = table.concat(lines, " ")
    h["x-read"] = tostring(h["X-TWICE"]) .. "|" .. tostring(h["x-none"])
    h["X-Gone"], h["x-twice"], h["x-number"], h["x-list"] = nil, "once", 5, { "1", 2, "3" }
    h["x-empty"], h["x-trimmed"] = "", "  a b\t"
    h["x-self"] = h["x-list"]
  end
  function access.rewrite(ctx) ctx.request.path, ctx.request.query = "/other/./x/../%7Eme", "a=1&b=%20" end
  function access.plain(ctx) ctx.request.query = nil end
  function response.head(ctx)
    local h = ctx.response.headers
    ctx.response.status = 418
    local lines = {}
    for name, value in ctx.response:each_header() do lines[#lines + 1] = name:lower() .. "=" .. value end
    h["x-lines"], h.etag, h["set-cookie"], h["x-origin"] = table.concat(lines, " "), nil, { "a=1", "b=2" }, "gone over"
  end
  function access.keep(ctx) kept = { ctx = ctx, request = ctx.request, headers = ctx.request.headers, id = ctx.id,
    each = ctx.request:each_header(), body = function() return ctx.request:body() end } end
  function access.kept()
    local out = {}
    for name, fn in pairs {
      request = function() return kept.request.path end, headers = function() return kept.headers["x-a"] end,
      set = function() kept.headers["x-a"] = "1" end, response = function() return kept.ctx.response.status end,
      client = function() return kept.ctx.client end, each = function() return kept.each() end, body = kept.body,
      refusal = function() return kept.ctx:refusal(400, "a", "b") end,
      quota = function() return tg.quota.headers(kept.ctx) end,
    } do
      local ok, message = pcall(fn)
      out[name] = { ok, tostring(message) }
    end
    out.id = { kept.ctx.id == kept.id, "" }
    return 200, out
  end
  local function wrong(fn) return function(ctx) local ok, m = pcall(fn, ctx); return 200, { ok, tostring(m) } end end
  access["wrong-path"] = wrong(function(ctx) ctx.request.path = "relative" end)
  access["wrong-path-up"] = wrong(function(ctx) ctx.request.path = "/../../etc" end)
  access["wrong-path-split"] = wrong(function(ctx) ctx.request.path = "/a b\r\nx: y" end)
  access["wrong-query"] = wrong(function(ctx) ctx.request.query = "a b" end)
  access["wrong-query-split"] = wrong(function(ctx) ctx.request.query = "a\r\nx: y" end)
  access["wrong-header"] = wrong(function(ctx) ctx.request.headers["x-a"] = "b\r\nc: d" end)
  access["wrong-framing"] = wrong(function(ctx) ctx.request.headers["content-length"] = 5 end)
  access["wrong-name"] = wrong(function(ctx) return ctx.request.hedaers end)
  access["wrong-dot"] = wrong(function(ctx) return ctx.request.body() end)
  response["wrong-status"] = function(ctx)
    local ok, m = pcall(function() ctx.response.status = 204 end)
    ctx.response.headers["x-wrong"] = tostring(ok) .. " " .. m
  end
  return {
    access = function(_, ctx) local f = access[ctx.request.path:sub(2)]; if f then return f(ctx) end end,
    response = function(_, ctx) local f = response[ctx.request.path:sub(2)]; if f then return f(ctx) end end,
    log = function(_, ctx) tg.log.info("ended ", ctx.request.path, " ", ctx.ended, " ",
      ctx.response and ctx.response.status, " ", ctx.seconds >= 0, ";") end,
  }
]]

local on, up, down = rig.shared(function()
  local origin = support.origin(function(_, conn) conn:respond {} end)
  return { plugins = { edit = plugin }, target = origin.url, origin = origin,
    routes = { { name = "r", path = "/*", plugins = { edit = {} }, targets = { { url = origin.url } },
      timeouts = { idle = 0.2 }, limits = { body = 300000 } } } }
end)
setup(up)
teardown(down)

before_each(function()
  on.options.origin.handler = function(req, conn)
    on.seen = req
    conn:respond { headers = { { "ETag", "1" }, { "X-Origin", "a" }, { "x-origin", "b" } }, body = "answer" }
  end
end)

local function send(path, options)
  on.seen = nil
  local res = on.gw:request(setmetatable({ path = path }, { __index = options }))
  return assert(res), on.seen
end

describe("the request's body", function()
  it("is read whole, small or large, in any framing, and goes on as it was", async(function()
    for _, n in ipairs { 0, 5, 70000, 300000 } do
      local body = ("0123456789"):rep(n / 10 + 1):sub(1, n)
      local res, seen = send("/read", { method = "POST", body = body })
      assert.same({ n .. "," .. n, true, tostring(n) },
        { res.headers["x-size"], seen.body == body, seen.headers["content-length"] })
      local pieces = {}
      for at = 1, n, 7777 do pieces[#pieces + 1] = body:sub(at, at + 7776) end
      res, seen = send("/read", { method = "POST", chunked = pieces })
      assert.same({ n .. "," .. n, true, tostring(n) },
        { res.headers["x-size"], seen.body == body, seen.headers["content-length"] })
      assert.is_nil(seen.headers["transfer-encoding"])
    end
  end))

  it("is waited for, where it comes slowly; without one it is empty, and stays none", async(function()
    local c = on.gw:connect()
    c:send "POST /upper HTTP/1.1\r\nhost: a\r\ncontent-length: 6\r\n\r\nab"
    c:send "cd"
    assert.is_nil(c:wait_data(20)) -- nothing is answered before the body is whole
    c:send "ef"
    assert.equal(200, c:read_response().status)
    assert.equal("ABCDEF", on.seen.body)
    local res, seen = send("/read")
    assert.same({ "0,0", nil }, { res.headers["x-size"], seen.headers["content-length"] })
  end))

  it("above the limit is a 413, in any framing", async(function()
    assert.equal(413, on.gw:request({ path = "/read", body = ("x"):rep(300001) }).status)
    local c = on.gw:connect()
    c:send_request { path = "/read", chunked = { ("x"):rep(200000), ("x"):rep(100001) } }
    assert.equal(413, c:read_response().status)
  end))

  it("may be replaced, by nothing too, and again; unread it may not", async(function()
    local _, seen = send("/upper", { chunked = { "ab", "c" } })
    assert.same({ "ABC", "3" }, { seen.body, seen.headers["content-length"] })
    _, seen = send("/empty", { body = "abc" })
    assert.same({ "", "0" }, { seen.body, seen.headers["content-length"] })
    _, seen = send("/double", { body = ("ab"):rep(20000) })
    assert.equal(("ab"):rep(80000), seen.body)
    assert.equal(500, send("/unread", { body = "abc" }).status)
    on.gw:wait_log("set_body() needs ctx.request:body() to be called first", true)
  end))
end)

describe("headers", function()
  it("of the request are read, listed, replaced, repeated and removed", async(function()
    local _, seen = send("/headers", { headers = { { "X-Twice", "a" }, { "x-gone", "1" }, { "x-twice", "b" } } })
    assert.equal("X-Twice=a x-gone=1 x-twice=b", seen.headers["x-lines"])
    assert.equal("a, b|nil", seen.headers["x-read"])
    assert.same({ nil, "once", "5", "1, 2, 3", "1, 2, 3", "", "a b" }, { seen.headers["x-gone"], seen.headers["x-twice"],
      seen.headers["x-number"], seen.headers["x-list"], seen.headers["x-self"], seen.headers["x-empty"],
      seen.headers["x-trimmed"] })
    local list = {}
    for _, pair in ipairs(seen.list) do
      if pair[1]:lower() == "x-list" then list[#list + 1] = pair[2] end
    end
    assert.same({ "1", "2", "3" }, list)
  end))

  it("and status of the response likewise", async(function()
    local res = send "/head"
    assert.equal(418, res.status)
    assert.matches("etag=1 x%-origin=a x%-origin=b", res.headers["x-lines"])
    assert.same({ nil, "a=1, b=2", "gone over", "answer" },
      { res.headers.etag, res.headers["set-cookie"], res.headers["x-origin"], res.body })
  end))
end)

describe("path and query", function()
  it("may be rewritten; the path is normalised", async(function()
    local _, seen = send "/rewrite?old=1"
    assert.equal("/other/~me?a=1&b=%20", seen.target)
    _, seen = send "/plain?old=1"
    assert.equal("/plain", seen.target)
  end))
end)

describe("misuse raises and changes nothing:", function()
  for name, reason in pairs {
    ["wrong-path"] = "must be a path", ["wrong-path-up"] = "must be a path", ["wrong-path-split"] = "must be a path",
    ["wrong-query"] = "must be percent%-encoded", ["wrong-query-split"] = "must be percent%-encoded",
    ["wrong-header"] = "has a control character", ["wrong-framing"] = "is set by the gateway itself",
    ["wrong-name"] = "ctx.request has no field 'hedaers'", ["wrong-dot"] = "call this with a colon",
  } do
    it(name, async(function()
      local result = support.json(send("/" .. name, { headers = { ["x-a"] = "1" } }))
      assert.is_false(result[1])
      assert.matches(reason, result[2])
    end))
  end

  it("a status that would give or take the body", async(function()
    local res = send "/wrong-status"
    assert.same({ 200, "answer" }, { res.status, res.body })
    assert.matches("^false .*of one kind with 200 as to having a body", res.headers["x-wrong"])
  end))
end)

describe("ctx.ended", function()
  local function ended(path) return on.gw:wait_log("ended /" .. path .. " [^\n]*;"):match("/%S+ (.*);") end

  it("tells an answer that came to its end", async(function()
    send "/fine"
    assert.equal("ok 200 true", ended "fine")
  end))

  it("tells an origin that cut its answer, and one that fell silent", async(function()
    on.options.origin.handler = function(_, conn) conn:start(); conn:chunk "a"; conn:close() end
    assert.is_nil(on.gw:request { path = "/cut" })
    assert.equal("origin_cut 200 true", ended "cut")
    on.options.origin.handler = function(_, conn) conn:start(); conn:chunk "a"; conn:wait_closed() end
    assert.is_nil(on.gw:request { path = "/silent" })
    assert.equal("timeout 200 true", ended "silent")
  end))

  it("tells a client that went, before the answer's head and behind it", async(function()
    on.options.origin.handler = function(_, conn) conn:wait_closed() end
    local c = on.gw:connect()
    c:send_request { path = "/early" }
    on.options.origin:wait_request(#on.options.origin.requests + 1)
    c:close()
    assert.equal("client_gone nil true", ended "early")
    on.options.origin.handler = function(_, conn) conn:start(); conn:chunk "a"; conn:wait_closed() end
    c = on.gw:connect()
    c:send_request { path = "/late" }
    c:read_head():read()
    c:close()
    assert.equal("client_gone 200 true", ended "late")
  end))
end)

it("ctx kept beyond its request raises, whatever of it is used; what was read before stays", async(function()
  send "/keep"
  on.gw:wait_log("ended /keep", true)
  local results = support.json(send "/kept")
  assert.is_true(results.id[1])
  results.id = nil
  for name, result in pairs(results) do
    assert.same({ name, false }, { name, result[1] })
    assert.matches("this request has ended: ctx cannot be used any more", result[2])
  end
end))
