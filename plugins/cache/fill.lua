#!lua
-- Fills a cached resource, unless it was invalidated since the fill began.
--
-- KEYS 1 the cached key, 2 its fence
-- ARGV 1 the fence when the fill began ("" where there was none), 2 the value, 3 its lifetime (ms),
--   4 Redis's time when the fill began (ms), 5 the end of the time in which the value is right (ms since the epoch), or ""
-- Answers "stored"; "fenced": it was invalidated meanwhile; "late": the fill took so long that a fence may have come and
-- expired, or the value's time is over. Then nothing was changed.

local LATEST = 1800000 -- ms; a fence lives for an hour

local time = redis.call("TIME")
local now = tonumber(time[1]) * 1000 + math.floor(tonumber(time[2]) / 1000)

if (redis.call("GET", KEYS[2]) or "") ~= ARGV[1] then return "fenced" end
if now - tonumber(ARGV[4]) > LATEST then return "late" end

local ends = now + tonumber(ARGV[3])
if ARGV[5] ~= "" then ends = math.min(ends, tonumber(ARGV[5])) end
if ends <= now then return "late" end

redis.call("SET", KEYS[1], ARGV[2], "PXAT", string.format("%.0f", ends))
return "stored"
