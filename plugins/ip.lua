-- ip: lets requests in by the client's address: `deny` wins over `allow`; with an `allow` list everybody else is
-- refused. The address is the client's: a header names it only where a proxy in `trusted_proxies` sent it.
--
-- | answer | when |
-- |---|---|
-- | 403 `address_not_allowed` | the address is denied, or not among those that are allowed |

local cidr = require "tollgate.cidr"

local networks = { type = "list", of = { type = "string", check = function(value)
  local network, message = cidr.network(value)
  return not network and message or nil
end } }

local function list(doc)
  local field = { default = {}, doc = doc }
  for key, value in pairs(networks) do field[key] = value end
  return field
end

local M = {
  version = "1.0.0",
  priority = 950,
  schema = {
    allow = list "networks (10.0.0.0/8, 2001:db8::/32) or addresses that are let in; empty: all not denied",
    deny = list "networks or addresses that are refused",
    message = { type = "string", min = 1, default = "Your address is not allowed here", doc = "what the refusal says" },
  },
}

local instances = setmetatable({}, { __mode = "k" })

function M.check(conf, path)
  if #conf.allow == 0 and #conf.deny == 0 then
    return { { path = path, message = "needs allow or deny" } }
  end
end

local function parse(texts)
  local parsed = {}
  for i, text in ipairs(texts) do parsed[i] = cidr.network(text) end
  return parsed
end

function M.init(conf)
  instances[conf] = { allow = parse(conf.allow), deny = parse(conf.deny) }
end

function M.access(conf, ctx)
  local self = instances[conf]
  local words = cidr.address(ctx.client.address)
  if not words then return end -- a Unix socket: whoever may open it was let in by its mode
  local refused = cidr.any(self.deny, words) or (#self.allow > 0 and not cidr.any(self.allow, words))
  if refused then return ctx:refusal(403, "address_not_allowed", conf.message) end
end

return M
