-- webhook and a Redis that fails at any point: a sender is told to try again unless everything was done, and a try that
-- comes again, late or twice brings everything to the same end. Also events at two replicas at once.
local support = require "spec.support"
local rig = require "spec.plugins.webhook.rig"
local async = support.async

local TIMEOUT = 0.3 -- seconds

local function assert_unavailable(gw)
  local res, code = rig.ask(gw)
  assert.same({ 503, "webhook_unavailable", "1" }, { res.status, code, res.headers["retry-after"] })
end

local function wait_done(gw, fields)
  local status, outcome
  support.wait_for(function()
    status, outcome = rig.send(gw, fields)
    return status == 200
  end, "recovery", 10000)
  return outcome
end

local function assert_lifetimes(redis)
  for key, entry in pairs(redis:dump()) do assert(entry.expires_at > 0, key .. " has no lifetime") end
end

-- A script, or the note of an event's id.
local function kind_of(args)
  local name = args[1]:upper()
  if name == "EVALSHA" or name == "EVAL" then return "script" end
  return name == "SET" and args[2]:match "^hook:" and "note"
end

local function behind_proxy(redis)
  local proxy = support.proxy { to = redis.socket, resp = true }
  local gw = rig.gateway { url = "redis://127.0.0.1:" .. proxy.port, settings = { timeout = TIMEOUT, connect_timeout = TIMEOUT } }
  wait_done(gw, { id = "warm", data = { tenantId = "warm" } })
  return gw, proxy
end

describe("a webhook", function()
  it("answers 503 while Redis is away or hangs, and does it when it is back", async(function()
    local redis = support.redis()
    local gw = rig.gateway { redis = redis, settings = { timeout = TIMEOUT, connect_timeout = TIMEOUT } }
    wait_done(gw)
    redis:stop()
    assert_unavailable(gw)
    redis:restart()
    rig.fill(redis, "t")
    assert.equal("done", wait_done(gw))
    assert.equal(0, rig.left(redis, "t"))
    redis:pause()
    for _ = 1, 3 do assert_unavailable(gw) end
    redis:resume()
    rig.fill(redis, "t")
    assert.equal("duplicate", wait_done(gw))
    assert.equal(0, rig.left(redis, "t"))
    assert_lifetimes(redis)
    assert.truthy(gw.log():find("could not be done: ", 1, true))
  end))

  it("answers 503 where Redis refuses the script, before anything was changed", async(function()
    local redis = support.redis()
    local gw = rig.gateway { redis = redis }
    rig.fill(redis, "t")
    redis:must("ACL", "SETUSER", "default", "-publish")
    assert_unavailable(gw)
    assert.equal(0, redis:must("EXISTS", "hook:billing:evt_1"))
    redis:must("ACL", "SETUSER", "default", "+publish")
    assert.same({ 200, "done" }, { rig.send(gw) })
  end))

  for _, case in ipairs {
    { "script", "lose_reply" }, { "script", "cut" }, { "script", "drop" }, { "script", "hold_cut" },
    { "note", "lose_reply" }, { "note", "cut" }, { "note", "drop" }, { "note", "hold_cut" },
  } do
    local step, action = unpack(case)
    it(("survives %s of the %s"):format(action, step), async(function()
      local redis = support.redis()
      local gw, proxy = behind_proxy(redis)
      rig.fill(redis, "t")
      local once = false
      proxy:on_command(function(args)
        if once or kind_of(args) ~= step then return nil end
        once = true
        return action
      end)
      assert_unavailable(gw)
      assert.is_true(once)
      assert.equal(step == "note" and 0 or rig.left(redis, "t"), rig.left(redis, "t"))
      wait_done(gw)
      assert.equal(0, rig.left(redis, "t"))
      local fence = rig.fence(redis, "balance:t")
      -- What was sent at first comes late: it does no harm.
      proxy:release "up"
      rig.fill(redis, "t")
      assert.equal("duplicate", wait_done(gw))
      assert.equal(0, rig.left(redis, "t"))
      assert.is_true(rig.fence(redis, "balance:t") > fence)
      assert_lifetimes(redis)
    end))
  end

  it("that is killed at any of its commands leaves no key without a lifetime, and the next try does it all", async(function()
    local redis = support.redis()
    local commands = support.redis_tap.each {
      redis = redis,
      start = function(url)
        rig.fill(redis, "t")
        return rig.gateway { url = url }
      end,
      run = function(gw) assert.equal(200, gw:request(rig.event()).status) end,
      check = function(killed)
        if redis:must("EXISTS", "hook:billing:evt_1") == 1 then assert.equal(0, rig.left(redis, "t")) end
        if not killed then return end
        assert.equal(200, (rig.send(rig.gateway { redis = redis })))
        assert.equal(0, rig.left(redis, "t"))
        assert_lifetimes(redis)
      end,
    }
    assert.is_true(commands >= 2)
  end), 60000)
end)

describe("events at two replicas", function()
  it("repeated and out of order do no harm, and one of each id is new", async(function()
    local redis = support.redis()
    local replicas = { rig.gateway { redis = redis }, rig.gateway { redis = redis, config = { workers = 2 } } }
    local told = redis:listen "cache:invalidate"
    local before, high = {}, {}
    for tenant = 1, 5 do
      local key = "balance:t" .. tenant
      redis:must("SET", "fence:" .. key, ("%.0f"):format(4e15 + tenant), "EX", 1000) -- a clock that was ahead
      before[key], high[key] = rig.fence(redis, key), 0
    end
    local calls, seen, sent = {}, {}, 0
    for i = 1, 40 do
      calls[i] = function()
        for k = 1, 10 do
          local id = ("e%d"):format((i * 7 + k * 3) % 100)
          local tenant = (i + k) % 5 + 1
          local status, outcome = rig.send(replicas[(i + k) % 2 + 1], { id = id, data = { tenantId = "t" .. tenant } })
          assert.equal(200, status)
          seen[id] = (seen[id] or 0) + (outcome == "done" and 1 or 0)
          high["balance:t" .. tenant] = high["balance:t" .. tenant] + 1
          sent = sent + 1
        end
      end
    end
    support.all(calls)
    for id, n in pairs(seen) do assert.equal(1, n, id) end
    -- Each event raised its fence by one: none was lost, none came twice.
    for key, n in pairs(high) do assert.equal(before[key] + n, rig.fence(redis, key)) end
    for _ = 1, 2 * sent do assert.matches("^%l+:t%d", told()) end
    assert_lifetimes(redis)
  end))
end)
