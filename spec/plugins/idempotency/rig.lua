-- What the specs of idempotency share: gateways with auth and idempotency before an origin that counts what it runs, requests
-- with keys, and looks at what Redis holds. At the end of each test every key in Redis must have a lifetime.
local support = require "spec.support"

local M = { secret = "tg-spec-secret", other = "tg-other-secret" }

local function merged(base, own)
  for name, value in pairs(own or {}) do base[name] = value end
  return base
end
M.merged = merged

--- A Redis whose keys are looked at in the end.
function M.redis(options)
  local redis = support.redis(options)
  support.on_end(function(failed)
    if not failed and not redis.process.exited then support.redis_tap.assert_lifetimes(redis) end
  end)
  return redis
end

--- An origin whose answers tell how often it has run. The query bends them: status=N, cut, stall, slow (until o.go), large=N.
function M.origin(options)
  local o
  o = support.origin(function(req, conn)
    o.runs = o.runs + 1
    local query = req.query
    local function has(name) return query:find(name, 1, true) end
    if has("slow") then
      local run = o.runs
      support.wait_for(function() return o.go or conn.closed or o.closing end, "the word to go on", 25000)
      if conn.closed then o.left = (o.left or 0) + 1 return run end
    end
    if has("stall") then return conn:wait_closed() end
    if has("cut") then
      conn:start { headers = { ["content-type"] = "text/plain" } }
      conn:chunk("half of it")
      return conn:close()
    end
    local body = ("x"):rep(tonumber(query:match("large=(%d+)")) or 0)
    conn:respond { status = tonumber(query:match("status=(%d+)")), body = ("run %d %s%s"):format(o.runs, req.body, body),
      headers = { { "content-type", "text/plain" }, { "x-run", tostring(o.runs) }, { "x-twice", "a" }, { "X-Twice", "b" },
        { "x-ratelimit-remaining", "9" } } }
  end, options)
  o.runs = 0
  support.on_end(function() o.closing = true end)
  return o
end

--- Starts a gateway with the route "r" (/*) with idempotency.
-- @param options redis (of support.redis), url (instead of its own), origin (its url), conf (settings), plugins (further ones),
--   route (fields), config, dir, files
function M.gateway(options)
  local keys = { { id = "k", tenant = "t", secret = M.secret }, { id = "o", tenant = "t", secret = M.other } }
  for i, key in ipairs(keys) do keys[i] = merged(key, options.limits) end
  local config = merged({ redis = { url = options.url or options.redis and options.redis.url, timeout = 5 },
    plugins = { auth = { keys = "keys.jsonl", anonymous = true } },
    routes = { merged({ name = "r", path = "/*", targets = { { url = options.origin } },
      plugins = merged({ idempotency = options.conf or {} }, options.plugins) }, options.route) } }, options.config)
  return support.gateway { config = config, dir = options.dir,
    files = merged({ ["keys.jsonl"] = support.keys(keys) }, options.files) }
end

--- A proxy before Redis, and a gateway that knows Redis through it and finds it usable. settings: of Redis; more: as for gateway.
function M.through(redis, origin, settings, more)
  local proxy = support.proxy { to = redis.socket, resp = true }
  local options = M.merged({ origin = origin.url, config = { redis = M.merged({ timeout = 5,
    url = "redis://127.0.0.1:" .. proxy.port }, settings) } }, more)
  local gw = M.gateway(options)
  support.wait_for(function() return gw:admin("/readyz").status == 200 end, "Redis")
  return gw, proxy
end

--- How many renewals of one claim there have been.
function M.renewals(redis)
  return tonumber(redis:must("INFO", "commandstats"):match("cmdstat_pexpire:calls=(%d+)") or 0)
end

--- A POST with a key; options: path, body, method, headers, secret (false: none), key's form as it is.
function M.post(key, options)
  options = options or {}
  local headers = { ["idempotency-key"] = key }
  if options.secret ~= false then headers.authorization = "Bearer " .. (options.secret or M.secret) end
  return { method = options.method or "POST", path = options.path or "/charge", body = options.body or "amount=1",
    headers = merged(headers, options.headers), timeout = options.timeout }
end

--- Sends it; the answer.
function M.ask(gw, key, options)
  return assert(gw:request(M.post(key, options)))
end

--- Status, whether it was a replay, and the body.
function M.seen(res)
  return { res.status, res.headers["idempotency-replayed"], res.body }
end

--- The only record in Redis: its fields, and pttl.
function M.record(redis)
  local keys = redis:must("KEYS", "idem:*")
  assert(#keys <= 1, "more than one record")
  if not keys[1] then return nil end
  local entry = redis:dump({ pattern = "idem:*", pttl = true })[keys[1]]
  return entry and merged({ key = keys[1], pttl = entry.pttl }, entry.value)
end

--- Waits until there is a record in a state; returns it. "none": until there is none.
function M.wait_state(redis, state, limit_ms)
  support.wait_for(function()
    local key = redis:must("KEYS", "idem:*")[1]
    if not key or state == "none" then return state == "none" and not key end
    return redis:must("HGET", key, "state") == state
  end, "a record that is " .. state, limit_ms)
  return M.record(redis)
end

function M.code(res) return support.decode(res.body).error.code end

--- Waits until a counter has a value.
function M.counts(gw, counter, outcome, value)
  local now
  local ok = pcall(support.wait_for, function()
    now = tonumber(gw:admin("/metrics").body:match(counter .. '{[^}]*outcome="' .. outcome .. '"[^}]*} (%d+)')) or 0
    return now == value
  end)
  if not ok then error(("%s %s is %s, not %s"):format(counter, outcome, now, value), 2) end
end

return M
