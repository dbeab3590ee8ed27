-- What the specs of targets share: origins that say who they are, plugins that record what they hear.
local support = require "spec.support"

local M = {}

-- Notes in a header what target and attempt said, in order; passes over what the settings name.
M.NOTE = [[
local M = { priority = 50, schema = { over = { type = "map", values = { type = "any" }, default = {} },
  raises = { type = "string" } } }
local function note(ctx, text) ctx.notes = (ctx.notes and ctx.notes .. " " or "") .. text end
function M.target(conf, ctx, target)
  note(ctx, "?" .. target.name)
  if conf.raises == "target" then error "raised in target" end
  local over = conf.over[target.name]
  if over == "misuse" then return 7 end
  if over ~= nil then return false, type(over) == "number" and over or nil end
end
function M.attempt(conf, ctx, target, outcome)
  note(ctx, ("!%s,%s,%s,%s"):format(target.name, tostring(outcome.status), tostring(outcome.error),
    tostring(outcome.attempt)))
  if outcome.code then note(ctx, "code=" .. outcome.code) end
  if outcome.retry_after then note(ctx, "after=" .. outcome.retry_after) end
  assert(outcome.seconds >= 0 and outcome.seconds < 60)
  assert((outcome.status ~= nil) == (outcome.first_byte_seconds ~= nil))
  if conf.raises == "attempt" then error "raised in attempt" end
end
function M.response(_, ctx) ctx.response.headers["x-notes"] = ctx.notes end
function M.log(_, ctx)
  require("tollgate").log.info("notes ", ctx.notes, " target ", ctx.target and ctx.target.name)
end
return M
]]

--- An origin that answers with its name, or as `answer(req, conn)` says.
function M.origin(name, answer)
  return support.origin(function(req, conn)
    if answer and answer(req, conn) then return end
    conn:respond { headers = { ["x-name"] = name }, body = name }
  end)
end

--- A port that nobody listens on.
function M.dead() return { url = "http://127.0.0.1:" .. support.dead_port() } end

--- A target of an origin (or of a table with a url), named by its provider.
function M.target(provider, origin, more)
  local target = { provider = provider, url = origin.url }
  for key, value in pairs(more or {}) do target[key] = value end
  return target
end

--- A gateway with one route; `route` may name whatever a route may.
function M.gateway(route, more)
  route.name, route.path = route.name or "r", route.path or "/*"
  local config = { routes = { route } }
  for key, value in pairs(more or {}) do config[key] = value end
  return support.gateway { files = { ["plugins/note.lua"] = M.NOTE }, config = config }
end

return M
