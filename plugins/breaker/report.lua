-- What is said of a breaker: in the log, and by `tollgate breaker`. Plain functions.

local machine = require "breaker.machine"
local state = require "breaker.state"

local M = {}

M.STATES = { [state.CLOSED] = "closed", [state.OPEN] = "open", [state.HALF_OPEN] = "half-open" }
M.REASONS = { [state.RATIO] = "ratio", [state.CONSECUTIVE] = "consecutive", [state.PROBE] = "probe", [state.HINT] = "hint" }

local function seconds(ms)
  return ("%.1f"):format(math.max(0, ms) / 1000):gsub("%.0$", "") .. " s"
end
M.seconds = seconds

local function share(s)
  return ("%d of %d requests failed"):format(s.failures, s.requests)
end

--- Why it opened last, as words.
-- @tparam cdata s
-- @treturn string
function M.why(s)
  if s.reason == state.CONSECUTIVE then return ("%d failures in a row"):format(s.in_a_row) end
  if s.reason == state.RATIO then return share(s) end
  if s.reason == state.PROBE then return "the probe failed" end
  return "replica " .. state.by(s) .. " opened its own"
end

--- The log's line of an opening.
-- @tparam cdata s
-- @tparam number now ms
-- @tparam string|nil last what the last failure was
-- @treturn string
function M.opened(s, now, last)
  return ("open for %s: %s%s"):format(seconds(s.until_ms - now), M.why(s), last and " (" .. last .. ")" or "")
end

--- One breaker as plain data.
-- @tparam table b name, provider, model, rules
-- @tparam cdata s changes: what the window has lost goes
-- @tparam number now ms
-- @tparam number wall seconds since the epoch, now
-- @treturn table times in seconds, `since` and `until` since the epoch
function M.row(b, s, now, wall)
  local function at(ms) return ms > 0 and math.floor((wall - (now - ms) / 1000) * 1000 + 0.5) / 1000 or nil end
  local requests, failures = machine.counts(s, b.rules, now)
  local row = { name = b.name, provider = b.provider, model = b.model, state = M.STATES[machine.effective(s)],
    since = at(s.since), requests = requests, failures = failures, failures_in_a_row = s.in_a_row,
    last_success_of_probe = at(s.recovered) }
  if s.forced ~= state.AUTO then
    row.override = s.forced == state.FORCED_OPEN and "open" or "close"
  elseif s.state ~= state.CLOSED and s.reason ~= 0 then
    row.reason, row.why = M.REASONS[s.reason], M.why(s)
    row.opened_requests, row.opened_failures = s.requests, s.failures
    if s.reason == state.HINT then row.hint_by = state.by(s) end
  end
  if s.forced == state.AUTO and s.state == state.OPEN then
    row["until"], row.probe_in = at(s.until_ms), math.max(0, s.until_ms - now) / 1000
  end
  row.probing = s.forced == state.AUTO and s.state == state.HALF_OPEN and s.lease > now or nil
  return row
end

local function describe(row)
  if row.override then return "kept so by an operator" end
  if row.state == "closed" then return ("%d of %d requests failed"):format(row.failures, row.requests) end
  local next_probe = row.probe_in and ("probe in " .. seconds(row.probe_in * 1000))
    or row.probing and "a probe is under way" or "the next request is the probe"
  return row.why and next_probe .. "; " .. row.why or next_probe
end

--- Rows as a table for people.
-- @tparam {table,...} rows of `row`
-- @tparam number wall seconds since the epoch, now
-- @treturn string
function M.text(rows, wall)
  if #rows == 0 then return "no target of a route has a breaker\n" end
  local lines, width = {}, #"target"
  for _, row in ipairs(rows) do width = math.max(width, #row.name) end
  local form = "%-" .. width .. "s  %-9s  %10s  %s\n"
  lines[1] = form:format("target", "state", "for", "")
  for i, row in ipairs(rows) do
    lines[i + 1] = form:format(row.name, row.state, row.since and seconds((wall - row.since) * 1000) or "-", describe(row))
  end
  return (table.concat(lines):gsub(" +\n", "\n"))
end

return M
