-- Tells other replicas that this one has opened a breaker, and nudges them to look.
--
-- KEYS 1 the hint, cb:hint:{provider}:{model}
-- ARGV 1 the replica's name, encoded; 2 the channel; 3 Redis's time in ms behind which this is no news any more, or 0
-- Answers "told", or "late" where Redis got it behind that time: it may have hung, and the breaker may be closed again.
--
-- The time in the hint is Redis's, so all replicas' hints are of one clock.

local LIFETIME = 30 -- seconds

local time = redis.call("TIME")
local ms = tonumber(time[1]) * 1000 + math.floor(tonumber(time[2]) / 1000)
local limit = tonumber(ARGV[3])
if limit > 0 and ms > limit then return "late" end
redis.call("SET", KEYS[1], "open:" .. ARGV[1] .. ":" .. string.format("%.0f", ms), "EX", LIFETIME)
redis.call("PUBLISH", ARGV[2], KEYS[1])
return "told"
