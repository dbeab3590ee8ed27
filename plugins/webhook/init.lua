-- webhook: takes events of other systems and drops what they make stale from the caches of all replicas, before it answers.
-- The plugin answers its route by itself, so the route has no targets.
--
-- An event is verified over its raw body by HMAC-SHA256, with any of several secrets, so that they can be rotated:
--
-- | `scheme` | header | signed | form |
-- |---|---|---|---|
-- | `hex`, `base64` | `X-Signature` | the body | the plain digest |
-- | `github` | `X-Hub-Signature-256` | the body | `sha256=` and hexadecimal |
-- | `stripe` | `Stripe-Signature` | time, `.`, body | `t=…,v1=…`, several `v1` |
-- | `standard` | `Webhook-Signature` | id, `.`, time, `.`, body | `v1,` base64; standardwebhooks.com |
--
-- `events` says by an event's type which keys it drops. `{field}` in a key is the event's field of that name, or what
-- `fields` says: `fields = { tenantId = "data.tenant.id" }`. Each key is fenced and deleted by one script, and its name is
-- published on `cache:invalidate`. To do so again, or in another order, is harmless, so an event whose id was seen before
-- (`hook:{source}:{id}`, 24 h) is not skipped; the id is noted last of all.
--
-- | answer | when |
-- |---|---|
-- | 200 `{"status":"done"}`, `"duplicate"` | all keys are dropped; the id had been seen |
-- | 200 `{"status":"ignored"}` | the type is not among `events` |
-- | 401 `invalid_signature` | the signature is missing, wrong, or older than `tolerance` |
-- | 400 `invalid_json` | the body is no JSON |
-- | 422 `missing_field` | type, id or a field of a key is not there; the message says which |
-- | 405 | the method is not POST |
-- | 503 `webhook_unavailable`, `Retry-After: 1` | Redis could not do it; the sender has to try again |

local tg = require "tollgate"
local event = require "webhook.event"
local keys = require "webhook.cached_keys"
local signature = require "webhook.signature"

local SEEN = 86400       -- seconds that an event's id is kept
local LOG_EVERY = 10     -- seconds between two log lines about refused signatures
local TOKEN = "^[%w!#$%%&'*+.^_`|~-]+$" -- name of a header field, RFC 9110, section 5.6.2

local function header_name(doc, required)
  return { type = "string", min = 1, pattern = TOKEN, hint = "is no name of a header field", required = required, doc = doc }
end

local secret = { type = "string", min = 1, secret = true }
local path = { type = "string", min = 1, check = event.check_path }

local in_header = { type = "table", fields = { header = header_name("name of a header field", true) } }

local function place(doc)
  return { doc = doc, alternatives = { path, in_header } }
end

local function template(text)
  local _, message = keys.parse(text)
  return message
end

local M = {
  version = "1.0.0",
  priority = 200,
  once = true,
  schema = {
    secret = { required = true, alternatives = { secret, { type = "list", of = secret, min = 1, max = 16 } },
      doc = 'what signatures are made with, by env "NAME"; a list while secrets are rotated' },
    scheme = { type = "string", one_of = { "hex", "base64", "github", "stripe", "standard" }, default = "hex",
      doc = "form of the signature" },
    header = header_name "header that holds the signature; default by scheme",
    tolerance = { type = "duration", min = 1, max = 86400, default = 300,
      doc = "seconds that the time of a signature may be off; for stripe and standard" },
    source = { type = "string", min = 1, max = 128, doc = "who sends, in the names of seen events; default: the route's name" },
    type = place 'where the type is: a path in the body, or { header = name }; default "type", of github its header',
    id = { doc = 'where the id is, as type; false: events have none; default "id", of github and standard their header',
      alternatives = { path, in_header, { type = "boolean", one_of = { false } } } },
    fields = { type = "map", keys = "^[%a_][%w_]*$", hint = "must be a name as in {name}", default = {}, values = place(nil),
      doc = "where the fields of keys are, as type; default: at their own names" },
    events = { type = "map", required = true, doc = "what is dropped, by the event's type",
      values = { type = "table", fields = {
        drop = { type = "list", min = 1, max = 100, required = true, doc = 'keys such as "balance:{tenantId}"',
          of = { type = "string", check = template } },
      } } },
    deadline = { type = "duration", min = 0.001, max = 60, doc = "seconds that Redis has for a call; default redis.timeout" },
  },
}

local script = tg.redis.script "invalidate"
local events_total = tg.metrics.counter("webhook_events_total", "Events by what became of them", { "route", "outcome" })
local dropped_total = tg.metrics.counter("webhook_keys_total", "Cached keys that events dropped", { "route" })

local instances = setmetatable({}, { __mode = "k" })

-- Where type and id are unless the settings say so.
local PLACES = {
  github = { type = { header = "x-github-event" }, id = { header = "x-github-delivery" } },
  standard = { id = { header = "webhook-id" } },
}

local function place_of(conf, name)
  if conf[name] ~= nil then return conf[name] end
  local own = PLACES[conf.scheme]
  return own and own[name] or name
end

local function secrets_of(conf)
  return type(conf.secret) == "table" and conf.secret or { conf.secret }
end

local function check_fields(faults, conf, at)
  local used = {}
  for _, one in pairs(conf.events) do
    for _, text in ipairs(one.drop) do
      for _, field in ipairs(keys.parse(text).fields) do used[field] = true end
    end
  end
  for field in pairs(conf.fields) do
    if not used[field] then
      faults[#faults + 1] = { path = at .. ".fields." .. field, message = "no key in events has {" .. field .. "}" }
    end
  end
end

local function check_route(faults, at, route)
  if #route.targets > 0 then
    faults[#faults + 1] = { path = at, message = "a webhook answers its route by itself: leave out the route's targets" }
  end
  if #route.methods == 0 then return end
  for _, method in ipairs(route.methods) do
    if method == "POST" then return end
  end
  faults[#faults + 1] = { path = at, message = "events come by POST, which is not among the route's methods" }
end

function M.check(conf, at, context)
  local faults = {}
  local found, wrong = signature.keys(conf.scheme, secrets_of(conf), tg.crypto)
  if not found then
    faults[1] = { path = at .. ".secret" .. (type(conf.secret) == "table" and ("[%d]"):format(wrong) or ""),
      message = "behind whsec_ must be base64" }
  end
  if next(conf.events) == nil then faults[#faults + 1] = { path = at .. ".events", message = "must name an event" } end
  check_fields(faults, conf, at)
  if context and context.route then check_route(faults, at, context.route) end
  return faults
end

function M.init(conf)
  local events = {}
  for kind, one in pairs(conf.events) do
    events[kind] = {}
    for i, text in ipairs(one.drop) do events[kind][i] = keys.parse(text) end
  end
  instances[conf] = {
    events = events, type = place_of(conf, "type"), id = place_of(conf, "id"),
    secrets = signature.keys(conf.scheme, secrets_of(conf), tg.crypto), logged = -LOG_EVERY,
    options = { scheme = conf.scheme, tolerance = conf.tolerance,
      header = (conf.header or signature.HEADERS[conf.scheme]):lower() },
    tools = { keys = keys, json = tg.json, redis = tg.redis },
  }
end

-- Ends an event: counts it, and gives the answer.
local function ended(ctx, outcome, ...)
  events_total:inc(1, ctx.route.name, outcome)
  return ...
end

local function refuse_signature(self, ctx, why)
  local now = tg.now()
  if now - self.logged >= LOG_EVERY then
    self.logged = now
    tg.log.warn("webhook: the route ", ctx.route.name, " refuses a signature: ", why)
  end
  return ended(ctx, "unauthorized", ctx:refusal(401, "invalid_signature",
    why == "missing" and "The header " .. self.options.header .. " is missing" or "The signature is not valid"))
end

local function refuse_missing(ctx, where)
  tg.log.warn("webhook: an event on the route ", ctx.route.name, " has no usable value at ", where)
  return ended(ctx, "malformed", ctx:refusal(422, "missing_field",
    "There is no usable value at " .. where .. ": it must be a text, or a whole number"))
end

local function refuse_unavailable(ctx, kind, err)
  tg.log.warn("webhook: an event on the route ", ctx.route.name, " of the type ", kind, " could not be done: ", err)
  return ended(ctx, "unavailable", ctx:refusal(503, "webhook_unavailable",
    "The event could not be taken at the moment", { ["retry-after"] = "1" }))
end

-- Fences and deletes. With hash tags, keys of different tags may belong to different servers, and a script runs on one.
local function invalidate(conf, list)
  local groups, order = {}, {}
  for _, key in ipairs(list) do
    local tag = key:match("{.-}") or ""
    if not groups[tag] then groups[tag], order[#order + 1] = {}, tag end
    local group = groups[tag]
    group[#group + 1] = key
    group[#group + 1] = keys.fence(key)
  end
  for _, tag in ipairs(order) do
    local reply, err = script:run(groups[tag], { keys.CHANNEL }, { timeout = conf.deadline })
    if not reply then return nil, err end
  end
  return true
end

-- Whether the event's id is new; nil and why where Redis did not say.
local function note(conf, ctx, id)
  if not id then return true end
  local key = "hook:" .. tg.redis.encode(conf.source or ctx.route.name) .. ":" .. tg.redis.encode(id)
  local reply, err = tg.redis.call { "SET", key, "1", "NX", "EX", SEEN, timeout = conf.deadline }
  if err then return nil, err end
  return reply ~= nil
end

local function take(conf, self, ctx, request, kind)
  local id
  if self.id then
    id = event.value(request, self.id, tg.json)
    if not id then return refuse_missing(ctx, event.name(self.id)) end
  end
  local list, where = event.keys(self.events[kind], request, conf.fields, self.tools)
  if not list then return refuse_missing(ctx, where) end
  local ok, err = invalidate(conf, list)
  if not ok then return refuse_unavailable(ctx, kind, err) end
  dropped_total:inc(#list, ctx.route.name)
  local new, why = note(conf, ctx, id)
  if new == nil then return refuse_unavailable(ctx, kind, why) end
  local outcome = new and "done" or "duplicate"
  return ended(ctx, outcome, 200, { status = outcome })
end

function M.access(conf, ctx)
  local self = instances[conf]
  if ctx.request.method ~= "POST" then
    return ctx:refusal(405, "method_not_allowed", "Events come by POST", { allow = "POST" })
  end
  local request = { headers = ctx.request.headers, body = ctx.request:body() }
  local ok, why = signature.verify(self.options, self.secrets, request, tg.now(), tg.crypto)
  if not ok then return refuse_signature(self, ctx, why) end
  local decoded, fault = tg.json.decode(request.body)
  if decoded == nil then
    return ended(ctx, "malformed", ctx:refusal(400, "invalid_json", "The body is no JSON: " .. fault))
  end
  request.body = decoded
  local kind = event.value(request, self.type, tg.json)
  if not kind then return refuse_missing(ctx, event.name(self.type)) end
  if not self.events[kind] then return ended(ctx, "ignored", 200, { status = "ignored" }) end
  return take(conf, self, ctx, request, kind)
end

return M
