-- What an operator says: `tollgate breaker`, and open, close and auto of one breaker.
--
-- An override stands in the breaker's shared state. That may go (a worker that dies within a step on it takes its part of the
-- dictionary along), so each worker remembers what it saw, and sets it again.

local tg = require "tollgate"
local machine = require "breaker.machine"
local report = require "breaker.report"
local state = require "breaker.state"

local M = {}

local FORCED = { open = state.FORCED_OPEN, close = state.FORCED_CLOSED, auto = state.AUTO }
local SAID = { open = "kept open by an operator", close = "kept closed by an operator" }
local USAGE = "the commands are: tollgate breaker; tollgate breaker open|close|auto PROVIDER:MODEL"

--- Remembers an override; sets it again where all that was known of the breaker is gone.
-- @tparam table b a breaker; keeps `override`
-- @tparam table store
-- @tparam function now_ms
function M.keep(b, store, now_ms)
  local s, err = store:read(b.key)
  if err then return end
  if store.seen[b.key] == nil and b.override then
    store:step(b.key, machine.force, b.override, now_ms())
    return
  end
  b.override = s.forced ~= state.AUTO and s.forced or nil
end

local function all_rows(list, store, clock)
  local rows, now, wall = {}, clock.now_ms(), tg.now()
  for i, b in ipairs(list) do rows[i] = report.row(b, store:read(b.key), now, wall) end
  return rows, wall
end

-- Says what became of one breaker.
local function force(b, word, store, clock)
  local before = machine.effective(store:read(b.key))
  local changed = false
  local function step(s, ...)
    changed = machine.force(s, ...)
    return changed, true
  end
  local ok, err = store:step(b.key, step, FORCED[word], clock.now_ms())
  if not ok then return nil, ("the state of %s cannot be changed now (%s); try again"):format(b.name, err) end
  local s = store.s
  b.override = s.forced ~= state.AUTO and s.forced or nil
  local after = machine.effective(s)
  local said = SAID[word] or ("left to itself: " .. report.STATES[after])
  if changed then tg.log.warn("breaker ", b.name, ": ", said) end
  if after ~= before then clock.changed(b, ({ [state.CLOSED] = "closed", [state.OPEN] = "open" })[after] or "half_open") end
  return ("%s is %s\n"):format(b.name, said)
end

local function names(list)
  local all = {}
  for i, b in ipairs(list) do all[i] = b.name end
  return #all > 0 and table.concat(all, ", ") or "none"
end

--- The plugin's command.
-- @tparam function breakers returns the list of breakers, and the same by name
-- @tparam table store
-- @tparam table clock now_ms(), and changed(b, to), called where requests see another state
-- @treturn function
function M.command(breakers, store, clock)
  return function(words)
    local list, by_name = breakers()
    local word, name = words[1], words[2]
    if word == nil then
      local rows, wall = all_rows(list, store, clock)
      return { breakers = tg.json.array(rows) }, report.text(rows, wall)
    end
    if not FORCED[word] or not name or words[3] then return nil, USAGE end
    local b = by_name[name]
    if not b then return nil, ("there is no breaker %q; there are: %s"):format(name, names(list)) end
    local text, err = force(b, word, store, clock)
    if not text then return nil, err end
    return report.row(b, store:read(b.key), clock.now_ms(), tg.now()), text
  end
end

return M
