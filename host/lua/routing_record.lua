-- What stands under cfg:routing:policy:{version} in Redis: JSON with the policy and its checksum, and which version the
-- policy was first published as (a rollback publishes an earlier one again).
--
-- The checksum is over the policy's text as it stands there, so a record is taken apart by its form, which is fixed.

local M = {}

M.VERSION = "cfg:routing:version"
M.POLICY = "cfg:routing:policy:"
M.NUDGE = "cfg:routing:nudge" -- a channel: each publish sends the version

--- @tparam function sha256 of tg.crypto
-- @tparam string policy JSON text
-- @tparam integer of version that it was first published as
-- @treturn string
function M.write(sha256, policy, of)
  return ('{"sha256":"%s","of":%d,"policy":%s}'):format(sha256(policy), of, policy)
end

--- @tparam function sha256
-- @tparam string record
-- @treturn string|nil the policy's text
-- @treturn integer|string of; or what is wrong
function M.read(sha256, record)
  local sum, of, policy = record:match('^{"sha256":"(%x+)","of":(%d+),"policy":(.*)}$')
  if not sum then return nil, "is no record of a routing policy" end
  if sha256(policy) ~= sum then return nil, "does not have the checksum that it names" end
  return policy, tonumber(of)
end

return M
