-- quota: how much a key may use: requests a second, requests in flight, LLM tokens in a UTC month. Redis decides, so that
-- all replicas share the limits.
--
-- On a route that speaks an LLM API whose tokens can be counted, a request reserves its prompt's estimate and the most
-- that its answer may take; on any other route, and where a client switches to another protocol such as WebSocket, only
-- rate and concurrency count, the latter for as long as that lasts. The host settles the reservation
-- however the request ends. A request without a consumer counts under the key id `route:NAME`, which all such
-- requests of the route share, with the settings' own limits.
--
-- Each limit is the record's own, else its plan's, else that of the settings; one that is nowhere is not enforced. `burst`
-- is looked for no further than where `rps` was found, and `burst / rps` is at most 31 days. A record whose plan is not
-- among `plans` makes its requests a 500 where `plans` has others, or where the key would have no limit at all.
--
-- | answer | when | headers |
-- |---|---|---|
-- | 429 `rate_limit_exceeded` | rate or concurrency | `Retry-After`, `retry-after-ms`, limit headers |
-- | 429 `insufficient_quota` | the month's tokens | `Retry-After` (the month's end), `x-should-retry: false`, limit headers |
-- | 503 `quota_unavailable` | Redis cannot decide and `on_redis_error = "deny"` | `Retry-After: 1` |

local tg = require "tollgate"
local limits_of = require "quota.limits"
local refusal = require "quota.refusal"

-- APIs whose tokens are counted
local COUNTED = { ["openai-chat"] = true, ["openai-responses"] = true, ["openai-embeddings"] = true,
  ["anthropic-messages"] = true }

local function tokens(default, doc)
  return { type = "integer", min = 0, max = 2 ^ 53 - 1, default = default, doc = doc }
end

local schema = limits_of.fields()
schema.plans = {
  type = "map", keys = "^[%w_.-]+$", hint = "the name of a plan is letters, digits, _, . and -", default = {},
  values = { type = "table", fields = limits_of.fields() },
  doc = "limits by the plan that a key's record names",
}
schema.key = { type = "string", one_of = { "consumer", "route" }, default = "consumer",
  doc = "who shares limits: all requests of one key, or all of the route, with the settings' own limits" }
schema.bytes_per_token = { type = "number", min = 0.1, max = 1000, default = 3,
  doc = "of a prompt's text, for its estimate" }
schema.default_output = tokens(4096, "tokens reserved for an answer to a request that names no maximum")
schema.image_tokens = tokens(1500, "tokens an image in a prompt counts as")
schema.file_tokens = tokens(5000, "tokens a file in a prompt counts as")
schema.hidden_tokens = tokens(4096,
  "tokens that input counts as which a request only refers to (an earlier response, a conversation, a stored prompt)")
schema.cap_output = { type = "boolean", default = true,
  doc = "send default_output as the maximum where the request names none and a budget applies" }
schema.on_missing_usage = { type = "string", one_of = { "seen", "reserved" }, default = "seen",
  doc = "what is charged where the origin reports no usage: the prompt and what was relayed, or the reservation" }
schema.on_client_gone = { type = "string", one_of = { "cancel", "drain" }, default = "cancel",
  doc = "where a client leaves: end the origin's answer too, or read it on to its usage" }
schema.drain_time = { type = "duration", min = 0.1, max = 3600, default = 30, doc = "seconds that drain may take" }
schema.drain_bytes = { type = "size", min = 0, max = 2 ^ 40, default = "4m", doc = "bytes that drain may read" }
schema.on_redis_error = { type = "string", one_of = { "deny", "allow" }, default = "deny",
  doc = "where Redis cannot decide: 503, or let pass" }
schema.deadline = { type = "duration", min = 0.001, max = 60,
  doc = "seconds that Redis has to decide; default redis.timeout" }

local M = { version = "1.0.0", priority = 600, once = true, schema = schema }

local instances = setmetatable({}, { __mode = "k" })

function M.check(conf, path) return limits_of.check(conf, path) end

-- For `tollgate usage`: the limits of a key's record, or of none.
function M.limits(conf, record) return limits_of.of(conf, record) end

local function meter_options(conf, cap_output)
  return tg.llm.options {
    bytes_per_token = conf.bytes_per_token, default_output = conf.default_output, image_tokens = conf.image_tokens,
    file_tokens = conf.file_tokens, hidden_tokens = conf.hidden_tokens, cap_output = cap_output,
    on_missing_usage = conf.on_missing_usage,
    drain_ms = conf.on_client_gone == "drain" and math.ceil(conf.drain_time * 1000) or 0, drain_bytes = conf.drain_bytes,
  }
end

-- Limits in the host's form, of a route whose tokens are counted or not.
local function prepare(limits, counted, who)
  local ok, prepared = pcall(tg.quota.limits, {
    rate = limits.rate, burst = limits.burst, budget = counted and limits.budget or nil,
    concurrency = limits.concurrency,
  })
  if not ok then error(("the limits of %s: %s"):format(who, tostring(prepared)), 0) end
  return prepared
end

function M.init(conf)
  instances[conf] = {
    capped = meter_options(conf, conf.cap_output),
    uncapped = meter_options(conf, false), -- without a budget nothing calls for a maximum
    deadline_ms = conf.deadline and math.max(1, math.floor(conf.deadline * 1000 + 0.5)),
    by_record = setmetatable({}, { __mode = "k" }),
  }
end

-- The limits of a record, made once; `plain` tells them, `counted` and `uncounted` are the host's.
local function limits_for(conf, instance, record, who)
  local found = record and instance.by_record[record] or not record and instance.own
  if found then return found end
  local plain = limits_of.of(conf, record)
  found = { plain = plain, counted = prepare(plain, true, who), uncounted = prepare(plain, false, who) }
  if record then instance.by_record[record] = found else instance.own = found end
  return found
end

local function refuse(ctx, verdict, limits, reserve, retry_ms)
  local status, code, message, headers =
    refusal.limited(verdict, limits, reserve, retry_ms, tg.quota.headers(ctx))
  return ctx:refusal(status, code, message, headers)
end

function M.access(conf, ctx)
  local instance = instances[conf]
  local record = conf.key == "consumer" and ctx.consumer or nil
  local key_id = record and record.id or "route:" .. ctx.route.name
  local limits = limits_for(conf, instance, record, key_id)

  local counted, reserve = COUNTED[ctx.route.api] and not ctx.upgrade, 0
  if counted then
    local found, status, code, message, param =
      tg.llm.meter(ctx, limits.plain.budget and instance.capped or instance.uncapped)
    if not found then return ctx:refusal(status, code, message, nil, param) end
    reserve = found
  end

  local prepared = counted and limits.counted or limits.uncounted
  local verdict, retry_ms = tg.quota.admit(ctx, key_id, prepared, reserve, instance.deadline_ms)
  if verdict == "admitted" then return end
  if verdict ~= "unavailable" then return refuse(ctx, verdict, limits.plain, reserve, retry_ms) end
  if conf.on_redis_error == "allow" then
    tg.quota.allow(ctx, key_id, prepared)
    return
  end
  return ctx:refusal(refusal.unavailable())
end

function M.response(_, ctx)
  tg.quota.apply_headers(ctx)
end

return M
