-- The gateway's own memory in front of Redis (L1): what it saves, that it ends with its time, with an invalidation, and
-- with any interruption of the channel that tells of these; and what never gets into it.
local resources = require "spec.plugins.cache.resource_rig"
local rig = require "spec.plugins.cache.rig"
local support = require "spec.support"
local async = support.async

local redis
local up, down = support.shared(function() redis = support.redis() end)

local PROFILE = { { key = "profile:{tenantId}", path = "/tenants/{tenantId}/balance" } }
local HOOK = { events = { ["balance.updated"] = { drop = { "profile:{tenantId}" } } } }

local function start(options)
  return resources.gateway(rig.merged({ redis = redis, caches = PROFILE, hook = HOOK, cache = { l1 = 60 } }, options))
end

-- Puts another value under the key, behind the gateway's back: who still gets the old one got it from L1.
local function replace(value)
  redis:must("SET", "profile:a", ('{"balance":%d}'):format(value), "EX", 60)
end

local function read(gw) return support.json(gw:request(resources.get())).balance end

describe("cache, in the gateway's own memory", function()
  setup(up)
  teardown(down)
  before_each(async(function() redis:must("FLUSHALL") end))

  it("answers without Redis, in all workers", async(function()
    local proxy = support.proxy { to = redis.socket, resp = true }
    local gw = start { url = "redis://127.0.0.1:" .. proxy.port .. "/0", origin = resources.origin().url,
      config = { workers = 2 } }
    local gets = 0
    proxy:on_command(function(args) gets = gets + (args[1] == "GET" and args[2] == "profile:a" and 1 or 0) end)
    replace(1)
    -- A worker that begins to listen empties it for all, so this may take more than one try.
    support.wait_for(function()
      local value, before = read(gw), gets
      replace(value + 1)
      for _ = 1, 20 do
        local res, status = rig.send(gw, resources.get())
        assert.matches("hit; ttl=", status)
        if support.json(res).balance ~= value then return false end
      end
      assert.equal(before, gets)
      return true
    end, "answers without Redis")
  end))

  it("is off unless it is asked for", async(function()
    local gw = start { origin = resources.origin().url, cache = {} }
    for value = 1, 3 do
      replace(value)
      assert.equal(value, read(gw))
    end
  end))

  it("ends with its own time, and with the value's", async(function()
    local gw = start { origin = resources.origin().url, cache = { l1 = 0.05 } }
    replace(1)
    assert.equal(1, read(gw))
    replace(2)
    support.wait_for(function() return read(gw) == 2 end, "the newer value")
    local long = start { origin = resources.origin().url }
    redis:must("SET", "profile:a", '{"balance":-1}', "PX", 150)
    assert.equal(-1, read(long))
    support.wait_for(function() return read(long) > 0 end, "the end of the value")
  end))

  it("ends with an invalidation, in every replica", async(function()
    local origin = resources.origin()
    local one, two = start { origin = origin.url }, start { origin = origin.url }
    replace(-1)
    assert.same({ -1, -1 }, { read(one), read(two) })
    resources.invalidate(one)
    support.wait_for(function() return read(one) > 0 end, "the replica that took the event")
    support.wait_for(function() return read(two) > 0 end, "the other replica")
  end))

  it("is emptied when the channel of invalidations was interrupted", async(function()
    local proxy = support.proxy { to = redis.socket, resp = true }
    local gw = start { url = "redis://127.0.0.1:" .. proxy.port .. "/0", origin = resources.origin().url }
    local value
    replace(1)
    support.wait_for(function()
      value = read(gw)
      replace(value + 1)
      return read(gw) == value
    end, "an answer without Redis")
    proxy:cut()
    support.wait_for(function() return read(gw) == value + 1 end, "an empty memory")
  end))

  it("holds exact responses too, and never keys that have to be invalidated", async(function()
    local origin = support.llm_origin()
    local gw = rig.gateway { redis = redis, origin = origin.url, cache = { l1 = 60 } }
    local function ask(stream) return rig.send(gw, rig.ask("openai-chat", { stream = stream })) end
    local first = ask(false)
    support.wait_for(function()
      ask(false)
      rig.wait_kept(redis, 1)
      ask(false)
      redis:must("FLUSHALL")
      local before = #origin.requests
      local res, status = ask(true)
      if not status:find("hit", 1, true) then return false end
      assert.matches("data: [DONE]", res.body, 1, true)
      assert.equal(first.body, ask(false).body)
      return #origin.requests == before
    end, "answers without Redis")
  end))
end)
