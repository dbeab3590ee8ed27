-- The settings of a breaker: their schema, what a schema cannot say of them, and the same as the algorithm reads it.

local verdict = require "breaker.verdict"

local M = {}

local DAY = 86400 -- seconds
local BUCKETS = require("breaker.state").BUCKETS

local FAILURES = { "connect", "timeout", "closed", "bad_answer", "stream_error", "cut", "5xx", 429 }
local QUOTA_CODES = { "insufficient_quota", "billing_hard_limit_reached", "billing_not_active", "billing_error" }

M.schema = {
  window = { type = "duration", min = 0.1, max = DAY, default = 30, doc = "seconds in which requests and failures are counted" },
  ratio = { default = 0.5, doc = "opens where so much of the window's requests failed; false: never", alternatives = {
    { type = "number", exclusive_min = 0, max = 1 }, { type = "boolean", one_of = { false } } } },
  min_requests = { type = "integer", min = 1, max = 1e9, default = 20, doc = "requests in the window from which ratio counts" },
  consecutive = { default = 5, doc = "opens where so many requests in a row failed; false: never", alternatives = {
    { type = "integer", min = 1, max = 1e9 }, { type = "boolean", one_of = { false } } } },
  cooldown = { type = "duration", min = 0.05, max = DAY, default = 10, doc = "seconds that it is open at first" },
  cooldown_factor = { type = "number", min = 1, max = 100, default = 2,
    doc = "times that it is open for longer behind each probe that fails" },
  cooldown_max = { type = "duration", min = 0.05, max = DAY, default = 300, doc = "seconds; the longest, without jitter" },
  jitter = { type = "number", min = 0, max = 1, default = 0.2,
    doc = "share of the cooldown by which it is longer at random, so that replicas do not probe at once" },
  probe_lease = { type = "duration", min = 0.05, max = DAY, default = 30,
    doc = "seconds that a probe has; then the next request is the probe" },
  failures = { type = "list", default = FAILURES, min = 1,
    doc = "what counts as a failure: errors of an attempt, statuses, \"5xx\" for all of these",
    of = { alternatives = {
      { type = "string", one_of = { "connect", "timeout", "closed", "bad_answer", "stream_error", "cut", "5xx" } },
      { type = "integer", min = 400, max = 599 } } } },
  quota_codes = { type = "list", of = { type = "string", min = 1, max = 64 }, default = QUOTA_CODES,
    doc = "codes of errors with status 429 that say that a budget is spent, which is no failure" },
  hint = { type = "string", one_of = { "open", "lower_threshold", "off" }, default = "open",
    doc = "where another replica has opened its own: open too, halve ratio, min_requests and consecutive for 30 s, or nothing" },
  hint_interval = { type = "duration", min = 0.05, max = 30, default = 0.5, doc = "seconds between two looks for hints" },
}

--- Faults of well-formed settings.
-- @tparam table conf
-- @tparam string path
-- @treturn {table,...} each { path, message }
function M.faults(conf, path)
  local faults = {}
  if not conf.ratio and not conf.consecutive then
    faults[1] = { path = path, message = "ratio and consecutive are both false: it would never open" }
  end
  if conf.cooldown_max < conf.cooldown then
    faults[#faults + 1] = { path = path .. ".cooldown_max",
      message = ("is below cooldown: write %g or more"):format(conf.cooldown) }
  end
  return faults
end

--- Settings as machine.lua and verdict.lua read them.
-- @tparam table conf
-- @treturn table times in ms; `verdict` is what verdict.of takes
function M.rules(conf)
  return {
    bucket_ms = conf.window * 1000 / BUCKETS, ratio = conf.ratio, min_requests = conf.min_requests,
    consecutive = conf.consecutive, cooldown = conf.cooldown * 1000, cooldown_max = conf.cooldown_max * 1000,
    factor = conf.cooldown_factor, jitter = conf.jitter, probe_lease = conf.probe_lease * 1000, hint = conf.hint,
    verdict = verdict.prepare(conf.failures, conf.quota_codes),
  }
end

return M
