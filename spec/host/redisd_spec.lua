-- The private redis-server, end to end: limits outlive their gateway, however it ended; the server is started again when
-- it dies and ends with its gateway; one data directory has one gateway; and a Redis that may evict keys is refused.
local uv = require "luv"
local support = require "spec.support"
local rig = require "spec.plugins.quota.rig"
local async = support.async

local LIMITS = { rps = 0.001, burst = 10, monthly_tokens = 1000 }

local function start(dir, options)
  options = options or {}
  return rig.gateway { dir = dir, origin = (options.origin or support.chat_origin()).url, limits = options.limits or LIMITS,
    route = options.route, config = options.config }
end

-- One inline command to the private server, on a connection of its own.
local function ask(gw, command)
  local conn = support.connect(gw.dir .. "/data/redis.sock")
  conn:send(command .. "\r\n")
  local size = tonumber(conn:read_until("\r\n", true):match("^%$(%d+)"))
  local text = conn:read_n(size)
  conn:close()
  return text
end

local function server_pid(gw)
  return tonumber(ask(gw, "INFO server"):match("process_id:(%d+)"))
end

-- Also where nobody has asked how it ended.
local function is_gone(pid)
  local stat = support.read_file(("/proc/%d/stat"):format(pid))
  return not stat or stat:match("%) (%a)") == "Z"
end

local function remaining(res)
  return { res.status, res.headers["x-ratelimit-remaining-requests"], res.headers["x-ratelimit-remaining-tokens"] }
end

local function wait_admitted(gw)
  local res
  support.wait_for(function()
    res = gw:request(rig.chat())
    return res.status == 200
  end, "an admission", 10000)
  return res
end

describe("the private redis-server", function()
  it("keeps limits over a restart of the gateway, and ends with it", async(function()
    local dir = support.tmpdir()
    local gw = start(dir)
    assert.same({ 200, "9", "990" }, remaining(wait_admitted(gw)))
    local pid = server_pid(gw)
    gw:stop()
    assert.is_true(is_gone(pid))
    gw = start(dir)
    assert.same({ 200, "8", "977" }, remaining(wait_admitted(gw)))
    assert.not_equal(pid, server_pid(gw))
  end))

  it("keeps them although the gateway is killed, and does not outlive it", async(function()
    local dir = support.tmpdir()
    local gw = start(dir)
    wait_admitted(gw)
    gw:wait_metric("quota_settled_total", 1) -- or the server may end with the settlement unread
    local pid = server_pid(gw)
    gw:kill "sigkill"
    support.wait_for(function() return is_gone(pid) end, "the server's end", 10000)
    gw = start(dir)
    assert.same({ 200, "8", "977" }, remaining(wait_admitted(gw)))
  end))

  it("is started again when it is killed, with what it knew", async(function()
    local gw = start(support.tmpdir())
    wait_admitted(gw)
    gw:wait_metric("quota_settled_total", 1) -- or the server may end with the settlement unread
    local pid = server_pid(gw)
    uv.kill(pid, "sigkill")
    support.wait_for(function() return is_gone(pid) end, "its end")
    assert.equal(503, gw:request(rig.chat()).status)
    assert.same({ 200, "8", "977" }, remaining(wait_admitted(gw)))
    assert.not_equal(pid, server_pid(gw))
    assert.matches("private redis: ended by signal 9", gw.log(), 1, true)
  end))

  it("listens on no port, and lets in only its owner", async(function()
    local gw = start(support.tmpdir())
    wait_admitted(gw)
    assert.matches("tcp_port:0\r\n", ask(gw, "INFO server"), 1, true)
    assert.equal(tonumber("600", 8), bit.band(uv.fs_stat(gw.dir .. "/data/redis.sock").mode, tonumber("777", 8)))
    local memory = ask(gw, "INFO memory")
    assert.matches("maxmemory_policy:noeviction", memory, 1, true)
    assert.matches("aof_enabled:1", ask(gw, "INFO persistence"), 1, true)
  end))

  it("gives every key a lifetime", async(function()
    local gw = start(support.tmpdir(), { origin = support.chat_origin { stall_after = 2 },
      limits = { rps = 1, burst = 10, monthly_tokens = 1000, concurrency = 3 } })
    local conn = gw:connect()
    conn:send_request(rig.chat { stream = true })
    assert.equal(200, assert(conn:read_head()).status)
    -- The bucket, the counter, the reservation and the slots.
    assert.matches("db0:keys=4,expires=4", ask(gw, "INFO keyspace"), 1, true)
    conn:close()
    support.wait_for(function() return ask(gw, "INFO keyspace"):find("db0:keys=2,expires=2", 1, true) end, "the settlement")
  end))

  it("is not shared by two gateways", async(function()
    local dir = support.tmpdir()
    local gw = start(dir)
    wait_admitted(gw)
    -- It waits for a while, since a gateway that ends may hold it still.
    local second = support.tollgate({ "run", "-c", dir .. "/gateway.lua" }, { timeout = 20000 })
    assert.equal(1, second.code)
    assert.matches("another gateway uses it", second.err)
    assert.equal(200, gw:request(rig.chat()).status)
  end))
end)

describe("a Redis that may evict keys", function()
  local function config(redis, eviction)
    return { redis = { url = redis.url, eviction = eviction } }
  end

  it("is refused", async(function()
    local redis = support.redis { args = { "--maxmemory-policy", "allkeys-lru" } }
    local dir = support.tmpdir()
    support.write_file(dir .. "/gateway.lua", ([[return { listen = "127.0.0.1:0", admin = false, redis = %q,
      routes = { { name = "r", path = "/", targets = { { url = "http://127.0.0.1:1" } } } } }]]):format(redis.url))
    local res = support.tollgate { "run", "-c", dir .. "/gateway.lua" }
    assert.equal(1, res.code)
    assert.matches("redis: maxmemory%-policy is allkeys%-lru.*noeviction", res.err)
  end))

  it("is warned of where so set", async(function()
    local redis = support.redis { args = { "--maxmemory-policy", "volatile-ttl" } }
    local gw = rig.gateway { redis = redis, origin = support.chat_origin().url, limits = LIMITS,
      config = config(redis, "warn") }
    assert.matches("warn .*volatile%-ttl", gw:wait_log("[^\n]*maxmemory%-policy[^\n]*"))
    assert.equal(200, gw:request(rig.chat()).status)
  end))
end)
