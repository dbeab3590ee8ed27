-- ratelimit: how many requests may come in a window of time: so many a minute, and so many a day. Redis decides, so that
-- all replicas share the counts.
--
-- A request is counted in all of its windows or, where one is full, in none (`count_refused` counts it then too). Fixed
-- windows begin at whole multiples of their length since the epoch, UTC; `sliding = true` counts the window before too, by the
-- part of it that is less than one length ago, so that the turn of a window lets no double burst pass. It is decided
-- before the body is read, so before `100 Continue`.
--
-- The count belongs to the consumer, or to what `by` says, and to the length of the window: routes with windows of the
-- same length share it, unless `name` tells them apart. Requests without a consumer (a tenant, a header) count together by
-- route. Of a consumer whose record names one of `plans`, the plan's windows apply.
--
-- While Redis cannot decide, `on_redis_error = "local"` counts in this replica alone, in all workers together, up to
-- `share` of each limit. Where `quota` stands on the route too, its headers and these are told together: the lists name
-- all limits, `x-ratelimit-…-requests` that of which least remains.
--
-- | answer | when | headers |
-- |---|---|---|
-- | 429 `rate_limit_exceeded` | a window is full | `Retry-After`, `retry-after-ms`, limit headers |
-- | 503 `ratelimit_unavailable` | Redis cannot decide and `on_redis_error = "deny"` | `Retry-After: 1` |

local tg = require "tollgate"
local clock = require "ratelimit.clock"
local local_windows = require "ratelimit.local"
local who = require "ratelimit.who"
local windows_of = require "ratelimit.windows"

local WINDOWS_MAX = 8
local LONGEST = 31 * 86400 -- seconds
local LOG_EVERY = 10       -- seconds between two log lines about errors that Redis answers
local CLOCK_TRIES = 3      -- until Redis's window is named right
local TOKEN = "^[%w!#$%%&'*+.^_`|~-]+$" -- name of a header field, RFC 9110, section 5.6.2

local function windows(extra)
  local field = { type = "list", min = 1, max = WINDOWS_MAX, of = { type = "table", fields = {
    limit = { type = "integer", required = true, min = 1, max = 1e9, doc = "requests" },
    seconds = { type = "integer", required = true, min = 1, max = LONGEST, doc = "length of the window" },
    sliding = { type = "boolean", default = false, doc = "count the window before too, weighted" },
    name = { type = "string", min = 1, max = 64, pattern = "^[%w_.-]+$", hint = "must be letters, digits, _ . and -",
      doc = "counts apart from windows of this length with other names" },
  } } }
  for key, value in pairs(extra) do field[key] = value end
  return field
end

local M = {
  version = "1.0.0",
  priority = 800,
  schema = {
    windows = windows { required = true, doc = "at most so many requests in so many seconds, all of them at once" },
    plans = { type = "map", keys = "^[%w_.-]+$", hint = "the name of a plan is letters, digits, _, . and -", default = {},
      values = windows {}, doc = "windows by the plan that a consumer's record names" },
    by = { default = "consumer", doc = "whose requests count together", alternatives = {
      { type = "string", one_of = { "consumer", "tenant", "address", "route" } },
      { type = "table", fields = { header = { type = "string", min = 1, pattern = TOKEN, required = true,
        hint = "is no name of a header field", doc = "name of a header field" } } },
    } },
    ipv6_prefix = { type = "integer", min = 1, max = 128, default = 64,
      doc = "bits of an IPv6 address that count, by = \"address\"" },
    count_refused = { type = "boolean", default = false, doc = "count refused requests too: who does not wait stays out" },
    on_redis_error = { type = "string", one_of = { "deny", "allow", "local" }, default = "deny",
      doc = "where Redis cannot decide: 503, let pass, or count in this replica" },
    share = { type = "number", exclusive_min = 0, max = 1, default = 1,
      doc = 'part of each limit that this replica gives out where on_redis_error = "local" decides' },
    deadline = { type = "duration", min = 0.001, max = 60, doc = "seconds that Redis has to decide; default redis.timeout" },
  },
}

local script = tg.redis.script "count"
local requests_total = tg.metrics.counter("ratelimit_requests_total",
  "Requests by what ratelimit did: admitted, limited, unavailable, allowed, local_admitted, local_limited",
  { "route", "outcome" })

local instances = setmetatable({}, { __mode = "k" })
local redis_clock = clock.new()
local logged = -math.huge -- when an error of Redis was logged last, seconds

local function check_list(faults, list, path)
  local seen = {}
  for i, one in ipairs(list) do
    local identity = windows_of.identity(one, false)
    if seen[identity] then
      faults[#faults + 1] = { path = ("%s[%d]"):format(path, i),
        message = ("has the length and the name of [%d]: give it a name of its own"):format(seen[identity]) }
    end
    seen[identity] = seen[identity] or i
  end
end

-- By what a place of the plugin counts; `conf` may be one that was not checked yet.
local function identities(conf)
  local by = conf.by or "consumer"
  local prefix = type(by) == "table" and "header " .. tostring(by.header):lower() or tostring(by)
  local set = {}
  for i, one in ipairs(type(conf.windows) == "table" and conf.windows or {}) do
    if type(one) == "table" then set[prefix .. " " .. windows_of.identity(one, i == 1)] = true end
  end
  return set
end

-- A request would be counted twice by two places on one route that count the same.
local function check_others(faults, conf, path, route)
  local own = identities(conf)
  for _, other in ipairs(route.chain) do
    if other.name == "ratelimit" and other.path == path then return end -- the later of two is told of
    for identity in pairs(other.name == "ratelimit" and identities(other.conf) or {}) do
      if own[identity] then
        faults[#faults + 1] = { path = path, message = "counts in a window in which " .. other.path
          .. " counts already: give one of them a name, or another `by`" }
        return
      end
    end
  end
end

function M.check(conf, path, context)
  local faults = {}
  check_list(faults, conf.windows, path .. ".windows")
  for name, list in pairs(conf.plans) do check_list(faults, list, path .. ".plans." .. name) end
  if context and context.route then check_others(faults, conf, path, context.route) end
  return faults
end

-- Windows, with the lists of a call's arguments, which are filled anew each time: a call takes them before it waits.
local function prepare(list)
  return { windows = windows_of.prepare(list), keys = {}, args = {} }
end

function M.init(conf)
  local instance = { own = prepare(conf.windows), plans = {} }
  for name, list in pairs(conf.plans) do instance.plans[name] = prepare(list) end
  instance.options = { timeout = conf.deadline }
  instance.counted = conf.count_refused and "1" or "0"
  instances[conf] = instance
end

local function set_for(instance, ctx)
  local plan = ctx.consumer and ctx.consumer.plan
  return plan and instance.plans[plan] or instance.own
end

local function fill(set, instance, base, now_ms)
  local keys, args, n = set.keys, set.args, 0
  args[1] = instance.counted
  for i, window in ipairs(set.windows) do
    local index = windows_of.index(window, now_ms)
    local suffixes = windows_of.suffixes(window, index)
    for k = window.sliding and 1 or 2, 3 do
      n = n + 1
      keys[n] = base .. suffixes[k]
    end
    local at = 4 * i - 2
    args[at], args[at + 1], args[at + 2], args[at + 3] = window.limit, window.seconds, window.sliding and "1" or "0", index
  end
end

local function parse(reply)
  local verdict, rest = reply:match("^(%a+) (.*)$")
  local numbers = {}
  for number in rest:gmatch("%d+") do numbers[#numbers + 1] = tonumber(number) end
  return verdict, numbers
end

-- "ok" or "limited", Redis's time, and counts; nil and why where Redis did not decide.
local function ask(set, instance, base)
  for _ = 1, CLOCK_TRIES do
    local sent_ms = tg.now() * 1000
    fill(set, instance, base, redis_clock:now(sent_ms))
    local reply, err = script:run(set.keys, set.args, instance.options)
    if not reply then return nil, err end
    local verdict, numbers = parse(reply)
    local now_ms = table.remove(numbers, 1)
    redis_clock:learn(sent_ms, tg.now() * 1000, now_ms)
    if verdict ~= "clock" then return verdict, now_ms, numbers end
  end
  return nil, "clock"
end

-- Tells the host of all windows, the last one first, since it lists the newest first. Returns the ms until all have room.
local function tell(ctx, set, counts, now_ms, limit_of)
  local retry = 0
  for i = #set.windows, 1, -1 do
    local window = set.windows[i]
    local limit, count, before = limit_of(window), counts[2 * i - 1], counts[2 * i]
    local remaining, reset = windows_of.left(window, limit, count, before, now_ms)
    tg.quota.window(ctx, window.label, limit, remaining, reset, window.seconds)
    retry = math.max(retry, windows_of.retry(window, limit, count, before, now_ms))
  end
  return retry
end

local function seconds(ms) return ("%d"):format(math.max(1, math.ceil(ms / 1000))) end

local function refuse(ctx, set, retry_ms)
  local headers = tg.quota.headers(ctx)
  retry_ms = math.max(1, retry_ms)
  headers["retry-after"], headers["retry-after-ms"] = seconds(retry_ms), ("%d"):format(retry_ms)
  local texts = {}
  for i, window in ipairs(set.windows) do texts[i] = ("%d in %d s"):format(window.limit, window.seconds) end
  return ctx:refusal(429, "rate_limit_exceeded", "Rate limit reached: requests are limited to " .. table.concat(texts, ", "),
    headers)
end

local function count(ctx, outcome) requests_total:inc(1, ctx.route.name, outcome) end

-- That Redis is away is logged by the host, once a change.
local UNREACHABLE = { timeout = true, closed = true, down = true }

local function log_error(err)
  local now = tg.now()
  if UNREACHABLE[err] or now - logged < LOG_EVERY then return end
  logged = now
  tg.log.warn("ratelimit: Redis does not decide: ", err)
end

local function own_limit(window) return window.limit end

local function without_redis(conf, ctx, set, base)
  if conf.on_redis_error == "deny" then
    count(ctx, "unavailable")
    return ctx:refusal(503, "ratelimit_unavailable", "The limits of this key cannot be checked at the moment",
      { ["retry-after"] = "1" })
  elseif conf.on_redis_error == "allow" then
    return count(ctx, "allowed")
  end
  local now_ms = math.floor(redis_clock:now(tg.now() * 1000))
  local passes, counts = local_windows.take(set.windows, base, now_ms, conf, tg.shared)
  local retry = tell(ctx, set, counts, now_ms, function(window) return local_windows.limit(window, conf.share) end)
  count(ctx, passes and "local_admitted" or "local_limited")
  if not passes then return refuse(ctx, set, retry) end
end

function M.access(conf, ctx)
  local instance = instances[conf]
  local set = set_for(instance, ctx)
  local base = "rl:" .. tg.redis.tag(who.id(ctx, conf, tg.crypto.sha256)) .. ":"
  local verdict, now_ms, counts = ask(set, instance, base)
  if not verdict then
    log_error(now_ms) -- which is why
    return without_redis(conf, ctx, set, base)
  end
  local retry = tell(ctx, set, counts, now_ms, own_limit)
  count(ctx, verdict == "ok" and "admitted" or "limited")
  if verdict == "limited" then return refuse(ctx, set, retry) end
end

function M.response(_, ctx)
  tg.quota.apply_headers(ctx)
end

return M
