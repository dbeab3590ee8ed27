#!lua
-- Claims an idempotency key, or tells what is known of it. One call decides, so that of any number
-- of requests at once, on any number of replicas, one gets the claim.
--
-- KEYS: idem:{ns}:{sha256 of the client's key}, a hash:
--   state        running, done
--   owner        the id of the request that has, or had, the claim
--   fingerprint  of its request
--   lease        running and on_lost = "refuse" only: the end of the lease, ms since the epoch; 0:
--                the outcome is known to be unknown. The key outlives the lease then
--   status, headers, body  done: the origin's answer
-- ARGV: 1 owner, 2 fingerprint, 3 lease in ms
-- Returns a list whose first item says what it is:
--   claimed   the caller owns it for as long as the lease. So is a claim that the same owner repeats
--   mismatch  the key stands for another request
--   running   somebody owns it
--   lost      its owner is gone, and nobody knows what the origin did
--   done, status, headers, body
-- Errors with TYPE where the key holds something else. Only "claimed" writes.

local key = KEYS[1]
local found = redis.call("HMGET", key, "state", "owner", "fingerprint", "lease")
local state, owner, fingerprint, lease = found[1], found[2], found[3], found[4]

if not state then
  if redis.call("EXISTS", key) == 1 then
    return redis.error_reply("TYPE " .. key .. " does not hold what idempotency keeps there")
  end
  redis.call("HSET", key, "state", "running", "owner", ARGV[1], "fingerprint", ARGV[2])
  redis.call("PEXPIRE", key, ARGV[3])
  return { "claimed" }
end

if fingerprint ~= ARGV[2] then return { "mismatch" } end
if state == "done" then
  local answer = redis.call("HMGET", key, "status", "headers", "body")
  return { "done", answer[1], answer[2], answer[3] }
end
if owner == ARGV[1] then return { "claimed" } end
if lease then
  local now = redis.call("TIME")
  if tonumber(lease) < now[1] * 1000 + math.floor(now[2] / 1000) then return { "lost" } end
end
return { "running" }
