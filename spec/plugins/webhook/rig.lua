-- What the specs of webhook share: a gateway with one webhook route, and signed events to it.
local support = require "spec.support"

local M = { secret = "whsec-of-the-spec", path = "/hooks/billing" }

M.events = {
  ["balance.updated"] = { drop = { "balance:{tenantId}", "stats:{tenantId}:current_month" } },
  ["invoice.created"] = { drop = { "stats:{tenantId}:current_month" } },
  ["invoice.cancelled"] = { drop = { "stats:{tenantId}:current_month" } },
}

local function merged(base, own)
  for name, value in pairs(own or {}) do base[name] = value end
  return base
end

--- The configuration of a gateway with the route "billing".
-- @param url of Redis; conf: settings of webhook; redis: further settings of Redis; config: further keys
function M.config(url, conf, redis, config)
  return merged({ redis = merged({ url = url, timeout = 5 }, redis),
    routes = { { name = "billing", path = M.path, plugins = { webhook = merged({
      secret = M.secret, events = M.events, fields = { tenantId = "data.tenantId" },
    }, conf) } } } }, config)
end

--- Starts one; options: redis (of support.redis) or url, conf, settings (of Redis), config, files, env.
function M.gateway(options)
  return support.gateway { files = options.files, env = options.env,
    config = M.config(options.url or options.redis.url, options.conf, options.settings, options.config) }
end

--- A request with an event; fields nil: one of "balance.updated" for the tenant t.
function M.event(fields, headers)
  local body = type(fields) == "string" and fields or support.encode(merged({ id = "evt_1", type = "balance.updated",
    data = { tenantId = "t" } }, fields))
  return { method = "POST", path = M.path, body = body,
    headers = merged({ ["content-type"] = "application/json", ["x-signature"] = support.hmac_sha256(M.secret, body) }, headers) }
end

--- Sends one; returns the answer, and its `status` or its error's `code`.
function M.ask(gw, fields, headers)
  local res = assert(gw:request(M.event(fields, headers)))
  local body = support.decode(res.body)
  return res, body.status or body.error.code
end

--- Sends one; returns the HTTP status, and the answer's `status` or its error's `code`.
function M.send(gw, fields, headers)
  local res, outcome = M.ask(gw, fields, headers)
  return res.status, outcome
end

--- Puts values under the keys that "balance.updated" of a tenant drops.
function M.fill(redis, tenant)
  for _, key in ipairs(M.keys(tenant)) do redis:must("SET", key, "{}", "EX", 60) end
end

function M.keys(tenant) return { "balance:" .. tenant, "stats:" .. tenant .. ":current_month" } end

--- How many of those are still there.
function M.left(redis, tenant) return redis:must("EXISTS", unpack(M.keys(tenant))) end

function M.fence(redis, key) return tonumber(redis:must("GET", "fence:" .. key)) end

return M
