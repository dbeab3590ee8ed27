-- ctx:record, ctx:recorded and ctx:keep_origin: the origin's answer as it came, whole or not at all, whatever plugins make of it
-- and whatever its client does meanwhile.
local support = require "spec.support"
local rig = require "spec.host.plugin_rig"
local async = support.async

-- Records, and tells what it has as one line of JSON. What the query names is done besides.
local keeper = [[
  local tg = require "tollgate"
  local M = { priority = 100 }
  function M.access(_, ctx)
    local q = ctx.request.query or ""
    local limit = tonumber(q:match("limit=(%d+)")) or 1000000
    if not q:find("late") and not q:find("never") then ctx:record(limit) end
    local seconds, bytes = q:match("keep=([%d.]+),(%d+)")
    if seconds then ctx:keep_origin(tonumber(seconds), tonumber(bytes)) end
    if ctx.request.path == "/own" then return 200, "own answer" end
  end
  function M.response(_, ctx)
    if ctx.request.query and ctx.request.query:find("late") then ctx:record(1000000) end
    if ctx.request.query and ctx.request.query:find("pause") then
      tg.log.info("pauses;")
      tg.timer.sleep(0.2)
    end
  end
  function M.body(_, ctx, piece) ctx.pieces = (ctx.pieces or 0) + #piece end
  function M.finish(_, ctx)
    local body, why = ctx:recorded()
    tg.log.info("kept ", ctx.request.path, " ", tg.json.encode { body = body or tg.json.null, why = why or tg.json.null,
      ended = ctx.ended, pieces = ctx.pieces or 0, reached = ctx.reached_origin }, ";")
  end
  return M
]]

-- Edits all that it can, behind the keeper.
local editor = [[
  local M = { priority = 1 }
  function M.response(_, ctx)
    if ctx.request.headers["x-edit"] == "whole" then ctx.response:set_body("<" .. ctx.response:body() .. ">") end
  end
  function M.body(_, ctx, piece)
    if ctx.request.headers["x-edit"] == "pieces" and piece ~= "" then return piece:upper() end
  end
  return M
]]

local step = {} -- by path: the answer goes on

local function wait_step(path)
  support.wait_for(function() return step[path] end, "the next step of " .. path, 10000)
end

local function handler(req, conn)
  local path = req.path:match("^[^?]*")
  if path == "/chunked" or path == "/slow" then
    if path == "/slow" then wait_step("/slow-head") end
    conn:start {}
    conn:chunk("one ")
    if path == "/slow" then wait_step("/slow") end
    conn:chunk("two ")
    conn:chunk("three")
    return conn:finish()
  elseif path == "/eof" then return conn:respond { body = "until the end", length = false }
  elseif path == "/empty" then return conn:respond { status = 204 }
  elseif path == "/cut" then
    conn:start {}
    conn:chunk("one ")
    return conn:close()
  elseif path == "/stall" then
    conn:start {}
    conn:chunk("one ")
    return conn:wait_closed()
  elseif path == "/large" then
    conn:start {}
    conn:chunk(("x"):rep(1000))
    wait_step("/large")
    for _ = 1, 50 do if not conn:chunk(("x"):rep(1000)) then return end end
    return conn:finish()
  end
  conn:respond { body = "known length" }
end

local on, up, down = rig.shared(function()
  local origin = support.origin(handler)
  return { plugins = { keeper = keeper, editor = editor }, origin = origin, target = origin.url }
end)
setup(up)
teardown(down)

-- The worker has seen that its clients have left.
local function wait_left(gw)
  support.wait_for(function() return gw:status().workers[1].connections == 0 end, "the client's end")
end

before_each(function() step = { ["/slow-head"] = true } end)

-- What was told of the n-th request of a path since `mark`.
local function kept(path, mark, gw)
  local text
  support.wait_for(function()
    text = (gw or on.gw).log():sub(mark or 1):match("kept " .. path .. " (%b{});")
    return text
  end, "what is kept of " .. path)
  return support.decode(text)
end

local function ask(path, headers)
  local mark = #on.gw.log() + 1
  local res = on.gw:request { path = path, headers = headers }
  return kept(path:match("^[^?]*"), mark), res
end

describe("a copy of the answer", function()
  it("has its body however that is framed, before plugins' edits", async(function()
    for path, body in pairs { ["/chunked"] = "one two three", ["/eof"] = "until the end", ["/length"] = "known length",
        ["/empty"] = "" } do
      for _, edit in ipairs { "none", "pieces", "whole" } do
        local got, res = ask(path, { ["x-edit"] = edit })
        assert.same({ path, edit, body, "ok" }, { path, edit, got.body, got.ended })
        if edit == "pieces" then assert.equal(body:upper(), res.body) end
        if edit == "whole" and path ~= "/empty" then assert.equal("<" .. body .. ">", res.body) end
      end
    end
    assert.equal("known length", (ask("/length?late")).body)
  end))

  it("is there up to its limit, to the byte", async(function()
    assert.equal("one two three", (ask("/chunked?limit=13")).body)
    local got, res = ask("/chunked?limit=12")
    assert.same({ "too_large", "one two three" }, { got.why, res.body })
    assert.equal("", (ask("/empty?limit=0")).body)
  end))

  it("is not there of an answer that breaks off, of a plugin's, or where nobody asked", async(function()
    assert.same({ "incomplete", "origin_cut" }, { ask("/cut").why, ask("/cut").ended })
    assert.same({ "none", false }, { ask("/own").why, ask("/own").reached })
    assert.same({ "none", true }, { ask("/length?never").why, ask("/length?never").reached })
  end))

  it("has no usage event that only the gateway asked for", async(function()
    local redis = support.redis()
    local origin = support.chat_origin()
    local gw = rig.start { plugins = { keeper = keeper }, config = { redis = redis.url }, routes = {
      { name = "chat", path = "/v1/chat/completions", targets = { { url = origin.url } },
        plugins = { keeper = {}, quota = { monthly_tokens = 100000 } } } } }
    local res = gw:request { method = "POST", path = "/v1/chat/completions",
      body = { model = "m", stream = true, messages = { { role = "user", content = "hi" } } } }
    assert.is_true(origin.bodies()[1].stream_options.include_usage)
    assert.equal(res.body, kept("/v1/chat/completions", 1, gw).body)
    assert.is_nil(res.body:find("prompt_tokens", 1, true))
  end))
end)

describe("an answer that is kept", function()
  -- Asks, and leaves at a moment of the answer: "head" (before it), "body" (in it), "response" (while a plugin waits).
  local function leave(path, moment)
    local mark = #on.gw.log() + 1
    local n = #on.options.origin.requests
    local c = on.gw:connect()
    c:send_request { path = path }
    on.options.origin:wait_request(n + 1)
    if moment == "body" then c:read_until("one ", true) end
    if moment == "response" then
      support.wait_for(function() return on.gw.log():find("pauses;", mark, true) end, "the response phase")
    end
    c:close()
    wait_left(on.gw)
    return mark
  end

  for _, moment in ipairs { "head", "body", "response" } do
    it("is read to its end for a client that left: " .. moment, async(function()
      if moment == "head" then step["/slow-head"] = nil end
      local mark = leave("/slow?keep=60,100" .. (moment == "response" and "&pause" or ""), moment)
      step["/slow-head"], step["/slow"] = true, true
      local got = kept("/slow", mark)
      assert.same({ "one two three", "client_gone", 13 }, { got.body, got.ended, got.pieces })
      local connections = on.options.origin.connections
      assert.equal(200, on.gw:request({ path = "/length" }).status)
      assert.equal(connections, on.options.origin.connections)
    end))
  end

  it("is cut off with its client where no plugin keeps it", async(function()
    local got = kept("/slow", leave("/slow", "body"))
    assert.same({ "incomplete", "client_gone" }, { got.why, got.ended })
  end))

  it("has an end in bytes and in time", async(function()
    local mark = leave("/large?keep=60,5000", "head")
    step["/large"] = true
    local got = kept("/large", mark)
    assert.same({ "incomplete", "client_gone" }, { got.why, got.ended })
    assert.is_true(got.pieces <= 6000)
    assert.equal("incomplete", kept("/stall", leave("/stall?keep=0.1,5000", "body")).why)
  end))
end)

it("a generation that has to go takes with it what plugins keep on it", async(function()
  local origin = support.origin(handler)
  local gw = rig.start { plugins = { keeper = keeper }, target = origin.url,
    config = { reload = { watch = false, drain = 0.2 } } }
  local c = gw:connect()
  c:send_request { path = "/slow?keep=3600,100" }
  c:read_until("one ", true)
  c:close()
  wait_left(gw)
  for i = 1, 5 do
    gw:write("gateway.lua", support.read_file(gw.dir .. "/gateway.lua") .. "\n-- " .. i)
    -- With four generations alive a further one is refused, and the oldest ends.
    support.wait_for(function() return gw:command("reload").code == 0 end, "a reload", 10000)
    local busy = gw:connect()
    busy:send_request { path = "/stall" }
    busy:read_until("one ", true)
  end
  assert.same({ "incomplete", "shutdown" }, { kept("/slow", 1, gw).why, kept("/slow", 1, gw).ended })
end))

describe("the gateway's end", function()
  local function start(drain)
    local origin = support.origin(handler)
    local gw = rig.start { plugins = { keeper = keeper }, target = origin.url, config = { timeouts = { drain = drain } } }
    local c = gw:connect()
    c:send_request { path = "/slow?keep=60,100" }
    c:read_until("one ", true)
    c:close()
    wait_left(gw)
    gw:kill("sigterm")
    gw:wait_log("stopping:", true)
    return gw
  end

  it("waits for what plugins keep", async(function()
    local gw = start(20)
    step["/slow"] = true
    assert.same({ 0, 0 }, { gw.process:wait(10000) })
    assert.same({ "one two three", "client_gone" }, { kept("/slow", 1, gw).body, kept("/slow", 1, gw).ended })
  end))

  it("waits no longer than a drain takes, and not behind a second signal", async(function()
    for _, drain in ipairs { 0.2, 60 } do
      local gw = start(drain)
      if drain == 60 then gw.process:kill("sigterm") end
      assert.same({ 0, 0 }, { gw.process:wait(10000) })
      assert.same({ "incomplete", "shutdown" }, { kept("/slow", 1, gw).why, kept("/slow", 1, gw).ended })
    end
  end))
end)
