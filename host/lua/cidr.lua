-- Sets of IP networks. An address is four 32-bit words; an IPv4 one is kept as its IPv6 mapping (::ffff:a.b.c.d), so that both
-- families compare in one way. Text forms: RFC 4291, section 2.2; prefixes: RFC 4632, section 3.1.

local bit = require "bit"
local band, bxor, lshift, rshift = bit.band, bit.bxor, bit.lshift, bit.rshift

local M = {}

local function parse4(text)
  local a, b, c, d = text:match("^(%d%d?%d?)%.(%d%d?%d?)%.(%d%d?%d?)%.(%d%d?%d?)$")
  if not a then return nil end
  local word = 0
  for _, part in ipairs { a, b, c, d } do
    local n = tonumber(part)
    if n > 255 or (#part > 1 and part:sub(1, 1) == "0") then return nil end -- 010 is octal to some
    word = word * 256 + n
  end
  return word
end

-- The groups of one side of "::" as a list of 16-bit numbers.
local function groups(text, last)
  local list = {}
  if text == "" then return list end
  for part in (text .. ":"):gmatch("([^:]*):") do
    local v4 = last and parse4(part)
    if v4 then
      list[#list + 1] = math.floor(v4 / 65536)
      list[#list + 1] = v4 % 65536
    elseif part:match("^%x%x?%x?%x?$") then
      list[#list + 1] = tonumber(part, 16)
    else
      return nil
    end
  end
  return list
end

local function parse6(text)
  local left, right = text:match("^(.-)::(.*)$")
  local list
  if left then
    if right:find("::", 1, true) then return nil end
    local a, b = groups(left, false), groups(right, true)
    if not a or not b or #a + #b > 7 then return nil end
    list = a
    for _ = 1, 8 - #a - #b do list[#list + 1] = 0 end
    for _, n in ipairs(b) do list[#list + 1] = n end
  else
    list = groups(text, true)
  end
  if not list or #list ~= 8 then return nil end
  local words = {}
  for i = 1, 4 do words[i] = bit.tobit(list[2 * i - 1] * 65536 + list[2 * i]) end
  return words
end

--- Parses an address.
-- @tparam string text IPv4 or IPv6, no zone
-- @treturn table four 32-bit words, or nil
-- @treturn integer bits of its own family: 32 or 128
function M.address(text)
  local v4 = parse4(text)
  if v4 then return { 0, 0, 0xffff, bit.tobit(v4) }, 32 end
  local v6 = parse6(text)
  if v6 then return v6, 128 end
end

--- Parses a network, "10.0.0.0/8", or a single address.
-- @tparam string text
-- @treturn table {words=, bits=}, or nil
-- @treturn string what is wrong
function M.network(text)
  local ip, prefix = text:match("^([^/]+)/(%d+)$")
  local words, size = M.address(ip or text)
  if not words then return nil, "is no IP address or network" end
  local bits = prefix and tonumber(prefix) or size
  if bits > size then return nil, ("has a prefix of more than %d bits"):format(size) end
  if size == 32 then bits = bits + 96 end
  local network = { words = words, bits = bits }
  for i = 1, 4 do
    local rest = math.max(0, math.min(32, bits - 32 * (i - 1)))
    if rest < 32 and band(words[i], rest == 0 and -1 or rshift(-1, rest)) ~= 0 then
      return nil, "has bits behind its prefix"
    end
  end
  return network
end

--- True where a network holds an address.
-- @tparam table network of M.network
-- @tparam {int,int,int,int} words of M.address
function M.holds(network, words)
  local bits = network.bits
  for i = 1, 4 do
    if bits <= 0 then return true end
    local difference = bxor(network.words[i], words[i])
    if bits < 32 then return band(difference, lshift(-1, 32 - bits)) == 0 end
    if difference ~= 0 then return false end
    bits = bits - 32
  end
  return true
end

--- True where one of the networks holds the address.
function M.any(networks, words)
  for i = 1, #networks do
    if M.holds(networks[i], words) then return true end
  end
  return false
end

return M
