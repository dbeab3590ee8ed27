-- What the specs of ratelimit share: a gateway before an origin that says hello, with requests by key.
local support = require "spec.support"

-- A window that never turns while a spec runs.
local M = { LONG = 2678400 }

local function merged(base, own)
  for name, value in pairs(own or {}) do base[name] = value end
  return base
end

function M.origin()
  return support.origin(function(_, conn) conn:respond { body = "hello" } end)
end

--- Starts a gateway with auth (keys k and k2, both of the tenant t, k2 of the plan "gold") and the route "plain" (/*).
-- @param options redis or url, origin (its url), windows or conf (settings), settings (of Redis), plugins (further ones),
--   route (fields), config
function M.gateway(options)
  local conf = merged({ windows = options.windows }, options.conf)
  return support.gateway {
    files = { ["keys.jsonl"] = support.keys { { id = "k", tenant = "t", secret = "k" },
      { id = "k2", tenant = "t", plan = "gold", secret = "k2" }, { id = "a:b {c}", secret = "odd" } } },
    config = merged({
      redis = merged({ url = options.url or options.redis.url }, options.settings),
      plugins = { auth = { keys = "keys.jsonl", anonymous = true } },
      routes = { merged({ name = "plain", path = "/*", targets = { { url = options.origin or M.origin().url } },
        plugins = merged({ ratelimit = conf }, options.plugins) }, options.route) },
    }, options.config),
  }
end

--- A request by a key; nil: by none.
function M.get(secret, headers)
  return { path = "/", headers = merged({ authorization = secret and "Bearer " .. secret }, headers) }
end

--- Sends n requests one after the other; returns how many answers had each status.
function M.send(gw, n, request)
  local counts = {}
  for _ = 1, n do
    local status = assert(gw:request(request or M.get "k")).status
    counts[status] = (counts[status] or 0) + 1
  end
  return counts
end

--- Sends n requests at once, to one gateway or to each of a list in turn; the same.
function M.at_once(gateways, n, request)
  local calls, counts = {}, {}
  for i = 1, n do
    calls[i] = function()
      local status = assert(gateways[(i - 1) % #gateways + 1]:request(request or M.get "k")).status
      counts[status] = (counts[status] or 0) + 1
    end
  end
  support.all(calls)
  return counts
end

--- ratelimit_requests_total by outcome.
function M.outcomes(gw)
  local counts = {}
  for outcome, n in gw:admin("/metrics").body:gmatch('ratelimit_requests_total{route="plain",outcome="([%w_]+)"} (%d+)') do
    counts[outcome] = tonumber(n)
  end
  return counts
end

function M.wait_outcomes(gw, expected)
  local now
  local ok = pcall(support.wait_for, function()
    now = M.outcomes(gw)
    for name, n in pairs(expected) do
      if now[name] ~= n then return false end
    end
    return true
  end, "the counters")
  if not ok then error("outcomes are " .. support.encode(now), 2) end
end

return M
