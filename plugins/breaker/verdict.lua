-- What an attempt's outcome says about the health of its target. Plain functions.
--
-- An answer is good but for what `failures` names. A 429 says that there is too much now, which counts, or that a budget is
-- spent, which does not: a breaker would turn that into a 503 that clients try again. The error's code tells.

local machine = require "breaker.machine"

local M = {}

local SAYS_NOTHING = { client_gone = true, dropped = true, not_tried = true }

--- Prepares settings.
-- @tparam {string|number,...} failures names of errors, statuses, and "5xx"
-- @tparam {string,...} quota_codes codes of errors that say that a budget is spent
-- @treturn table
function M.prepare(failures, quota_codes)
  local rules = { errors = {}, statuses = {}, quota = {} }
  for _, one in ipairs(failures) do
    if one == "5xx" then
      for status = 500, 599 do rules.statuses[status] = true end
    elseif type(one) == "number" then
      rules.statuses[one] = true
    else
      rules.errors[one] = true
    end
  end
  for _, code in ipairs(quota_codes) do rules.quota[code] = true end
  return rules
end

--- What an outcome says.
-- @tparam table rules of `prepare`
-- @tparam table outcome of the attempt phase
-- @treturn number machine.GOOD, BAD or NONE
function M.of(rules, outcome)
  local err, status = outcome.error, outcome.status
  if err then
    if SAYS_NOTHING[err] then return machine.NONE end
    return rules.errors[err] and machine.BAD or machine.NONE
  end
  if not rules.statuses[status] then return machine.GOOD end
  if status == 429 and outcome.code and rules.quota[outcome.code] then return machine.GOOD end
  return machine.BAD
end

--- Whether a head alone shows that its target is well.
-- @tparam table rules
-- @tparam number status
-- @treturn boolean
function M.good_head(rules, status)
  return not rules.statuses[status]
end

return M
