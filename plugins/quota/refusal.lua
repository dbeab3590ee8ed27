-- How a refusal by quota looks: status, code, message and headers, without I/O.
--
-- Clients retry a 429 after `retry-after-ms`, else `retry-after`, unless `x-should-retry` is false. A limit that passes
-- says both; a spent budget says honestly when the month ends, and that trying again sooner is of no use.

local M = {}

local RETRY_MS = 1000 -- where nobody knows when a request would pass

local function copied(headers)
  local out = {}
  for name, value in pairs(headers or {}) do out[name] = value end
  return out
end

local function seconds(ms)
  return ("%d"):format(math.max(1, math.ceil(ms / 1000)))
end

local function number(n)
  return (n == math.floor(n) and "%.0f" or "%.6g"):format(n)
end

local function plural(n, word)
  return ("%s %s%s"):format(number(n), word, n == 1 and "" or "s")
end

local KINDS = {
  rate = {
    code = "rate_limit_exceeded",
    message = function(limits)
      return ("Rate limit reached: %s a second, at most %s at once"):format(
        plural(limits.rate, "request"), number(limits.burst))
    end,
  },
  concurrency = {
    code = "rate_limit_exceeded",
    message = function(limits)
      return ("Concurrency limit reached: %s in flight at once"):format(plural(limits.concurrency, "request"))
    end,
  },
  budget = {
    code = "insufficient_quota", final = true,
    message = function(limits, reserve)
      return ("Monthly token budget reached: this request may take %s, and of %s a month fewer are left"):format(
        plural(reserve, "token"), number(limits.budget))
    end,
  },
}

--- The answer to a request that a limit refused.
-- @tparam string verdict "rate", "concurrency" or "budget"
-- @tparam table limits { rate, burst, budget, concurrency }
-- @tparam number reserve tokens that the request asked for
-- @tparam number|nil retry_ms when it makes sense to try again; nil or below 0 where unknown
-- @tparam table|nil limit_headers headers that tell the limits; copied
-- @treturn number status
-- @treturn string code
-- @treturn string message
-- @treturn table headers
function M.limited(verdict, limits, reserve, retry_ms, limit_headers)
  local kind, headers = KINDS[verdict], copied(limit_headers)
  local known = retry_ms and retry_ms >= 0
  if kind.final then
    headers["x-should-retry"] = "false"
    if known then headers["retry-after"] = seconds(retry_ms) end
  else
    local ms = known and math.max(1, math.ceil(retry_ms)) or RETRY_MS
    headers["retry-after"] = seconds(ms)
    headers["retry-after-ms"] = ("%d"):format(ms)
  end
  return 429, kind.code, kind.message(limits, reserve), headers
end

--- The answer where Redis could not decide and the policy is to refuse.
-- @treturn number status
-- @treturn string code
-- @treturn string message
-- @treturn table headers
function M.unavailable()
  return 503, "quota_unavailable", "The limits of this key cannot be checked at the moment", { ["retry-after"] = "1" }
end

return M
