-- Where answers are kept: Redis, and where a route wants it, for a short time, the dictionary that the workers share (L1).
--
-- L1 is one generation of entries at a time: whatever may have made an entry stale without this worker being told (the
-- channel of invalidations was interrupted) begins the next one, which empties L1 for all workers. Redis that errs is a miss
-- without a fill; fills also stop while Redis has used more than a share of its memory.

local tg = require "tollgate"
local keys = require "webhook.cached_keys"

local M = {}

local L1, EPOCH, DROPS = "cache:l1:", "cache:l1-epoch", "cache:l1-drops"
local MEMORY_EVERY = 2 -- seconds between two looks at Redis's memory

local used = 0         -- share of Redis's maxmemory that is in use; 0 where there is no maximum
local started = {}

local function look_at_memory()
  local info = tg.redis.call("INFO", "memory")
  if type(info) ~= "string" then return end
  local now, max = tonumber(info:match "\nused_memory:(%d+)"), tonumber(info:match "\nmaxmemory:(%d+)")
  used = now and max and max > 0 and now / max or 0
end

-- L1

local function epoch() return tg.shared.get(EPOCH) or 0 end

local function l1_name(key) return ("%s%d:%s"):format(L1, epoch(), key) end

local function empty_l1() tg.shared.incr(EPOCH, 1, 0) end

local function drop_from_l1(_, key)
  tg.shared.incr(DROPS, 1, 0)
  tg.shared.delete(l1_name(key))
end

--- Starts what a worker needs once. For init.
-- @tparam boolean with_l1
function M.start(with_l1)
  if not started.memory then
    tg.timer.every(MEMORY_EVERY, look_at_memory)
    started.memory = true
  end
  if with_l1 and not started.l1 then
    tg.redis.subscribe(keys.CHANNEL, drop_from_l1, { on_gap = empty_l1 })
    started.l1 = true
  end
end

-- Text and milliseconds left, or nil.
local function from_l1(key)
  local entry = tg.shared.get(l1_name(key))
  if type(entry) ~= "string" then return nil end
  local expires, at = entry:match("^(%d+)\n()")
  local left = expires and tonumber(expires) - tg.now() * 1000
  if left and left > 0 then return entry:sub(at), left end
end

-- `drops` is what was dropped before the value was read: it may not be kept where something was since.
local function into_l1(conf, key, text, left, drops)
  if (tg.shared.get(DROPS) or 0) ~= drops then return end
  local expires = tg.now() * 1000 + left
  tg.shared.set(l1_name(key), ("%.0f\n%s"):format(expires, text), math.min(conf.l1, left / 1000))
end

--- Looks an answer up.
-- @tparam table conf deadline, l1
-- @tparam string key
-- @tparam {table,...}|nil more further commands in the same round trip
-- @treturn string|nil text
-- @treturn number|nil milliseconds that it has left
-- @treturn string|nil what went wrong
-- @treturn table|nil the replies to `more`
function M.look(conf, key, more)
  local drops
  if conf.l1 then
    local text, left = from_l1(key)
    if text then return text, left end
    drops = tg.shared.get(DROPS) or 0
  end
  local commands = { { "GET", key }, { "PTTL", key } }
  for _, command in ipairs(more or {}) do commands[#commands + 1] = command end
  local replies, err = tg.redis.pipeline(commands, { timeout = conf.deadline })
  if not replies then return nil, nil, err end
  for _, reply in ipairs(replies) do
    if type(reply) == "table" and reply.err then return nil, nil, reply.err end
  end
  local text, left = replies[1] or nil, replies[2]
  if text and conf.l1 and left > 0 then into_l1(conf, key, text, left, drops) end
  return text, left, nil, { unpack(replies, 3) }
end

--- Whether Redis has room for a fill.
-- @tparam table conf memory_share
-- @treturn boolean
function M.has_room(conf)
  return used < conf.memory_share
end

--- Keeps an answer.
-- @tparam table conf deadline
-- @tparam string key
-- @tparam string text
-- @tparam number ttl seconds
-- @treturn boolean|nil true
-- @treturn string what went wrong
function M.put(conf, key, text, ttl)
  local reply, err = tg.redis.call { "SET", key, text, "PX", ("%.0f"):format(math.ceil(ttl * 1000)), timeout = conf.deadline }
  if reply then return true end
  return nil, err
end

return M
