-- breaker: leaves a target alone that fails, and tries it again by one request at a time.
--
-- There is a breaker for each provider and model (`provider:model`, as targets are named), whichever routes they stand on;
-- the workers of a replica share it. It opens by failures in a row, or by their share of the requests in a sliding window, and
-- then its target is passed over: requests go to the route's other targets, and where all are open they get a 503 with
-- `Retry-After`, the time of the nearest probe. When the cooldown is over exactly one request of the replica is let through as
-- a probe. Where that succeeds (a good head is enough) the breaker closes, where it fails it opens for longer.
--
-- Failures are what `failures` says: no connection, no answer in time, a broken one, a status of 5xx; and 429, but for a budget
-- that is spent. Any other answer is a good one. What began before the last change of state does not count, nor does a request
-- whose client left.
--
-- A replica that opens one by its own evidence leaves a hint in Redis for 30 seconds, and the others open theirs sooner, or at
-- fewer failures (`hint`). Nothing read there closes one. Without Redis each replica finds out by itself. A breaker of which
-- nothing is known (after a start, or where tg.shared had to let it go) is closed.
--
-- `tollgate breaker` shows them; `tollgate breaker open|close PROVIDER:MODEL` keeps one open or closed until `auto` releases it.
-- Routes whose breakers share a target need the same settings.
--
-- | metric | |
-- |---|---|
-- | `breaker_state` | 0 closed, 1 half-open, 2 open; by provider and model |
-- | `breaker_transitions_total` | by provider, model, `to` and `reason` |
-- | `breaker_passed_over_total` | requests that passed over a target; by provider and model |
-- | `breaker_probes_total` | by provider, model and `outcome`: success, failure, undecided, expired |
-- | `breaker_hints_total` | by `what`: told, late, untold, opened, lowered |

local tg = require "tollgate"
local hints = require "breaker.hints"
local machine = require "breaker.machine"
local operator = require "breaker.operator"
local replicas = require "breaker.replicas"
local report = require "breaker.report"
local settings = require "breaker.settings"
local state = require "breaker.state"
local store_of = require "breaker.store"
local verdict = require "breaker.verdict"

local SURVEY = 0.5 -- seconds between two looks at all breakers
local AGAIN = 0.05 -- seconds behind which a probe's outcome is taken in again where the dictionary was not to be had
local BY_LABELS = { "provider", "model" }
local LEVEL = { [state.CLOSED] = 0, [state.HALF_OPEN] = 1, [state.OPEN] = 2 }

local M = { version = "1.0.0", priority = 300, once = true, schema = settings.schema }

local state_gauge = tg.metrics.gauge("breaker_state", "State of a breaker: 0 closed, 1 half-open, 2 open", BY_LABELS)
local transitions_total = tg.metrics.counter("breaker_transitions_total", "Changes of a breaker's state",
  { "provider", "model", "to", "reason" })
local passed_over_total = tg.metrics.counter("breaker_passed_over_total",
  "Requests that passed over a target since its breaker is not closed", BY_LABELS)
local probes_total = tg.metrics.counter("breaker_probes_total",
  "Probes by outcome: success, failure, undecided (client left, or not sent), expired", { "provider", "model", "outcome" })

local store = store_of.new(tg.shared)
local breakers, list = {}, {} -- by name, and sorted by it
local targets_of = setmetatable({}, { __mode = "k" }) -- conf → { route, targets }
local settled = setmetatable({}, { __mode = "k" })    -- configuration → name → { path, text } of whose settings they are
local running = false
local hint_timer

local function now_ms() return tg.monotonic() * 1000 end

-- --- settings ---

local function targets_in(route)
  local all = {}
  for _, target in ipairs(route.targets) do all[#all + 1] = target end
  for _, model in ipairs(route.models) do
    for _, target in ipairs(model.targets) do all[#all + 1] = target end
  end
  return all
end

function M.check(conf, path, context)
  local faults, route = settings.faults(conf, path), context.route
  local targets, text = targets_in(route), tg.json.encode(conf)
  local known = settled[context.config] or {}
  settled[context.config] = known
  targets_of[conf] = { targets = targets, shared = context.config.redis ~= nil }
  for _, target in ipairs(targets) do
    local first = known[target.name]
    if first and first.text ~= text then
      faults[#faults + 1] = { path = path, message = ("differs from %s, and %s is a target of both: it has one breaker, so "
        .. "the settings must be the same"):format(first.path, target.name) }
      break
    end
    known[target.name] = first or { path = path, text = text }
  end
  return faults
end

-- --- what is told of ---

local function note(b, to, reason)
  transitions_total:inc(1, b.provider, b.model or "", to, reason)
end

local function count_probe(b, outcome)
  probes_total:inc(1, b.provider, b.model or "", outcome)
end

local function on_opened(b, s, now, last)
  note(b, "open", report.REASONS[s.reason])
  tg.log.warn("breaker ", b.name, ": ", report.opened(s, now, last))
end

-- Others are told behind the request; a generation that has ended leaves it to the next one.
local function tell_soon(b)
  if not (running and b.hints) then return end
  tg.timer.after(0, function() replicas.tell(b, store) end)
end

local function on_changed(b, what, token, now, last)
  if token < 0 and what then
    count_probe(b, what == machine.CLOSED_AGAIN and "success" or what == machine.OPENED and "failure" or "undecided")
  end
  if what == machine.CLOSED_AGAIN then
    note(b, "closed", "probe")
    tg.log.info("breaker ", b.name, ": closed: the probe succeeded")
  elseif what == machine.OPENED then
    local told = store.s.due > 0
    on_opened(b, store.s, now, last)
    if told then tell_soon(b) end
  end
end

-- --- requests ---

-- One more or less that is counted makes no difference; a probe's outcome does, which nobody else will tell.
local function record(b, token, kind, now, last)
  local what, err = store:step(b.key, machine.record, b.rules, token, kind, now, math.random())
  if what then
    on_changed(b, what, token, now, tostring(last))
  elseif err and token < 0 and running then
    tg.timer.after(AGAIN, function() record(b, token, kind, now_ms(), last) end)
  end
end

local function admit(b, now)
  local what, value, how = store:step(b.key, machine.admit, b.rules, now)
  if what then return what, value, how end
  what, value = store:guess(b.key, machine.admit, b.rules, now)
  if what == machine.TRY then return machine.REFUSE, 1000 end
  return what, what == machine.REFUSE and value or nil
end

function M.target(_, ctx, target)
  local b = breakers[target.name]
  if not b then return end
  local what, value, how = admit(b, now_ms())
  if what == machine.REFUSE then
    passed_over_total:inc(1, b.provider, b.model or "")
    return false, math.max(0.001, value / 1000)
  end
  ctx[target] = value
  if how == machine.OVERDUE then count_probe(b, "expired") end
  if how == machine.HALF_OPENED then
    note(b, "half_open", "cooldown")
    tg.log.info("breaker ", b.name, ": half-open: this request is the probe")
  end
end

-- A probe whose head is good has shown what it was to show, however long its body takes.
function M.response(_, ctx)
  local target = ctx.target
  local token = target and ctx[target]
  if not token or token >= 0 or ctx.response.source ~= "origin" then return end
  local b, now = breakers[target.name], now_ms()
  if not verdict.good_head(b.rules.verdict, ctx.response.status) then return end
  local what = store:step(b.key, machine.record, b.rules, token, machine.GOOD, now, 0)
  on_changed(b, what, token, now)
  if what == machine.CLOSED_AGAIN then ctx[target] = store.s.epoch end -- what becomes of its body counts as any other's
end

function M.attempt(_, ctx, target, outcome)
  local token = ctx[target]
  if not token then return end
  ctx[target] = nil
  local b, now = breakers[target.name], now_ms()
  local kind = verdict.of(b.rules.verdict, outcome)
  if kind == machine.NONE and token >= 0 then return end
  record(b, token, kind, now, outcome.error or outcome.status)
end

-- --- the generation's life ---

-- Uses every entry, so that it is not among those that go first; shows states, in one worker of the replica.
local function survey()
  local leads = tg.timer.leads()
  for _, b in ipairs(list) do
    operator.keep(b, store, now_ms)
    local level = leads and LEVEL[machine.effective(store:read(b.key))] or 0
    state_gauge:set(level, b.provider, b.model or "")
  end
end

local function add(target, conf, about)
  if breakers[target.name] then return end
  local b = { name = target.name, provider = target.provider, model = target.model, key = "breaker:" .. target.name,
    hint_key = hints.key(tg.redis.encode, target.provider, target.model), rules = settings.rules(conf),
    hints = about.shared and conf.hint ~= "off", interval = conf.hint_interval }
  breakers[b.name] = b
  list[#list + 1] = b
end

local function begin()
  table.sort(list, function(one, other) return one.name < other.name end)
  local listening, interval = {}, math.huge
  for _, b in ipairs(list) do
    if b.hints then
      listening[#listening + 1] = b
      interval = math.min(interval, b.interval)
    end
  end
  if #listening > 0 then replicas.start(listening, interval, store, on_opened) end
  if #list > 0 then
    survey()
    tg.timer.every(SURVEY, survey)
  end
end

-- Once all routes' breakers are known, there is one timer for them.
function M.init(conf)
  local about = targets_of[conf]
  for _, target in ipairs(about.targets) do add(target, conf, about) end
  running = true
  if not hint_timer then hint_timer = tg.timer.after(0, begin) end
end

function M.stop()
  running, hint_timer = false, nil
end

-- --- people ---

M.command = operator.command(function() return list, breakers end, store, {
  now_ms = now_ms,
  changed = function(b, to) note(b, to, "operator") end,
})

return M
