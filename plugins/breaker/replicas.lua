-- What replicas tell each other by Redis. One worker of a replica looks for hints, all in one MGET, every so often and when
-- somebody says that there is one; whoever opens a breaker tells the others. Requests never wait for it, and where Redis is
-- away nothing is told and nothing heard.

local tg = require "tollgate"
local hints = require "breaker.hints"
local machine = require "breaker.machine"

local M = {}

local CLOCK = "breaker:clock" -- in the dictionary: ms that Redis's clock is ahead of tg.monotonic
local TELL = 0.5              -- seconds that Redis has to take a hint; behind that it would be no news
local LOG_EVERY = 10          -- seconds between two log lines about errors that Redis answers
local UNREACHABLE = { timeout = true, closed = true, down = true } -- which the host logs, once a change

local script = tg.redis.script "announce"
local hints_total = tg.metrics.counter("breaker_hints_total",
  "Hints between replicas: told, late, untold (Redis did not take it), opened, lowered", { "what" })

local own = tg.redis.encode(tg.replica())
local logged = -math.huge
local looking, again = false, false

local function now_ms() return tg.monotonic() * 1000 end

local function failed(err)
  local now = tg.monotonic()
  if UNREACHABLE[err] or now - logged < LOG_EVERY then return end
  logged = now
  tg.log.warn("breaker: hints: Redis says: ", err)
end

--- Tells other replicas that a breaker has opened, where that has not been done. Waits.
-- @tparam table b a breaker: key, hint_key
-- @tparam table store
function M.tell(b, store)
  local now = now_ms()
  if not store:step(b.key, machine.claim, now) then return end
  local ahead = tg.shared.get(CLOCK)
  local limit = ahead and now + ahead + TELL * 1000 or 0
  local said, err = script:run({ b.hint_key }, { own, hints.CHANNEL, ("%.0f"):format(limit) }, { timeout = TELL })
  hints_total:inc(1, said or "untold")
  if not said then failed(err) end
end

local function take_in(b, text, ahead, store, opened)
  local by, ms = hints.parse(text)
  b.hint_seen = text
  if not by or by == own then return end
  local now = now_ms()
  local what, err = store:step(b.key, machine.hint, b.rules, by, ms, ahead, now, math.random())
  if err then
    b.hint_seen = nil -- to be tried again
  elseif what == machine.OPENED then
    hints_total:inc(1, "opened")
    opened(b, store.s, now)
  elseif what == machine.LOWERED then
    hints_total:inc(1, "lowered")
  end
end

local function look(list, keys, store, opened)
  local sent = now_ms()
  local replies, err = tg.redis.pipeline { { "TIME" }, keys }
  local time, texts = replies and replies[1], replies and replies[2]
  if not replies or time.err or texts.err then return failed(err or time.err or texts.err) end
  local ahead = tonumber(time[1]) * 1000 + tonumber(time[2]) / 1000 - sent
  tg.shared.set(CLOCK, ahead)
  for i, b in ipairs(list) do
    local text = texts[i]
    if text and text ~= b.hint_seen then take_in(b, text, ahead, store, opened) end
  end
end

-- One look at a time; who asks meanwhile gets one more.
local function look_once(list, keys, store, opened)
  if looking then
    again = true
    return
  end
  looking = true
  repeat
    again = false
    local ok, err = pcall(look, list, keys, store, opened)
    if not ok then tg.log.error("breaker: hints: ", err) end
  until not again
  looking = false
end

--- Begins to listen, until the generation ends.
-- @tparam {table,...} list breakers, each with key, hint_key and rules
-- @tparam number interval seconds between two looks
-- @tparam table store
-- @tparam function opened called with a breaker, its state and the time in ms where a hint has opened it
function M.start(list, interval, store, opened)
  local keys = { "MGET" }
  looking, again = false, false
  for i, b in ipairs(list) do keys[i + 1] = b.hint_key end
  local function run() look_once(list, keys, store, opened) end
  local function nudged() if tg.timer.leads() then run() end end
  tg.timer.every(interval, function()
    for _, b in ipairs(list) do M.tell(b, store) end -- what a worker that died, or a generation that ended, has left
    run()
  end, { once = true })
  tg.timer.after(0, run, { once = true })
  tg.redis.subscribe(hints.CHANNEL, nudged, { on_gap = nudged })
end

return M
