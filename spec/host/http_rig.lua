-- A gateway whose plugin runs a spec's own Lua: each path has its piece of code, which sees tg, ctx, ORIGIN (a
-- URL) and `pack` (a list, nil as "nil"), and what it returns is the answer. For the specs of tg.http.
local support = require "spec.support"

local M = {}

local PLUGIN = [[
local tg = require "tollgate"
local M = { version = "1.0.0", priority = 500, schema = { origin = { type = "string", default = "" } } }
local ORIGIN

local function pack(...)
  local list = { ... }
  for i = 1, select("#", ...) do
    if list[i] == nil then list[i] = "nil" end
  end
  return list
end

%s

function M.init(conf)
  ORIGIN = conf.origin
  if handlers.init then handlers.init(conf) end
end

function M.access(conf, ctx)
  local body, more = handlers[ctx.request.path](ctx)
  if more then return 200, body, more end
  return 200, type(body) == "function" and body or { result = body }
end

function M.log(conf, ctx)
  if handlers.log then handlers.log(ctx) end
end

return M
]]

--- Starts a gateway.
-- @tparam table handlers path → text of a Lua function's body; `init` and `log` run in those phases, and `top`
--   stands above all of them
-- @param origin nil or an origin of support.origin
-- @tparam[opt] table config more of gateway.lua
function M.start(handlers, origin, config)
  local text = { handlers.top or "", "local handlers = {}" }
  for path, body in pairs(handlers) do
    if path ~= "top" then
      text[#text + 1] = ("handlers[%q] = function(ctx)\n%s\nend"):format(path, body)
    end
  end
  local merged = { redis = "redis://127.0.0.1:1/0", routes = {
    { name = "r", path = "/*", plugins = { probe = { origin = origin and origin.url or "http://127.0.0.1:1" } } } } }
  for key, value in pairs(config or {}) do merged[key] = value end
  local code = table.concat(text, "\n"):gsub("%%", "%%%%")
  return support.gateway { config = merged, files = { ["plugins/probe.lua"] = (PLUGIN:gsub("%%s", code)) } }
end

--- Runs one handler and returns what it returned.
function M.call(gw, path)
  local res = assert(gw:request { path = path, timeout = 15000 })
  if res.status ~= 200 then error(("%s: status %d: %s"):format(path, res.status, res.body), 2) end
  return support.json(res).result
end

--- One piece of code in a gateway of its own.
function M.run(code, origin, config)
  return M.call(M.start({ ["/x"] = code }, origin, config), "/x")
end

return M
