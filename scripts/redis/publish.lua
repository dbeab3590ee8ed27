#!lua
-- Publishes: raises the routing version by one and says so to those who listen; where the policy is kept in Redis, stores it,
-- in the same step, and gives the one before a lifetime.
--
-- KEYS  cfg:routing:version [, the policy of the new version, that of the current one]
-- ARGV  the channel; the version that the caller saw, "" for none [, the new record, seconds that the one before stays]
-- Answers the new version as text; "moved" where the version is another one by now, and nothing was changed.

local current = redis.call("GET", KEYS[1])
if current and not string.find(current, "^%d+$") then
  return redis.error_reply("TYPE " .. KEYS[1] .. " holds no version")
end
if (current or "") ~= ARGV[2] then return "moved" end
local version = string.format("%.0f", redis.call("INCR", KEYS[1]))
if ARGV[3] then
  redis.call("SET", KEYS[2], ARGV[3])
  redis.call("EXPIRE", KEYS[3], ARGV[4])
end
redis.call("PUBLISH", ARGV[1], version)
return version
