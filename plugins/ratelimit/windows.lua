-- Windows of time and what is counted in them: names, and what a count means for a client. Plain functions; the time is
-- passed in, in milliseconds since the epoch. What is admitted is decided by count.lua in Redis, or by local.lua.
--
-- Window number i of a length is [i × length, (i + 1) × length). A window that slides counts the window before it too,
-- as spread evenly over it, by the part that lies less than one length back:
--
--     used = count + before × (length − elapsed) / length
--
-- This is the approximation that Cloudflare describes ("How we built rate limiting capable of scaling to millions of
-- domains", 2017). A request passes where used + 1 is at most the limit.

local M = {}

local ALL = "all" -- name of a further window that has none

--- Puts windows into the form that the other functions take.
-- The first window's counters are named by their number alone, unless it has a name; any other's by length, name and
-- number: windows of the same key, length and name are one count, whichever routes they stand on.
-- @tparam {table,...} list each { limit, seconds, name or nil, sliding or nil }
-- @treturn {table,...} each { limit, seconds, ms, sliding, label, prefix, suffixes of the number `index` }
function M.prepare(list)
  local windows = {}
  for i, one in ipairs(list) do
    local plain = i == 1 and not one.name
    windows[i] = {
      limit = one.limit, seconds = one.seconds, ms = one.seconds * 1000, sliding = one.sliding == true,
      label = one.name or ("%ds"):format(one.seconds),
      prefix = plain and "" or ("%d-%s-"):format(one.seconds, one.name or ALL),
      index = nil, suffixes = {},
    }
  end
  return windows
end

--- What tells the counters of a window from those of others of its key.
-- @tparam table one { seconds, name or nil }
-- @tparam boolean first
-- @treturn string
function M.identity(one, first)
  return ("%s-%s"):format(tostring(one.seconds), tostring(one.name or first and "" or ALL))
end

--- The number of the window that a time is in.
function M.index(window, now_ms)
  return math.floor(now_ms / window.ms)
end

local function name(window, index)
  return ("%s%.0f"):format(window.prefix, index)
end

--- The ends of counters' names: of the windows index − 1, index and index + 1. Kept until the index changes.
-- @treturn table suffixes[1 … 3]
function M.suffixes(window, index)
  if window.index ~= index then
    window.index = index
    for i = 1, 3 do window.suffixes[i] = name(window, index + i - 2) end
  end
  return window.suffixes
end

--- Whether one more request is too many.
-- @tparam table window
-- @tparam number limit of the window, or a share of it
-- @tparam number count in the window so far
-- @tparam number before count of the window before; 0 where it does not slide
-- @tparam number now_ms
-- @treturn boolean
function M.full(window, limit, count, before, now_ms)
  local elapsed = now_ms - M.index(window, now_ms) * window.ms
  return (count + 1) * window.ms + before * (window.ms - elapsed) > limit * window.ms
end

--- What is left of a window.
-- @treturn number requests that would pass at once
-- @treturn number ms until all of the limit would
function M.left(window, limit, count, before, now_ms)
  local elapsed = now_ms - M.index(window, now_ms) * window.ms
  local used = math.ceil(count + before * (window.ms - elapsed) / window.ms)
  local lengths = window.sliding and count > 0 and 2 or 1
  local reset = (count > 0 or before > 0) and lengths * window.ms - elapsed or 0
  return math.max(0, limit - used), reset
end

--- When one request would pass, if no other came: 0 where it would now.
-- @treturn number ms
function M.retry(window, limit, count, before, now_ms)
  if not M.full(window, limit, count, before, now_ms) then return 0 end
  local elapsed = now_ms - M.index(window, now_ms) * window.ms
  local rest = window.ms - elapsed
  if not window.sliding then return rest end
  -- In this window, where what comes from before shrinks; else in the next one, where this one's count does.
  if count + 1 <= limit then return math.max(1, math.ceil(rest - (limit - 1 - count) * window.ms / before)) end
  return rest + math.max(0, math.ceil(window.ms - (limit - 1) * window.ms / count))
end

return M
