-- Settlement, end to end: however a request ends, its reservation and its slot are gone right after and what stays in
-- the month's counter is exact; under both policies for answers that report no usage.
local support = require "spec.support"
local rig = require "spec.plugins.quota.rig"
local async = support.async

local redis
local up, down = support.shared(function() redis = support.redis() end)

local RESERVED = 2 + 100 -- tokens: the prompt and max_tokens

-- Plugins behind quota, each on by a header of the request.
local plugin = [[
local M = { version = "1", priority = 100, schema = {} }
local function wants(ctx, what) return ctx.request.headers["x-do"] == what end
function M.access(_, ctx)
  if wants(ctx, "refuse") then return ctx:refusal(403, "no", "not today") end
  if wants(ctx, "answer") then return 200, "here" end
  if wants(ctx, "raise") then error("oops") end
end
function M.response(_, ctx) if wants(ctx, "raise in response") then error("oops") end end
function M.body(_, ctx) if wants(ctx, "raise in body") then error("oops") end end
return M
]]

local function start(options)
  return rig.gateway {
    redis = redis, origin = options.origin, quota = { on_missing_usage = options.policy }, plugins = { late = {} },
    limits = { monthly_tokens = 10000, concurrency = 1 }, files = { ["plugins/late.lua"] = plugin },
    route = { timeouts = options.timeouts },
    config = { timeouts = options.drain and { drain = options.drain } },
  }
end

local function ask(what, body)
  return rig.chat(body, { headers = { ["x-api-key"] = rig.secret, ["x-do"] = what or "" } })
end

local function expect(tokens)
  assert.equal(tokens, rig.settled(redis))
end

-- Ways of an answer that never is one: options of start, the request, what the client sees, and what is charged under
-- "seen" and "reserved".
local function failing_origins()
  local function closes(conn) conn:close() end
  local function garbage(conn)
    conn:write "HTTP/9.9 what\r\n\r\n"
    conn:close()
  end
  local function plain(respond) return support.origin(function(_, conn) respond(conn) end).url end
  return {
    { "an origin that refuses", { origin = support.chat_origin { status = 429, error = { error = {} } }.url }, 429, 0, 0 },
    { "an origin that fails", { origin = support.chat_origin { status = 500, error = { error = {} } }.url }, 500, 0, 0 },
    { "an origin that is not there", { origin = "http://127.0.0.1:1" }, 502, 0, 0 },
    { "an origin that never answers", { origin = plain(function(conn) conn:wait_closed() end),
      timeouts = { first_byte = 0.05 } }, 504, 2, RESERVED },
    { "an origin that closes", { origin = plain(closes) }, 502, 2, RESERVED },
    { "an origin that talks nonsense", { origin = plain(garbage) }, 502, 2, RESERVED },
  }
end

describe("a request is settled", function()
  setup(up)
  teardown(down)
  before_each(async(function() redis:must("FLUSHALL") end))

  it("when it is answered, at what the origin reports", async(function()
    local gw = start { origin = support.chat_origin().url }
    assert.equal(200, gw:request(ask()).status)
    expect(13)
    assert.equal(200, gw:request(ask(nil, { stream = true })).status)
    expect(26)
    assert.same({ 13, 13 }, { gw:wait_access(2)[1].tokens.used, gw.access()[2].tokens.used })
  end))

  it("at 0 when a later plugin refuses, answers or raises", async(function()
    local origin = support.chat_origin()
    local gw = start { origin = origin.url }
    for what, status in pairs { refuse = 403, answer = 200, raise = 500 } do
      assert.equal(status, gw:request(ask(what)).status)
      expect(0)
    end
    assert.same({}, origin.requests)
  end))

  for _, policy in ipairs { "seen", "reserved" } do
    it("when a plugin raises over its answer: " .. policy, async(function()
      local gw = start { origin = support.chat_origin().url, policy = policy }
      local res = gw:request(ask("raise in response", { max_tokens = 100 }))
      assert.equal(500, res.status)
      local charged = policy == "seen" and 2 or RESERVED
      expect(charged)
      -- Here the usage has been read already.
      local _, err = gw:request(ask("raise in body", { max_tokens = 100 }))
      assert.equal("closed", err)
      expect(charged + 13)
    end))

    it("when there is no answer: " .. policy, async(function()
      for _, way in ipairs(failing_origins()) do
        local name, options, status, seen, reserved = unpack(way)
        redis:must("FLUSHALL")
        options.policy = policy
        local gw = start(options)
        local res = gw:request(ask(nil, { max_tokens = 100 }))
        assert.equal(status, res.status, name)
        assert.equal(policy == "seen" and seen or reserved, rig.settled(redis), name)
        gw:stop()
      end
    end))

    it("when an answer is cut off or falls silent: " .. policy, async(function()
      for _, how in ipairs { "cut_after", "stall_after" } do
        redis:must("FLUSHALL")
        local gw = start { origin = support.chat_origin { [how] = 4 }.url, policy = policy, timeouts = { idle = 0.1 } }
        local res, err, part = gw:request(ask(nil, { stream = true, max_tokens = 100 }))
        assert.is_nil(res)
        assert.equal("closed", err)
        assert.matches("Hello.* world", part.body)
        expect(policy == "seen" and 2 + 4 or RESERVED) -- 12 bytes of text at 3 a token
        assert.equal(how == "cut_after" and "origin_cut" or "timeout", gw:wait_access(1)[1].ended)
        gw:stop()
      end
    end))

    it("when the client leaves: " .. policy, async(function()
      local origin = support.origin(function(_, conn) conn:wait_closed() end)
      local gw = start { origin = origin.url, policy = policy }
      local conn = gw:connect()
      conn:send_request(ask(nil, { max_tokens = 100 }))
      origin:wait_request(1)
      assert.equal(RESERVED, rig.look(redis).reserved)
      conn:close()
      expect(policy == "seen" and 2 or RESERVED)
      support.wait_for(function() return origin.open == 0 end, "the origin's connection to be closed")
    end))

    it("when the gateway stops: " .. policy, async(function()
      local gw = start { origin = support.chat_origin { stall_after = 4 }.url, policy = policy, drain = 0.2 }
      local conn = gw:connect()
      conn:send_request(ask(nil, { stream = true, max_tokens = 100 }))
      local next_event = support.events(assert(conn:read_head()))
      for _ = 1, 4 do assert(next_event()) end
      gw:stop()
      expect(policy == "seen" and 2 + 4 or RESERVED)
      assert.equal("shutdown", gw.access()[1].ended)
    end))
  end

  it("when the gateway stops while it is being answered", async(function()
    local gw = start { origin = support.chat_origin { delay_ms = 20 }.url }
    local conn = gw:connect()
    conn:send_request(ask(nil, { stream = true }))
    local res = assert(conn:read_head())
    local stopped = support.spawn(function() gw:stop() end)
    local events = 0
    for _ in support.events(res) do events = events + 1 end
    conn:close()
    stopped:join()
    assert.equal(7, events)
    expect(13)
  end))
end)
