-- tg.condition: coroutines that wait for one another, waits that end by time, and waiters whose client leaves.
local support = require "spec.support"
local async = support.async

-- GET /wait?seconds waits and tells what came of it; GET /notify tells how many it woke; /waits how many have begun.
local plugin = [[
local tg = require "tollgate"
local M = { version = "1", priority = 1, schema = {} }
local condition, begun = tg.condition(), 0
function M.access(_, ctx)
  local path = ctx.request.path
  if path == "/wait" then
    begun = begun + 1
    local ok, err = condition:wait(tonumber(ctx.request.query))
    return 200, tostring(ok) .. " " .. tostring(err)
  elseif path == "/notify" then
    return 200, tostring(condition:notify())
  end
  return 200, tostring(begun)
end
return M
]]

local function start()
  return support.gateway {
    config = { redis = "redis://127.0.0.1:1/0", routes = { { name = "r", path = "/*", plugins = { p = {} } } } },
    files = { ["plugins/p.lua"] = plugin },
  }
end

local function get(gw, path) return gw:request { path = path }.body end

local function wait_begun(gw, n)
  support.wait_for(function() return get(gw, "/begun") == tostring(n) end, n .. " waits")
end

it("lets all go on that wait, and none twice", async(function()
  local gw = start()
  local calls = {}
  for i = 1, 20 do calls[i] = function() return get(gw, "/wait?60") end end
  calls[21] = function()
    wait_begun(gw, 20)
    return get(gw, "/notify")
  end
  local results = support.all(calls)
  for i = 1, 20 do assert.equal("true nil", results[i]) end
  assert.equal("20", results[21])
  assert.equal("0", get(gw, "/notify"))
end))

it("ends a wait by time", async(function()
  assert.equal("nil timeout", get(start(), "/wait?0.01"))
end))

it("forgets who left", async(function()
  local gw = start()
  for i = 1, 3 do
    local conn = gw:connect()
    conn:send_request { path = "/wait?60" }
    wait_begun(gw, i)
    conn:close()
  end
  gw:wait_access(3 + 3)
  support.wait_for(function()
    local gone = 0
    for _, line in ipairs(gw:access_lines()) do gone = gone + (line.ended == "client_gone" and 1 or 0) end
    return gone == 3
  end, "the end of those whose client left")
  assert.equal("0", get(gw, "/notify"))
end))

it("raises for what is no time", async(function()
  local gw = start()
  assert.equal(500, gw:request { path = "/wait?-1" }.status)
end))
