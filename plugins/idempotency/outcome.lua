-- What becomes of a claim when its request has ended, without I/O.
--
-- store    the origin's answer was whole: repeats get it
-- release  the next request runs: the origin was not reached, or it, or the gateway, answered with a failure
-- lose     nobody knows what the origin did. With on_lost = "retry" the lease is left to lapse, so that a repeat does not run
--          beside an origin that may still be at it; with "refuse" repeats are told so until the key's time is over

local M = {}

local CLASSES = { ["4xx"] = 400, ["5xx"] = 500 }

--- Statuses that release, as a set.
-- @tparam {number|string,...} list statuses, "4xx", "5xx"
function M.statuses(list)
  local set = {}
  for _, item in ipairs(list) do
    local from = CLASSES[item]
    for status = from or item, from and from + 99 or item do set[status] = true end
  end
  return set
end

--- @tparam table facts reached (the origin has got something of the request), source ("origin" or "gateway": whose answer it
-- is; nil: nobody's), status, whole (the origin's came to its proper end and fits), why ("too_large", …: why not), terminated
-- (as its API says, too), ended (ctx.ended)
-- @tparam table releases set of statuses
-- @tparam boolean refuse on_lost = "refuse"
-- @treturn string "store", "release" or "lose"
-- @treturn string for the metric: "stored", "not_reached", "failed", "too_large", "unknown"
function M.of(facts, releases, refuse)
  local unknown = refuse and "lose" or "release"
  if not facts.reached then return "release", "not_reached" end
  if facts.whole then
    if releases[facts.status] then return "release", "failed" end
    if not facts.terminated then return unknown, "failed" end
    return "store", "stored"
  end
  if facts.source == "origin" and facts.why == "too_large" then return unknown, "too_large" end
  -- It was the gateway that gave up: the origin may still be at work.
  local left = facts.ended == "client_gone" or facts.ended == "shutdown"
  if left and facts.source ~= "gateway" then return "lose", "unknown" end
  return unknown, refuse and "unknown" or "failed"
end

return M
