-- The record of an idempotency key in Redis: asked for, renewed and settled by the scripts beside this file. All that waits for
-- Redis is here.

local tg = require "tollgate"

local M = {}

local UNREACHED = { timeout = true, closed = true, down = true }
local FINAL = { OOM = true, TYPE = true, WRONGTYPE = true } -- Redis's errors that trying again does not help
local LOG_EVERY = 10 -- seconds between two log lines of one kind

local scripts = { claim = tg.redis.script "claim", hold = tg.redis.script "hold", store = tg.redis.script "store" }
local told = {} -- kind → when it was last logged

--- Logs something about a key, of one kind once in a while. Where Redis cannot be reached the host tells it.
function M.tell(level, text, key, err)
  if UNREACHED[err] then return end
  local now = tg.now()
  if told[text] and math.abs(now - told[text]) < LOG_EVERY then return end
  told[text] = now
  tg.log[level]("idempotency: ", key, ": ", text, err and ": " .. err or "")
end

--- Keys and arguments of `hold`, for many claims at once.
function M.renew(keys, args) return scripts.hold:run(keys, args) end

local function hold(instance, claim, what)
  local reply, err = scripts.hold:run({ claim.key }, { claim.owner, what, claim.lease_ms, claim.keep_ms }, instance.redis)
  return reply and reply[1], err
end

--- What Redis says of the key. `asked` says that the claim may be ours: from the moment in which it is sent until it is known
-- not to be.
-- @tparam table instance refuse, redis (options of the calls)
-- @tparam table claim key, owner, fingerprint, lease_ms, keep_ms
-- @treturn string|nil "claimed", "mismatch", "running", "lost", "done"
-- @treturn table|string { "done", status, headers, body }; or the error
function M.ask(instance, claim)
  claim.asked = true
  local reply, err = scripts.claim:run({ claim.key }, { claim.owner, claim.fingerprint, claim.lease_ms }, instance.redis)
  if not reply then
    claim.asked = err == "timeout" or err == "closed"
    return nil, err
  end
  local what = reply[1]
  if what == "claimed" and instance.refuse then
    -- Only now that it is known to be ours: a claim that nobody knows of must not outlive its lease.
    local held
    held, err = hold(instance, claim, "renew")
    if held ~= "ok" then return nil, err or "the lease lapsed at once" end
  end
  claim.asked = what == "claimed"
  return what, reply
end

--- Makes the claim what it is to be.
-- @tparam table instance refuse, ttl_ms, redis
-- @tparam table claim what ("store", "release", "lose"), counted (the outcome, which it corrects); status, headers, body
-- @treturn boolean|nil whether that is done, or can never be; else the error
function M.settle(instance, claim)
  local err
  if claim.what == "store" then
    local reply
    reply, err = scripts.store:run({ claim.key },
      { claim.owner, claim.status, tg.json.encode(tg.json.array(claim.headers)), claim.body, instance.ttl_ms }, instance.redis)
    if reply then
      claim.counted = reply == "stored" and claim.counted or "lost"
      return true
    end
  elseif claim.what == "lose" and not instance.refuse then
    return true -- the lease lapses by itself
  else
    local reply
    reply, err = hold(instance, claim, claim.what)
    if reply then
      claim.counted = reply == "ok" and claim.counted or "lost"
      return true
    end
  end
  if not FINAL[err:match("^%u*")] then return nil, err end
  -- Redis will never have the answer: then the next request runs, or is told that nobody knows.
  M.tell("error", "it could not be written", claim.key, err)
  if claim.what ~= "store" then return true end
  claim.what, claim.counted, claim.body = instance.refuse and "lose" or "release", "not_stored", nil
  return M.settle(instance, claim)
end

return M
