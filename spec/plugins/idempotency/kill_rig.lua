-- The scenario of the kill specs: a gateway is killed at each of its Redis commands, and what it leaves behind is looked at. No
-- key is without a lifetime, no claim lives beyond its lease, and another gateway serves the next request.
local support = require "spec.support"
local rig = require "spec.plugins.idempotency.rig"

local M = {}

local LEASE = 0.3

-- Commands of one request that runs through several renewals, one that fails, and a replay.
local function scenario(redis, origin)
  return function(gw)
    origin.go = nil
    local slow = gw:connect()
    slow:send_request(rig.post("slow", { path = "/?slow" }))
    local n = #origin.requests + 1
    support.wait_for(function() return gw.given_up or origin.requests[n] end, "the request at the origin")
    gw:request(rig.post("failed", { path = "/?status=500" }))
    local from = rig.renewals(redis)
    support.wait_for(function() return gw.given_up or rig.renewals(redis) >= from + 2 end, "renewals")
    origin.go = true
    slow:read_response()
    gw:request(rig.post("slow", { path = "/?slow" }))
  end
end

--- Runs it with on_lost = `lost`; returns how many commands it has.
function M.sweep(lost)
  local redis, origin = support.redis(), rig.origin()
  local conf = { lease = LEASE, on_lost = lost }
  local other = rig.gateway { redis = redis, origin = origin.url, conf = rig.merged({ wait = 10 }, conf) }
  return support.redis_tap.each {
    redis = redis, run = scenario(redis, origin),
    start = function(url) return rig.gateway { url = url, origin = origin.url, conf = conf } end,
    check = function(_, what)
      origin.go = true
      for _, key in ipairs(redis:must("KEYS", "idem:*")) do
        local state, lease, pttl = unpack(redis:pipeline { { "HGET", key, "state" }, { "HGET", key, "lease" },
          { "PTTL", key } }, 1, 3)
        if state == "running" then assert(lost == "refuse" and lease or pttl <= LEASE * 1000, what) end
      end
      for name, path in pairs { slow = "/?slow", failed = "/?status=500" } do
        local res = rig.ask(other, name, { path = path, timeout = 20000 })
        local fine = res.status == (name == "slow" and 200 or 500)
          or lost == "refuse" and rig.code(res) == "idempotency_outcome_unknown"
        assert(fine, what .. ": " .. res.status .. " " .. res.body)
      end
    end,
  }
end

return M
