-- Who the gateway asks for names, and which proxies it believes: the keys `resolver`, `trusted_proxies` and `forwarded`,
-- and the shape the host reads.

local cidr = require "tollgate.cidr"
local values = require "tollgate.config_values"
local routes = require "tollgate.config_routes"

local M = {}

local DNS_PORT = 53

-- "192.0.2.1", "192.0.2.1:53", "2001:db8::1" or "[2001:db8::1]:53" as the host reads it.
local function server(text)
  if not cidr.address(text) then
    local address, message = values.address(text)
    if not address then return nil, message end
    if address.port == 0 then return nil, "the port must be a number from 1 to 65535" end
    text = address.host
    if not cidr.address(text) then return nil, "the host must be an IP address" end
    return (text:find(":", 1, true) and "[%s]:%d" or "%s:%d"):format(text, address.port)
  end
  return (text:find(":", 1, true) and "[%s]:%d" or "%s:%d"):format(text, DNS_PORT)
end

local function check_server(text)
  local ok, message = server(text)
  if not ok then return message end
end

local function seconds(default, min, max, doc)
  return { type = "duration", min = min, max = max, default = default, doc = doc }
end

local DAY = 86400 -- seconds

--- The field `resolver`.
M.resolver = { type = "table", default = {}, doc = "names of targets and of Redis, asked for by DNS", fields = {
  servers = { type = "list", min = 1, max = 8, doc = 'as "192.0.2.1:53"; default: those of /etc/resolv.conf',
    of = { type = "string", min = 1, check = check_server } },
  ttl_min = seconds(5, 0.05, DAY, "the shortest that an answer is kept"),
  ttl_max = seconds(300, 0.05, 7 * DAY, "the longest that an answer is kept"),
  stale = seconds(DAY, 0.001, 30 * DAY, "how long addresses serve past their time while the resolver is down"),
  timeout = seconds(2, 0.05, 30, "the first wait for an answer; each further one of a server is twice as long"),
  tries = { type = "integer", min = 1, max = 10, default = 2, doc = "questions to each server" },
}, check = function(resolver, path)
  if resolver.ttl_max < resolver.ttl_min then
    return { { path = path .. ".ttl_max", message = "must not be less than ttl_min" } }
  end
end }

local function check_proxy(text)
  if text == "unix" then return nil end
  local _, message = cidr.network(text)
  return message
end

--- A list of networks, addresses, and "unix".
function M.proxies(doc)
  return { type = "list", max = 10000, doc = doc, of = { type = "string", min = 1, check = check_proxy } }
end

--- The field `trusted_proxies`.
M.trusted_proxies = M.proxies 'networks, addresses, or "unix", of proxies before this one; others are not believed'
M.trusted_proxies.default = {}

local form = { type = "string", one_of = { "x-forwarded", "forwarded" } }

--- The field `forwarded`.
M.forwarded = { default = "x-forwarded",
  alternatives = { form, { type = "list", of = form, min = 1, max = 2 } },
  doc = "what origins are told by: X-Forwarded-*, Forwarded (RFC 7239), or a list of both; trusted proxies tell by the first",
}

--- The same as the host reads it: a list.
function M.forwarded_of(given)
  return type(given) == "table" and given or { given }
end

--- The same as the host reads it: milliseconds, and servers in one text.
-- @tparam table given checked
-- @treturn table
function M.resolver_of(given)
  local out = routes.milliseconds {
    ttl_min = given.ttl_min, ttl_max = given.ttl_max, stale = given.stale, timeout = given.timeout,
  }
  local list = {}
  for i, text in ipairs(given.servers or {}) do list[i] = server(text) end
  out.tries, out.servers = given.tries, #list > 0 and table.concat(list, ",") or nil
  return out
end

return M
