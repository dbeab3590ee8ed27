-- What the end-to-end specs of the breaker share: an origin whose behaviour is scripted, and gateways whose route goes there.
local support = require "spec.support"

local M = {}

--- An origin that does what its `mode` says: a status; "hang" answers when it is another one; "close"; a function (req, conn).
-- @return o: .mode, .count() requests so far, and the origin's own
function M.origin(mode)
  local o
  o = support.origin(function(req, conn)
    if o.mode == "hang" then support.wait_for(function() return o.mode ~= "hang" or conn.closed end, "another mode", 30000) end
    if type(o.mode) == "function" then return o.mode(req, conn) end
    if o.mode == "close" then return conn:close() end
    if not conn.closed then conn:respond { status = tonumber(o.mode) or 200, body = "said" } end
  end)
  o.mode = mode or 200
  function o.count() return #o.requests end
  return o
end

--- Settings that open at the third failure in a row, and probe soon.
function M.conf(more)
  local conf = { consecutive = 3, ratio = false, cooldown = 0.3, jitter = 0, cooldown_factor = 1 }
  for key, value in pairs(more or {}) do conf[key] = value end
  return conf
end

--- A gateway; options: targets (default: one, a:m, at `origin`), conf, workers, redis, route (more of it), config (more of it).
function M.gateway(options)
  local targets = options.targets or { { provider = "a", model = "m", url = options.origin.url } }
  local route = { name = "r", path = "/*", targets = targets, plugins = { breaker = M.conf(options.conf) } }
  for key, value in pairs(options.route or {}) do route[key] = value end
  local config = { workers = options.workers or 1, redis = options.redis, routes = { route }, watchdog = 60 }
  for key, value in pairs(options.config or {}) do config[key] = value end
  return support.gateway { config = config }
end

--- What is known of one breaker.
function M.state(gw, name)
  for _, one in ipairs(gw:status().plugins.breaker.breakers) do
    if one.name == (name or "a:m") then return one end
  end
end

--- Waits until a breaker is in a state; returns what is known of it.
function M.wait(gw, state, name)
  local last
  return support.wait_for(function()
    last = M.state(gw, name)
    return last.state == state and last
  end, ("%s to be %s"):format(name or "a:m", state))
end

--- n requests one after another; returns the last status.
function M.ask(gw, n, path)
  local status
  for _ = 1, n do status = gw:request({ path = path or "/" }).status end
  return status
end

--- Opens a breaker by failures. A client may have its answer a moment before the worker has counted it.
function M.open(gw, origin)
  origin.mode = 503
  M.ask(gw, 3)
  return M.wait(gw, "open")
end

--- How many lines of a gateway's log have a plain text.
function M.lines(gw, text)
  local n = 0
  for line in gw.log():gmatch "[^\n]+" do n = n + (line:find(text, 1, true) and 1 or 0) end
  return n
end

return M
