-- quota's cap on requests in flight, end to end: exactly so many run, whatever ends a request gives its slot back once
-- and at once, and the slots of a gateway that was killed come back although others keep using the key.
local uv = require "luv"
local support = require "spec.support"
local rig = require "spec.plugins.quota.rig"
local async = support.async

local redis
local up, down = support.shared(function() redis = support.redis() end)

local function stalled_origin()
  return support.chat_origin { stall_after = 4 } -- has sent "Hello, world", or nothing where it is not a stream
end

-- A stream that has begun, with the four events that came.
local function begin_stream(gw, body)
  local conn = gw:connect()
  conn:send_request(rig.chat(body or { stream = true }))
  local res = assert(conn:read_head())
  if res.status == 200 then
    local next_event = support.events(res)
    for _ = 1, 4 do assert(next_event()) end
  end
  return conn, res
end

local function admitted_soon(gw, request, limit_ms)
  local began = uv.hrtime()
  support.wait_for(function() return gw:request(request).status == 200 end, "a free slot", limit_ms)
  return (uv.hrtime() - began) / 1e9
end

describe("quota's concurrency", function()
  setup(up)
  teardown(down)
  before_each(async(function() redis:must("FLUSHALL") end))

  it("runs exactly so many at once, over two gateways, and a refusal leaves every key as it was", async(function()
    local options = { redis = redis, origin = stalled_origin().url,
      limits = { concurrency = 3, rps = 1000, burst = 1000, monthly_tokens = 100000 } }
    local one, two = rig.gateway(options), rig.gateway(options)
    local counts, calls = {}, {}
    for i = 1, 30 do
      calls[i] = function()
        local _, res = begin_stream(i % 2 == 0 and one or two)
        counts[res.status] = (counts[res.status] or 0) + 1
      end
    end
    support.all(calls)
    assert.same({ [200] = 3, [429] = 27 }, counts)
    local before = redis:dump()
    local res = one:request(rig.chat())
    assert.same(before, redis:dump())
    assert.same({ 429, "1", "1000", nil }, { res.status, res.headers["retry-after"], res.headers["retry-after-ms"],
      res.headers["x-should-retry"] })
    local err = support.json(res).error
    assert.same({ "rate_limit_exceeded", "Concurrency limit reached: 3 requests in flight at once" }, { err.code, err.message })
    assert.equal(3, rig.look(redis).inflight)
  end))

  local ways = {
    { "JSON on one connection", nil, true }, { "short streams on one connection", true, true },
    { "JSON on new connections", nil, false }, { "short streams on new connections", true, false },
  }
  for _, way in ipairs(ways) do
    local name, stream, kept = unpack(way, 1, 3)
    it("of 1 admits 1,000 in a row: " .. name, async(function()
      local gw = rig.gateway { redis = redis, origin = support.chat_origin().url,
        limits = { concurrency = 1, monthly_tokens = 2 ^ 50 } }
      local conn, admitted = kept and gw:connect(), 0
      for _ = 1, 1000 do
        local res = assert((conn or gw):request(rig.chat { stream = stream }))
        if res.status == 200 then admitted = admitted + 1 end
      end
      assert.same({ 1000, 13 * 1000 }, { admitted, rig.settled(redis) })
    end))
  end

  for _, leave in ipairs { "close", "reset" } do
    it("is given back at once by a client that leaves a stream: " .. leave, async(function()
      local origin = stalled_origin()
      local gw = rig.gateway { redis = redis, origin = origin.url, limits = { concurrency = 1, monthly_tokens = 10000 } }
      local conn = begin_stream(gw, { stream = true, max_tokens = 100 })
      assert.same({ tokens = 102, reserved = 102, open = 1, inflight = 1 }, rig.look(redis))
      assert.equal(429, gw:request(rig.chat()).status)
      local began = uv.hrtime()
      conn[leave](conn)
      support.wait_for(function() return origin.open == 0 end, "the origin's connection to be closed")
      -- The prompt of 2 tokens, and the 12 bytes of "Hello, world" at 3 a token.
      assert.equal(2 + 4, rig.settled(redis))
      assert.equal(200, gw:request(rig.chat()).status)
      assert.is_true((uv.hrtime() - began) / 1e9 < 5)
      local line = gw:wait_access(3)[2]
      assert.same({ "client_gone", 6, "client_gone" }, { line.ended, line.tokens.used, line.tokens.usage_missing })
    end))
  end

  it("is given back by a client that leaves before an answer", async(function()
    local origin = support.origin(function(req, conn)
      if req.headers["x-quick"] then return conn:respond { body = "hello" } end
      conn:wait_closed()
    end)
    local gw = rig.gateway { redis = redis, origin = origin.url, limits = { concurrency = 1 } }
    local conn = gw:connect()
    conn:send_request(rig.plain())
    origin:wait_request(1)
    conn:close()
    local quick = rig.plain { headers = { ["x-quick"] = "1", ["x-api-key"] = rig.secret } }
    assert.is_true(admitted_soon(gw, quick) < 1)
    support.wait_for(function() return origin.open <= 1 end, "the cancelled request's end")
  end))

  it("is given back once by requests that turn out bad", async(function()
    local origin = support.origin(function(_, conn) conn:respond { body = "hello" } end)
    local gw = rig.gateway { redis = redis, origin = origin.url, limits = { concurrency = 1 },
      config = { limits = { body = 100 }, timeouts = { body = 0.05 } } }
    local head = "POST /plain/x HTTP/1.1\r\nhost: h\r\nx-api-key: " .. rig.secret .. "\r\n"
    local chunked = "transfer-encoding: chunked\r\n\r\n"
    for status, parts in pairs {
      [400] = { chunked, "3\r\nabcd" }, [413] = { chunked, "fff\r\n" .. ("x"):rep(4095) },
      [408] = { "content-length: 5\r\n\r\n", "ab" },
    } do
      local conn = gw:connect()
      conn:send(head .. parts[1])
      support.wait_for(function() return rig.look(redis).inflight == 1 end, "its slot")
      conn:send(parts[2])
      assert.equal(status, assert(conn:read_response()).status)
      assert.equal(200, gw:request(rig.plain()).status)
    end
    assert.equal(0, rig.settled(redis))
  end))

  it("heals after kill -9, and the dead gateway's charge stands", async(function()
    local options = { redis = redis, origin = stalled_origin().url, limits = { concurrency = 2, monthly_tokens = 10000 } }
    local dead = rig.gateway(options)
    begin_stream(dead)
    begin_stream(dead)
    dead:kill("sigkill")
    local gw = rig.gateway(options)
    assert.equal(429, gw:request(rig.chat()).status)
    assert.same({ tokens = 20, reserved = 20, open = 2, inflight = 2 }, rig.look(redis))
    -- The leases, which would end by themselves in 5 minutes.
    for _, key in ipairs(redis:must("KEYS", "q:reserved:*")) do redis:must("PEXPIRE", key, 1) end
    support.wait_for(function()
      local _, res = begin_stream(gw)
      return res.status == 200
    end, "a healed slot")
    assert.same({ tokens = 30, reserved = 10, open = 1, inflight = 1 }, rig.look(redis))
    gw:wait_metric("quota_healed_total", 2)
  end))

  it("heals under traffic, and never takes the slot of a request that runs", async(function()
    local options = { redis = redis, origin = stalled_origin().url, limits = { concurrency = 3, monthly_tokens = 100000 } }
    local dead = rig.gateway(options)
    begin_stream(dead)
    begin_stream(dead)
    local leaked = redis:must("KEYS", "q:reserved:*")
    dead:kill("sigkill")
    local gw = rig.gateway(options)
    local live = begin_stream(gw)
    for _, key in ipairs(leaked) do redis:must("PEXPIRE", key, 1) end
    -- Each request that is admitted renews the set of ids, which therefore never lapses as a whole.
    local kept = {}
    support.wait_for(function()
      local conn, res = begin_stream(gw)
      if res.status == 200 then kept[#kept + 1] = conn end
      return #kept == 2
    end, "both slots")
    local _, res = begin_stream(gw)
    assert.same({ 429, 3 }, { res.status, rig.look(redis).inflight })
    support.sleep(1100) -- behind which a heal may run again
    _, res = begin_stream(gw)
    assert.same({ 429, 3 }, { res.status, rig.look(redis).inflight })
    gw:wait_metric("quota_healed_total", 2)
    live:close()
    assert.is_true(admitted_soon(gw, rig.chat()) < 1)
  end))
end)
