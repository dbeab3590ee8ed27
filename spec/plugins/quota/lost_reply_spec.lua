-- Admissions and settlements whose replies are lost on the way: nobody knows what Redis did, and yet in every order in
-- which things can arrive nothing is charged twice, no slot is kept, and what was spent is charged.
local support = require "spec.support"
local rig = require "spec.plugins.quota.rig"
local async = support.async

-- A gateway that reaches Redis through a proxy.
local function start(options)
  options = options or {}
  local redis = support.redis()
  local proxy = support.proxy { to = redis.socket, resp = true }
  local origin = options.origin or support.chat_origin()
  local gw = rig.gateway { redis = redis, url = "redis://127.0.0.1:" .. proxy.port, origin = origin.url,
    limits = { rps = 0.001, burst = 100, monthly_tokens = 10000, concurrency = 5 },
    quota = { on_redis_error = options.on_redis_error } }
  gw:wait_log("redis: usable", true)
  return gw, redis, proxy, origin
end

-- Does something to the next call of a script, which is known by its hash; says when.
local function intercept(redis, proxy, script, action)
  local hash = redis:must("SCRIPT", "LOAD", support.read_file("scripts/redis/" .. script .. ".lua"))
  local hit = {}
  proxy:on_command(function(args)
    if args[1] ~= "EVALSHA" or args[2] ~= hash or hit.done then return "pass" end
    hit.done = true
    return action
  end)
  return hit
end

local function wait_voided(gw)
  support.wait_for(function() return gw:metric("quota_voided_total") == 1 end, "the void", 10000)
end

local function assert_closed(redis)
  local marks = redis:must("KEYS", "q:reserved:*")
  assert.equal(1, #marks)
  assert.equal("-1", redis:must("GET", marks[1]))
end

describe("an admission whose reply is lost", function()
  it("is taken back where Redis had admitted", async(function()
    local gw, redis, proxy = start()
    local hit = intercept(redis, proxy, "admit", "lose_reply")
    assert.equal(503, gw:request(rig.chat()).status)
    assert.is_true(hit.done)
    wait_voided(gw)
    assert.same({ tokens = 0, reserved = 0, open = 0, inflight = 0 }, rig.look(redis))
    assert.equal(200, gw:request(rig.chat()).status)
    assert.equal(13, rig.settled(redis))
  end))

  it("charges nothing where it arrives behind that", async(function()
    local gw, redis, proxy = start()
    intercept(redis, proxy, "admit", "hold_cut")
    assert.equal(503, gw:request(rig.chat()).status)
    wait_voided(gw)
    assert_closed(redis)
    local before = redis:dump()
    local calls = rig.script_calls(redis)
    proxy:release "up"
    support.wait_for(function() return rig.script_calls(redis) > calls end, "the late admission")
    assert.same(before, redis:dump())
    assert.is_nil(before["q:rps:k"]) -- not even a token of the bucket
  end))

  it("is settled at 0 where only the reply was late", async(function()
    local gw, redis, proxy = start()
    intercept(redis, proxy, "admit", "pass")
    proxy:hold "down"
    assert.equal(503, gw:request(rig.chat()).status)
    assert.same({ tokens = 10, reserved = 10, open = 1, inflight = 1 }, rig.look(redis))
    proxy:release "down"
    assert.equal(0, rig.settled(redis))
  end))

  it("is settled at 0 where the client has left meanwhile", async(function()
    local gw, redis, proxy, origin = start()
    proxy:hold "down"
    local conn = gw:connect()
    conn:send_request(rig.chat())
    support.wait_for(function() return rig.look(redis).open == 1 end, "the admission")
    conn:close()
    assert.equal("client_gone", gw:wait_access(1)[1].ended)
    proxy:release "down"
    assert.equal(0, rig.settled(redis))
    assert.equal(0, #origin.requests)
  end))

  for action, order in pairs { lose_reply = "before", hold_cut = "behind" } do
    it("costs once what was let pass without it, arriving " .. order .. " the settlement", async(function()
      local gw, redis, proxy = start { on_redis_error = "allow" }
      intercept(redis, proxy, "admit", action)
      assert.equal(200, gw:request(rig.chat()).status)
      wait_voided(gw)
      support.wait_for(function() return rig.look(redis).tokens == 13 end, "what it cost")
      proxy:release "up"
      assert.equal(200, gw:request(rig.chat()).status)
      assert.equal(26, rig.settled(redis))
    end))
  end

  it("takes back only its own of many in one call", async(function()
    local gw, redis, proxy, origin = start { origin = support.chat_origin { stall_after = 2 } }
    local kept = gw:connect()
    kept:send_request(rig.chat { stream = true })
    local next_event = support.events(assert(kept:read_head()))
    for _ = 1, 2 do assert(next_event()) end
    local hit = intercept(redis, proxy, "admit", "lose_reply")
    local statuses = rig.in_one_turn(gw, 4, rig.chat { stream = true })
    assert.is_true(hit.done)
    assert.same({ [503] = 4 }, statuses)
    support.wait_for(function() return gw:metric("quota_voided_total") == 4 end, "the voids", 10000)
    assert.same({ tokens = 10, reserved = 10, open = 1, inflight = 1 }, rig.look(redis))
    kept:close()
    assert.equal(2 + 2, rig.settled(redis)) -- the prompt and "Hello"
    assert.equal(1, #origin.requests)
  end))
end)

describe("a settlement whose reply is lost", function()
  it("is not done twice where Redis had done it", async(function()
    local gw, redis, proxy = start()
    local hit = intercept(redis, proxy, "settle", "lose_reply")
    assert.equal(200, gw:request(rig.chat()).status)
    support.wait_for(function() return hit.done and gw:metric("quota_settled_total") == 1 end, "its repetition", 10000)
    assert.equal(13, rig.settled(redis))
  end))

  it("is not done twice where it arrives behind its repetition", async(function()
    local gw, redis, proxy = start()
    intercept(redis, proxy, "settle", "hold_cut")
    assert.equal(200, gw:request(rig.chat()).status)
    support.wait_for(function() return gw:metric("quota_settled_total") == 1 end, "its repetition", 10000)
    assert.equal(13, rig.settled(redis))
    assert_closed(redis)
    local before = redis:dump()
    local calls = rig.script_calls(redis)
    proxy:release "up"
    support.wait_for(function() return rig.script_calls(redis) > calls end, "the late settlement")
    assert.same(before, redis:dump())
  end))

  it("is done where it never arrived, although its gateway stops", async(function()
    local gw, redis, proxy = start()
    intercept(redis, proxy, "settle", "cut")
    assert.equal(200, gw:request(rig.chat()).status)
    gw:stop()
    assert.equal(13, rig.settled(redis))
  end))
end)
