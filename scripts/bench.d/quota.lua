-- The peer of the full job: what one writes for nginx's Lua module. One script on access decides bucket, concurrency
-- and budget and reserves; one behind the answer settles. Connections to Redis are pooled.
local redis = require "nginx.redis"
redis.add_commands "evalsha"

local ADMIT = [[
local t = redis.call('TIME')
local now = t[1] * 1000 + math.floor(t[2] / 1000)
local rate, burst, tokens, budget, most, id =
  tonumber(ARGV[1]), tonumber(ARGV[2]), tonumber(ARGV[3]), tonumber(ARGV[4]), tonumber(ARGV[5]), ARGV[6]
local bucket = redis.call('HMGET', KEYS[1], 'tokens', 'last_refill')
local left = math.min(burst, (tonumber(bucket[1]) or burst) + (now - (tonumber(bucket[2]) or now)) * rate / 1000)
if left < 1 then return 'rate' end
if redis.call('SCARD', KEYS[4]) >= most then return 'concurrency' end
if tonumber(redis.call('GET', KEYS[2]) or '0') + tokens > budget then return 'budget' end
redis.call('SET', KEYS[3], tokens, 'EX', 300)
redis.call('HSET', KEYS[1], 'tokens', left - 1, 'last_refill', now)
redis.call('PEXPIRE', KEYS[1], 2000)
redis.call('INCRBY', KEYS[2], tokens)
redis.call('EXPIRE', KEYS[2], 3456000)
redis.call('SADD', KEYS[4], id)
redis.call('EXPIRE', KEYS[4], 300)
return 'ok'
]]

local SETTLE = [[
local reserved = redis.call('GETDEL', KEYS[2])
if reserved then redis.call('INCRBY', KEYS[1], tonumber(ARGV[1]) - tonumber(reserved)) end
redis.call('SREM', KEYS[3], ARGV[2])
return 'ok'
]]

local sha, requests = {}, 0

local function eval(script, ...)
  local connection = redis:new()
  connection:set_timeout(1000)
  local ok, err = connection:connect("127.0.0.1", tonumber(os.getenv "REDIS_PORT"))
  if not ok then return nil, err end
  sha[script] = sha[script] or connection:script("load", script)
  local answer
  answer, err = connection:evalsha(sha[script], ...)
  connection:set_keepalive(60000, 256)
  return answer, err
end

local function names(key, id)
  return "q:tokens:" .. key .. ":" .. os.date "!%Y%m", "q:reserved:" .. id, "q:conc:" .. key
end

local function settle(_, key, id)
  local spent, reserved, flying = names(key, id)
  eval(SETTLE, 3, spent, reserved, flying, 43, id)
end

local M = {}

function M.access()
  local key = ngx.var.http_x_api_key
  if not key then return ngx.exit(401) end
  requests = requests + 1
  local id = ngx.worker.pid() .. "-" .. requests
  local spent, reserved, flying = names(key, id)
  local answer, err = eval(ADMIT, 4, "q:rps:" .. key, spent, reserved, flying, 1000000, 1000000, 130, 1e15, 100000, id)
  if not answer then
    ngx.log(ngx.ERR, err)
    return ngx.exit(503)
  end
  if answer ~= "ok" then return ngx.exit(429) end
  ngx.ctx.id, ngx.ctx.key = id, key
end

function M.log()
  if ngx.ctx.id then ngx.timer.at(0, settle, ngx.ctx.key, ngx.ctx.id) end
end

return M
