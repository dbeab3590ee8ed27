-- tollgate publish: raises the routing version in Redis, which all replicas follow. The host has the configuration checked
-- between `prepare` (or `former`) and `commit`.

local tg = require "tollgate"
local policies = require "tollgate.config_policy"
local record = require "tollgate.routing_record"
local sandbox = require "tollgate.config_sandbox"

local M = {}

local ATTEMPTS = 10
local KEPT = 7 * 86400 -- seconds that a superseded policy stays, for a rollback
local TIMEOUT = 3      -- seconds

local function read(path)
  local file, err = io.open(path, "rb")
  if not file then return nil, err end
  local text = file:read "*a"
  file:close()
  return text
end

local function ask(command)
  command.timeout = TIMEOUT
  local reply, err = tg.redis.call(command)
  if err then error("redis: " .. err, 0) end
  return reply
end

-- What the file says, env and file aside; nil where it is not to be run twice: a check will tell why.
local function source_of(path, text)
  local nothing = { env = function() return "" end, read = function() return "" end }
  local raw = text and sandbox.run(path, text, nothing)
  return raw and type(raw.routing) == "table" and raw.routing.source or "files"
end

--- Makes the policy of a configuration file.
-- @tparam string path
-- @treturn string|nil JSON; nil where routing.source is "files", or where the file is wrong, which its check tells
-- @treturn string|nil why there can be none
function M.prepare(path)
  local text = read(path)
  if source_of(path, text) ~= "redis" then return nil end
  local policy, err = policies.make(path, text, { read = read })
  if not policy then return nil, err end
  if policy.routes == nil then return nil, "routes is missing" end
  local ok, json = pcall(tg.json.encode, policy)
  if not ok then return nil, "routes and plugins must be plain data to be published: " .. tostring(json) end
  return json
end

local function policy_at(version)
  local key = record.POLICY .. ("%d"):format(version)
  local text = ask { "GET", key }
  if not text then error(("the policy of version %d is not in Redis (any more)"):format(version), 0) end
  local policy, of = record.read(tg.crypto.sha256, text)
  if not policy then error(key .. " " .. of, 0) end
  return policy, of
end

--- The policy before the current one. Waits.
-- @treturn string JSON
-- @treturn integer the version that it was first published as
-- @treturn string the current version
function M.former()
  local version = ask { "GET", record.VERSION }
  if not version or not version:find "^%d+$" then error("nothing has been published", 0) end
  local _, of = policy_at(tonumber(version))
  if of <= 1 then error("there is no policy before the current one", 0) end
  local policy = policy_at(of - 1)
  return policy, of - 1, version
end

--- Publishes. Waits.
-- @tparam string script path of the Redis script
-- @tparam string|nil policy JSON; nil: the replicas' own files
-- @tparam integer|nil of version that the policy was first published as; nil: this one
-- @tparam string|nil seen the version that it must follow; nil: whichever
-- @treturn string the new version
function M.commit(script, policy, of, seen)
  local body = assert(read(script))
  for _ = 1, ATTEMPTS do
    local current = seen or ask { "GET", record.VERSION } or ""
    local now = tonumber(current) or 0
    local reply
    if policy then
      local text = record.write(tg.crypto.sha256, policy, of or now + 1)
      reply = ask { "EVAL", body, 3, record.VERSION, record.POLICY .. ("%d"):format(now + 1), record.POLICY .. ("%d"):format(now),
        record.NUDGE, current, text, KEPT }
    else
      reply = ask { "EVAL", body, 1, record.VERSION, record.NUDGE, current }
    end
    if reply ~= "moved" then return reply end
    if seen then break end
  end
  error("somebody else is publishing; try again", 0)
end

return M
