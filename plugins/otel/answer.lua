-- What a collector's answer means (opentelemetry-proto, docs/specification.md, "OTLP/HTTP Response"). Without I/O.

local M = {}

local AGAIN = { [429] = true, [502] = true, [503] = true, [504] = true }
local AFTER_MAX = 60 -- seconds that Retry-After may hold an export up

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
-- @treturn string "ok", "again" (the same request may go through later) or "failed" (it never will)
-- @treturn number|nil of "ok": how many items the collector rejected; of "again": seconds that it wants to be left alone
-- @treturn string|nil what is to be told
function M.judge(res, err, json)
  if not res then return "again", nil, err end
  if res.status >= 200 and res.status < 300 then
    local rejected, message = partial(res, json)
    return "ok", rejected, message
  end
  local text = "status " .. res.status
  if not AGAIN[res.status] then return "failed", nil, text end
  local after = tonumber((res.headers["retry-after"] or ""):match "^%s*(%d+)%s*$")
  return "again", after and math.min(after, AFTER_MAX), text
end

return M
