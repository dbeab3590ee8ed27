-- The finish phase: it runs once for each request, however that ends, when the end is known and before the client has it, and
-- the client's last bytes wait for it.
local support = require "spec.support"
local rig = require "spec.host.plugin_rig"
local async = support.async

-- Waits in finish for a request to /open where the query says so, and tells how the request ended.
local gate = [[
  local tg = require "tollgate"
  local open
  local M = { priority = 100 }
  function M.access(_, ctx)
    if ctx.request.path == "/open" then open = true return 204 end
    if ctx.request.path == "/own" then return 200, "own answer" end
    if ctx.request.path == "/made" then
      local n = 0
      return 200, function() n = n + 1; if n == 1 then return "first" elseif n == 2 then tg.timer.sleep(1000) end end
    end
  end
  function M.finish(_, ctx)
    tg.log.info("finish ", ctx.request.path, " ", ctx.ended, ";")
    if ctx.request.query == "for-ever" then tg.timer.sleep(1000) end
    if ctx.request.query ~= "wait" then return end
    open = false
    while not open do tg.timer.sleep(0.001) end
    tg.log.info("finished ", ctx.request.path, ";")
  end
  function M.log(_, ctx)
    tg.timer.sleep(0.001)
    tg.log.info("logged ", ctx.request.path, " ", ctx.ended, ";")
  end
  return M
]]

local function origin_handler(req, conn)
  local path = req.path:match("^[^?]*")
  if path == "/chunked" then
    conn:start {}
    conn:chunk("a piece")
    return conn:finish()
  elseif path == "/empty" then return conn:respond { status = 204 }
  elseif path == "/eof" then return conn:respond { body = "until the end", length = false }
  elseif path == "/cut" then
    conn:start {}
    conn:chunk("a piece")
    return conn:close()
  elseif path == "/stall" then
    conn:start {}
    conn:chunk("a piece")
    return conn:wait_closed()
  end
  conn:respond { body = "of a known length" }
end

local on, up, down = rig.shared(function()
  local origin = support.origin(origin_handler)
  return { plugins = { gate = gate }, target = origin.url, origin = origin }
end)
setup(up)
teardown(down)

local function opens()
  assert.equal(204, on.gw:request({ path = "/open" }).status)
end

-- What of an answer comes while its finish phase waits, and what behind it.
local function held(path)
  local c = on.gw:connect()
  local mark = #on.gw.log()
  c:send_request { path = path .. "?wait" }
  on.gw:wait_log("finish " .. path .. " ok;", true)
  support.wait_for(function() return on.gw.log():find("finish " .. path .. " ok;", mark, true) end)
  if path == "/chunked" then assert(c:read_until("a piece\r\n", true)) end
  -- A whole exchange on another connection: what was to come without waiting would be here by now.
  assert.equal(200, on.gw:request({ path = "/own" }).status)
  local before = c.size
  opens()
  return before, c
end

describe("the last bytes wait for the finish phase", function()
  for _, case in ipairs {
    { "/length", "of a known length" }, { "/empty", "" }, { "/eof", "until the end" }, { "/own", "own answer" },
  } do
    it("of " .. case[1], async(function()
      local before, c = held(case[1])
      -- Of /eof, which goes out in chunks, only the end is missing.
      if case[1] ~= "/eof" then assert.equal(0, before) end
      local res = assert(c:read_response())
      assert.equal(case[2], res.body)
      assert.equal(200, c:request({ path = "/own" }).status) -- the connection goes on
    end))
  end

  it("of a chunked answer", async(function()
    local before, c = held("/chunked")
    assert.equal(0, before)
    assert.equal("0\r\n\r\n", c:read_n(5))
  end))

  it("and those of a request that was pipelined behind it", async(function()
    local c = on.gw:connect()
    local mark = #on.gw.log()
    c:send_request { path = "/length?wait" }
    c:send_request { path = "/own" }
    support.wait_for(function() return on.gw.log():find("finish /length ok;", mark, true) end)
    assert.is_nil(on.gw.log():find("logged /own", mark, true))
    opens()
    assert.equal("of a known length", c:read_response().body)
    assert.equal("own answer", c:read_response().body)
  end))
end)

describe("the finish phase", function()
  -- Waits until finish and log have told how a request ended, in this order.
  local function ended(mark, path, how)
    support.wait_for(function()
      local log = on.gw.log():sub(mark)
      local finish = log:find("finish " .. path .. " " .. how .. ";", 1, true)
      return finish and log:find("logged " .. path .. " " .. how .. ";", finish, true)
    end, path .. " to end")
  end

  it("is there when the origin breaks off", async(function()
    local mark = #on.gw.log()
    on.gw:request { path = "/cut" }
    ended(mark, "/cut", "origin_cut")
  end))

  it("is there when the client leaves, in an answer of the origin or of a plugin", async(function()
    for path, seen in pairs { ["/stall"] = "a piece", ["/made"] = "first" } do
      local mark = #on.gw.log()
      local c = on.gw:connect()
      c:send_request { path = path }
      assert(c:read_until(seen, true))
      c:close()
      ended(mark, path, "client_gone")
    end
  end))

  it("ends when the client leaves meanwhile, and the log phase follows", async(function()
    local c = on.gw:connect()
    local mark = #on.gw.log()
    c:send_request { path = "/length?wait" }
    support.wait_for(function() return on.gw.log():find("finish /length ok;", mark, true) end)
    c:close()
    assert.equal(200, on.gw:request({ path = "/own" }).status)
    assert.is_nil(on.gw.log():find("logged /length", mark, true))
    opens()
    ended(mark, "/length", "ok")
  end))

  it("that raises only leaves its mark in the log: the answer is whole", async(function()
    local gw = rig.start { plugins = {
      a = "return { priority = 9, access = function() return 200, 'whole' end, finish = function() error 'boom' end }",
      b = [[local tg = require "tollgate"
        return { priority = 1, finish = function() tg.log.info "and then b" end }]],
    } }
    local c = gw:connect()
    for _ = 1, 2 do assert.equal("whole", c:request({}).body) end
    gw:wait_log("plugin a, phase finish, route r: [^\n]*boom.*and then b")
    rig.wait_counter(gw, "plugin_errors_total", 2)
  end))

  it("is waited for at the gateway's end, but not for ever; the client then gets its end, and log runs", async(function()
    local gw = rig.start { plugins = { gate = gate }, config = { timeouts = { drain = 20 } } }
    local c = gw:connect()
    c:send_request { path = "/own?for-ever" }
    gw:wait_log("finish /own ok;", true)
    local gone = gw:connect()
    gone:send_request { path = "/own?for-ever" }
    gw:wait_log("finish /own ok;.*finish /own ok;")
    gone:close()
    gw:kill("sigterm")
    gw:wait_log("stopping:", true)
    gw.process:kill("sigterm") -- at once
    local code = gw.process:wait(10000)
    assert.equal(0, code, gw.log())
    assert.matches("phases of plugins did not end in time", gw.log())
  end))
end)
