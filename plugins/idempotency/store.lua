#!lua
-- Stores the answer to a request under its idempotency key, for its owner alone.
--
-- KEYS: idem:{ns}:{hash}
-- ARGV: 1 owner, 2 status, 3 headers (JSON array of pairs), 4 body, 5 lifetime in ms
-- Returns "stored"; "lost" where the owner has no claim any more, and nothing was changed. A second
-- call of the same owner answers "stored" too.

local found = redis.call("HMGET", KEYS[1], "owner", "state")
if found[1] ~= ARGV[1] then return "lost" end
if found[2] == "done" then return "stored" end
redis.call("HSET", KEYS[1], "state", "done", "status", ARGV[2], "headers", ARGV[3], "body", ARGV[4])
redis.call("HDEL", KEYS[1], "lease")
redis.call("PEXPIRE", KEYS[1], ARGV[5])
return "stored"
