-- Answers that a plugin's function makes piece by piece: each piece goes at once, the function may wait in between, is asked no
-- further while the client takes nothing, and is dropped, never resumed, when the client leaves.
local support = require "spec.support"
local rig = require "spec.host.plugin_rig"
local async = support.async

-- `quiet` has a higher priority, so that the answering plugin is not the first of its route.
local quiet = [[ return { priority = 900, access = function() end } ]]
local maker = [[
  local tg = require "tollgate"
  local M, made = {}, { pieces = 0, woken = 0, freed = 0 }
  local cases = {}
  function cases.words()
    local words, at = { "one ", "", "two ", 3 }, 0
    return function() at = at + 1; return words[at] end
  end
  function cases.paced(ctx)
    local at = 0
    return function()
      at = at + 1
      if at > 1 then while made.gate ~= at do tg.timer.sleep(0.001) end end
      return at <= 3 and "piece " .. at .. "\n" or nil
    end
  end
  function cases.endless()
    local piece = ("x"):rep(16384)
    return function() made.pieces = made.pieces + 1; return piece end
  end
  function cases.asleep()
    local proxy = newproxy(true)
    getmetatable(proxy).__gc = function() made.freed = made.freed + 1 end
    local at = 0
    return function()
      at = at + 1
      if at == 1 then return "first" end
      tg.timer.sleep(1000)
      made.woken = made.woken + 1
      return tostring(proxy)
    end
  end
  function cases.raises()
    local at = 0
    return function() at = at + 1; if at == 2 then error "halfway" end; return "first" end
  end
  function cases.wrong()
    local at = 0
    return function() at = at + 1; if at == 2 then return true end; return "first" end
  end
  function cases.nested()
    return coroutine.wrap(function()
      for i = 1, 3 do tg.timer.sleep(0.001); coroutine.yield(i .. " ") end
    end)
  end
  function M.access(_, ctx)
    local name = ctx.request.path:sub(2)
    if name == "gate" then made.gate = tonumber(ctx.request.query); return 200, "open" end
    if name == "made" then collectgarbage(); collectgarbage(); return 200, made end
    return 200, cases[name](ctx), { ["content-type"] = "text/plain" }
  end
  return M
]]

local on, up, down = rig.shared(function()
  return { plugins = { quiet = quiet, maker = maker }, routes = {
    { name = "r", path = "/*", plugins = { quiet = {}, maker = {} } },
  } }
end)
setup(up)
teardown(down)

local function made() return support.json(on.gw:request { path = "/made" }) end

describe("a function as a body", function()
  it("is called until it returns nil; an empty piece is none; a number is its text", async(function()
    local res = on.gw:request { path = "/words" }
    assert.same({ "one two 3", "chunked", "text/plain" },
      { res.body, res.headers["transfer-encoding"], res.headers["content-type"] })
    assert.same({ 4, 4, 1 }, res.chunks)
  end))

  it("may wait, and each piece arrives before the next is made", async(function()
    on.gw:request { path = "/gate?0" }
    local c = on.gw:connect()
    c:send_request { path = "/paced" }
    local res = c:read_head()
    for i = 1, 3 do
      assert.equal("piece " .. i .. "\n", res:read())
      on.gw:request { path = "/gate?" .. i + 1 }
    end
    assert.is_nil(res:read())
    assert.is_true(res.complete)
    assert.equal("one two 3", c:request({ path = "/words" }).body)
  end))

  it("may be a coroutine that itself waits", async(function()
    assert.equal("1 2 3 ", on.gw:request({ path = "/nested" }).body)
  end))

  it("ends with the connection for HTTP/1.0, and is not called for HEAD", async(function()
    local c = on.gw:connect()
    c:send "GET /words HTTP/1.0\r\n\r\n"
    assert.matches("\r\n\r\none two 3$", (c:read_all()))
    local before = made().pieces
    c = on.gw:connect()
    c:send_request { method = "HEAD", path = "/endless" }
    assert.same({ 200, "" }, { c:read_response({ method = "HEAD" }).status, "" })
    assert.equal("one two 3", c:request({ path = "/words" }).body)
    assert.equal(before, made().pieces)
  end))
end)

describe("a client that takes nothing", function()
  it("stops the function, whose memory is then bounded; a client that takes more starts it again", async(function()
    local before = made().pieces
    local c = on.gw:connect()
    c:send_request { path = "/endless" }
    local res = c:read_head()
    c:pause()
    local last, same = -1, 0
    support.wait_for(function()
      local now = made().pieces
      same = now == last and same + 1 or 0
      last = now
      return same >= 20
    end, "the function to be left alone")
    assert.is_true((last - before) * 16384 < 16 * 1024 * 1024) -- what kernel buffers take, and little more
    c:resume()
    support.wait_for(function() return made().pieces > last + 100 end, "more pieces")
    assert.is_string(res:read())
    c:close()
  end))
end)

describe("a client that leaves", function()
  it("ends the wait, and the coroutine with all that it held; it is never resumed", async(function()
    local before = made()
    local seen = #on.gw.access()
    local c = on.gw:connect()
    c:send_request { path = "/asleep" }
    assert.equal("first", c:read_head():read())
    c:close()
    support.wait_for(function() return made().freed == before.freed + 1 end, "the coroutine to be collected")
    assert.equal(before.woken, made().woken)
    local line = support.wait_for(function()
      local lines = on.gw.access()
      for i = seen + 1, #lines do
        if lines[i].path == "/asleep" then return lines[i] end
      end
    end, "the line of the access log")
    assert.same({ "client_gone", 200, 5 }, { line.ended, line.status, line.bytes_out })
  end))

  it("ends an endless answer", async(function()
    local c = on.gw:connect()
    c:send_request { path = "/endless" }
    assert.is_string(c:read_head():read())
    c:reset()
    local last, same = -1, 0
    support.wait_for(function()
      local now = made().pieces
      same = now == last and same + 1 or 0
      last = now
      return same >= 10
    end, "the end of the pieces")
  end))
end)

describe("a function that goes wrong", function()
  it("by raising: the answer is cut off, and the log names the plugin that answered", async(function()
    local res, err, part = on.gw:request { path = "/raises" }
    assert.same({ nil, "closed", "first" }, { res, err, part.body })
    on.gw:wait_log("error %[%w+%] plugin maker, phase access, route r: [^\n]*maker%.lua:%d+: halfway\n\tstack traceback:")
  end))

  it("by returning neither a string nor nil: likewise, counted among the errors of plugins", async(function()
    local res, err = on.gw:request { path = "/wrong" }
    assert.same({ nil, "closed" }, { res, err })
    on.gw:wait_log("plugin maker, phase access, route r: [^\n]*the function that this returned as a body returned neither")
    on.gw:wait_metric("plugin_errors_total", 2) -- with the one above
  end))
end)
