-- Which limits a key has: plain functions over tables, without I/O.
--
-- Each of rps, monthly_tokens and concurrency is the record's own, else its plan's, else the settings'. burst is looked
-- for no further than where rps was found, since it was chosen for that rate; where none is, it is max(1, rps).

local M = {}

local DAY = 86400           -- seconds
local WINDOW_MAX = 31 * DAY -- that a bucket may take to fill
local TOKENS_END = 2 ^ 53   -- counts of tokens stay below it, so that Redis, Lua and JSON keep them exactly

local function first(levels, name)
  for i = 1, #levels do
    local value = levels[i][name]
    if value ~= nil then return value, i end
  end
end

local function burst_of(levels, rps, depth)
  for i = 1, depth do
    if levels[i].burst ~= nil then return levels[i].burst end
  end
  return math.max(1, rps)
end

local function levels_of(conf, record)
  if not record then return { conf } end
  local plan = record.plan ~= nil and (conf.plans or {})[record.plan]
  return plan and { record, plan, conf } or { record, conf }
end

--- The limits of a record under some settings.
-- A record may name a plan that the settings do not know. Where they know others it is most likely misspelt, and
-- where nothing else limits the key it would be unlimited by mistake: both raise.
-- @tparam table conf the plugin's settings
-- @tparam table|nil record nil: the settings' own limits
-- @treturn table { rate, burst, budget, concurrency }, each nil where not enforced
function M.of(conf, record)
  local levels = levels_of(conf, record)
  local rps, depth = first(levels, "rps")
  local limits = {
    rate = rps, burst = rps and burst_of(levels, rps, depth),
    budget = (first(levels, "monthly_tokens")), concurrency = (first(levels, "concurrency")),
  }
  local plans = conf.plans or {}
  if record and record.plan ~= nil and not plans[record.plan]
    and (next(plans) ~= nil or next(limits) == nil) then
    error(("the key %s has the plan %s, which quota's plans do not have"):format(record.id, tostring(record.plan)), 0)
  end
  return limits
end

local function add(faults, path, message)
  faults[#faults + 1] = { path = path, message = message }
end

local function check_level(faults, level, base, path)
  local rps = level.rps or base.rps
  if level.burst and not rps then
    return add(faults, path .. ".burst", "needs rps: a burst is the size of a bucket that rps fills")
  end
  if not rps then return end
  local burst = level.burst or (not level.rps and base.burst) or math.max(1, rps)
  local window = burst / rps
  if window > WINDOW_MAX then
    add(faults, path .. (level.burst and ".burst" or ".rps"),
      ("burst / rps, the time that a bucket takes to fill, is %.3g days and must be at most 31"):format(window / DAY))
  end
end

--- Checks what a schema cannot say of the settings.
-- @tparam table conf
-- @tparam string path
-- @treturn {table,...} faults, each { path, message }
function M.check(conf, path)
  local faults = {}
  check_level(faults, conf, {}, path)
  for name, plan in pairs(conf.plans or {}) do
    check_level(faults, plan, conf, path .. ".plans." .. name)
  end
  table.sort(faults, function(a, b) return a.path < b.path end)
  return faults
end

--- The fields of one level of limits, for a schema.
-- @treturn table
function M.fields()
  return {
    rps = { type = "number", exclusive_min = 0, doc = "requests a second, on average" },
    burst = { type = "number", min = 1, doc = "requests at once; default max(1, rps)" },
    monthly_tokens = { type = "integer", min = 0, max = TOKENS_END - 1, doc = "LLM tokens in a UTC month" },
    concurrency = { type = "integer", min = 1, max = 1000000, doc = "requests in flight at once" },
  }
end

return M
