-- Resources, cache-aside: what a GET of the route's target answers is kept under a key that other services know too, such as
-- `balance:{tenantId}`, filled from the path, the query, header fields or the consumer.
--
-- A miss reads the key's fence, then asks the origin, then fills by a script that drops the value where the fence has
-- changed: what was read before an invalidation never lands behind it. Requests share an answer that is under way only
-- where they read the same fence. Keys whose invalidation is required are never kept in the gateway's own memory.

local tg = require "tollgate"
local chain = require "cache.chain"
local control = require "cache.control"
local keys = require "webhook.cached_keys"
local lookup = require "cache.lookup"
local paths = require "cache.path"
local store = require "cache.store"

local M = {}

local fill = tg.redis.script "fill"

local TTL = { balance = 60 } -- seconds, by the key's first segment; 300 of all others
local MONTH = "current_month"

-- Header fields that change no answer, or that the gateway itself looks after; any other one that the key does not name
-- makes a request one that the cache does not answer.
local HARMLESS = {
  ["accept-encoding"] = true, ["cache-control"] = true, ["connection"] = true, ["content-length"] = true,
  ["content-type"] = true, ["dnt"] = true, ["forwarded"] = true, ["from"] = true, ["host"] = true, ["keep-alive"] = true,
  ["origin"] = true, ["pragma"] = true, ["priority"] = true, ["referer"] = true, ["te"] = true, ["traceparent"] = true,
  ["tracestate"] = true, ["baggage"] = true, ["user-agent"] = true, ["via"] = true, ["x-request-id"] = true,
  ["x-real-ip"] = true, ["upgrade-insecure-requests"] = true, ["x-correlation-id"] = true, ["save-data"] = true,
}

local function is_harmless(name, value)
  if HARMLESS[name] or name:find("^x%-forwarded%-") or name:find("^sec%-") then return true end
  if name == "accept" then
    value = value:lower()
    return value:find("*/*", 1, true) ~= nil or value:find("application/", 1, true) ~= nil and value:find("json", 1, true) ~= nil
  end
  return false
end

local Ask = {}
Ask.__index = Ask

-- Value, fence and time in one round trip; the fence is of the time before the origin is asked.
function Ask:look()
  local text, left, err, more = store.look(self.conf, self.key, { { "GET", self.fence_key }, { "TIME" } })
  if more then
    self.fence = more[1] or ""
    self.read_at = tonumber(more[2][1]) * 1000 + math.floor(tonumber(more[2][2]) / 1000)
  end
  return text, left, err
end

function Ask:flight_key()
  return ("%s %s"):format(self.key, self.fence or "?")
end

function Ask:answer(text) return 200, text, { ["content-type"] = "application/json" } end

function Ask:storable(response)
  local kind = (response.headers["content-type"] or ""):lower():match("^%s*([^;%s]*)")
  return kind == "application/json" and not control.forbids(response.headers["cache-control"])
end

-- A request that does not want what is kept still fills, so it reads the fence.
function Ask:forward()
  if not self.fence then self:look() end
end

function Ask:text(ctx)
  if self.extracts then return ctx.cache.number, "no_number" end
  local body, why = ctx:recorded()
  if not body then return nil, why == "too_large" and "too_large" or "incomplete" end
  if tg.json.decode(body, 1) == nil then return nil, "incomplete" end
  return body
end

-- The first moment (ms since the epoch) of the UTC month behind that of a time.
local function next_month(ms)
  local t = os.date("!*t", math.floor(ms / 1000))
  local year, month = t.year, t.month + 1
  if month > 12 then year, month = year + 1, 1 end
  -- Days since the epoch of the first of a month, in years that begin with March.
  local y, m = month <= 2 and year - 1 or year, (month + 9) % 12
  local days = 365 * y + math.floor(y / 4) - math.floor(y / 100) + math.floor(y / 400) + math.floor((153 * m + 2) / 5) - 719468
  return days * 86400000
end
M.next_month = next_month

function Ask:put(text)
  if not self.fence then return "error" end -- it was not read
  local until_ = self.monthly and ("%.0f"):format(next_month(self.read_at)) or ""
  local reply, err = fill:run({ self.key, self.fence_key }, { self.fence, text, ("%.0f"):format(math.ceil(self.ttl * 1000)),
    ("%.0f"):format(self.read_at), until_ }, { timeout = self.conf.deadline })
  if not reply then return "error", err end
  return reply
end

-- Settings

-- "query.period" → "query", "period"
local function source_of(text) return text:match("^(%l+)%.(.+)$") end

local sources = {
  query = function(request, name) return paths.query(request.query)[name] or nil end,
  header = function(request, name) return request.headers[name] end,
  consumer = function(_, name, consumer)
    local value = consumer and consumer[name]
    return type(value) == "string" and value or nil
  end,
}

--- What is wrong with where a field comes from, or nil.
-- @tparam string text
-- @treturn string|nil
function M.check_source(text)
  local kind, name = source_of(text)
  if kind == "query" or kind == "header" and name:find("^[%w-]+$") then return nil end
  if kind == "consumer" and (name == "id" or name == "tenant" or name == "plan") then return nil end
  return 'must be "query.NAME", "header.NAME", "consumer.id", "consumer.tenant" or "consumer.plan"'
end

--- What is wrong with a key's template, or nil.
function M.check_key(text)
  return (select(2, keys.parse(text)))
end

--- What is wrong with a pattern of a path, or nil.
function M.check_path(text)
  return (select(2, paths.parse(text)))
end

local function requires(conf, template)
  if conf.invalidation then return conf.invalidation == "required" end
  return chain.is_required(template)
end

local function check_fields(add, conf, template)
  local known, used = {}, {}
  for _, name in ipairs(template.fields) do used[name] = true end
  for _, name in ipairs(conf.path and paths.parse(conf.path).fields or {}) do known[name] = true end
  for name in pairs(conf.fields) do
    if not used[name] then add("fields." .. name, "the key has no {" .. name .. "}") end
    if known[name] then add("fields." .. name, "it is in path already") end
    known[name] = true
  end
  for _, name in ipairs(template.fields) do
    if not known[name] then
      add("key", ("where {%s} comes from is not said: put it into path, or into fields"):format(name))
    end
  end
  local tenant = false
  for _, name in ipairs(template.fields) do tenant = tenant or name == conf.tenant end
  if not tenant and not conf.shared then
    add("key", ("has no {%s}, so that all tenants would get one answer: where that is meant, write shared = true")
      :format(conf.tenant))
  end
end

--- What a schema cannot say of the settings of a resource.
-- @tparam function add (key, message)
-- @tparam table conf
-- @tparam table config of the gateway
function M.check(add, conf, config)
  local template = keys.parse(conf.key)
  check_fields(add, conf, template)
  if not requires(conf, template) then return end
  if conf.l1 then add("l1", "keys whose invalidation is required are not kept in the gateway's own memory") end
  local missing = chain.missing(config, template, keys.parse)
  if #missing > 0 then
    add("key", ('no webhook drops "%s" on %s, so it would go stale: name it there, or write invalidation = "none"')
      :format(conf.key, table.concat(missing, ", ")))
  end
end

--- Makes what access needs of a configuration.
-- @tparam table self conf; gets ttl and the rest
function M.prepare(self)
  local conf = self.conf
  self.template = keys.parse(conf.key)
  self.path = conf.path and paths.parse(conf.path)
  local first = self.template.parts[1].literal
  self.ttl = conf.ttl or TTL[first] or 300
  self.max_record = conf.max_size
  self.monthly = false
  for _, part in ipairs(self.template.parts) do self.monthly = self.monthly or part.literal == MONTH end
  self.ignored, self.named, self.queries = {}, {}, {}
  for _, name in ipairs(conf.ignore_headers) do self.ignored[name:lower()] = true end
  for _, text in pairs(conf.fields) do
    local kind, name = source_of(text)
    if kind == "header" then self.named[name:lower()] = true end
    if kind == "query" then self.queries[name] = true end
  end
  if conf.extract then
    self.extract = {}
    for step in conf.extract:gmatch("[^.]+") do
      table.insert(self.extract, tonumber(step) and tonumber(step) or step)
    end
  end
end

-- Answers

--- With `extract`, what goes to the client is what is kept: the number alone, from the cache or not.
function M.response(self, ctx)
  local response = ctx.response
  local kind = (response.headers["content-type"] or ""):lower():match("^%s*([^;%s]*)")
  if not self.extract or response.source ~= "origin" or response.status ~= 200 or kind ~= "application/json"
    or ctx.request.method ~= "GET" or response.headers["content-encoding"] then
    return
  end
  local value = response.json:get(self.extract)
  local text = value ~= nil and tg.json.encode(value) or ""
  if not text:find("^%-?%d") then return end
  response:set_body(text)
  ctx.cache.number = text
end

-- Requests

local function values_of(self, ctx)
  local request = ctx.request
  local values = self.path and paths.match(self.path, request.path)
  if self.path and not values then return nil end
  values = values or {}
  for name, text in pairs(self.conf.fields) do
    local kind, from = source_of(text)
    values[name] = sources[kind](request, kind == "header" and from:lower() or from, ctx.consumer)
  end
  return values
end

-- Whether the request says more than the key does.
local function says_more(self, request)
  for name in pairs(paths.query(request.query)) do
    if not self.queries[name] then return true end
  end
  for name, value in request:each_header() do
    name = name:lower()
    if not self.named[name] and not self.ignored[name] and not is_harmless(name, value) then return true end
  end
  return false
end

--- Answers from the cache, or lets the request go on.
function M.access(self, ctx)
  local conf, request = self.conf, ctx.request
  local values = values_of(self, ctx)
  if not values then return end -- another path
  if request.method ~= "GET" then return lookup.bypass(self, ctx, "method") end
  if not conf.shared then
    local tenant = values[conf.tenant]
    if tenant and (not ctx.consumer or ctx.consumer.tenant ~= tenant) then
      return lookup.deny(self, ctx, "wrong_tenant", "The API key may not read this tenant's data")
    end
  end
  local key = keys.key(self.template, values, tg.redis)
  local headers = request.headers
  local wanted = conf.client_control and control.request(headers["cache-control"], headers.pragma) or {}
  if wanted.no_store then return lookup.bypass(self, ctx, "request") end
  if not key or ctx.no_cache or says_more(self, request) then return lookup.bypass(self, ctx, "bypass") end
  return lookup.access(self, ctx, setmetatable({
    conf = conf, ttl = self.ttl, key = key, fence_key = keys.fence(key), extracts = self.extract ~= nil, monthly = self.monthly,
    refresh = wanted.no_cache, only_if_cached = wanted.only_if_cached, max_age = wanted.max_age,
  }, Ask))
end

return M
