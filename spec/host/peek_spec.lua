-- Streams that begin with an error: the next target is asked before the client has seen a head. All other streams go out as
-- they come, byte for byte, their first event without waiting for anything.
local support = require "spec.support"
local rig = require "spec.host.target_rig"
local async = support.async
local target = rig.target

local PATHS = { ["openai-chat"] = "/v1/chat/completions", ["openai-responses"] = "/v1/responses",
  ["anthropic-messages"] = "/v1/messages" }
local CODES = { ["openai-chat"] = "x", ["openai-responses"] = "server_error", ["anthropic-messages"] = "overloaded_error" }
local CHAT = PATHS["openai-chat"]
local FINE = 'data: {"id":"1","choices":[{"index":0,"delta":{"content":"fine"}}]}\n\n'
local ERROR = 'data: {"error":{"message":"overloaded","type":"server_error","code":"busy"}}\n\n'

-- An origin that streams these bytes, `split` of them at a time.
local function streaming(name, bytes, split, behind)
  return rig.origin(name, function(_, conn)
    conn:start { headers = { ["content-type"] = "text/event-stream", ["x-name"] = name } }
    for at = 1, #bytes, split or #bytes do
      if not conn:chunk(bytes:sub(at, at + (split or #bytes) - 1)) then return true end
    end
    if behind then return behind(conn) or true end
    conn:finish()
    return true
  end)
end

local function gateway(first, second, route, more)
  route = route or {}
  route.path = route.path or "/v1/*"
  route.api = route.api or "openai-chat"
  route.targets = { target("a", first, more), target("b", second, { tier = 2 }) }
  route.plugins = route.plugins or { note = {} }
  return rig.gateway(route)
end

local function ask(gw, path)
  return gw:request { method = "POST", path = path or CHAT, body = '{"model":"m","stream":true}' }
end

describe("a stream whose first event is an error", function()
  for api, path in pairs(PATHS) do
    it("goes to the next target: " .. api, async(function()
      local event = support.llm.event_bytes(support.llm.apis[api].failure "x")
      local a = rig.origin("a", function(_, conn)
        conn:start { headers = { ["content-type"] = "text/event-stream" } }
        conn:chunk(event)
        conn:finish()
        return true
      end)
      local b = support.llm_origin {}
      local gw = gateway(a, b, { path = path, api = api })
      local res = ask(gw, path)
      assert.equal(200, res.status)
      assert.truthy(res.body:find("Hello", 1, true))
      assert.same({ 1, 1 }, { #a.requests, #b.requests })
      assert.equal("?a ?b !a,200,stream_error,1 code=" .. CODES[api], res.headers["x-notes"])
      assert.same({ target = "a", status = 200, error = "stream_error" }, gw:wait_access(1)[1].retries[1])
    end))
  end

  it("behind comments and pings, in any split, still goes to the next target", async(function()
    local bytes = ": hello\n\nevent: ping\ndata: {\"type\":\"ping\"}\n\nevent: error\n" .. ERROR
    for _, split in ipairs { 1, 3, 50 } do
      local gw = gateway(streaming("a", bytes, split), streaming("b", FINE))
      assert.equal(FINE, ask(gw).body)
      gw:stop()
    end
  end))

  it("that does not end goes to the next target all the same", async(function()
    local gw = gateway(streaming("a", ERROR, nil, function(conn) conn:wait_closed() end), streaming("b", FINE))
    assert.equal(FINE, ask(gw).body)
  end))

  it("is relayed as it came where nothing is left", async(function()
    local bytes = ": hello\n\n" .. ERROR .. FINE
    local gw = gateway(streaming("a", ERROR), streaming("b", bytes, 5))
    local res = ask(gw)
    assert.same({ 200, "b", bytes }, { res.status, res.headers["x-name"], res.body })
    gw:stop()
    gw = gateway(streaming("a", bytes, 5), streaming("b", FINE), { plugins = { note = { over = { b = true } } } })
    res = ask(gw)
    assert.same({ 200, "a", bytes }, { res.status, res.headers["x-name"], res.body })
    gw:wait_log("notes ?a ?b !a,200,stream_error,1 code=busy target a", true)
  end))

  it("goes to the client where the route does not look, and where it comes later", async(function()
    local gw = gateway(streaming("a", ERROR), streaming("b", FINE), { retry = { peek = false } })
    assert.equal(ERROR, ask(gw).body)
    gw:stop()
    gw = gateway(streaming("a", FINE .. ERROR, 4), streaming("b", FINE))
    assert.equal(FINE .. ERROR, ask(gw).body)
  end))
end)

describe("any other stream", function()
  it("goes out with its first event, which waits for nothing", async(function()
    local held = true
    local gw = gateway(streaming("a", ": hi\n\n" .. FINE, nil, function(conn)
      support.wait_for(function() return not held end, "the client to have seen the first event")
      conn:chunk(FINE)
      conn:finish()
    end), streaming("b", FINE))
    local client = gw:connect()
    client:send_request { method = "POST", path = CHAT, body = '{"model":"m","stream":true}' }
    local res = client:read_head()
    assert.equal(200, res.status)
    local next_event = support.events(res)
    assert.truthy(next_event().data:find("fine", 1, true))
    held = false
    assert.truthy(next_event().data:find("fine", 1, true))
    assert.is_nil(next_event())
  end))

  it("is byte for byte what came, also through plugins that wait, edit, or want it whole", async(function()
    local bytes = "\239\187\191: c\r\n\r\nid: 1\r\n" .. FINE:gsub("\n", "\r\n") .. ("x"):rep(40) .. "\n\ndata: [DONE]\n\n"
    local files = { ["plugins/note.lua"] = rig.NOTE,
      ["plugins/wait.lua"] = [[local tg = require "tollgate"
        return { response = function(_, ctx) tg.timer.sleep(0.02) end }]],
      ["plugins/edit.lua"] = "return { body = function(_, _, piece) return piece:upper() end }",
      ["plugins/whole.lua"] = [[return { response = function(_, ctx)
        ctx.response.headers["x-length"] = #ctx.response:body() end }]] }
    local routes = {}
    local a, b = streaming("a", bytes, 7), streaming("b", FINE)
    for i, plugins in ipairs { {}, { wait = {} }, { edit = {} }, { whole = {} }, { wait = {}, edit = {}, whole = {} } } do
      routes[i] = { name = "r" .. i, path = "/" .. i, api = "openai-chat", plugins = plugins,
        targets = { target("a", a), target("b", b, { tier = 2 }) } }
    end
    local gw = support.gateway { files = files, config = { routes = routes } }
    for i = 1, #routes do
      local res = ask(gw, "/" .. i)
      local expected = routes[i].plugins.edit and bytes:upper() or bytes
      assert.same({ i, expected }, { i, res.body })
      if routes[i].plugins.whole then assert.equal(tostring(#bytes), res.headers["x-length"]) end
    end
    assert.equal(0, #b.requests)
  end))

  it("without any event, or with one that is long, goes out", async(function()
    for _, bytes in ipairs { "", ": only\n\n", "data: " .. ("x"):rep(100000) .. "\n\n" } do
      local gw = gateway(streaming("a", bytes, 30000), streaming("b", FINE))
      assert.equal(bytes, ask(gw).body)
      gw:stop()
    end
  end))

  it("that breaks off or falls silent before its first event goes to the next target", async(function()
    for _, way in ipairs { "close", "reset", "silent" } do
      local gw = gateway(streaming("a", ": hi\n\ndata: {", nil, function(conn)
        if way == "silent" then conn:wait_closed() elseif way == "reset" then conn:reset() else conn:close() end
      end), streaming("b", FINE), nil, way == "silent" and { timeouts = { idle = 0.1 } } or nil)
      assert.equal(FINE, ask(gw).body)
      assert.equal("cut", gw:wait_access(1)[1].retries[1].error)
      gw:stop()
    end
  end))

  it("whose client leaves while it is held is cancelled", async(function()
    local closed = false
    local a = streaming("a", ": hi\n\n", nil, function(conn)
      conn:wait_closed()
      closed = true
    end)
    local gw = gateway(a, streaming("b", FINE))
    local client = gw:connect()
    client:send_request { method = "POST", path = CHAT, body = '{"model":"m","stream":true}' }
    a:wait_request(1)
    client:close()
    support.wait_for(function() return closed end, "the origin's connection to end")
    gw:wait_log("notes ?a !a,200,client_gone,1", true)
    assert.equal("client_gone", gw:wait_access(1)[1].ended)
  end))
end)
