#!lua flags=allow-oom
-- Renews, releases or gives up claims on idempotency keys, each only for its owner: of a claim that
-- lapsed, or that somebody else has by now, nothing changes.
--
-- KEYS: idem:{ns}:{hash} ...
-- ARGV: for each key: owner, what to do, lease in ms, keep in ms (0: the key lives as long as the
--   lease)
--   renew    the lease begins anew
--   release  the key is deleted: the next request runs
--   lose     nobody will ever know the outcome; with keep, repeats are told so until it is over
-- Returns a string for each key: "ok", or "lost" where the owner has no claim on it any more.

local now = redis.call("TIME")
local ms = now[1] * 1000 + math.floor(now[2] / 1000)
local answer = {}

local function lease(key, till, length, keep)
  if keep == "0" then
    redis.call("PEXPIRE", key, length)
    return
  end
  redis.call("HSET", key, "lease", string.format("%.0f", till))
  redis.call("PEXPIRE", key, keep)
end

for i, key in ipairs(KEYS) do
  local at = 4 * i - 3
  local owner, what, length, keep = ARGV[at], ARGV[at + 1], ARGV[at + 2], ARGV[at + 3]
  local found = redis.pcall("HMGET", key, "owner", "state")
  if found.err or found[1] ~= owner or found[2] ~= "running" then
    answer[i] = "lost"
  else
    answer[i] = "ok"
    if what == "renew" then
      lease(key, ms + length, length, keep)
    elseif what == "release" then
      redis.call("DEL", key)
    elseif keep ~= "0" then
      lease(key, 0, length, keep)
    end
  end
end

return answer
