#!lua
-- Admits requests of one key that have the same limits: bucket, budget and concurrency, all or
-- nothing for each request, in the order given, exactly as one call each would decide. A refusal
-- changes no counter.
--
-- KEYS, each of the first three only where its limit is enforced:
--   q:rps:{keyId}                  hash: tokens, last_refill (ms)
--   q:tokens:{keyId}:{yyyyMM}      integer
--   q:conc:{keyId}                 set of request ids
--   q:reserved:{requestId} ...     one for each request, where budget or concurrency is enforced
-- ARGV:
--   1 number of requests
--   2 rate (requests a second) or "", 3 burst
--   4 budget (tokens a month) or "", 5 start and 6 end of that month (ms; the end is outside)
--   7 concurrency or ""
--   then for each request: id, tokens to reserve
-- Returns strings: "ok", Redis's time (ms), and for each request "VERDICT TOKENS SPENT INFLIGHT",
-- the state behind its decision; VERDICT is admitted, rate, budget, concurrency, or exists (its
-- reservation is there already).
-- Or "month", Redis's time: it is not in the month that the caller believes; nothing was changed.
-- Errors with TYPE where a key holds something else; nothing was changed.

local LEASE, COUNTER = 300, 40 * 86400 -- seconds

local n = tonumber(ARGV[1])
local rate, burst = tonumber(ARGV[2]), tonumber(ARGV[3])
local budget, month_start, month_end = tonumber(ARGV[4]), tonumber(ARGV[5]), tonumber(ARGV[6])
local cap = tonumber(ARGV[7])
local reserves = budget ~= nil or cap ~= nil
local next_key = 0

local function take_key(wanted)
  if not wanted then return nil end
  next_key = next_key + 1
  return KEYS[next_key]
end

local bucket_key, counter_key, conc_key = take_key(rate), take_key(budget), take_key(cap)

local time = redis.call("TIME")
local now = tonumber(time[1]) * 1000 + math.floor(tonumber(time[2]) / 1000)
local now_text = string.format("%.0f", now)
if budget and (now < month_start or now >= month_end) then return { "month", now_text } end

-- Read and check everything before the first write. A key of another type answers with an error
-- table, which costs less than asking for the type first.

-- reply: what reading the key answered.
local function wrong(key, reply)
  local err = type(reply) == "table" and reply.err
  if err and not string.find(err, "^WRONGTYPE") then return redis.error_reply(err) end
  return redis.error_reply("TYPE " .. key .. " does not hold what quota keeps there")
end

local tokens, from_future = 0, false
if rate then
  local fields = redis.pcall("HMGET", bucket_key, "tokens", "last_refill")
  if fields.err then return wrong(bucket_key, fields) end
  if fields[1] or fields[2] then
    local last = tonumber(fields[2] or "")
    tokens = tonumber(fields[1] or "")
    if not tokens or not last or tokens ~= tokens or last ~= last then return wrong(bucket_key) end
    from_future = last > now
    if not from_future then tokens = tokens + (now - last) * rate / 1000 end
    if tokens > burst then tokens = burst end
  else
    tokens = burst -- a bucket that expired was full
  end
end

local spent, inflight = 0, 0
if budget then
  local text = redis.pcall("GET", counter_key) or "0"
  if type(text) ~= "string" or not string.find(text, "^%-?%d+$") then
    return wrong(counter_key, text)
  end
  spent = tonumber(text)
end
if cap then
  inflight = redis.pcall("SCARD", conc_key)
  if type(inflight) ~= "number" then return wrong(conc_key, inflight) end
end

-- Decide. The budget is named first: it is what a retry cannot help.

local function refusal(amount)
  if budget and spent + amount > budget then return "budget" end
  if rate and tokens < 1 then return "rate" end
  if cap and inflight >= cap then return "concurrency" end
  return nil
end

local function reserve(i, amount)
  if not reserves then return true end
  local value = budget and string.format("%.0f", amount) or "0"
  return redis.call("SET", KEYS[next_key + i], value, "NX", "EX", LEASE)
end

local format = string.format
local answer, admitted, charged = { "ok", now_text }, {}, 0
local tokens_text = format("%.17g", tokens)
for i = 1, n do
  local id, amount = ARGV[6 + 2 * i], tonumber(ARGV[7 + 2 * i])
  local verdict = refusal(amount)
  if not verdict and not reserve(i, amount) then verdict = "exists" end
  if not verdict then
    verdict = "admitted"
    admitted[#admitted + 1] = id
    if rate then
      tokens = tokens - 1
      tokens_text = format("%.17g", tokens)
    end
    if cap then inflight = inflight + 1 end
    if budget then
      spent, charged = spent + amount, charged + amount
    end
  end
  answer[2 + i] = format("%s %s %.0f %d", verdict, tokens_text, spent, inflight)
end

-- Write; each write is followed at once by its lifetime.

if rate and (#admitted > 0 or from_future) then
  if #admitted > 0 then
    redis.call("HSET", bucket_key, "tokens", tokens_text, "last_refill", now_text)
  else
    redis.call("HSET", bucket_key, "last_refill", now_text) -- the repair that a refusal may write
  end
  local lifetime = math.max(1000, math.ceil(2 * burst / rate * 1000))
  redis.call("PEXPIRE", bucket_key, string.format("%.0f", lifetime))
end
if charged > 0 then
  redis.call("SET", counter_key, format("%.0f", spent), "EX", COUNTER) -- below budget: exact
end
if cap and #admitted > 0 then
  redis.call("SADD", conc_key, unpack(admitted))
  redis.call("EXPIRE", conc_key, LEASE)
end

return answer
