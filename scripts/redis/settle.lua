#!lua flags=allow-oom
-- Settles requests of one key that were admitted in one month, or takes back admissions whose
-- outcome nobody learned: each reservation is taken away once, and the month's counter is corrected
-- by actual - reserved, never below 0.
--
-- KEYS, each of the first two only where that limit was enforced at admission:
--   q:tokens:{keyId}:{yyyyMM}      integer
--   q:conc:{keyId}                 set of request ids
--   q:reserved:{requestId} ...     one for each request
-- ARGV:
--   1 number of requests, 2 "1" where there is a counter, 3 "1" where there is a set
--   then for each request: id, form, actual tokens, tokens that admission charged as the gateway
--   remembers
-- The form says what an absent reservation means (one of -1 is closed: nothing is left to do):
--   first   admitted, sent for the first time: it lapsed. Corrects by actual - remembered and
--           leaves -1 for 24 h
--   again   admitted, may have been sent before: it was done
--   none    Redis did not admit it: charges actual, leaves -1 for 24 h
--   void    the outcome of admission is unknown: leaves -1 for 5 minutes, which a late admission
--           runs into. One that is there is taken back whole
-- With "again" a reservation that is there is taken away and leaves -1 for 5 minutes: the same
-- settlement, sent first over a connection that was lost, may still stand in a buffer of Redis and
-- must find nothing to do.
-- Returns a string for each request: settled, lapsed (absent, form first), nothing, or type (the
-- reservation holds something else and was left alone).
-- Errors with TYPE where the counter holds something else; nothing was changed.

local CLOSED, PASSING, COUNTER = 86400, 300, 40 * 86400 -- seconds

local n = tonumber(ARGV[1])
local next_key = 0
local counter_key, conc_key

if ARGV[2] == "1" then
  next_key = next_key + 1
  counter_key = KEYS[next_key]
end
if ARGV[3] == "1" then
  next_key = next_key + 1
  conc_key = KEYS[next_key]
end

local broken, counter = false, 0
if counter_key then
  local text = redis.pcall("GET", counter_key) or "0"
  broken = type(text) ~= "string" or not string.find(text, "^%-?%d+$")
  counter = not broken and tonumber(text) or 0
end

-- What is to be done for one request: an outcome, the correction, and the lifetime of the -1 to
-- leave (nil: none; 0: take the reservation away). A reservation of another type spoils only
-- itself.
local function decide(value, form, actual, remembered)
  if value then
    local reserved = type(value) == "string" and string.find(value, "^%-?%d+$") and tonumber(value)
    if not reserved then return "type", 0, nil end
    if reserved < 0 then return "nothing", 0, nil end
    local leave = form == "again" and PASSING or 0
    return "settled", (form == "void" and 0 or actual) - reserved, leave
  end
  if form == "first" then return "lapsed", actual - remembered, CLOSED end
  if form == "none" then return "settled", actual, CLOSED end
  if form == "void" then return "nothing", 0, PASSING end
  return "nothing", 0, nil
end

-- Read and decide everything before the first write.

local answer, ids, leaves, before = {}, {}, {}, counter
for i = 1, n do
  local at = 4 * i
  local value = redis.pcall("GET", KEYS[next_key + i])
  local outcome, correction, leave =
    decide(value, ARGV[at + 1], tonumber(ARGV[at + 2]), tonumber(ARGV[at + 3]))
  if correction ~= 0 and counter_key then
    if broken then
      return redis.error_reply("TYPE " .. counter_key .. " does not hold what quota keeps there")
    end
    counter = math.max(0, counter + correction)
  end
  ids[i], answer[i], leaves[i] = ARGV[at], outcome, leave or false
end

-- The counter first: Redis adds to no "007", and that error, too, is to leave all as it was.

if counter ~= before then
  redis.call("INCRBY", counter_key, string.format("%.0f", counter - before))
  redis.call("EXPIRE", counter_key, COUNTER)
end
for i = 1, n do
  if leaves[i] == 0 then
    redis.call("DEL", KEYS[next_key + i])
  elseif leaves[i] then
    redis.call("SET", KEYS[next_key + i], "-1", "EX", leaves[i])
  end
end
if conc_key then
  local removed = redis.pcall("SREM", conc_key, unpack(ids))
  if type(removed) == "table" and not string.find(removed.err, "^WRONGTYPE") then return removed end
end -- of another type: not ours

return answer
