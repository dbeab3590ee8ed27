-- cache: answers that are kept in Redis, so that a question which was asked before costs neither time nor tokens.
--
-- Without `key` it keeps exact responses: what an LLM API answered to the same question (route, model, the whole body but
-- for `stream` and `stream_options`, header fields that change answers, and who may share it: the tenant, else the key), as
-- `cache:exact:{ns}:{hash}`, the JSON body and nothing else. Asked for as a stream it is played as one; an answer that
-- came as a stream is put together first. Kept is what the origin answered with 200 and ended properly, calls of tools
-- and reasoning included; not what holds an error, was cut, is encoded, or is larger than `max_size`.
--
-- With `key` it keeps a resource, cache-aside: what a GET answers, under a key that other services know too, such as
-- `balance:{tenantId}`, for which `path` and `fields` say where the braces are filled from. A reader must be of the tenant that
-- the key names, unless `shared`. A value that was read before an invalidation never lands behind it, and a configuration
-- in which no `webhook` drops a `balance:` or `stats:` key on the events that change it is refused. A request that says more
-- than the key does, by query or header, goes to the origin. A route may have several, each with a `path` of its own.
--
-- Requests that miss the same key at once make one request to the origin in a replica; the others wait for its answer,
-- or with `follow = "read_along"` those of its worker that asked for the same stream read it as it comes, and are cut off
-- where it is; those of other workers wait. Where it brings none they ask for themselves, one at a time; it is read on
-- for them where its client leaves. Redis that errs is a miss. `Cache-Control` of requests is obeyed
-- (no-store, no-cache, max-age, only-if-cached); answers say what was done in `Cache-Status` (RFC 9211), hits their `Age`.
-- A plugin of higher priority keeps a request away from the cache by `ctx.no_cache = true`.
--
-- | answer | when |
-- |---|---|
-- | 403 `wrong_tenant` | the key is of another tenant than the caller |
-- | 504 `only_if_cached` | the client asked for a stored answer alone, and there is none |

local tg = require "tollgate"
local exact = require "cache.exact"
local flight = require "cache.flight"
local lookup = require "cache.lookup"
local resource = require "cache.resource"
local store = require "cache.store"

local TOKEN = "^[%w!#$%%&'*+.^_`|~-]+$" -- name of a header field, RFC 9110, section 5.6.2

local function header_names(doc)
  return { type = "list", default = {}, doc = doc,
    of = { type = "string", min = 1, pattern = TOKEN, hint = "is no name of a header field" } }
end

local M = {
  version = "1.0.0",
  priority = 500,
  schema = {
    ttl = { type = "duration", min = 0.001, max = 86400 * 366,
      doc = "seconds that an answer is kept; default 300, of balance: 60" },
    shared = { type = "boolean", default = false, doc = "one answer for all tenants and keys" },
    key = { type = "string", check = resource.check_key,
      doc = 'keep a resource under this key, such as "balance:{tenantId}"' },
    path = { type = "string", check = resource.check_path,
      doc = 'of a resource: which paths it is for, and fields in them: "/tenants/{tenantId}/balance"' },
    fields = { type = "map", keys = "^[%a_][%w_]*$", hint = "must be a name as in {name}", default = {},
      values = { type = "string", check = resource.check_source },
      doc = 'where other fields of the key come from: "query.NAME", "header.NAME", "consumer.tenant", …' },
    tenant = { type = "string", min = 1, default = "tenantId", doc = "the field of the key that is the tenant" },
    extract = { type = "string", min = 1,
      doc = "of a resource: keep and answer but the number at this place of the answer" },
    invalidation = { type = "string", one_of = { "required", "none" },
      doc = "whether a webhook has to drop the key; default required for balance: and stats:" },
    ignore_headers = header_names "of a resource: request headers that change no answer",
    version = { type = "string", default = "", doc = "counts as part of the question: another one lets go of all that is kept" },
    headers = header_names "request headers that change the answer, besides those of LLM APIs",
    get = { type = "boolean", default = false, doc = "keep answers to GET too" },
    bypass = { type = "table", default = {}, doc = "which requests never come from the cache", fields = {
      headers = header_names "those with one of these headers",
      max_temperature = { type = "number", min = 0, max = 2, doc = "those with a higher temperature; absent counts as 1" },
      max_n = { type = "integer", min = 1, max = 1024, doc = "those that ask for more choices" },
      tools = { type = "boolean", default = false, doc = "those that offer tools" },
      members = { type = "list", default = {}, of = { type = "string", min = 1 },
        doc = "those whose body has one of these members" },
    } },
    client_control = { type = "boolean", default = true, doc = "obey Cache-Control of requests" },
    max_size = { type = "size", min = 1, max = 2 ^ 26, default = "1m", doc = "bytes of an answer that is kept" },
    max_stream = { type = "size", min = 1, max = 2 ^ 28, default = "16m",
      doc = "bytes of a stream that is put together to an answer" },
    follow = { type = "string", one_of = { "wait", "read_along", "off" }, default = "wait",
      doc = "requests that miss at once: one asks and the others wait for its answer, or read its stream with it; or each asks" },
    follow_timeout = { type = "duration", min = 0.01, max = 3600, default = 60,
      doc = "seconds that a request waits for another one's answer, before it asks by itself" },
    read_on = { type = "duration", min = 0.1, max = 3600, default = 60,
      doc = "seconds that an answer is read on for those who wait, where the client that asked has left" },
    lease = { type = "duration", min = 1, max = 3600, default = 10,
      doc = "seconds after which others ask, where the worker died that asked for them" },
    deadline = { type = "duration", min = 0.001, max = 60,
      doc = "seconds that Redis has for a call, behind which it counts as hung for all that use it; default redis.timeout" },
    l1 = { type = "duration", min = 0.01, max = 3600,
      doc = "seconds that the workers keep an answer in their own memory; absent: not at all" },
    memory_share = { type = "number", min = 0.01, max = 1, default = 0.9,
      doc = "nothing is kept any more while Redis has used this share of its maxmemory" },
  },
}

local HOST = { shared = tg.shared, condition = tg.condition, now = tg.now }

local instances = setmetatable({}, { __mode = "k" })

-- Settings of one kind of cache alone.
local OF_RESOURCES = { "path", "extract", "invalidation" }
local OF_EXACT = { get = false, version = "" }

function M.check(conf, at, about)
  local faults = {}
  local function add(key, message) faults[#faults + 1] = { path = at .. "." .. key, message = message } end
  if conf.key then
    for name, default in pairs(OF_EXACT) do
      if conf[name] ~= default then add(name, "belongs to exact responses: not together with key") end
    end
    if #conf.headers > 0 then add("headers", "belongs to exact responses: header fields of a key are named in fields") end
    resource.check(add, conf, about.config)
  else
    for _, name in ipairs(OF_RESOURCES) do
      if conf[name] then add(name, "needs key: it belongs to resources") end
    end
    if next(conf.fields) then add("fields", "needs key: it belongs to resources") end
  end
  return faults
end

-- Places with one lease share flights, and the timer that renews these also for requests that a reload outlives.
local by_lease = {}

local function flights_of(lease)
  local flights = by_lease[lease]
  if flights then return flights end
  flights = flight.new(HOST, "cache:flight:", lease)
  by_lease[lease] = flights
  tg.timer.every(lease / 3, function() flights:renew() end, { lingers = true })
  return flights
end

function M.init(conf)
  local self = { conf = conf, flights = flights_of(conf.lease), kind = conf.key and resource or exact }
  self.kind.prepare(self)
  store.start(conf.l1 ~= nil)
  instances[conf] = self
end

-- Of several on a route, the first whose request it is has it; ctx.cache is its alone.
function M.access(conf, ctx)
  local self = instances[conf]
  if not ctx.cache then return self.kind.access(self, ctx) end
end

local function own(conf, ctx)
  local self = instances[conf]
  return ctx.cache and ctx.cache.owner == self and self
end

function M.response(conf, ctx)
  local self = own(conf, ctx)
  if not self then return end
  lookup.response(self, ctx)
  if self.extract then resource.response(self, ctx) end
end

function M.log(conf, ctx)
  local self = own(conf, ctx)
  if self then lookup.log(self, ctx) end
end

return M
