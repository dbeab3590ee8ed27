-- A small DNS server over UDP in the spec's own loop: answers for A and AAAA out of a table that the spec changes
-- while it runs, late, with an error, or not at all.
--
--   local dns = support.dns { ["origin.test"] = { a = { "127.0.0.1" }, aaaa = { "::1" }, ttl = 1 } }
--   gateway: resolver = { servers = { dns.server } }
--
-- A name that the table does not have is NXDOMAIN; one without that family is an answer without records.
local uv = require "luv"
local loop = require "spec.support.loop"

local M = {}

local TYPES = { [1] = "a", [28] = "aaaa" }
local RCODES = { servfail = 2, nxdomain = 3, refused = 5 }

local function u16(n) return string.char(math.floor(n / 256) % 256, n % 256) end
local function u32(n) return u16(math.floor(n / 65536)) .. u16(n % 65536) end

-- The name and type of a query's question, and its bytes.
local function question(packet)
  local labels, at = {}, 13
  while packet:byte(at) ~= 0 do
    local n = packet:byte(at)
    labels[#labels + 1] = packet:sub(at + 1, at + n)
    at = at + n + 1
  end
  local kind = packet:byte(at + 1) * 256 + packet:byte(at + 2)
  return table.concat(labels, "."):lower(), TYPES[kind], kind, packet:sub(13, at + 4)
end

local function ipv4(text)
  local parts = {}
  for part in text:gmatch("%d+") do parts[#parts + 1] = string.char(tonumber(part)) end
  return table.concat(parts)
end

local function groups(text)
  local out = {}
  for part in text:gmatch("%x+") do out[#out + 1] = u16(tonumber(part, 16)) end
  return out
end

local function ipv6(text)
  local left, right = text:match("^(.-)::(.*)$")
  local head, tail = groups(left or text), groups(right or "")
  return table.concat(head) .. ("\0\0"):rep(8 - #head - #tail) .. table.concat(tail)
end

local function records(entry, family, kind)
  local out, n = {}, 0
  for _, text in ipairs(entry[family] or {}) do
    local data = family == "a" and ipv4(text) or ipv6(text)
    out[#out + 1] = "\192\12" .. u16(kind) .. u16(1) .. u32(entry.ttl or 1) .. u16(#data) .. data
    n = n + 1
  end
  return table.concat(out), n
end

local Dns = {}
Dns.__index = Dns

-- The answer, or nil where none is sent.
local function answer(self, packet)
  local name, family, kind, asked = question(packet)
  self.queries[#self.queries + 1] = { name = name, family = family }
  local entry = self.names[name]
  local fault = self.fault or (entry and entry.fault)
  if type(fault) == "table" then fault = fault[family] end -- of one family
  if fault == "silent" then return nil end
  local body, n, rcode = "", 0, RCODES[fault] or 0
  if rcode == 0 then
    if not entry then rcode = RCODES.nxdomain elseif family then body, n = records(entry, family, kind) end
  end
  return packet:sub(1, 2) .. string.char(0x81, 0x80 + rcode) .. u16(1) .. u16(n) .. u16(0) .. u16(0) .. asked .. body
end

--- How often a name (of one family, where one is given) has been asked for.
function Dns:asked(name, family)
  local n = 0
  for _, one in ipairs(self.queries) do
    if one.name == name and (not family or one.family == family) then n = n + 1 end
  end
  return n
end

--- Starts one. `names` is used as it is, so that a spec may change it; so may it `fault`: "servfail", "refused",
-- "nxdomain", "silent", or { a = …, aaaa = … }; an entry may have its own.
-- @return .server ("127.0.0.1:PORT"), .names, .queries, :asked(name, family), :close()
function M.start(names)
  local self = setmetatable({ names = names, queries = {}, socket = uv.new_udp() }, Dns)
  assert(self.socket:bind("127.0.0.1", 0))
  self.server = "127.0.0.1:" .. self.socket:getsockname().port
  self.socket:recv_start(loop.callback(function(_, packet, from)
    local reply = packet and answer(self, packet)
    if reply then self.socket:send(reply, from.ip, from.port, function() end) end
  end))
  loop.on_end(function() self:close() end)
  return self
end

function Dns:close() loop.close(self.socket) end

return M
