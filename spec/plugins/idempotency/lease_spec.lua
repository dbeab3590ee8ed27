-- idempotency's leases: renewed while a request lives, also behind a reload; lapsed with a gateway that dies; and what repeats
-- get then, by on_lost.
local support = require "spec.support"
local rig = require "spec.plugins.idempotency.rig"
local async = support.async

local SLOW = { path = "/?slow" }

local function start(redis, origin, conf, config)
  return rig.gateway { redis = redis, origin = origin.url, conf = rig.merged({ lease = 0.6 }, conf), config = config }
end

local function send(gw, options)
  local c = gw:connect(20000)
  c:send_request(rig.post("key", options or SLOW))
  return c
end

-- So many renewals from now on.
local function wait_renewals(redis, n)
  local from = rig.renewals(redis)
  support.wait_for(function() return rig.renewals(redis) >= from + n end, n .. " renewals", 10000)
end

describe("a lease", function()
  it("is renewed for as long as the request takes", async(function()
    local redis, origin = rig.redis(), rig.origin()
    local gw = start(redis, origin)
    local c = send(gw)
    local owner = rig.wait_state(redis, "running").owner
    wait_renewals(redis, 6) -- longer than two leases
    assert.equal(409, rig.ask(gw, "key", SLOW).status)
    assert.equal(owner, rig.record(redis).owner)
    origin.go = true
    local res = assert(c:read_response())
    assert.same({ 200, owner }, { res.status, res.headers["x-request-id"] })
    assert.equal("true", rig.ask(gw, "key", SLOW).headers["idempotency-replayed"])
    assert.equal(1, origin.runs)
  end))

  it("is renewed behind a reload, and the answer is stored", async(function()
    local redis, origin = rig.redis(), rig.origin()
    local gw = start(redis, origin)
    local c = send(gw)
    rig.wait_state(redis, "running")
    for _ = 1, 2 do
      gw:write("gateway.lua", support.read_file(gw.dir .. "/gateway.lua") .. "\n-- changed")
      assert.equal(0, gw:command("reload").code)
    end
    wait_renewals(redis, 6)
    assert.equal(409, rig.ask(gw, "key", SLOW).status)
    origin.go = true
    assert.equal(200, c:read_response().status)
    assert.equal("true", rig.ask(gw, "key", SLOW).headers["idempotency-replayed"])
    assert.equal(1, origin.runs)
  end))

  it("goes on where a reload fails", async(function()
    local redis, origin = rig.redis(), rig.origin()
    local gw = start(redis, origin)
    local c = send(gw)
    rig.wait_state(redis, "running")
    gw:write("gateway.lua", "return {")
    assert.equal(1, gw:command("reload").code)
    wait_renewals(redis, 4)
    origin.go = true
    assert.equal(200, c:read_response().status)
  end))

  it("lapses with a gateway that dies, and the next request runs", async(function()
    local redis, origin = rig.redis(), rig.origin()
    local gw, other = start(redis, origin), start(redis, origin)
    send(gw)
    origin:wait_request(1)
    for _, pid in ipairs(gw:workers()) do require("luv").kill(pid, "sigkill") end
    gw:kill("sigkill")
    assert.equal(409, rig.ask(other, "key", SLOW).status)
    origin.go = true
    support.wait_for(function() return not rig.record(redis) end, "the lease to lapse")
    assert.same({ 200, nil, "run 2 amount=1" }, rig.seen(rig.ask(other, "key", SLOW)))
  end))

  it("that was lost is neither stored nor released: the one who has it now is not disturbed", async(function()
    local redis, origin = rig.redis(), rig.origin()
    local gw, other = start(redis, origin, { lease = 60 }), start(redis, origin, { lease = 60 })
    local c = send(gw)
    local record = rig.wait_state(redis, "running")
    redis:must("DEL", record.key) -- as where it had lapsed
    local second = send(other)
    origin:wait_request(2)
    local owner = rig.record(redis).owner
    origin.go = true
    assert.equal("run 1 amount=1", c:read_response().body:gsub("run 2", "run 1"))
    local answer = second:read_response().body
    record = rig.wait_state(redis, "done")
    assert.equal(owner, record.owner)
    assert.equal(answer, record.body)
    rig.counts(gw, "idempotency_claims_total", "lost", 1)
    gw:wait_log("the lease was lost", true)
  end))

  it("that a renewal finds lost is told, and not made anew", async(function()
    local redis, origin = rig.redis(), rig.origin()
    local gw = start(redis, origin)
    local c = send(gw)
    redis:must("DEL", rig.wait_state(redis, "running").key)
    -- A second claim of this worker shows that a round of renewals has been since.
    local d = gw:connect()
    d:send_request(rig.post("other", SLOW))
    origin:wait_request(2)
    wait_renewals(redis, 2)
    assert.equal(1, #redis:must("KEYS", "idem:*"))
    origin.go = true
    assert.equal(200, c:read_response().status)
    assert.equal(200, d:read_response().status)
    rig.counts(gw, "idempotency_claims_total", "lost", 1)
  end))
end)

describe('on_lost = "refuse"', function()
  local REFUSE = { on_lost = "refuse" }

  local function assert_unknown(gw, options)
    local res = rig.ask(gw, "key", options or SLOW)
    assert.same({ 409, "idempotency_outcome_unknown", "false" }, { res.status, rig.code(res), res.headers["x-should-retry"] })
    assert.is_nil(res.headers["retry-after"])
  end

  it("answers repeats that nobody knows, where a gateway died while the origin was at work", async(function()
    local redis, origin = rig.redis(), rig.origin()
    local gw, other = start(redis, origin, REFUSE), start(redis, origin, REFUSE)
    send(gw)
    origin:wait_request(1)
    for _, pid in ipairs(gw:workers()) do require("luv").kill(pid, "sigkill") end
    gw:kill("sigkill")
    assert.equal("idempotency_key_in_use", rig.code(rig.ask(other, "key", SLOW)))
    support.wait_for(function()
      return rig.code(rig.ask(other, "key", SLOW)) == "idempotency_outcome_unknown"
    end, "the lease's end")
    assert_unknown(other)
    assert.is_true(rig.record(redis).pttl > 86000000)
    assert.equal(422, rig.ask(other, "key", { path = "/?other" }).status)
    assert.equal(1, origin.runs)
  end))

  it("does so at once where the origin's answer broke off, did not come, or was too large", async(function()
    local redis, origin = rig.redis(), rig.origin()
    local gw = rig.gateway { redis = redis, origin = origin.url, conf = { on_lost = "refuse", max_body = 100 },
      route = { timeouts = { first_byte = 0.2 } } }
    for i, path in ipairs { "/?cut", "/?stall", "/?large=200" } do
      local post = rig.post("key-" .. i, { path = path })
      gw:request(post)
      support.wait_for(function()
        return rig.code(rig.ask(gw, "key-" .. i, { path = path })) == "idempotency_outcome_unknown"
      end, "the end of " .. path)
    end
    assert.equal(3, origin.runs)
  end))

  it("lets the next one run where the origin was not reached, or says itself that it failed", async(function()
    local redis, origin = rig.redis(), rig.origin()
    local dead = rig.gateway { redis = redis, origin = "http://127.0.0.1:1", conf = REFUSE }
    assert.equal(502, rig.ask(dead, "key").status)
    local gw = start(redis, origin, REFUSE)
    assert.equal("run 1 amount=1", rig.ask(gw, "key").body)
    assert.equal("true", rig.ask(gw, "key").headers["idempotency-replayed"])
    for i = 2, 3 do
      assert.equal(503, rig.ask(gw, "failed", { path = "/?status=503" }).status)
      assert.equal(i, origin.runs)
    end
  end))

  it("still takes the answer of an owner who had been slow to renew", async(function()
    local redis, origin = rig.redis(), rig.origin()
    local gw = start(redis, origin, { on_lost = "refuse", lease = 60 })
    local c = send(gw)
    origin:wait_request(1)
    redis:must("HSET", rig.record(redis).key, "lease", 1)
    assert_unknown(gw)
    origin.go = true
    assert.equal(200, c:read_response().status)
    assert.equal("true", rig.ask(gw, "key", SLOW).headers["idempotency-replayed"])
  end))
end)

describe("at the gateway's end", function()
  it("an answer is stored within the drain, for clients that are there and that have left", async(function()
    for _, leaves in ipairs { false, true } do
      local redis, origin = rig.redis(), rig.origin()
      local gw = start(redis, origin, { lease = 60 })
      local c = send(gw)
      origin:wait_request(1)
      if leaves then
        c:close()
        support.wait_for(function() return gw:status().workers[1].connections == 0 end)
      end
      gw:kill("sigterm")
      gw:wait_log("stopping:", true)
      origin.go = true
      if not leaves then assert.equal(200, c:read_response().status) end
      assert.same({ 0, 0 }, { gw.process:wait(10000) })
      assert.equal("run 1 amount=1", rig.wait_state(redis, "done").body)
    end
  end))

  it("a claim is left to lapse where the origin is still at it, and released where it was not reached", async(function()
    local redis, origin = rig.redis(), rig.origin()
    local gw = start(redis, origin, { lease = 60 }, { timeouts = { drain = 0.2 } })
    send(gw)
    origin:wait_request(1)
    gw:kill("sigterm")
    assert.same({ 0, 0 }, { gw.process:wait(10000) })
    local record = rig.record(redis)
    assert.equal("running", record.state)
    assert.is_true(record.pttl <= 60000)

    redis:must("FLUSHALL")
    local wait = [[ local tg = require "tollgate"
      return { priority = 1, access = function() tg.log.info "waits" tg.timer.sleep(1000) end } ]]
    gw = rig.gateway { redis = redis, origin = origin.url, plugins = { wait = {} },
      config = { plugin_path = { "plugins" }, timeouts = { drain = 0.2 } }, files = { ["plugins/wait.lua"] = wait } }
    send(gw)
    gw:wait_log("waits", true)
    assert.equal("running", rig.record(redis).state)
    gw:kill("sigterm")
    assert.same({ 0, 0 }, { gw.process:wait(10000) })
    assert.is_nil(rig.record(redis))
  end))
end)
