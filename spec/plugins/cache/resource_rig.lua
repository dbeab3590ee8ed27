-- What the specs of cached resources share: a gateway with balances and statistics of tenants on one route, the webhook that
-- drops them, and an origin that counts what it is asked.
local hooks = require "spec.plugins.webhook.rig"
local rig = require "spec.plugins.cache.rig"
local support = require "spec.support"

local M = { hooks = hooks }

M.caches = {
  { key = "balance:{tenantId}", path = "/tenants/{tenantId}/balance" },
  { key = "stats:{tenantId}:current_month", path = "/tenants/{tenantId}/stats" },
}

--- The configuration; options: url (of Redis), origin (its url), cache (settings over those of all), caches (list instead of
-- M.caches), hook (settings of webhook; false: none), config.
function M.config(options)
  local list = {}
  for i, cache in ipairs(options.caches or M.caches) do list[i] = rig.merged(rig.merged({}, cache), options.cache) end
  local routes = { { name = "tenants", path = "/tenants/*", targets = { { url = options.origin } }, plugins = { cache = list } } }
  if options.hook ~= false then
    routes[2] = { name = "billing", path = hooks.path, plugins = { auth = false, webhook = rig.merged({
      secret = hooks.secret, events = hooks.events, fields = { tenantId = "data.tenantId" } }, options.hook) } }
  end
  return rig.merged({ redis = { url = options.url, timeout = 5 }, plugins = { auth = { keys = "keys.jsonl" } },
    routes = routes }, options.config)
end

--- Starts a gateway; options: those of M.config, redis (of support.redis, instead of url), keys.
function M.gateway(options)
  local records = { { id = "key-a", tenant = "a", secret = rig.secrets.a },
    { id = "key-b", tenant = "b", secret = rig.secrets.b },
    { id = "key-lone", secret = rig.secrets.lone } }
  for _, record in ipairs(options.keys or {}) do records[#records + 1] = record end
  local url = options.url or options.redis.url
  return support.gateway { config = M.config(rig.merged({ url = url }, options)), files = {
    ["keys.jsonl"] = support.keys(records) } }
end

--- An origin whose answers are { "balance": N }, N the number of requests so far.
function M.origin()
  local origin
  origin = support.origin(function(_, conn) conn:respond { body = { balance = #origin.requests } } end)
  return origin
end

--- A GET; options: as, headers.
function M.get(path, options)
  return rig.get(path or "/tenants/a/balance", options)
end

--- Sends the event that drops a tenant's balance and statistics; it must be taken.
function M.invalidate(gw, tenant)
  local status = hooks.send(gw, { data = { tenantId = tenant or "a" } })
  if status ~= 200 then error("the event was answered with " .. status, 2) end
end

return M
