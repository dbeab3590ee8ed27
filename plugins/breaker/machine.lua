-- What a breaker does: a state (state.lua), an event and a time give the next state. No I/O; whoever calls makes each step
-- atomic among workers (store.lua). Every step returns first whether it changed the state.
--
-- A request that is let pass gets a token: the epoch in which it began or, of a probe, its number below 0. An outcome counts
-- where its token still fits, so what began before the last change says nothing about what came behind it.
--
--   closed     outcomes are counted, in buckets of a sliding window; opens by their ratio, or by failures in a row
--   open       nothing passes until the cooldown is over; then it is half-open
--   half-open  one probe passes, by a lease. It closes, or opens for longer; where it says nothing, or its lease ends, the
--              next request is the probe
--
-- A hint of another replica can only open; only a successful probe, or an operator, closes.

local state = require "breaker.state"

local M = {}

local CLOSED, OPEN, HALF_OPEN = state.CLOSED, state.OPEN, state.HALF_OPEN
local FORCED_OPEN, FORCED_CLOSED = state.FORCED_OPEN, state.FORCED_CLOSED
local BUCKETS = state.BUCKETS
local PROBING = 1000     -- ms after which to ask again where a probe is under way
local HINT_LIFE = 30000  -- ms that a hint counts
local DUE_LIFE = 2000    -- ms behind an opening in which others are told
local CLOCK_SLACK = 1000 -- ms; a hint from further ahead means that Redis's clock was set

M.GOOD, M.BAD, M.NONE = 1, 2, 3           -- what an outcome says
M.PASS, M.TRY, M.REFUSE = 1, 2, 3         -- what admit decides; TRY: as the probe
M.HALF_OPENED, M.OVERDUE = 1, 2           -- how a probe came to be; nil: behind one that said nothing
M.OPENED, M.CLOSED_AGAIN, M.GIVEN_BACK, M.LOWERED = 1, 2, 3, 4 -- what record, or hint, did

-- --- counting ---

local function clear(s)
  s.in_a_row, s.head = 0, 0
  for i = 0, BUCKETS - 1 do s.good[i], s.bad[i] = 0, 0 end
end

-- Makes the bucket of now the newest; returns its place.
local function turn(s, rules, now)
  if s.bucket_ms ~= rules.bucket_ms then -- the settings have changed
    clear(s)
    s.bucket_ms = rules.bucket_ms
  end
  local number = math.floor(now / s.bucket_ms)
  if number > s.head then
    for k = math.max(s.head + 1, number - BUCKETS + 1), number do
      s.good[k % BUCKETS], s.bad[k % BUCKETS] = 0, 0
    end
    s.head = number
  end
  return s.head % BUCKETS
end

local function totals(s)
  local good, bad = 0, 0
  for i = 0, BUCKETS - 1 do good, bad = good + s.good[i], bad + s.bad[i] end
  return good + bad, bad
end

--- Requests and failures in the window.
-- @tparam cdata s changes: what is too old goes
-- @treturn number requests
-- @treturn number failures
function M.counts(s, rules, now)
  turn(s, rules, now)
  return totals(s)
end

-- Why what was counted is too much; nil where it is not. `part` of the thresholds.
local function too_much(s, rules, part)
  if rules.consecutive and s.in_a_row >= math.ceil(rules.consecutive * part) then return state.CONSECUTIVE end
  local requests, failures = totals(s)
  if rules.ratio and failures > 0 and requests >= math.ceil(rules.min_requests * part)
    and failures >= rules.ratio * part * requests then
    return state.RATIO
  end
end

-- --- changes ---

local function enter(s, to, now)
  s.state, s.since = to, now
  s.epoch = s.epoch + 1
  s.lease = 0
end

-- `dice` is a random number from 0 to 1.
local function open(s, rules, reason, now, dice)
  local longer = reason == state.PROBE and s.cooldown > 0
  s.requests, s.failures = M.counts(s, rules, now)
  s.cooldown = longer and math.min(s.cooldown * rules.factor, rules.cooldown_max) or rules.cooldown
  s.until_ms = now + s.cooldown * (1 + rules.jitter * dice)
  s.reason, s.lowered = reason, 0
  s.found = reason == state.HINT and 0 or 1
  s.due = s.found == 1 and now or 0
  enter(s, OPEN, now)
  return true, M.OPENED
end

local function close(s, now)
  clear(s)
  s.cooldown, s.lowered, s.due = 0, 0, 0
  s.recovered = now
  enter(s, CLOSED, now)
  return true, M.CLOSED_AGAIN
end

--- Whether a request may pass.
-- @tparam cdata s
-- @tparam table rules times in ms: cooldown, cooldown_max, probe_lease, bucket_ms; factor, jitter, consecutive, ratio,
-- min_requests
-- @tparam number now ms
-- @treturn boolean whether the state has changed
-- @treturn number PASS, TRY or REFUSE
-- @treturn number|nil its token; of REFUSE the ms until it makes sense to ask again. nil: what it does is not counted
-- @treturn number|nil of TRY: HALF_OPENED, or OVERDUE where it follows a probe whose lease has ended
function M.admit(s, rules, now)
  if s.forced == FORCED_CLOSED then return false, M.PASS end
  if s.forced == FORCED_OPEN then return false, M.REFUSE, rules.cooldown end
  if s.state == CLOSED then return false, M.PASS, s.epoch end
  local how
  if s.state == OPEN then
    if now < s.until_ms then return false, M.REFUSE, s.until_ms - now end
    enter(s, HALF_OPEN, now)
    how = M.HALF_OPENED
  elseif s.lease > 0 then
    if now < s.lease then return false, M.REFUSE, math.min(PROBING, s.lease - now) end
    how = M.OVERDUE
  end
  s.probe = s.probe + 1
  s.lease = now + rules.probe_lease
  return true, M.TRY, -s.probe, how
end

local function settle(s, rules, number, kind, now, dice)
  if s.state ~= HALF_OPEN or s.probe ~= number or s.lease == 0 then return false end
  if kind == M.GOOD then return close(s, now) end
  if kind == M.BAD then return open(s, rules, state.PROBE, now, dice) end
  s.lease = 0
  return true, M.GIVEN_BACK
end

--- Takes in how a request ended that was let pass.
-- @tparam cdata s
-- @tparam table rules as for admit
-- @tparam number token
-- @tparam number kind GOOD, BAD or NONE
-- @tparam number now ms
-- @tparam number dice random, from 0 to 1
-- @treturn boolean whether the state has changed
-- @treturn number|nil OPENED, CLOSED_AGAIN or GIVEN_BACK
function M.record(s, rules, token, kind, now, dice)
  if s.forced ~= state.AUTO then return false end
  if token < 0 then return settle(s, rules, -token, kind, now, dice) end
  if s.state ~= CLOSED or token ~= s.epoch or kind == M.NONE then return false end
  local at = turn(s, rules, now)
  if kind == M.GOOD then
    s.good[at], s.in_a_row = s.good[at] + 1, 0
    return true
  end
  s.bad[at], s.in_a_row = s.bad[at] + 1, s.in_a_row + 1
  local reason = too_much(s, rules, 1)
  if reason then return open(s, rules, reason, now, dice) end
  if now < s.lowered and too_much(s, rules, 0.5) then return open(s, rules, state.HINT, now, dice) end
  return true
end

--- Takes in that another replica has opened its breaker.
-- @tparam cdata s
-- @tparam table rules as for admit, and hint: "open" or "lower_threshold"
-- @tparam string by the other replica
-- @tparam number ms when, by Redis's clock
-- @tparam number ahead ms that Redis's clock is ahead of ours, at most
-- @tparam number now ms
-- @tparam number dice random, from 0 to 1
-- @treturn boolean whether the state has changed
-- @treturn number|nil OPENED or LOWERED; nil where it changes nothing for requests
function M.hint(s, rules, by, ms, ahead, now, dice)
  if s.hint_ms > now + ahead + CLOCK_SLACK then s.hint_ms = 0 end
  if ms <= s.hint_ms then return false end
  s.hint_ms = ms
  if s.recovered > 0 and ms <= s.recovered + ahead then return true end
  if s.forced ~= state.AUTO or s.state ~= CLOSED then return true end
  state.set_by(s, by)
  if rules.hint == "open" then return open(s, rules, state.HINT, now, dice) end
  s.lowered = now + HINT_LIFE
  turn(s, rules, now)
  if too_much(s, rules, 0.5) then return open(s, rules, state.HINT, now, dice) end
  return true, M.LOWERED
end

--- Takes what others are to be told: it is given out once, and not when it is old.
-- @treturn boolean whether the state has changed
-- @treturn number|nil when it opened, ms
function M.claim(s, now)
  local due = s.due
  if due == 0 then return false end
  s.due = 0
  return true, now - due <= DUE_LIFE and due or nil
end

--- Does what an operator says.
-- @tparam cdata s
-- @tparam number forced AUTO, FORCED_OPEN or FORCED_CLOSED
-- @tparam number now ms
-- @treturn boolean whether anything has changed. What was kept open is half-open once it is released, what was kept closed
-- is closed and has counted nothing
function M.force(s, forced, now)
  if s.forced == forced then return false end
  local before = s.forced
  s.forced, s.due, s.lowered = forced, 0, 0
  if forced ~= state.AUTO then
    s.epoch, s.lease, s.since = s.epoch + 1, 0, now
    return true
  end
  clear(s)
  enter(s, before == FORCED_OPEN and HALF_OPEN or CLOSED, now)
  return true
end

--- The state that requests see: an operator's word first.
-- @treturn number CLOSED, OPEN or HALF_OPEN
function M.effective(s)
  if s.forced == FORCED_OPEN then return OPEN end
  return s.forced == FORCED_CLOSED and CLOSED or s.state
end

return M
