-- reload: follows the routing version that `tollgate publish` raises (cfg:routing:version in Redis), so that all replicas
-- load what an operator has published. It serves no route: it stands in the gateway's `plugins`, and one worker of a
-- replica looks every `interval`, or at once where a publish says so.
--
-- With `routing.source = "files"` a publish means that the replica's own files are to be loaded again; with "redis" routes
-- and plugins come from Redis, as data, with a checksum. The gateway compares versions, and reloads once, however many
-- were missed; nothing here writes to Redis.

local tg = require "tollgate"
local record = require "tollgate.routing_record"

local M = {
  version = "1.0.0",
  priority = 10,
  scope = "gateway",
  schema = {
    interval = { type = "duration", min = 0.05, max = 3600, default = 1, doc = "seconds between two looks" },
    stale_after = { type = "duration", min = 1, max = 86400 * 366,
      doc = "seconds; /readyz answers 503 where what runs was not known to be what is published for so long; absent: never" },
  },
}

local sources = setmetatable({}, { __mode = "k" }) -- conf → routing.source
local told = setmetatable({}, { __mode = "k" })    -- conf → what was logged last

function M.check(conf, _, about)
  sources[conf] = about.config.routing.source
end

-- A state that lasts is logged once.
local function tell(conf, message)
  if message and told[conf] ~= message then tg.log.warn("reload: ", message) end
  told[conf] = message
end

-- The version in Redis: 0 where there is none; nil and why where it cannot be told.
local function published()
  local text, err = tg.redis.call("GET", record.VERSION)
  if err then return nil, err end
  if not text then return 0 end
  local version = text:match("^%d+$") and tonumber(text)
  if not version or version >= 2 ^ 53 then return nil, record.VERSION .. " holds no version" end
  return version
end

local function policy_of(version)
  local key = record.POLICY .. ("%d"):format(version)
  local text, err = tg.redis.call("GET", key)
  if err then return nil, err end
  if not text then return nil, key .. " is not there" end
  local policy, wrong = record.read(tg.crypto.sha256, text)
  if not policy then return nil, key .. " " .. wrong end
  return policy
end

local function look(conf)
  local version, err = published()
  local policy
  if version and version > 0 and version ~= tg.routing.version() and sources[conf] == "redis" then
    policy, err = policy_of(version)
    if not policy then version = nil end
  end
  tell(conf, err)
  tg.routing.follow { version = version, stale_after = conf.stale_after, policy = policy }
end

function M.init(conf)
  local function soon() tg.timer.after(0, function() look(conf) end, { once = true }) end
  tg.timer.every(conf.interval, function() look(conf) end, { once = true })
  tg.redis.subscribe(record.NUDGE, soon, { on_gap = soon })
end

return M
