#!lua
-- Counts a request in all of its windows, or in none: where one of them is full it is refused, and counted only where
-- the caller says so.
--
-- KEYS for each window the names of its counters: rl:{keyId}:{window} of windows i and i + 1, of a sliding one i - 1 before
--   them, where i is the window in which the caller believes Redis to be
-- ARGV 1 "1": refused requests are counted too; then for each window: its limit, its length in seconds, "1" where it
--   slides, i
-- Answers one text: VERDICT, Redis's time (ms), and for each window its count and that of the one before (0 unless it
--   slides), all behind the decision. VERDICT is "ok", "limited", or "clock": Redis is neither in window i nor in
--   i + 1 of one of them; nothing was changed, and there are no counts.
-- Errors with TYPE where a key holds something else; nothing was changed.
--
-- A window that slides takes what the window before it counted as spread evenly over it, and counts the part of it that
-- lies less than one length back: count + before × (length − elapsed) / length. This is multiplied out, so that only
-- integers are compared.

local time = redis.call("TIME")
local now = tonumber(time[1]) * 1000 + math.floor(tonumber(time[2]) / 1000)
local windows, next_key = {}, 0

for at = 2, #ARGV, 4 do
  local w = { limit = tonumber(ARGV[at]), ms = tonumber(ARGV[at + 1]) * 1000, sliding = ARGV[at + 2] == "1" }
  local index = math.floor(now / w.ms)
  local later = index - tonumber(ARGV[at + 3])
  if later ~= 0 and later ~= 1 then return string.format("clock %.0f", now) end
  w.elapsed = now - index * w.ms
  if w.sliding then
    w.before_key = KEYS[next_key + 1 + later]
    next_key = next_key + 1
  end
  w.key = KEYS[next_key + 1 + later]
  next_key = next_key + 2
  windows[#windows + 1] = w
end

local function count_of(key)
  local kind = redis.call("TYPE", key).ok
  if kind == "none" then return 0 end
  local text = kind == "string" and redis.call("GET", key) or ""
  return string.find(text, "^%d+$") and tonumber(text) or nil
end

local refused = false
for _, w in ipairs(windows) do
  w.count, w.before = count_of(w.key), 0
  if w.sliding then w.before = count_of(w.before_key) end
  if not w.count then return redis.error_reply("TYPE " .. w.key .. " holds no count") end
  if not w.before then return redis.error_reply("TYPE " .. w.before_key .. " holds no count") end
  if (w.count + 1) * w.ms + w.before * (w.ms - w.elapsed) > w.limit * w.ms then refused = true end
end

if not refused or ARGV[1] == "1" then
  for _, w in ipairs(windows) do
    w.count = redis.call("INCR", w.key)
    if w.count == 1 then redis.call("PEXPIRE", w.key, string.format("%.0f", 2 * w.ms)) end
  end
end

local answer = { string.format("%s %.0f", refused and "limited" or "ok", now) }
for i, w in ipairs(windows) do answer[i + 1] = string.format("%.0f %.0f", w.count, w.before) end
return table.concat(answer, " ")
