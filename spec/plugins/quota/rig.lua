-- What the specs of quota share: a gateway with auth and quota before an origin, chat requests to it, and one look at
-- all that Redis holds for a key. At the end of each gateway every key in Redis must have a lifetime.
local support = require "spec.support"

local M = { secret = "tg-spec-secret", path = "/v1/chat/completions" }

-- Both sums in one script, so that they belong to one instant.
local LOOK = [[
local tokens, reserved, open = 0, 0, 0
for _, key in ipairs(redis.call("KEYS", "q:tokens:" .. ARGV[1] .. ":*")) do
  tokens = tokens + redis.call("GET", key)
end
for _, key in ipairs(redis.call("KEYS", "q:reserved:*")) do
  local value = tonumber(redis.call("GET", key))
  if value >= 0 then reserved, open = reserved + value, open + 1 end
end
return { tokens, reserved, open, redis.call("SCARD", "q:conc:" .. ARGV[1]) }
]]

--- What Redis holds for a key at one instant: tokens (of all months), and of the open reservations reserved (their sum)
-- and open (their number), and inflight.
function M.look(redis, id)
  local found = redis:must("EVAL", LOOK, 0, id or "k")
  return { tokens = found[1], reserved = found[2], open = found[3], inflight = found[4] }
end

--- Waits until nothing is reserved or in flight any more; returns the tokens that are charged then.
function M.settled(redis, id, limit_ms)
  local now
  support.wait_for(function()
    now = M.look(redis, id)
    return now.open == 0 and now.inflight == 0
  end, "the end of all reservations", limit_ms)
  return now.tokens
end

--- Looks again and again, on a connection of its own, until the function that this returns is called; it returns the list of
-- all that was seen.
function M.watch(redis, id)
  local own = setmetatable({ socket = redis.socket }, getmetatable(redis))
  local seen, done = {}, false
  local task = support.spawn(function()
    repeat seen[#seen + 1] = M.look(own, id) until done
    own.conn:close()
  end)
  support.on_end(function() done = true end)
  return function()
    done = true
    task:join()
    return seen
  end
end

--- Raises where a key would live for ever.
function M.assert_lifetimes(redis)
  for key, entry in pairs(redis:dump()) do
    if entry.expires_at < 0 then error(key .. " has no lifetime", 2) end
  end
end

local function merged(base, own)
  for name, value in pairs(own or {}) do base[name] = value end
  return base
end

--- Starts a gateway with the routes "chat" and "plain" (/plain/*), both with quota.
-- @param options redis (of support.redis), url (instead of its own, e.g. a proxy's), origin (its url), limits (of the key "k"),
--   keys (further records), quota (settings), plugins (further ones of both routes), route (fields of both), config, and
--   what support.gateway takes
function M.gateway(options)
  local redis = options.redis
  if redis then
    support.on_end(function(failed)
      if not failed and not redis.process.exited then M.assert_lifetimes(redis) end
    end)
  end
  local records = { merged({ id = "k", tenant = "t", secret = M.secret }, options.limits) }
  for _, record in ipairs(options.keys or {}) do records[#records + 1] = record end
  local function route(name, path)
    return merged({ name = name, path = path, targets = { { url = options.origin } },
      plugins = merged({ quota = options.quota or {} }, options.plugins) }, options.route)
  end
  local config = merged({ redis = options.url or redis and redis.url, plugins = { auth = { keys = "keys.jsonl" } },
    routes = { route("chat", M.path), route("plain", "/plain/*") } }, options.config)
  return support.gateway { config = config, dir = options.dir, args = options.args, env = options.env,
    files = merged({ ["keys.jsonl"] = support.keys(records) }, options.files) }
end

M.bearer = { authorization = "Bearer " .. M.secret }

--- A chat request: body fields over a prompt that is estimated at 2 tokens; `options` as for support.request.
function M.chat(body, options)
  local fields = merged({ model = "m", messages = { { role = "user", content = "hi" } }, max_tokens = 8 }, body)
  return merged({ method = "POST", path = M.path, headers = M.bearer, body = fields }, options)
end

--- A request to the plain route.
function M.plain(options)
  return merged({ path = "/plain/x", headers = M.bearer }, options)
end

--- Sends a request on each of n connections (of a list, the next one each time) so that the gateway reads all of them in one
-- turn of its loop: it is stopped meanwhile. Returns how many answers had each status.
function M.in_one_turn(gw, n, request)
  local list = request[1] and request or { request }
  local conns, counts, calls = {}, {}, {}
  for i = 1, n do
    conns[i] = gw:connect()
    -- An answer shows that the connection has been accepted.
    assert(conns[i]:request { path = "/nowhere" }.status == 404)
  end
  gw:pause()
  for i = 1, n do assert(conns[i]:send_request(list[(i - 1) % #list + 1])) end
  gw:resume()
  for i = 1, n do
    calls[i] = function()
      local status = assert(conns[i]:read_response()).status
      counts[status] = (counts[status] or 0) + 1
      conns[i]:close()
    end
  end
  support.all(calls)
  return counts
end

--- How many script calls Redis has had.
function M.script_calls(redis)
  return tonumber(redis:must("INFO", "commandstats"):match("cmdstat_evalsha:calls=(%d+)") or 0)
end

function M.metric(gw, name) return gw:metric(name) end
function M.counts(gw, name, value) gw:wait_metric(name, value) end

return M
