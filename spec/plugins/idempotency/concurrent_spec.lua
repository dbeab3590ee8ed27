-- idempotency with the first request still running: one run at the origin, whichever worker or replica gets the repeats, which
-- are told to come again, or wait.
local support = require "spec.support"
local rig = require "spec.plugins.idempotency.rig"
local async = support.async

local function statuses(results)
  local counts = {}
  for _, res in ipairs(results) do
    local what = res.status .. (res.headers["idempotency-replayed"] and " replayed" or "")
    counts[what] = (counts[what] or 0) + 1
  end
  return counts
end

local function asking(gws, n, key, options)
  local calls = {}
  for i = 1, n do
    calls[i] = function() return rig.ask(gws[(i - 1) % #gws + 1], key, options) end
  end
  return support.all(calls)
end

describe("requests at once", function()
  it("run once over two replicas of two workers; the others are told to come again", async(function()
    local redis, origin = rig.redis(), rig.origin()
    local gws = {}
    for i = 1, 2 do gws[i] = rig.gateway { redis = redis, origin = origin.url, config = { workers = 2 } } end
    for round = 1, 10 do
      origin.go = nil
      local goes = support.spawn(function()
        support.wait_for(function() return #gws[1].access() + #gws[2].access() >= 22 * (round - 1) + 19 end, "the refusals")
        origin.go = true
      end)
      local results = asking(gws, 20, "key-" .. round, { path = "/?slow" })
      goes:join(5000)
      assert.same({ ["200"] = 1, ["409"] = 19 }, statuses(results))
      assert.equal(round, origin.runs)
      for _, res in ipairs(results) do
        if res.status == 409 then
          assert.same({ "idempotency_key_in_use", "2", nil },
            { rig.code(res), res.headers["retry-after"], res.headers["x-should-retry"] })
        end
      end
      for i = 1, 2 do
        assert.equal("true", rig.ask(gws[i], "key-" .. round, { path = "/?slow" }).headers["idempotency-replayed"])
      end
      support.wait_for(function() return #gws[1].access() + #gws[2].access() == 22 * round end, "the log")
    end
  end))

  it("of different keys do not hold each other up", async(function()
    local redis, origin = rig.redis(), rig.origin()
    local gw = rig.gateway { redis = redis, origin = origin.url, config = { workers = 2 } }
    local calls = {}
    for i = 1, 100 do
      calls[i] = function() return rig.ask(gw, "key-" .. i, { body = "b" .. i }).body:match("b%d+$") == "b" .. i end
    end
    for _, fine in ipairs(support.all(calls)) do assert.is_true(fine) end
    assert.equal(100, origin.runs)
  end))
end)

describe("with wait, repeats", function()
  local redis, origin

  local function start(conf)
    redis, origin = rig.redis(), rig.origin()
    return rig.gateway { redis = redis, origin = origin.url, conf = rig.merged({ wait = 20 }, conf) }
  end

  -- The first request and n repeats that wait behind it.
  local function waiting(gws, n, path)
    local first = support.spawn(function() return gws[1]:request(rig.post("key", { path = path })) end)
    origin:wait_request(1)
    local others = {}
    for i = 1, n do others[i] = support.spawn(function() return rig.ask(gws[i % #gws + 1], "key", { path = path }) end) end
    -- All have looked once: claims are the only scripts that run here.
    support.wait_for(function()
      return tonumber(redis:must("INFO", "commandstats"):match("cmdstat_evalsha:calls=(%d+)") or 0) >= n + 1
    end, "the first look of each")
    return first, others
  end

  it("get the answer as soon as it is there, over two replicas", async(function()
    local gw = start()
    local gws = { gw, rig.gateway { redis = redis, origin = origin.url, conf = { wait = 20 } } }
    local first, others = waiting(gws, 10, "/?slow")
    origin.go = true
    assert.same({ 200, nil, "run 1 amount=1" }, rig.seen(first:join()))
    for _, one in ipairs(others) do assert.same({ 200, "true", "run 1 amount=1" }, rig.seen(one:join())) end
    assert.equal(1, origin.runs)
  end))

  it("run, one of them, where the first one failed", async(function()
    local gw = start()
    local first, others = waiting({ gw }, 3, "/?slow&status=500")
    origin.handler = function(req, conn) conn:respond { body = "fine " .. req.body } end
    origin.go = true
    assert.equal(500, first:join().status)
    local replays = 0
    for _, one in ipairs(others) do
      local res = one:join()
      assert.same({ 200, "fine amount=1" }, { res.status, res.body })
      if res.headers["idempotency-replayed"] then replays = replays + 1 end
    end
    assert.equal(2, replays)
    assert.equal(2, #origin.requests)
  end))

  it("are refused when that is over, or where too many wait", async(function()
    local gw = start { wait = 0.2 }
    local first, others = waiting({ gw }, 3, "/?slow")
    for _, one in ipairs(others) do assert.equal("idempotency_key_in_use", rig.code(one:join())) end
    origin.go = true
    assert.equal(200, first:join().status)
    gw = start { max_waiting = 2 }
    first, others = waiting({ gw }, 5, "/?slow")
    support.wait_for(function()
      local done = 0
      for _, one in ipairs(others) do done = done + (one.done and 1 or 0) end
      return done == 3
    end, "the refusals of those that are too many")
    origin.go = true
    local counts = { [200] = 0, [409] = 0 }
    for _, one in ipairs(others) do counts[one:join().status] = counts[one:join().status] + 1 end
    assert.same({ [200] = 2, [409] = 3 }, counts)
    assert.equal(200, first:join().status)
  end))

  it("that leave make room for others", async(function()
    local gw = start { max_waiting = 1 }
    local first = support.spawn(function() return gw:request(rig.post("key", { path = "/?slow" })) end)
    origin:wait_request(1)
    for _ = 1, 3 do
      local c = gw:connect()
      c:send_request(rig.post("key", { path = "/?slow" }))
      local seen = #gw.access()
      -- A second one finds the room taken, which shows that the first one waits.
      support.wait_for(function() return rig.ask(gw, "key", { path = "/?slow" }).status == 409 end)
      c:close()
      gw:wait_access(seen + 2)
    end
    local other = support.spawn(function() return rig.ask(gw, "key", { path = "/?slow" }) end)
    support.wait_for(function() return rig.ask(gw, "key", { path = "/?slow" }).status == 409 end)
    origin.go = true
    assert.equal("true", other:join().headers["idempotency-replayed"])
    assert.equal(200, first:join().status)
    assert.equal(1, origin.runs)
  end))
end)
