-- For specs of primitives: a gateway whose only plugin runs the Lua code of a request's body in its access phase.
--
--   local on, up, down = probe.shared()
--   setup(up) teardown(down)
--   … on.eval [[ return tg.now() ]]
local support = require "spec.support"

local M = {}

local plugin = [[
local tg = require "tollgate"
return { version = "1.0.0", priority = 1, schema = {}, access = function(_, ctx)
  local chunk = assert(loadstring(ctx.request:body(), "=probe"))
  setfenv(chunk, setmetatable({ tg = tg, ctx = ctx }, { __index = _G }))
  local out = tg.json.array()
  local function keep(...)
    for i = 1, select("#", ...) do
      local value = select(i, ...)
      out[i] = value == nil and tg.json.null or value
    end
  end
  keep(pcall(chunk))
  return 200, tg.json.encode(out)
end }
]]

local function eval(gw, code)
  local res = gw:request { method = "POST", path = "/", body = code }
  if res.status ~= 200 then error(("status %d: %s"):format(res.status, res.body), 3) end
  local results, _, err = support.decode(res.body, 1, support.null)
  assert(results, err)
  for i = 1, #results do
    if results[i] == support.null then results[i] = nil end
  end
  return results
end

--- What busted's setup and teardown call, and a table that has `gw`, `eval(code)` → what the code returned, and
-- `raised(code)` → the message of its error, from then on.
-- @param config further keys of gateway.lua
function M.shared(config)
  local on = {}
  local up, down = support.shared(function()
    local all = { redis = "redis://127.0.0.1:1/0", routes = { { name = "probe", path = "/*", plugins = { probe = {} } } } }
    for key, value in pairs(config or {}) do all[key] = value end
    on.gw = support.gateway { config = all, files = { ["plugins/probe.lua"] = plugin } }
  end)
  function on.eval(code)
    local results = eval(on.gw, code)
    assert(results[1], results[2])
    return unpack(results, 2, table.maxn(results))
  end
  function on.raised(code)
    local results = eval(on.gw, code)
    if results[1] then error("it did not raise: " .. code, 2) end
    return results[2]
  end
  return on, up, down
end

return M
