-- Whose requests are counted together: the key id of a request. Plain functions.
--
-- Without the thing that is asked for (no consumer, no tenant, no such header) requests count together by route:
-- `route:NAME`. A consumer without a tenant is one by itself.

local cidr = require "tollgate.cidr"
local bit = require "bit"

local M = {}

local V4 = "^%d+%.%d+%.%d+%.%d+$"

local function word_bits(prefix, word)
  return math.max(0, math.min(32, prefix - 32 * word))
end

local function masked(word, bits)
  if bits == 0 then return 0 end
  return bit.band(word, bit.lshift(-1, 32 - bits))
end

local function dotted(word)
  return ("%d.%d.%d.%d"):format(bit.band(bit.rshift(word, 24), 255), bit.band(bit.rshift(word, 16), 255),
    bit.band(bit.rshift(word, 8), 255), bit.band(word, 255))
end

--- An address as it is counted: an IPv6 one by its network, since one client has a whole network of them; an IPv4 one,
-- also where it is written as IPv6, by itself.
-- @tparam string text
-- @tparam number prefix bits of an IPv6 network
-- @treturn string
function M.network(text, prefix)
  if text == "" then return "unix" end
  if text:find(V4) then return text end
  local words = cidr.address(text)
  if not words then return text end
  if words[1] == 0 and words[2] == 0 and words[3] == 0xffff then return dotted(words[4]) end
  local groups = {}
  for i = 1, 4 do
    local word = masked(words[i], word_bits(prefix, i - 1))
    groups[i] = ("%x:%x"):format(bit.rshift(word, 16), bit.band(word, 0xffff))
  end
  return table.concat(groups, ":") .. "/" .. prefix
end

local kinds = {}

function kinds.consumer(ctx)
  return ctx.consumer and ctx.consumer.id
end

function kinds.tenant(ctx)
  local consumer = ctx.consumer
  if not consumer then return nil end
  return consumer.tenant and "tenant:" .. consumer.tenant or consumer.id
end

function kinds.address(ctx, conf)
  return "address:" .. M.network(ctx.client.address, conf.ipv6_prefix)
end

function kinds.route() return nil end

--- The key id of a request.
-- @tparam table ctx
-- @tparam table conf { by, ipv6_prefix }; by: "consumer", "tenant", "address", "route" or { header = name }
-- @tparam function digest (text) gives a digest as text: what a header holds may be a secret, which is in no key
-- @treturn string
function M.id(ctx, conf, digest)
  local id
  if type(conf.by) == "table" then
    local value = ctx.request.headers[conf.by.header]
    id = value and ("header:%s:%s"):format(conf.by.header:lower(), digest(value))
  else
    id = kinds[conf.by](ctx, conf)
  end
  return id or "route:" .. ctx.route.name
end

return M
