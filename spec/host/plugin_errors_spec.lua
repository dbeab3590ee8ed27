-- A plugin that goes wrong while it serves: that request gets a 500, is cut off, or is only told of in the log, by phase; the
-- log has a traceback with the request's id, /metrics counts it, and other requests feel nothing.
local support = require "spec.support"
local rig = require "spec.host.plugin_rig"
local async = support.async

-- Goes wrong in the phase that the request's query names.
local bad = [[
  local tg = require "tollgate"
  local function fall(ctx, phase)
    if ctx.request.query == phase then error("boom in " .. phase) end
    if ctx.request.query == phase .. "-global" then leaked = phase end
    if ctx.request.query == phase .. "-yield" then coroutine.yield(1) end
    if ctx.request.query == phase .. "-table" then error { code = 1 } end
    if ctx.request.query == phase .. "-late" then tg.timer.sleep(0.001); error("late in " .. phase) end
  end
  local M = { priority = 50 }
  function M.access(_, ctx) fall(ctx, "access") end
  function M.response(_, ctx) fall(ctx, "response") end
  function M.body(_, ctx, _, last) if not last then fall(ctx, "body") end end
  function M.finish(_, ctx) fall(ctx, "finish") end
  function M.log(_, ctx) fall(ctx, "log") end
  return M
]]
local witness = [[
  local tg = require "tollgate"
  return { priority = 1, access = function(_, ctx) ctx.request.headers["x-witness"] = "access" end,
    response = function(_, ctx) ctx.response.headers["x-witness"] = "response" end,
    log = function(_, ctx) tg.log.info("witness: ", ctx.ended, ";") end }
]]

local on, up, down = rig.shared(function()
  local origin = support.origin(function(req, conn)
    conn:respond { headers = { ["x-seen"] = req.headers["x-witness"] or "none" }, body = "hello" }
  end)
  return { plugins = { bad = bad, witness = witness }, routes = {
    { name = "fail", path = "/fail", targets = { { url = origin.url } }, plugins = { bad = {}, witness = {} } },
    { name = "skip", path = "/skip", targets = { { url = origin.url } },
      plugins = { bad = { on_error = "skip" }, witness = {} } },
  } }
end)
setup(up)
teardown(down)

local told_so_far = 0

-- So many plugins have raised since this was last called: all are counted, and no more.
local function assert_counted(n)
  told_so_far = told_so_far + n
  on.gw:wait_metric("plugin_errors_total", told_so_far)
end

local function assert_fine()
  local res = on.gw:request { path = "/fail" }
  assert.same({ 200, "hello" }, { res.status, res.body })
end

describe("a plugin that raises", function()
  for _, phase in ipairs { "access", "response" } do
    it("in " .. phase .. " makes its request a 500 that tells nothing, and is in log and metrics", async(function()
      local res = on.gw:request { path = "/fail?" .. phase }
      assert.equal(500, res.status)
      assert.equal("plugin_error", support.json(res).error.code)
      assert.is_nil(res.body:find("boom", 1, true))
      local told = on.gw:wait_log("[^\n]*boom in " .. phase .. "\n\tstack traceback:\n[^\n]*\n[^\n]*bad%.lua:3: in")
      local id = res.headers["x-request-id"]
      assert.matches("error [" .. id .. "] plugin bad, phase " .. phase .. ", route fail: ", told, 1, true)
      assert.matches("plugins/bad%.lua:3: boom in", told)
      assert_counted(1)
      assert_fine()
    end))
  end

  it("after it has waited, likewise", async(function()
    assert.equal(500, on.gw:request({ path = "/fail?access-late" }).status)
    assert.equal(500, on.gw:request({ path = "/fail?response-late" }).status)
    on.gw:wait_log("bad%.lua:7: late in access")
    on.gw:wait_log("bad%.lua:7: late in response")
    assert_counted(2)
  end))

  it("in access: later plugins' access is left out, their response and log phases are not", async(function()
    local res = on.gw:request { path = "/fail?access" }
    assert.equal("response", res.headers["x-witness"])
    assert.is_nil(res.headers["x-seen"])
    assert_counted(1)
  end))

  it("in body cuts the answer off, and not the gateway", async(function()
    local res, err = on.gw:request { path = "/fail?body" }
    assert.is_nil(res)
    assert.equal("closed", err)
    on.gw:wait_log("plugin bad, phase body, route fail: [^\n]*bad%.lua:3: boom in body")
    on.gw:wait_log("witness: plugin_error;", true)
    assert_counted(1)
    assert_fine()
  end))

  it("in body must not wait; the log names the function that did", async(function()
    assert.is_nil(on.gw:request { path = "/fail?body-late" })
    on.gw:wait_log("phase body, route fail: [^\n]*bad%.lua:12: the body phase must not wait")
    assert_counted(1)
    assert_fine()
  end))

  it("in log is only told", async(function()
    local res = on.gw:request { path = "/fail?log" }
    assert.same({ 200, "hello" }, { res.status, res.body })
    local told = on.gw:wait_log("[^\n]*phase log, route fail: [^\n]*boom in log")
    assert.matches("[" .. res.headers["x-request-id"] .. "]", told, 1, true)
    assert_counted(1)
  end))

  it("a table instead of a message is told as such", async(function()
    assert.equal(500, on.gw:request({ path = "/fail?access-table" }).status)
    on.gw:wait_log("phase access, route fail: table\n\tstack traceback:")
    assert_counted(1)
  end))

  it("an assignment to a global raises, with file and line", async(function()
    assert.equal(500, on.gw:request({ path = "/fail?access-global" }).status)
    on.gw:wait_log("bad%.lua:4: assignment to the undeclared global 'leaked'")
    assert.equal(500, on.gw:request({ path = "/fail?access-global" }).status)
    assert_counted(2)
  end))

  it("coroutine.yield out of a phase is an error that says so", async(function()
    assert.equal(500, on.gw:request({ path = "/fail?access-yield" }).status)
    on.gw:wait_log("phase access, route fail: a plugin's phase yielded outside its own coroutines %(coroutine%.yield%)")
    assert.is_nil(on.gw:request { path = "/fail?body-yield" })
    on.gw:wait_log("phase body, route fail: a plugin's phase yielded")
    assert_counted(2)
    assert_fine()
  end))

  it("other requests on the same connection and at the same time go on", async(function()
    local c = on.gw:connect()
    local gets = {}
    for i = 1, 10 do
      gets[i] = function() return on.gw:request({ path = i % 2 == 0 and "/fail?access-late" or "/fail" }).status end
    end
    assert.equal(500, c:request({ path = "/fail?response" }).status)
    assert.equal(200, c:request({ path = "/fail" }).status)
    assert.same({ 200, 500, 200, 500, 200, 500, 200, 500, 200, 500 }, support.all(gets))
    assert_counted(6)
  end))
end)

describe('on_error = "skip"', function()
  it("goes on without the plugin, in every phase; it is told and counted all the same", async(function()
    for _, query in ipairs { "access", "response", "body", "finish", "log", "access-late", "access-yield",
      "response-table", "finish-late" } do
      local res = on.gw:request { path = "/skip?" .. query }
      assert.same({ query, 200, "hello", "access", "response" },
        { query, res.status, res.body, res.headers["x-seen"], res.headers["x-witness"] })
      local id = res.headers["x-request-id"]
      on.gw:wait_log("[" .. id .. "] plugin bad, phase " .. query:match("^%a+"), true)
      assert_counted(1)
    end
  end))
end)
