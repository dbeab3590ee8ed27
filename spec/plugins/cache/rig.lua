-- What the specs of cache share: a gateway with a cached route for each LLM API before a stand-in origin, two tenants, and
-- questions to it.
local support = require "spec.support"

local M = {}

M.secrets = { a = "sk-tenant-a", b = "sk-tenant-b", lone = "sk-no-tenant" }

M.apis = {
  ["openai-chat"] = "/v1/chat/completions", ["openai-responses"] = "/v1/responses", ["openai-embeddings"] = "/v1/embeddings",
  ["anthropic-messages"] = "/v1/messages",
}

local function merged(base, own)
  for name, value in pairs(own or {}) do base[name] = value end
  return base
end
M.merged = merged

--- The configuration: routes for all APIs and a plain one (/plain/*), all with cache.
-- @param options url (of Redis), origin (its url), cache (settings), plugins (further ones of the routes), route (fields of
--   all), config
function M.config(options)
  local routes = {}
  local function route(name, path)
    routes[#routes + 1] = merged({ name = name, path = path, targets = { { url = options.origin } },
      plugins = merged({ cache = options.cache or {} }, options.plugins) }, options.route)
  end
  for name, path in pairs(M.apis) do route(name, path) end
  route("plain", "/plain/*")
  return merged({ redis = { url = options.url, timeout = 5 }, plugins = { auth = { keys = "keys.jsonl" } }, routes = routes },
    options.config)
end

--- Starts a gateway; options: those of M.config, redis (of support.redis, instead of url), keys (further records), limits
-- (of all keys), files, env. At its end every key in Redis has a lifetime.
function M.gateway(options)
  local redis = options.redis
  if redis then
    support.on_end(function(failed)
      if not failed and not redis.process.exited then support.redis_tap.assert_lifetimes(redis) end
    end)
  end
  local records = {
    merged({ id = "key-a", tenant = "a", secret = M.secrets.a }, options.limits),
    merged({ id = "key-b", tenant = "b", secret = M.secrets.b }, options.limits),
    merged({ id = "key-lone", secret = M.secrets.lone }, options.limits),
  }
  for _, record in ipairs(options.keys or {}) do records[#records + 1] = record end
  local config = M.config(merged({ url = options.url or redis.url }, options))
  return support.gateway { config = config, env = options.env, dir = options.dir,
    files = merged({ ["keys.jsonl"] = support.keys(records) }, options.files) }
end

local questions = {
  ["openai-chat"] = { model = "m", messages = { { role = "user", content = "hi" } }, max_tokens = 8 },
  ["openai-responses"] = { model = "m", input = "hi", max_output_tokens = 8 },
  ["openai-embeddings"] = { model = "m", input = "hi" },
  ["anthropic-messages"] = { model = "m", messages = { { role = "user", content = "hi" } }, max_tokens = 8 },
}

--- A request with a question.
-- @param api name of the API; body: members over its question, or text; options: headers, as (name of a secret), path
function M.ask(api, body, options)
  options = options or {}
  local headers = merged({ authorization = "Bearer " .. M.secrets[options.as or "a"], ["content-type"] = "application/json" },
    options.headers)
  if options.anonymous then headers.authorization = nil end
  if type(body) ~= "string" then body = merged(merged({}, questions[api]), body) end
  return { method = "POST", path = options.path or M.apis[api], headers = headers, body = body }
end

--- A GET of the plain route.
function M.get(path, options)
  options = options or {}
  return { path = path or "/plain/x", headers = merged({ authorization = "Bearer " .. M.secrets[options.as or "a"] },
    options.headers) }
end

--- Asks; returns the answer and what Cache-Status says of it.
function M.send(gw, request)
  local res = assert(gw:request(request))
  return res, res.headers["cache-status"]
end

--- Waits until so many answers are kept in Redis.
function M.wait_kept(redis, n, pattern)
  support.wait_for(function() return #redis:must("KEYS", pattern or "cache:exact:*") == n end, n .. " kept answers")
end

--- The value of a counter of the plugin for a route and an outcome.
function M.count(gw, name, route, outcome)
  return tonumber(gw:admin("/metrics").body:match(('\n%s{[^}]*route="%s",outcome="%s"} (%%d+)'):format(name,
    route:gsub("%-", "%%-"), outcome)) or 0)
end

--- Waits until a counter has a value: figures come a moment behind what they count.
function M.wait_count(gw, name, route, outcome, value)
  support.wait_for(function() return M.count(gw, name, route, outcome) == value end,
    ("%s of %s, %s, to be %d"):format(name, route, outcome, value))
end

--- Waits until so many requests have begun to wait for another one's answer.
function M.wait_followers(gw, route, n)
  local pattern = ('\ncache_follows_total{[^}]*route="%s"} (%%d+)'):format(route:gsub("%-", "%%-"))
  support.wait_for(function()
    return tonumber(gw:admin("/metrics").body:match(pattern) or 0) == n
  end, n .. " requests that follow")
end

return M
