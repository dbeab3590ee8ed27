-- idempotency: a request that is sent again with its `Idempotency-Key` runs once. The first one claims the key and goes to the
-- origin; repeats get its answer, with `Idempotency-Replayed: true`, for `ttl` seconds, over all replicas, whatever became of
-- the first one's client: one that leaves does not cancel the origin, whose answer is read on and stored. After
-- draft-ietf-httpapi-idempotency-key-header; the key may be quoted, as that draft has it, or bare.
--
-- A key belongs to the consumer (`scope`), else to the route. A repeat must be the same request: host, method, path, query,
-- body and the headers of `fingerprint`, without a consumer also the client's credentials.
--
-- The answer is stored before the client gets its last bytes, as the origin sent it; a replay goes through the plugins below
-- as that answer did, and reaches no quota. Only a whole answer of the origin is stored: a status of `release`, an answer above
-- `max_body`, an event stream without its API's last event, and what the gateway itself answers let the next request run.
--
-- The claim is a lease of `lease` seconds, renewed while the request lives. A gateway that dies, or is stopped or leaves off
-- waiting while the origin is at work, lets it lapse. `on_lost` says what a repeat gets then: `"retry"`: it runs, so the
-- origin may see the request twice; `"refuse"`: a 409 until `ttl` has passed, also where the origin's answer broke off or did
-- not come, since nobody knows what was done.
--
-- | answer | when |
-- |---|---|
-- | 400 `idempotency_key_missing`, `invalid_idempotency_key` | none, and `required`; not 1 to 255 visible characters, or two |
-- | 409 `idempotency_key_in_use`, `Retry-After` | the first request still runs, and `wait` is over |
-- | 409 `idempotency_outcome_unknown`, `x-should-retry: false` | the first one's outcome is unknown, with `on_lost = "refuse"` |
-- | 422 `idempotency_key_reused` | the key stands for another request |
-- | 503 `idempotency_unavailable`, `Retry-After` | Redis cannot decide, and `on_redis_error = "deny"` |

local tg = require "tollgate"
local answer = require "idempotency.answer"
local claims_of = require "idempotency.claims"
local outcome = require "idempotency.outcome"
local record = require "idempotency.record"
local refusal = require "idempotency.refusal"
local request = require "idempotency.request"
local settings = require "idempotency.settings"

local M = { version = "1.0.0", priority = 700, once = true, schema = settings.schema, check = settings.check }

local POLL, POLL_MAX = 0.05, 1     -- seconds between two looks at a key that is in use
local STORE_TRIES = 8              -- after a second, two, four, … while Redis is away
local STORES_MAX = 256             -- answers in a worker that wait for Redis
local BATCH = 500                  -- leases in one script call
local CREDENTIALS = { "authorization", "cookie", "x-api-key" }

local outcomes = tg.metrics.counter("idempotency_requests_total", "Requests with an idempotency key by what became of them",
  { "route", "outcome" })
local settled = tg.metrics.counter("idempotency_claims_total", "Claims on idempotency keys by how they ended",
  { "route", "outcome" })

local instances = setmetatable({}, { __mode = "k" })
local claims, timer, interval      -- of this generation; the timer outlives stop, for requests that run
local waiting, storing = 0, 0      -- in this worker

-- In Redis Cluster each key may be in another place.
local function batch_size() return tg.redis.tag("x") == "x" and BATCH or 1 end

local function on_tick()
  local err = claims:tick(interval * 1000)
  if err then record.tell("warn", "leases could not be renewed", claims.n .. " claims", err) end
end

local function keep_time(lease)
  local wanted = claims_of.interval(lease)
  if interval and interval <= wanted then return end
  if timer then timer:stop() end
  interval = wanted
  timer = tg.timer.every(interval, on_tick, { lingers = true })
end

function M.init(conf)
  claims = claims or claims_of.new(record.renew, batch_size())
  instances[conf] = {
    methods = settings.set(conf.methods), releases = outcome.statuses(conf.release),
    headers = conf.headers and settings.set(conf.headers, true),
    fingerprint = settings.sorted(conf.fingerprint),
    anonymous = settings.sorted(conf.fingerprint, CREDENTIALS),
    refuse = conf.on_lost == "refuse", lease_ms = math.ceil(conf.lease * 1000), ttl_ms = math.ceil(conf.ttl * 1000),
    redis = { timeout = conf.deadline },
  }
  keep_time(conf.lease)
end

-- --- the request ---

local function values(request_headers, names)
  local list = {}
  for i, name in ipairs(names) do list[i] = { name, request_headers[name] } end
  return list
end

-- A claim that has not been asked for yet.
local function claim_of(conf, instance, ctx, key)
  local r = ctx.request
  local kind, namespace = request.namespace(conf.scope, ctx.consumer, ctx.route.name)
  local names = ctx.consumer and instance.fingerprint or instance.anonymous
  return {
    key = ("idem:%s:%s"):format(tg.redis.encode(namespace), tg.crypto.sha256(key)), owner = ctx.id,
    fingerprint = request.fingerprint({ kind = kind, namespace = namespace, host = r.host, method = r.method, path = r.path,
      query = r.query, headers = values(r.headers, names), body = r:body() }, tg.crypto.sha256),
    lease_ms = instance.lease_ms, keep_ms = instance.refuse and instance.ttl_ms or 0,
  }
end

-- Looks again while another request runs, for as long as the settings say. Results are those of ask.
local function ask_patiently(conf, instance, claim)
  local what, reply = record.ask(instance, claim)
  if what ~= "running" or not conf.wait or waiting >= conf.max_waiting then return what, reply end
  waiting, claim.waiting = waiting + 1, true
  local waited, pause = 0, POLL
  while what == "running" and waited < conf.wait do
    local step = math.min(pause * (0.8 + 0.4 * math.random()), conf.wait - waited + 0.001)
    tg.timer.sleep(step)
    waited, pause = waited + step, math.min(pause * 1.5, POLL_MAX)
    what, reply = record.ask(instance, claim)
  end
  waiting, claim.waiting = waiting - 1, nil
  return what, reply
end

-- --- answers ---

local function count(ctx, what) outcomes:inc(1, ctx.route.name, what) end

local function refuse(ctx, what, ...)
  count(ctx, what)
  return ctx:refusal(refusal[what](...))
end

local function unavailable(conf, ctx, claim, err)
  record.tell("error", "it cannot be checked", claim.key, err)
  if conf.on_redis_error ~= "allow" then return refuse(ctx, "unavailable") end
  count(ctx, "unavailable")
end

-- The request runs, and its answer is kept.
local function run(conf, ctx, claim)
  claim.held = true
  claims:add(claim)
  ctx:record(conf.max_body)
  ctx:keep_origin(conf.drain_time, conf.max_body)
  count(ctx, "claimed")
end

function M.access(conf, ctx)
  local instance = instances[conf]
  if not instance.methods[ctx.request.method] then return end
  local value = ctx.request.headers[conf.header]
  if not value then
    if conf.required then return refuse(ctx, "missing", conf.header) end
    return
  end
  local key = request.key(value)
  if not key then return refuse(ctx, "invalid", conf.header) end

  local claim = claim_of(conf, instance, ctx, key)
  ctx.idempotency = claim
  local what, reply = ask_patiently(conf, instance, claim)
  if not what then return unavailable(conf, ctx, claim, reply) end
  if what == "claimed" then return run(conf, ctx, claim) end
  if what == "done" then
    local status, headers = answer.replay(reply[2], tg.json.decode(reply[3]))
    if not status then return unavailable(conf, ctx, claim, "it does not hold what idempotency keeps there") end
    count(ctx, "replayed")
    return status, reply[4], headers
  end
  return refuse(ctx, what, conf.retry_after)
end

-- --- the answer ---

local function is_text(value)
  return not value:find("[\128-\255]") or tg.json.decode(tg.json.encode(value)) == value
end

function M.response(conf, ctx)
  local claim = ctx.idempotency
  if not claim or not claim.held or ctx.response.source ~= "origin" then return end
  local headers = ctx.response.headers
  claim.status = ctx.response.status
  claim.type, claim.encoding = headers["content-type"], headers["content-encoding"]
  claim.headers = answer.fields(ctx.response:each_header(), instances[conf].headers, is_text)
end

-- What became of the request; and the answer's body, where that is to be stored.
local function decide(instance, ctx, claim)
  local body, why = ctx:recorded()
  local facts = {
    reached = ctx.reached_origin, source = ctx.response and ctx.response.source, status = claim.status,
    whole = body ~= nil and claim.status ~= nil, why = why, ended = ctx.ended,
  }
  if facts.whole then facts.terminated = answer.terminated(ctx.route.api, claim.type, claim.encoding, body) end
  local what, counted = outcome.of(facts, instance.releases, instance.refuse)
  return what, counted, body
end

local function done(ctx, claim)
  claims:remove(claim)
  claim.body = nil
  if claim.held then
    settled:inc(1, ctx.route.name, claim.counted)
    if claim.counted == "lost" then record.tell("warn", "the lease was lost before the request ended", claim.key) end
  end
  ctx.idempotency = nil
end

-- Before the client's last bytes: a repeat that comes right behind them finds the answer.
function M.finish(conf, ctx)
  local claim, instance = ctx.idempotency, instances[conf]
  if not claim then return end
  if claim.waiting then waiting = waiting - 1 end
  if not claim.asked then
    ctx.idempotency = nil
    return
  end
  if claim.held then
    claim.what, claim.counted, claim.body = decide(instance, ctx, claim)
  else -- whether it is ours was never learned
    claim.what, claim.counted = "release", "not_reached"
  end
  if claim.lost then claim.counted = "lost" end
  if claim.lost or record.settle(instance, claim) then return done(ctx, claim) end
end

-- Redis could not be asked: once more, and again, while the lease is renewed.
function M.log(conf, ctx)
  local claim = ctx.idempotency
  if not claim or not claim.what then return end
  if storing < STORES_MAX then
    storing = storing + 1
    for i = 0, STORE_TRIES - 1 do
      tg.timer.sleep(math.min(2 ^ i, 30))
      if claim.lost then claim.counted = "lost" end
      if claim.lost or record.settle(instances[conf], claim) then
        storing = storing - 1
        return done(ctx, claim)
      end
    end
    storing = storing - 1
  end
  record.tell("error", "Redis was away for too long; the claim lapses", claim.key)
  claim.counted = "unsettled"
  done(ctx, claim)
end

return M
