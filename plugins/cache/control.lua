-- What clients and a cache tell each other in header fields: Cache-Control of requests (RFC 9111, section 5.2.1),
-- Cache-Status (RFC 9211) and Age (RFC 9111, section 5.1). Plain functions.

local M = {}

--- The directives of a request that a cache obeys.
-- @tparam string|nil cache_control the field's value
-- @tparam string|nil pragma of the field of that name; counts where there is no Cache-Control
-- @treturn table { no_store, no_cache, only_if_cached (booleans or nil), max_age (seconds or nil) }
function M.request(cache_control, pragma)
  local found = {}
  if not cache_control then
    if pragma and pragma:lower():find("no-cache", 1, true) then found.no_cache = true end
    return found
  end
  for directive in cache_control:gmatch("[^,]+") do
    local name, value = directive:match("^%s*([%w-]+)%s*=?%s*(.-)%s*$")
    name = name and name:lower()
    if name == "no-store" then found.no_store = true
    elseif name == "no-cache" then found.no_cache = true
    elseif name == "only-if-cached" then found.only_if_cached = true
    elseif name == "max-age" then found.max_age = tonumber(value:match('^"?(%d+)"?$') or 0) end -- malformed: nothing is fresh
  end
  return found
end

--- Whether an answer's Cache-Control forbids a shared cache to keep it.
-- @tparam string|nil cache_control
-- @treturn boolean
function M.forbids(cache_control)
  for directive in (cache_control or ""):lower():gmatch("[^,]+") do
    local name = directive:match("^%s*([%w-]+)")
    if name == "no-store" or name == "private" then return true end
  end
  return false
end

--- This cache's member of Cache-Status.
-- @tparam table of hit (boolean), ttl (seconds), fwd (token), stored, collapsed (booleans), detail (token); in this order
-- @tparam string|nil before the members of caches behind this one
-- @treturn string
function M.status(of, before)
  local out = { "tollgate" }
  if of.hit then out[#out + 1] = "hit" end
  if of.fwd then out[#out + 1] = "fwd=" .. of.fwd end
  if of.ttl then out[#out + 1] = ("ttl=%d"):format(of.ttl) end
  if of.stored then out[#out + 1] = "stored" end
  if of.collapsed ~= nil then out[#out + 1] = of.collapsed and "collapsed" or "collapsed=?0" end
  if of.detail then out[#out + 1] = "detail=" .. of.detail end
  local own = table.concat(out, "; ")
  return before and before ~= "" and before .. ", " .. own or own
end

--- Seconds that an answer has been kept, from the time that it has left.
-- @tparam number ttl seconds that it was kept for
-- @tparam number left milliseconds
-- @treturn integer
function M.age(ttl, left)
  return math.max(0, math.floor(ttl - left / 1000))
end

return M
