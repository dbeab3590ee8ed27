-- Windows in the dictionary that the workers of one replica share, for the time in which Redis cannot decide. Each takes
-- a share of its limit, at least one request. As in Redis, a request passes all windows or is counted in none.
--
-- A count is taken first and given back where it was too many, so that no two workers pass on the same last place. A
-- dictionary that is full or busy for once lets a request pass.

local windows_of = require "ratelimit.windows"

local M = {}

local PREFIX = "ratelimit:"

local function give_back(shared, taken)
  for _, key in ipairs(taken) do shared.incr(key, -1) end
end

--- A window's limit in one replica.
-- @tparam table window
-- @tparam number share above 0, at most 1
-- @treturn number
function M.limit(window, share)
  return math.max(1, math.floor(window.limit * share))
end

--- Decides one request.
-- @tparam {table,...} windows of windows.prepare
-- @tparam string base what the names of the key's counters begin with
-- @tparam number now_ms
-- @tparam table options { share, count_refused }
-- @tparam table shared tg.shared
-- @treturn boolean whether it passes
-- @treturn {number,...} count and count before of each window, behind the decision
function M.take(windows, base, now_ms, options, shared)
  local taken, counts, passes = {}, {}, true
  for i, window in ipairs(windows) do
    local suffixes = windows_of.suffixes(window, windows_of.index(window, now_ms))
    local key = PREFIX .. base .. suffixes[2]
    local before = window.sliding and shared.get(PREFIX .. base .. suffixes[1]) or 0
    local count = shared.incr(key, 1, 0, 2 * window.seconds)
    if count then
      taken[#taken + 1] = key
      if windows_of.full(window, M.limit(window, options.share), count - 1, before, now_ms) then passes = false end
    end
    counts[2 * i - 1], counts[2 * i] = count or 0, before
  end
  if not passes and not options.count_refused then
    give_back(shared, taken)
    for i = 1, #windows do counts[2 * i - 1] = math.max(0, counts[2 * i - 1] - 1) end
  end
  return passes, counts
end

return M
