-- cache and a Redis that fails: a request never does. One that cannot be looked up goes to its origin, what cannot be kept is
-- not, and after a kill at any command every key has a lifetime.
local support = require "spec.support"
local rig = require "spec.plugins.cache.rig"
local async = support.async

local redis
local up, down = support.shared(function() redis = support.redis() end)

describe("cache, where Redis fails", function()
  setup(up)
  teardown(down)
  before_each(async(function() redis:must("FLUSHALL") end))

  it("asks the origin where it is away, and answers from it again when it is back", async(function()
    local own = support.redis()
    local origin = support.llm_origin()
    local gw = rig.gateway { redis = own, origin = origin.url }
    gw:request(rig.ask("openai-chat"))
    rig.wait_kept(own, 1)
    own:stop()
    gw:wait_log("redis: ", true)
    for i = 1, 3 do
      local res, status = rig.send(gw, rig.ask("openai-chat"))
      assert.equal(200, res.status)
      assert.equal("tollgate; fwd=miss; detail=redis", status)
      assert.equal(1 + i, #origin.requests)
    end
    rig.wait_count(gw, "cache_requests_total", "openai-chat", "error", 3)
    own:restart()
    support.wait_for(function()
      gw:request(rig.ask("openai-chat"))
      return #own:must("KEYS", "cache:*") == 1
    end, "an answer to be kept again")
    local _, status = rig.send(gw, rig.ask("openai-chat"))
    assert.matches("hit", status)
  end))

  it("asks the origin where it hangs, and all who ask at once share that", async(function()
    local proxy = support.proxy { to = redis.socket, resp = true }
    local origin = support.llm_origin { delay_ms = 50 }
    local gw = rig.gateway { redis = redis, url = "redis://127.0.0.1:" .. proxy.port .. "/0", origin = origin.url,
      cache = { deadline = 0.5 } }
    gw:request(rig.ask("openai-chat"))
    rig.wait_kept(redis, 1)
    proxy:hold "up"
    local calls = {}
    for i = 1, 20 do calls[i] = function() return gw:request(rig.ask("openai-chat")).status end end
    for _, status in ipairs(support.all(calls)) do assert.equal(200, status) end
    assert.is_true(#origin.requests <= 3) -- who comes when the first answer is there asks again
    proxy:release "up"
  end))

  it("does not keep an answer where Redis is lost meanwhile", async(function()
    local proxy = support.proxy { to = redis.socket, resp = true }
    local origin = support.llm_origin()
    local gw = rig.gateway { redis = redis, url = "redis://127.0.0.1:" .. proxy.port .. "/0", origin = origin.url }
    proxy:on_command(function(args) return args[1] == "SET" and "cut" or nil end)
    for _ = 1, 3 do
      local res = gw:request(rig.ask("openai-chat"))
      assert.equal(200, res.status)
      assert.equal("Hello, world!", support.json(res).choices[1].message.content)
    end
    assert.equal(0, #redis:must("KEYS", "cache:*"))
    gw:wait_log("cache: an answer could not be kept: closed", true)
  end))

  it("takes what holds no text for a miss", async(function()
    local origin = support.llm_origin()
    local gw = rig.gateway { redis = redis, origin = origin.url }
    gw:request(rig.ask("openai-chat"))
    rig.wait_kept(redis, 1)
    local key = redis:must("KEYS", "*")[1]
    redis:must("DEL", key)
    redis:must("HSET", key, "a", 1)
    redis:must("EXPIRE", key, 100)
    local res, status = rig.send(gw, rig.ask("openai-chat"))
    assert.equal(200, res.status)
    assert.equal("tollgate; fwd=miss; detail=redis", status)
  end))

  it("stops keeping where Redis has used its share of memory", async(function()
    local own = support.redis { args = { "--maxmemory", "100mb" } }
    own:must("SET", "ballast", ("x"):rep(30 * 2 ^ 20), "EX", 1000)
    local origin = support.llm_origin()
    local gw = rig.gateway { redis = own, origin = origin.url, cache = { memory_share = 0.2 } }
    local n = 0
    support.wait_for(function()
      n = n + 1
      local _, status = rig.send(gw, rig.ask("openai-chat", { seed = n }))
      return status == "tollgate; fwd=miss"
    end, "the look at Redis's memory", 10000)
    -- One that was announced as stored may have come too late as well.
    support.wait_for(function() return rig.count(gw, "cache_fills_total", "openai-chat", "full") >= 1 end, "a fill that is not")
    local kept = #own:must("KEYS", "cache:*")
    own:must("DEL", "ballast")
    support.wait_for(function()
      n = n + 1
      return select(2, rig.send(gw, rig.ask("openai-chat", { seed = n }))):find("stored", 1, true)
    end, "room", 10000)
    support.wait_for(function() return #own:must("KEYS", "cache:*") > kept end, "an answer to be kept again")
  end))

  it("leaves every key with a lifetime and no lock beyond its lease, wherever it is killed", async(function()
    local origin = support.llm_origin()
    local commands = support.redis_tap.each {
      redis = redis,
      start = function(url) return rig.gateway { url = url, origin = origin.url } end,
      run = function(gw)
        gw:request(rig.ask("openai-chat"))
        support.wait_for(function() return gw.process.exited or #redis:must("KEYS", "cache:*") == 1 end, "the kept answer")
        gw:request(rig.ask("openai-chat", { stream = true }))
      end,
      check = function()
        -- Another gateway goes on at once: flights are in no Redis.
        local gw = rig.gateway { redis = redis, origin = origin.url }
        assert.equal(200, gw:request(rig.ask("openai-chat")).status)
        gw:stop()
      end,
    }
    assert.is_true(commands >= 7)
  end))
end)
