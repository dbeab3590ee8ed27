-- Requests that miss the same key at once, end to end: one asks the origin in a replica, the others get its answer, in the
-- form in which they asked; and however that one ends, none of them fails.
local uv = require "luv"
local support = require "spec.support"
local rig = require "spec.plugins.cache.rig"
local async = support.async

local redis
local up, down = support.shared(function() redis = support.redis() end)

-- An origin that holds every request until it is let go: origin.go(i, handler) answers the i-th.
local function holding()
  local origin
  local answers = {}
  origin = support.origin(function(req, conn)
    local i = #origin.requests
    support.wait_for(function() return answers[i] or conn.closed end, "what request " .. i .. " is to be answered", 20000)
    if answers[i] then answers[i](req, conn) end
  end)
  function origin.go(i, handler) answers[i] = handler end
  return origin
end

local good = support.llm_handler {}

-- Starts so many requests; returns a function that waits for all of them: list of { res, status }.
local function start(gw, n, request)
  local tasks, results = {}, {}
  for i = 1, n do
    tasks[i] = support.spawn(function()
      local res = gw:request(type(request) == "function" and request(i) or request)
      results[i] = { res = res, status = res and res.headers["cache-status"] }
    end)
  end
  return function()
    for _, task in ipairs(tasks) do task:join(20000) end
    return results
  end
end

local function statuses(results)
  local counts = {}
  for _, one in ipairs(results) do
    local key = one.status:gsub("ttl=%d+", "ttl")
    counts[key] = (counts[key] or 0) + 1
  end
  return counts
end

local function gateway(origin, cache, config)
  return rig.gateway { redis = redis, origin = origin.url, cache = cache, config = config }
end

-- Waits until all but the first of so many requests follow.
local function wait_followers(gw, n, api) rig.wait_followers(gw, api or "openai-chat", n - 1) end

local function gone(gw) return tonumber(gw:admin("/metrics").body:match "\ntollgate_client_gone_total (%d+)") end

describe("cache, requests that miss at once", function()
  setup(up)
  teardown(down)
  before_each(async(function() redis:must("FLUSHALL") end))

  for _, workers in ipairs { 1, 2 } do
    it(("make one request to the origin, of %d worker(s)"):format(workers), async(function()
      for api in pairs(rig.apis) do
        local origin = holding()
        local gw = gateway(origin, {}, { workers = workers })
        local finish = start(gw, 100, function(i)
          return rig.ask(api, api ~= "openai-embeddings" and i % 2 == 0 and { stream = true } or {})
        end)
        origin:wait_request(1)
        wait_followers(gw, 100, api)
        origin.go(1, good)
        for _, one in ipairs(finish()) do
          assert.equal(200, one.res.status)
          if not one.res.body:find("Hello, world!", 1, true) and api ~= "openai-embeddings" then
            assert.matches("data: ", one.res.body)
          end
        end
        assert.equal(1, #origin.requests)
        gw:stop()
      end
    end))
  end

  it("say so", async(function()
    local origin = holding()
    local gw = gateway(origin)
    local finish = start(gw, 10, rig.ask("openai-chat"))
    origin:wait_request(1)
    wait_followers(gw, 10)
    origin.go(1, good)
    assert.same({ ["tollgate; fwd=miss; ttl; stored"] = 1, ["tollgate; fwd=miss; collapsed"] = 9 }, statuses(finish()))
    rig.wait_count(gw, "cache_requests_total", "openai-chat", "collapsed", 9)
    rig.wait_count(gw, "cache_requests_total", "openai-chat", "miss", 1)
  end))

  it("go on with another one where the first is cut or fails, one at a time", async(function()
    local origin = holding()
    local gw = gateway(origin)
    local finish = start(gw, 10, rig.ask("openai-chat"))
    origin:wait_request(1)
    wait_followers(gw, 10)
    origin.go(1, function(_, conn) conn:close() end)
    origin:wait_request(2)
    origin.go(2, function(_, conn) conn:respond { status = 503 } end)
    origin:wait_request(3)
    origin.go(3, support.llm_handler { gzip = false })
    local by_status = {}
    for _, one in ipairs(finish()) do by_status[one.res.status] = (by_status[one.res.status] or 0) + 1 end
    assert.same({ [200] = 8, [502] = 1, [503] = 1 }, by_status)
    assert.equal(3, #origin.requests)
  end))

  it("all go by themselves where the answer cannot be shared", async(function()
    local origin = holding()
    local gw = gateway(origin)
    local finish = start(gw, 10, rig.ask("openai-chat"))
    origin:wait_request(1)
    wait_followers(gw, 10)
    origin.go(1, function(_, conn) conn:respond { status = 404, body = { error = {} } } end)
    -- All of them, though none is answered.
    origin:wait_request(10)
    for i = 2, 10 do origin.go(i, function(_, conn) conn:respond { status = 404, body = { error = {} } } end) end
    assert.same({ ["tollgate; fwd=miss"] = 1, ["tollgate; fwd=miss; collapsed=?0"] = 9 }, statuses(finish()))
  end))

  it("get the answer though the client that asked has left", async(function()
    for _, stream in ipairs { false, true } do
      redis:must("FLUSHALL")
      local origin = holding()
      local gw = gateway(origin)
      local first = gw:connect()
      first:send_request(rig.ask("openai-chat", { stream = stream }))
      origin:wait_request(1)
      local finish = start(gw, 5, rig.ask("openai-chat"))
      wait_followers(gw, 6)
      first:close()
      support.wait_for(function() return gone(gw) == 1 end, "the gateway to see it")
      origin.go(1, good)
      for _, one in ipairs(finish()) do assert.equal(200, one.res.status) end
      assert.equal(1, #origin.requests)
      gw:stop()
    end
  end))

  it("get it though that client leaves in the middle of the stream", async(function()
    local origin = holding()
    local gw = gateway(origin)
    local first = gw:connect()
    first:send_request(rig.ask("openai-chat", { stream = true }))
    origin:wait_request(1)
    local middle, go_on = false, false
    local events = support.llm.events("openai-chat", {}, { stream = true, stream_options = { include_usage = true } })
    origin.go(1, function(_, conn)
      conn:start { headers = { ["content-type"] = "text/event-stream" } }
      for i, event in ipairs(events) do
        conn:chunk(support.llm.event_bytes(event))
        if i == 2 then
          middle = true
          support.wait_for(function() return go_on end, "the spec", 20000)
        end
      end
      conn:finish()
    end)
    first:read_until("Hello", true)
    assert.is_true(middle)
    local finish = start(gw, 5, rig.ask("openai-chat"))
    wait_followers(gw, 6)
    first:close()
    support.wait_for(function() return gone(gw) == 1 end, "the gateway to see it")
    go_on = true
    for _, one in ipairs(finish()) do
      assert.equal("Hello, world!", support.json(one.res).choices[1].message.content)
    end
    assert.equal(1, #origin.requests)
  end))

  it("cancel the origin where the client leaves and nobody waits", async(function()
    local origin = holding()
    local gw = gateway(origin)
    local first = gw:connect()
    first:send_request(rig.ask("openai-chat"))
    origin:wait_request(1)
    first:close()
    support.wait_for(function() return origin.open == 0 end, "the end of the connection to the origin")
    local finish = start(gw, 1, rig.ask("openai-chat"))
    origin:wait_request(2)
    origin.go(2, good)
    assert.equal(200, finish()[1].res.status)
  end))

  it("go on within the lease where the worker died that asked", async(function()
    local origin = holding()
    local gw = gateway(origin, { lease = 1 }, { workers = 2 })
    local pids = gw:workers()
    local all = {}
    local function both_have_some()
      local workers = gw:status().workers
      return workers[1].connections > 0 and workers[2].connections > 0
    end
    -- Which worker accepts a connection is the kernel's choice.
    repeat
      all[#all + 1] = start(gw, 5, rig.ask("openai-chat"))
      wait_followers(gw, 5 * #all)
    until both_have_some() or #all == 40
    origin:wait_request(1)
    -- Which of them leads cannot be seen from outside: the one that has a connection to the origin.
    local leader
    for _, pid in ipairs(pids) do
      local list = support.exec { cmd = "sh", args = { "-c", "ls -l /proc/" .. pid .. "/fd" } }.out
      local inodes = {}
      for inode in list:gmatch("socket:%[(%d+)") do inodes[inode] = true end
      for line in support.read_file("/proc/net/tcp"):gmatch("[^\n]+") do
        local remote, inode = line:match("^%s*%d+: %x+:%x+ (%x+:%x+) %x+ %S+ %S+ %S+%s+%d+%s+%d+ (%d+)")
        if remote and tonumber(remote:match(":(%x+)"), 16) == origin.port and inodes[inode] then leader = pid end
      end
    end
    assert(leader, "no worker has a connection to the origin")
    uv.kill(leader, "sigkill")
    origin.go(2, good)
    origin.go(1, good)
    local ended = 0
    for _, finish in ipairs(all) do
      for _, one in ipairs(finish()) do
        if one.res then
          assert.equal(200, one.res.status)
          ended = ended + 1
        end
      end
    end
    assert.is_true(ended > 0)
    assert.equal(2, #origin.requests)
  end))

  it("follow one that began before a reload, however long it takes", async(function()
    local origin = holding()
    local gw = gateway(origin, { lease = 1 })
    local old = start(gw, 3, rig.ask("openai-chat"))
    origin:wait_request(1)
    wait_followers(gw, 3)
    assert.equal(0, gw:command("reload").code)
    local new = start(gw, 3, rig.ask("openai-chat"))
    wait_followers(gw, 6)
    support.sleep(1500) -- longer than the lease
    assert.equal(1, #origin.requests)
    origin.go(1, good)
    for _, finish in ipairs { old, new } do
      for _, one in ipairs(finish()) do assert.equal(200, one.res.status) end
    end
    assert.equal(1, #origin.requests)
  end))

  it("are let pass where a plugin says so", async(function()
    local origin = support.llm_origin()
    local gw = rig.gateway { redis = redis, origin = origin.url, plugins = { fresh = {} }, files = { ["plugins/fresh.lua"] = [[
      return { version = "1", priority = 800, schema = {}, access = function(_, ctx) ctx.no_cache = true end }
    ]] } }
    for _ = 1, 2 do
      assert.equal("tollgate; fwd=bypass", (select(2, rig.send(gw, rig.ask("openai-chat")))))
    end
    assert.equal(2, #origin.requests)
  end))

  it("ask by themselves where they have waited long enough", async(function()
    local origin = holding()
    local gw = gateway(origin, { follow_timeout = 0.05 })
    local finish = start(gw, 3, rig.ask("openai-chat"))
    origin:wait_request(3)
    for i = 1, 3 do origin.go(i, good) end
    assert.same({ ["tollgate; fwd=miss; ttl; stored"] = 1, ["tollgate; fwd=miss; ttl; stored; collapsed=?0"] = 2 },
      statuses(finish()))
  end))

  it("ask each where they are told to", async(function()
    local origin = holding()
    local gw = gateway(origin, { follow = "off" })
    local finish = start(gw, 3, rig.ask("openai-chat"))
    origin:wait_request(3)
    for i = 1, 3 do origin.go(i, good) end
    for _, one in ipairs(finish()) do assert.equal(200, one.res.status) end
  end))

  it("do not get a tenant what another one asked", async(function()
    local origin = holding()
    local gw = gateway(origin)
    local finish = start(gw, 10, function(i) return rig.ask("openai-chat", {}, { as = i % 2 == 0 and "a" or "b" }) end)
    origin:wait_request(2)
    wait_followers(gw, 9)
    origin.go(1, good)
    origin.go(2, good)
    for _, one in ipairs(finish()) do assert.equal(200, one.res.status) end
    assert.equal(2, #origin.requests)
  end))

  it("make one request in all where their replicas have what was kept", async(function()
    local origin = support.llm_origin()
    local one, two = gateway(origin), gateway(origin)
    rig.send(one, rig.ask("openai-chat"))
    rig.wait_kept(redis, 1)
    local _, status = rig.send(two, rig.ask("openai-chat"))
    assert.matches("hit", status)
    assert.equal(1, #origin.requests)
  end))
end)
