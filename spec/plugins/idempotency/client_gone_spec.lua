-- idempotency and clients that leave: once the origin has the request, its answer is read on and stored; before, nothing is left.
local support = require "spec.support"
local rig = require "spec.plugins.idempotency.rig"
local async = support.async

local SLOW = { path = "/?slow" }

local function leave(gw, origin, options, seen)
  local n = #origin.requests
  local c = gw:connect()
  c:send_request(rig.post("key", options or SLOW))
  origin:wait_request(n + 1)
  if seen then assert(c:read_until(seen, true)) end
  c:close()
  support.wait_for(function() return gw:status().workers[1].connections == 0 end, "the client's end")
end

describe("a client that leaves", function()
  it("while the origin is at work finds the answer when it asks again", async(function()
    local redis, origin = rig.redis(), rig.origin()
    local gw = rig.gateway { redis = redis, origin = origin.url }
    leave(gw, origin)
    assert.equal(409, rig.ask(gw, "key", SLOW).status)
    origin.go = true
    rig.wait_state(redis, "done")
    assert.same({ 200, "true", "run 1 amount=1" }, rig.seen(rig.ask(gw, "key", SLOW)))
    assert.equal("client_gone", gw:wait_access(2)[2].ended)
    assert.equal(1, origin.runs)
    assert.is_nil(origin.left)
  end))

  it("in the middle of the answer, likewise, byte for byte", async(function()
    local redis = rig.redis()
    local go
    local origin = support.origin(function(_, conn)
      conn:start { headers = { ["content-type"] = "application/octet-stream" } }
      for i = 1, 200 do
        conn:chunk(("piece %d\0\255\n"):format(i):rep(50))
        if i == 20 then support.wait_for(function() return go end, "the word") end
      end
      conn:finish()
    end)
    local gw = rig.gateway { redis = redis, origin = origin.url }
    leave(gw, origin, {}, "piece 3\0")
    go = true
    rig.wait_state(redis, "done")
    local parts = {}
    for i = 1, 200 do parts[i] = ("piece %d\0\255\n"):format(i):rep(50) end
    assert.same({ 200, "true", table.concat(parts) }, rig.seen(rig.ask(gw, "key")))
    assert.equal(1, #origin.requests)
  end))

  it("and never takes a byte of a large answer does not hold it up", async(function()
    local redis = rig.redis()
    local origin = support.origin(function(_, conn) conn:respond { body = ("x"):rep(8 * 1024 ^ 2) } end)
    local gw = rig.gateway { redis = redis, origin = origin.url, conf = { max_body = "16m" } }
    local c = gw:connect()
    c:pause()
    c:send_request(rig.post("key"))
    origin:wait_request(1)
    c:close()
    local key = "idem:k:" .. support.sha256("key")
    support.wait_for(function() return redis:must("HSTRLEN", key, "body") == 8 * 1024 ^ 2 end, "the body in Redis", 10000)
    assert.equal(8 * 1024 ^ 2, #rig.ask(gw, "key").body)
  end))

  it("is waited for no longer than drain_time, and no further than max_body", async(function()
    local redis, origin = rig.redis(), rig.origin()
    local gw = rig.gateway { redis = redis, origin = origin.url, conf = { drain_time = 0.2, lease = 1, max_body = 1000 } }
    leave(gw, origin)
    support.wait_for(function() return origin.left == 1 end, "the end of the origin's connection")
    gw:wait_access(1)
    assert.equal("running", rig.record(redis).state) -- the origin may still be at it
    support.wait_for(function() return not rig.record(redis) end, "the lease to lapse")
    rig.counts(gw, "idempotency_claims_total", "unknown", 1)

    local large = support.origin(function(_, conn)
      conn:start {}
      conn:chunk("begin")
      while conn:chunk(("x"):rep(1000)) do support.sleep(1) end
    end)
    gw = rig.gateway { redis = redis, origin = large.url, conf = { max_body = 5000 } }
    leave(gw, large, {}, "begin")
    support.wait_for(function() return large.open == 0 end, "the end of the origin's connection")
    rig.wait_state(redis, "none")
  end))

  it("before the origin is reached leaves nothing, whether the claim was answered or not", async(function()
    local redis, origin = rig.redis(), rig.origin()
    local wait = [[ local tg = require "tollgate"
      return { priority = 1, access = function() tg.log.info "waits" tg.timer.sleep(1000) end } ]]
    local gw = rig.gateway { redis = redis, origin = origin.url, plugins = { wait = {} },
      config = { plugin_path = { "plugins" } }, files = { ["plugins/wait.lua"] = wait } }
    local c = gw:connect()
    c:send_request(rig.post("key"))
    gw:wait_log("waits", true)
    c:close()
    rig.wait_state(redis, "none")
    assert.equal(0, origin.runs)

    local proxy
    gw, proxy = rig.through(redis, origin)
    proxy:hold("down")
    c = gw:connect()
    c:send_request(rig.post("key"))
    rig.wait_state(redis, "running")
    c:close()
    support.wait_for(function() return gw:status().workers[1].connections == 0 end, "the client's end")
    proxy:release("down")
    rig.wait_state(redis, "none")
    assert.equal(0, origin.runs)
  end))
end)
