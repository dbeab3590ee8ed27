-- The gateway's configuration: read, checked, and in the shape that the host reads.
--
-- Pure: what it needs of the system is given to it, so that `tollgate check`, a reload's trial and the specs run the
-- same code. Every fault is reported, each with "file:line" or the path of its key. What came from `env` and `file` is
-- remembered, and neither printed nor repeated in a message.

local schema = require "tollgate.schema"
local sandbox = require "tollgate.config_sandbox"
local fields = require "tollgate.config_schema"
local routes = require "tollgate.config_routes"
local plugins = require "tollgate.config_plugins"
local targets = require "tollgate.config_targets"
local tls = require "tollgate.config_tls"
local policy = require "tollgate.config_policy"
local listen = require "tollgate.config_listen"
local network = require "tollgate.config_network"
local logs = require "tollgate.config_log"
local tracing = require "tollgate.config_tracing"

local M = {}

local MASK = "***"
local SHORT = 4 -- bytes; a shorter value of env is masked only where it is the whole string
local CUT = 80  -- bytes; no message repeats more of a value

local function holds_secret(secrets, text)
  for _, secret in ipairs(secrets) do
    if text == secret or (#secret >= SHORT and text:find(secret, 1, true)) then return true end
  end
  return false
end

local function masked(secrets, value)
  if type(value) == "string" then return holds_secret(secrets, value) and MASK or value end
  if type(value) ~= "table" then return value end
  local out = {}
  for key, item in pairs(value) do out[masked(secrets, key)] = masked(secrets, item) end
  return out
end

local function replace(text, literal, by)
  local parts, at = {}, 1
  local from, to = text:find(literal, 1, true)
  while from do
    parts[#parts + 1] = text:sub(at, from - 1) .. by
    at = to + 1
    from, to = text:find(literal, at, true)
  end
  return table.concat(parts) .. text:sub(at)
end

-- Messages repeat values as they are, quoted, or cut short behind some bytes of the secret.
local function masked_text(secret, text)
  local quoted = schema.render(secret):sub(2, -2)
  text = replace(replace(text, secret, MASK), quoted, MASK)
  for n = math.min(#quoted - 1, CUT), SHORT, -1 do
    text = replace(text, quoted:sub(1, n) .. "...", MASK .. "...")
  end
  return text
end

local function masked_faults(secrets, faults)
  for _, fault in ipairs(faults) do
    for _, secret in ipairs(secrets) do
      if #secret >= SHORT then
        fault.message = masked_text(secret, fault.message)
        fault.path = masked_text(secret, fault.path)
      end
    end
  end
  return faults
end

-- Addresses that would be bound twice; port 0 never is.
local function check_addresses(config)
  local faults, seen = {}, {}
  local function look(address, path)
    local key = address.path or address.host .. " " .. address.port
    if address.proxy_protocol == true and #config.trusted_proxies == 0 then
      faults[#faults + 1] = { path = path .. ".proxy_protocol",
        message = "needs trusted_proxies, or in the place of true a list of who may send it" }
    end
    if address.port ~= 0 and seen[key] then
      faults[#faults + 1] = { path = path, message = "is the same address as " .. seen[key] }
    end
    seen[key] = seen[key] or path
  end
  for i, address in ipairs(config.listen) do look(address, #config.listen > 1 and "listen[" .. i .. "]" or "listen") end
  if config.admin then look(config.admin, "admin") end
  return faults
end

local function redis_of(redis)
  if redis == nil then return nil end
  local out = {}
  for key, value in pairs(redis) do out[key] = value end
  local times = routes.milliseconds { timeout = redis.timeout, connect_timeout = redis.connect_timeout }
  out.timeout, out.connect_timeout = times.timeout, times.connect_timeout
  out.tls = tls.normalise(redis.tls, "redis.tls")
  return out
end

local function normalise(config, path, dir)
  local upstream = config.upstream
  local out = {
    file = path, dir = dir,
    listen = listen.addresses(config.listen), admin = config.admin and listen.normalise(config.admin, "admin"),
    redis = redis_of(config.redis), data_dir = config.data_dir, run_dir = config.run_dir,
    user = config.user, core_dumps = config.core_dumps,
    plugin_path = config.plugin_path, log = logs.normalise(config.log, dir), via = config.via, limits = config.limits,
    shared = config.shared, routing = config.routing, resolver = network.resolver_of(config.resolver),
    trusted_proxies = config.trusted_proxies, forwarded = network.forwarded_of(config.forwarded),
    tracing = tracing.normalise(config.tracing),
    timeouts = routes.milliseconds(config.timeouts),
    workers = config.workers, watchdog = routes.milliseconds({ config.watchdog })[1], quarantine = config.quarantine,
    reload = {
      watch = config.reload.watch, memory = config.reload.memory,
      drain = routes.milliseconds({ config.reload.drain })[1], check = routes.milliseconds({ config.reload.check })[1],
    },
    upstream = {
      keepalive = upstream.keepalive, connections = upstream.connections,
      keepalive_timeout = routes.milliseconds({ upstream.keepalive_timeout })[1],
    },
    plugins = config.plugins, routes = {},
  }
  for i, route in ipairs(config.routes) do
    local at = ("routes[%d]"):format(i)
    local one = routes.normalise(route, at, config)
    one.chain = plugins.chain(config.plugins, route.plugins, at .. ".plugins")
    out.routes[i] = one
  end
  return out
end

-- What is in effect, in the words of gateway.lua: what a route takes from the gateway is written out.
local function effective(config)
  local out = schema.mask(fields, config)
  for i, route in ipairs(out.routes) do
    route.api = routes.api(config.routes[i])
    for _, name in ipairs { "connect", "first_byte", "idle", "body", "tunnel" } do
      route.timeouts[name] = route.timeouts[name] or config.timeouts[name]
    end
    route.limits.body = route.limits.body or config.limits.body
    route.limits.body_rate = route.limits.body_rate or config.limits.body_rate
    route.retry = targets.retry(config.routes[i], route.api, route.timeouts)
  end
  return out
end

local function expand(config)
  config.run_dir = config.run_dir or config.data_dir
  if type(config.redis) == "string" then
    config.redis = schema.validate(fields.redis.alternatives[2].fields, { url = config.redis })
  end
  return config
end

--- Reads and checks a configuration file.
-- @tparam string path
-- @tparam table host `env(name)` gives a string or nil; `read(path)` gives a file's text, or nil and why; `policy(path)`
-- the text of a routing policy or nil, and `json.decode`
-- @treturn table|nil the configuration: times in milliseconds, sizes in bytes, `listen` a list of { host, port }, and
-- in each route `paths`, `api`, `timeouts`, `limits` and `chain`; nil where there are faults
-- @treturn {table,...} faults, each { path, message }
function M.load(path, host)
  local source, err = host.read(path)
  if not source then return nil, { { path = path, message = err or "cannot be read" } } end
  local raw, faults, secrets = sandbox.run(path, source, host)
  if not raw then return nil, masked_faults(secrets, faults) end
  local fault = policy.apply(raw, path, host, secrets)
  if fault then return nil, masked_faults(secrets, { fault }) end
  local dir = sandbox.dir(path)
  local checked
  checked, faults = schema.validate(fields, raw, { dir = dir })
  if not checked then return nil, masked_faults(secrets, faults) end

  expand(checked)
  local config = normalise(checked, path, dir)
  faults = check_addresses(config)
  for _, one in ipairs(logs.check(checked)) do faults[#faults + 1] = one end
  if #faults > 0 then return nil, masked_faults(secrets, faults) end
  config.connections_set = raw.limits ~= nil and raw.limits.connections ~= nil
  config.effective = effective(checked)
  config.secrets = secrets
  return config, faults
end

--- Checks the settings of all plugins and puts each route's chain in order.
-- `chains` is then a list of { name, chain }: of the routes, and last of what serves the gateway and no route. A chain
-- holds { name, index, conf, path, priority, plugin, skip_on_error }, `conf` with defaults filled in and
-- each a table of its own, higher priorities first.
-- @tparam table config of `load`; it is changed
-- @tparam function load_plugin (name) gives the plugin's table { priority, schema, once, check }, or nil, a message
-- (nil: unknown), and a list of known names
-- @treturn table|nil the configuration; nil where there are faults
-- @treturn {table,...} faults, each { path, message }
function M.resolve_plugins(config, load_plugin)
  local faults = plugins.resolve(config, load_plugin)
  if #faults > 0 then return nil, masked_faults(config.secrets, faults) end
  return config, faults
end

--- The effective configuration as a file that could be loaded, with secrets masked.
-- To be called after `resolve_plugins`: before it, nothing is known of which settings of plugins are secret.
-- @tparam table config
-- @treturn string
function M.print(config)
  return "return " .. schema.render(masked(config.secrets, config.effective)) .. "\n"
end

--- A fault as one line.
-- @function format
-- @tparam table fault { path, message }
-- @treturn string
M.format = schema.format

return M
