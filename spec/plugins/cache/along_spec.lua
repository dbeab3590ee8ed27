-- follow = "read_along": who asks for a stream that is under way reads it as it comes, from its beginning.
local support = require "spec.support"
local rig = require "spec.plugins.cache.rig"
local async = support.async

local redis
local up, down = support.shared(function() redis = support.redis() end)

-- An origin that sends a stream event by event: origin.send(n) lets it go on to the n-th.
local function stepwise()
  local sent, ended = 0, false
  local origin = support.origin(function(_, conn)
    local asked = { stream = true, stream_options = { include_usage = true } }
    conn:start { headers = { ["content-type"] = "text/event-stream" } }
    for i, event in ipairs(support.llm.events("openai-chat", {}, asked)) do
      support.wait_for(function() return sent >= i or ended end, "event " .. i, 20000)
      if ended then return ended == "cut" and conn:close() end
      conn:chunk(support.llm.event_bytes(event))
    end
    conn:finish()
  end)
  function origin.send(n) sent = n end
  function origin.cut() ended = "cut" end
  return origin
end

local ALL = 100

local function start(origin, cache)
  return rig.gateway { redis = redis, origin = origin.url, cache = rig.merged({ follow = "read_along" }, cache) }
end

local function open(gw, body)
  local conn = gw:connect()
  conn:send_request(rig.ask("openai-chat", rig.merged({ stream = true }, body)))
  return conn
end

-- The text that a connection has got so far, waiting for `upto`.
local function read_until(conn, upto) return conn:read_until(upto, true) end

describe("cache, read along", function()
  setup(up)
  teardown(down)
  before_each(async(function() redis:must("FLUSHALL") end))

  it("gives followers what the leader has got, as it comes, and the same bytes in all", async(function()
    local origin = stepwise()
    local gw = start(origin)
    local leader = open(gw)
    origin:wait_request(1)
    local early = open(gw) -- before the answer has begun
    rig.wait_followers(gw, "openai-chat", 1)
    origin.send(2)
    read_until(leader, "Hello")
    local late = open(gw)
    rig.wait_followers(gw, "openai-chat", 2)
    for _, conn in ipairs { early, late } do
      local head = conn:read_head()
      assert.equal("tollgate; fwd=miss; collapsed", head.headers["cache-status"])
      assert.equal("text/event-stream; charset=utf-8", head.headers["content-type"])
      local got = ""
      while not got:find("Hello", 1, true) do got = got .. head:read() end
      conn.got, conn.head = got, head
    end
    origin.send(ALL)
    local whole = leader:read_until("0\r\n\r\n", true)
    assert.matches("[DONE]", whole, 1, true)
    local bodies = {}
    for i, conn in ipairs { early, late } do
      local got = conn.got
      while true do
        local piece = conn.head:read()
        if not piece then break end
        got = got .. piece
      end
      bodies[i] = got
    end
    assert.equal(bodies[1], bodies[2])
    assert.matches("data: [DONE]\n\n", bodies[1], 1, true)
    local text = ""
    for _, event in ipairs(support.sse(bodies[1])) do
      local choice = event.data ~= "[DONE]" and support.decode(event.data).choices[1]
      text = text .. (choice and choice.delta.content or "")
    end
    assert.equal("Hello, world!", text)
    assert.equal(1, #origin.requests)
    rig.wait_kept(redis, 1)
  end))

  it("lets those wait who asked in another form", async(function()
    local origin = stepwise()
    local gw = start(origin)
    local leader = open(gw)
    origin:wait_request(1)
    origin.send(2)
    read_until(leader, "Hello")
    local results = {}
    local tasks = {}
    for i, body in ipairs { {}, { stream = true, stream_options = { include_usage = true } } } do
      tasks[i] = support.spawn(function() results[i] = gw:request(rig.ask("openai-chat", body)) end)
    end
    rig.wait_followers(gw, "openai-chat", 2)
    origin.send(ALL)
    for _, task in ipairs(tasks) do task:join(10000) end
    assert.equal("Hello, world!", support.json(results[1]).choices[1].message.content)
    assert.matches('"total_tokens":13', results[2].body, 1, true)
    assert.equal(1, #origin.requests)
  end))

  it("goes on where the leader's client leaves", async(function()
    local origin = stepwise()
    local gw = start(origin)
    local leader = open(gw)
    origin:wait_request(1)
    origin.send(2)
    read_until(leader, "Hello")
    local follower = open(gw)
    read_until(follower, "Hello")
    leader:close()
    support.wait_for(function()
      return gw:admin("/metrics").body:match "\ntollgate_client_gone_total 1\n"
    end, "the gateway to see it")
    origin.send(ALL)
    assert.matches("[DONE]", read_until(follower, "0\r\n\r\n"), 1, true)
    assert.equal(1, #origin.requests)
    rig.wait_kept(redis, 1)
  end))

  it("is cut off where the leader is, and leaves nothing behind", async(function()
    local origin = stepwise()
    local gw = start(origin)
    local leader = open(gw)
    origin:wait_request(1)
    origin.send(2)
    read_until(leader, "Hello")
    local follower = open(gw)
    read_until(follower, "Hello")
    origin.cut()
    for _, conn in ipairs { leader, follower } do
      local rest = conn:read_all()
      assert.is_nil(rest:find("0\r\n\r\n", 1, true))
    end
    assert.equal(0, #redis:must("KEYS", "cache:*"))
  end))

  it("lets a follower leave, and another one join", async(function()
    local origin = stepwise()
    local gw = start(origin)
    local leader = open(gw)
    origin:wait_request(1)
    origin.send(2)
    read_until(leader, "Hello")
    for _ = 1, 3 do
      local follower = open(gw)
      read_until(follower, "Hello")
      follower:close()
    end
    local last = open(gw)
    read_until(last, "Hello")
    origin.send(ALL)
    assert.matches("[DONE]", read_until(last, "0\r\n\r\n"), 1, true)
    assert.equal(1, #origin.requests)
  end))

  it("holds for a hundred at once", async(function()
    local origin = stepwise()
    local gw = start(origin)
    local tasks, bodies = {}, {}
    for i = 1, 100 do
      tasks[i] = support.spawn(function() bodies[i] = gw:request(rig.ask("openai-chat", { stream = true })).body end)
    end
    origin:wait_request(1)
    rig.wait_followers(gw, "openai-chat", 99)
    for n = 1, 10 do
      origin.send(n)
      support.sleep(1)
    end
    for i = 1, 100 do
      tasks[i]:join(10000)
      assert.equal(bodies[1], bodies[i])
    end
    assert.equal(1, #origin.requests)
  end))
end)
