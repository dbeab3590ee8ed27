-- What a collector's answer means (opentelemetry-proto, docs/specification.md, "OTLP/HTTP Response"). Without I/O.

local M = {}

local AGAIN = { [429] = true, [502] = true, [503] = true, [504] = true }
local AFTER_MAX = 60 -- seconds that Retry-After may hold an export up

local MONTHS = { Jan = 1, Feb = 2, Mar = 3, Apr = 4, May = 5, Jun = 6, Jul = 7, Aug = 8, Sep = 9, Oct = 10, Nov = 11, Dec = 12 }

-- Days from 1970-01-01, for years from 1970 on; a year begins in March here, so that its last day may be a leap day.
local function days_of(year, month, day)
  if month <= 2 then year, month = year - 1, month + 12 end
  return 365 * year + math.floor(year / 4) - math.floor(year / 100) + math.floor(year / 400)
    + math.floor((153 * (month - 3) + 2) / 5) + day - 719469
end

-- Seconds that Retry-After asks for: a number, or a date as IMF-fixdate (RFC 9110, sections 10.2.3 and 5.6.7).
local function retry_after(text, now)
  local seconds = tonumber(text:match "^%s*(%d+)%s*$")
  if not seconds then
    local day, month, year, h, m, s = text:match "^%a%a%a, (%d%d) (%a%a%a) (%d%d%d%d) (%d%d):(%d%d):(%d%d) GMT$"
    if not MONTHS[month] then return end
    seconds = days_of(tonumber(year), MONTHS[month], tonumber(day)) * 86400 + h * 3600 + m * 60 + s - now
  end
  return math.max(0, math.min(seconds, AFTER_MAX))
end

local function partial(res, json)
  if not res.body or res.body == "" then return 0 end
  local told = json.decode(res.body)
  local part = type(told) == "table" and told.partialSuccess
  if type(part) ~= "table" then return 0 end
  local n = tonumber(tostring(part.rejectedSpans or part.rejectedDataPoints or 0)) or 0
  return n, type(part.errorMessage) == "string" and part.errorMessage or nil
end

--- Judges an answer.
-- @tparam table|nil res status, headers, body; nil where none came
-- @tparam string|nil err why none came
-- @tparam table json with decode
-- @tparam number now seconds since the epoch
-- @treturn string "ok", "again" (the same request may go through later) or "failed" (it never will)
-- @treturn number|nil of "ok": how many items the collector rejected; of "again": seconds that it wants to be left alone
-- @treturn string|nil what is to be told
function M.judge(res, err, json, now)
  if not res then return "again", nil, err end
  if res.status >= 200 and res.status < 300 then
    local rejected, message = partial(res, json)
    return "ok", rejected, message
  end
  local text = "status " .. res.status
  if not AGAIN[res.status] then return "failed", nil, text end
  return "again", retry_after(res.headers["retry-after"] or "", now), text
end

return M
