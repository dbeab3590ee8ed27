#!lua flags=allow-oom
-- Drops cached keys for good: raises each one's fence, so that a fill that began before never lands, deletes it, and
-- tells the replicas' own caches. All keys or none; to do it again is harmless.
--
-- KEYS for each cached key: the key, its fence
-- ARGV 1 the channel; one message with the key is published for each
-- Answers how many keys were there.
--
-- A fence becomes max(what it was + 1, Redis's time in µs), so it never repeats a value, also where it had expired in
-- between. One that holds something else is set to the time.

local LIFETIME = 3600  -- seconds
local EXACT = 2 ^ 53   -- above it numbers skip integers

local time = redis.call("TIME")
local now = tonumber(time[1]) * 1000000 + tonumber(time[2])

local function next_generation(fence)
  if redis.call("TYPE", fence).ok ~= "string" then return now end
  local old = tonumber(redis.call("GET", fence))
  if not old or not (old >= now and old < EXACT) then return now end
  return old + 1
end

local dropped = 0
for i = 1, #KEYS, 2 do
  redis.call("SET", KEYS[i + 1], string.format("%.0f", next_generation(KEYS[i + 1])), "EX", LIFETIME)
  dropped = dropped + redis.call("UNLINK", KEYS[i])
end
for i = 1, #KEYS, 2 do redis.call("PUBLISH", ARGV[1], KEYS[i]) end
return string.format("%d", dropped)
