-- Where a route's requests go: targets, the models that pick among them, how one of several is chosen, and when a request
-- is sent to another one.
--
-- Inside one list a target is known by its name, "provider:model" or the provider alone: in logs, in ctx.target, to breakers.
-- So no two of a list may have the same one.

local health = require "tollgate.config_health"
local tls = require "tollgate.config_tls"
local values = require "tollgate.config_values"
local text = require "tollgate.schema_text"

local M = {}

local DAY = 86400 -- seconds
local MAX = 64    -- targets of a list; the host keeps a bit for each

-- APIs whose requests name a model in their body, and those that stream.
local LLM = { ["openai-chat"] = true, ["openai-responses"] = true, ["openai-embeddings"] = true,
  ["anthropic-messages"] = true }
local STREAMS = { ["openai-chat"] = true, ["openai-responses"] = true, ["anthropic-messages"] = true }

local RETRY_ON = { "connect", "timeout", "closed", "bad_answer", 429, 500, 502, 503, 504, 529 }
local RETRY_AFTER = 60 -- seconds, on a route of an LLM API

local function add(faults, path, message)
  faults[#faults + 1] = { path = path, message = message }
end

local function seconds(doc)
  return { type = "duration", min = 0.001, max = DAY, doc = doc }
end

--- The fields of a target.
-- @tparam table headers the field of header fields
-- @treturn table
function M.target_fields(headers)
  return {
    provider = { type = "string", min = 1, max = 128, pattern = "^[%w_.-]+$",
      hint = "must be letters, digits, _, . and -", doc = "who answers, for breakers and metrics; default: the URL's host" },
    model = { type = "string", min = 1, max = 256, pattern = "^%C+$", hint = "holds a control character",
      doc = "the provider's name of the model; takes the place of the one asked for. Absent: as asked" },
    url = { type = "string", required = true, min = 1, doc = "http://host[:port][/path], the same with https://, or unix:/path",
      check = function(value)
        local ok, message = values.target_url(value)
        if not ok then return message end
      end },
    tls = tls.field,
    health = health.field,
    headers = headers,
    preserve_host = { type = "boolean", default = false, doc = "send the client's Host instead of the target's" },
    weight = { type = "integer", min = 0, max = 1000, default = 1,
      doc = "share of the requests of its tier; 0: none, until the configuration changes" },
    tier = { type = "integer", min = 1, max = 100, default = 1,
      doc = "targets of a higher tier are asked when none of the lower ones is left" },
    timeouts = { type = "table", default = {}, doc = "the target's own, else the route's", fields = {
      connect = seconds "to the target, its name and a wait for a free connection included",
      first_byte = seconds "from the request sent to the head of the answer",
      idle = seconds "between two pieces of an answer",
    } },
  }
end

--- The fields of a route that are about targets.
-- @tparam table target its fields
-- @treturn table name → field
function M.route_fields(target)
  local list = { type = "table", fields = target }
  return {
    targets = { type = "list", of = list, max = MAX, default = {},
      doc = "where requests go, but for those of `models`; none where a plugin answers" },
    models = { type = "map", keys = "^%C+$", hint = "is no name of a model", default = {},
      values = { type = "list", of = list, min = 1, max = MAX },
      doc = "targets by the model that a request names; without `targets` any other model is a 404" },
    balance = { type = "string", one_of = { "round_robin", "least_in_flight" }, default = "round_robin",
      doc = "how a request's target is chosen among those of a tier, by weight" },
    retry = { type = "table", default = {}, doc = "when a request is sent to another target", fields = {
      attempts = { type = "integer", min = 1, max = 10, default = 2, doc = "targets that a request is sent to, at most" },
      on = { type = "list", default = RETRY_ON, doc = "failures after which the next target is tried", of = { alternatives = {
        { type = "string", one_of = { "connect", "timeout", "closed", "bad_answer" } },
        { type = "integer", min = 400, max = 599 },
      } } },
      timeout = { type = "duration", min = 0.001, max = DAY,
        doc = "seconds for all attempts, up to the head that is relayed; default: what one attempt may take" },
      budget = { type = "number", min = 0, max = 10, default = 0.2,
        doc = "share of requests in a worker that may be sent again where a target may have worked on them; and 1 a second" },
      unsafe = { type = "boolean",
        doc = "also where the method is not idempotent and bytes have gone; default: on routes of an LLM API" },
      peek = { type = "boolean",
        doc = "hold a stream's head until its first event shows no error; default: on LLM routes with several targets" },
      buffer = { type = "size", min = 0, max = 2 ^ 40, default = "1m",
        doc = "bytes of a request body kept for another attempt; a larger one is sent once" },
      retry_after = { alternatives = {
        { type = "duration", min = 0.001, max = DAY }, { type = "boolean", one_of = { false } },
      }, doc = "seconds that a Retry-After keeps a target out, at most; false: not at all. Default: 60 on routes of an LLM API" },
    } },
  }
end

local function authority_of(url)
  return (url:gsub("^unix:", ""):gsub("^%a[%w+.-]*://([^/]*).*$", "%1"):lower())
end

local function provider_of(target) return target.provider or authority_of(target.url) end

local function name_of(target)
  return target.model and provider_of(target) .. ":" .. target.model or provider_of(target)
end

local function check_list(faults, list, path)
  local names, weights = {}, 0
  for i, target in ipairs(list) do
    local at, name = text.join(path, i), name_of(target)
    weights = weights + target.weight
    if names[name] then
      add(faults, at, ("is %s as %s is: give it a provider of its own"):format(text.quote(name),
        text.join(path, names[name])))
    end
    names[name] = names[name] or i
    if target.tls and not target.url:lower():find("^https:") then
      add(faults, at .. ".tls", "has no use: the url is not https://")
    end
  end
  if #list > 0 and weights == 0 then add(faults, path, "no target has a weight above 0") end
end

--- Check of what a route says of targets.
-- @tparam {table,...} faults to which more are added
-- @tparam table route well formed by itself
-- @tparam string at its path
-- @tparam string|nil api
function M.check(faults, route, at, api)
  check_list(faults, route.targets, at .. ".targets")
  for _, alias in ipairs(text.sorted_keys(route.models)) do
    check_list(faults, route.models[alias], text.join(at .. ".models", alias))
  end
  if next(route.models) and not LLM[api] then
    add(faults, at .. ".models", "needs an LLM API, whose requests name a model: set the route's api")
  end
  if route.retry.peek and not STREAMS[api] then
    add(faults, at .. ".retry.peek", "needs an LLM API that streams")
  end
end

local function milliseconds(value)
  return math.max(1, math.floor(value * 1000 + 0.5))
end

local function several(route)
  if #route.targets > 1 then return true end
  for _, list in pairs(route.models) do
    if #list > 1 then return true end
  end
  return false
end

-- The longest that one attempt may take up to its head.
local function longest(route, timeouts)
  local most = 0
  local function look(list)
    for _, target in ipairs(list) do
      local own = target.timeouts
      most = math.max(most, (own.connect or timeouts.connect) + (own.first_byte or timeouts.first_byte))
    end
  end
  look(route.targets)
  for _, list in pairs(route.models) do look(list) end
  return most > 0 and most or timeouts.connect + timeouts.first_byte
end

--- A route's retry with its defaults, which depend on the route.
-- @tparam table route checked
-- @tparam string api
-- @tparam table timeouts in effect, in seconds
-- @treturn table in seconds
function M.retry(route, api, timeouts)
  local out = {}
  for key, value in pairs(route.retry) do out[key] = value end
  if out.unsafe == nil then out.unsafe = LLM[api] or false end
  if out.peek == nil then out.peek = STREAMS[api] and several(route) or false end
  if out.retry_after == nil then out.retry_after = LLM[api] and RETRY_AFTER or false end
  out.timeout = out.timeout or longest(route, timeouts)
  return out
end

local function normal_list(list, path, timeouts, header_list)
  local out = {}
  for i, one in ipairs(list) do
    local times = {}
    for _, name in ipairs { "connect", "first_byte", "idle" } do
      times[name] = milliseconds(one.timeouts[name] or timeouts[name])
    end
    out[i] = {
      name = name_of(one), provider = provider_of(one), model = one.model, url = one.url, preserve_host = one.preserve_host,
      headers = header_list(one.headers), weight = one.weight, tier = one.tier, timeouts = times,
      tls = tls.normalise(one.tls, text.join(path, i) .. ".tls"),
      health = health.normalise(one.health, one.url, header_list),
    }
  end
  return out
end

--- What the host reads of a route's targets.
-- @tparam table route checked
-- @tparam string path where it stands
-- @tparam string api
-- @tparam table timeouts in effect, in seconds
-- @tparam function header_list makes a list of a map of header fields
-- @treturn table `targets`, `models` as a list of { alias, targets }, `balance`, `retry`; times in milliseconds
function M.normalise(route, path, api, timeouts, header_list)
  local models = {}
  for i, alias in ipairs(text.sorted_keys(route.models)) do
    models[i] = { alias = alias, targets = normal_list(route.models[alias], text.join(path .. ".models", alias),
      timeouts, header_list) }
  end
  local retry = M.retry(route, api, timeouts)
  retry.timeout = milliseconds(retry.timeout)
  retry.retry_after = retry.retry_after and milliseconds(retry.retry_after) or 0
  return {
    targets = normal_list(route.targets, path .. ".targets", timeouts, header_list), models = models,
    balance = route.balance, retry = retry,
  }
end

return M
