-- What metering reads in an answer, end to end: the usage of JSON and of streams however their bytes are split, what is
-- charged where there is none, and that the client gets every byte but those of the event that only the gateway asked for.
local support = require "spec.support"
local rig = require "spec.plugins.quota.rig"
local async = support.async

local redis
local up, down = support.shared(function() redis = support.redis() end)

local RESERVED = 2 + 100

local function start(origin, quota)
  return rig.gateway { redis = redis, origin = origin.url, quota = quota, limits = { monthly_tokens = 2 ^ 52 } }
end

-- An origin that answers these bytes, `split` of them at a time (nil: all at once).
local function answering(bytes, kind, split, headers)
  return support.origin(function(_, conn)
    local all = { ["content-type"] = kind }
    for name, value in pairs(headers or {}) do all[name] = value end
    conn:start { headers = all }
    for at = 1, #bytes, split or #bytes do conn:chunk(bytes:sub(at, at + (split or #bytes) - 1)) end
    conn:finish()
  end)
end

-- Asks once, and gives the body and what was charged for it.
local function ask(gw, fields)
  local before = rig.settled(redis)
  local body = { max_tokens = 100 }
  for name, value in pairs(fields or {}) do body[name] = value end
  local res = assert(gw:request(rig.chat(body)))
  assert.equal(200, res.status)
  return res.body, rig.settled(redis) - before, res
end

local function events_text(options, body, eol)
  local parts = {}
  for i, data in ipairs(support.chat_events(options, body)) do parts[i] = "data: " .. data .. eol .. eol end
  return table.concat(parts)
end

describe("metering of an answer", function()
  setup(up)
  teardown(down)
  before_each(async(function() redis:must("FLUSHALL") end))

  for name, eol in pairs { LF = "\n", CRLF = "\r\n", CR = "\r" } do
    it("reads a stream's usage byte by byte, and hides the event it asked for: " .. name, async(function()
      for _, split in ipairs { 1, 7, 100000 } do
        local asked = { model = "m", stream_options = { include_usage = true } }
        local gw = start(answering(events_text(nil, asked, eol), "text/event-stream; charset=utf-8", split))
        local body, charged = ask(gw, { stream = true })
        assert.equal(13, charged)
        -- All but that event, byte for byte.
        local usage_event = '{"id":"chatcmpl-1","object":"chat.completion.chunk","created":1700000000,"model":"m","choices":[],'
          .. '"usage":{"prompt_tokens":9,"completion_tokens":4,"total_tokens":13}}'
        local from, to = events_text(nil, asked, eol):find("data: " .. usage_event .. eol .. eol, 1, true)
        local expected = events_text(nil, asked, eol)
        assert.equal(expected:sub(1, from - 1) .. expected:sub(to + 1), body)
        gw:stop()
      end
    end))

    it("leaves the event to a client that asked for it: " .. name, async(function()
      local options = { split = 1, eol = eol }
      local gw = start(support.chat_origin(options))
      local fields = { stream = true, stream_options = { include_usage = true } }
      local body, charged = ask(gw, fields)
      fields.model = "m"
      assert.same({ 13, events_text(options, fields, eol) }, { charged, body })
    end))
  end

  it("takes the last of usage that stands on every chunk, and leaves it there", async(function()
    local text = ""
    for i = 1, 5 do
      text = text .. 'data: {"choices":[{"delta":{"content":"x"}}],'
        .. ('"usage":{"prompt_tokens":10,"completion_tokens":%d}}\n\n'):format(i)
    end
    text = text .. "data: [DONE]\n\n"
    local gw = start(answering(text, "text/event-stream", 1))
    local body, charged = ask(gw, { stream = true })
    assert.same({ 15, text }, { charged, body })
    assert.same({ 10, 5 }, { gw:wait_access(1)[1].tokens.input, gw.access()[1].tokens.output })
  end))

  it("reads comments, other fields and unknown events over", async(function()
    local text = ': ping\n\nevent: x\nid: 1\ndata: {"choices":[{"delta":{"content":"a\\u0062\\ud83d\\ude00"}}]}\n\n'
      .. 'data: not json\n\ndata: {"choices":[],\ndata: "usage":{"prompt_tokens":3,"completion_tokens":4,"total_tokens":8}}\n\n'
      .. "data: [DONE]\n\n"
    local gw = start(answering(text, "text/event-stream", 1))
    local body, charged = ask(gw, { stream = true, stream_options = { include_usage = true } })
    assert.same({ 8, text }, { charged, body }) -- as reported, cached and all, not the sum
  end))

  it("reads JSON byte by byte and passes it on unchanged", async(function()
    local text = ' {"id":1e400,"big":123456789012345678901234567890,"choices":[],"a":[],"usage":{"total_tokens":42,'
      .. '"prompt_tokens":40,"completion_tokens":2,"prompt_tokens_details":{"cached_tokens":39}},"x":"\\u0000\\/"}\n'
    for _, split in ipairs { 1, 1000 } do
      local gw = start(answering(text, "application/json", split))
      local body, charged = ask(gw)
      assert.same({ 42, text }, { charged, body })
      gw:stop()
    end
  end))

  local hello = '{"choices":[{"message":{"role":"assistant","content":"Hello, wörld"}}]%s}' -- 13 bytes of text
  local SEEN = 2 + 5
  for name, answer in pairs {
    ["JSON without it"] = { hello:format(""), "application/json" },
    ["JSON with null"] = { hello:format(',"usage":null'), "application/json" },
    ["JSON with half of it"] = { hello:format(',"usage":{"prompt_tokens":5}'), "application/json" },
    ["JSON with nonsense"] = { hello:format(',"usage":{"prompt_tokens":-5,"completion_tokens":"x","total_tokens":1.5}'),
      "application/json" },
    ["a stream without it"] = { 'data: {"choices":[{"delta":{"content":"Hello, "}}]}\n\n'
      .. 'data: {"choices":[{"delta":{"content":"wörld"}}]}\n\ndata: [DONE]\n\n', "text/event-stream" },
    ["a stream that ends in an error"] = { 'data: {"choices":[{"delta":{"content":"Hello, wörld"}}]}\n\n'
      .. 'data: {"error":{"message":"overloaded"}}\n\n', "text/event-stream" },
    ["text"] = { "Hello, wörld.", "text/plain", 2 + 5 },
  } do
    it("charges by policy where usage is missing: " .. name, async(function()
      local text, kind = answer[1], answer[2]
      for policy, expected in pairs { seen = answer[3] or SEEN, reserved = RESERVED } do
        local gw = start(answering(text, kind, 3), { on_missing_usage = policy })
        local body, charged = ask(gw, { stream = kind == "text/event-stream" or nil })
        assert.same({ expected, text }, { charged, body }, policy)
        local line = gw:wait_access(1)[1]
        assert.is_string(line.tokens.usage_missing)
        gw:wait_metric("usage_missing_total", 1)
        gw:stop()
      end
    end))
  end

  it("never charges more than was reserved for text that it counts itself", async(function()
    local gw = start(answering(('{"choices":[{"message":{"content":"%s"}}]}'):format(("x"):rep(9000)), "application/json"))
    assert.equal(RESERVED, (select(2, ask(gw))))
  end))

  it("passes an answer on that is gzipped all the same, and charges the reservation", async(function()
    local plain = support.encode { choices = {}, usage = { prompt_tokens = 1, completion_tokens = 1, total_tokens = 2 } }
    local zipped = support.gzip(plain)
    for _, policy in ipairs { "seen", "reserved" } do
      local origin = answering(zipped, "application/json", 10, { ["content-encoding"] = "gzip" })
      local gw = start(origin, { on_missing_usage = policy })
      local body, charged, res = ask(gw)
      assert.same({ RESERVED, "gzip" }, { charged, res.headers["content-encoding"] })
      assert.is_true(body == zipped)
      local streamed
      streamed, charged = ask(gw, { stream = true })
      assert.is_true(streamed == zipped)
      assert.equal(RESERVED, charged)
      gw:stop()
    end
  end))

  it("passes each event on as it comes", async(function()
    local origin
    origin = support.origin(function(_, conn)
      conn:start { headers = { ["content-type"] = "text/event-stream" } }
      for i, data in ipairs(support.chat_events(nil, { stream_options = { include_usage = true } })) do
        support.wait_for(function() return origin.allowed >= i end, "leave for event " .. i)
        conn:chunk("data: " .. data .. "\n\n")
      end
      conn:finish()
    end)
    origin.allowed = 1
    local gw = start(origin)
    local conn = gw:connect()
    conn:send_request(rig.chat { stream = true })
    local next_event = support.events(assert(conn:read_head()))
    for i = 1, 6 do
      assert.is_table(support.decode(next_event().data).choices)
      origin.allowed = i + 1
    end
    origin.allowed = 100
    assert.equal("[DONE]", next_event().data)
    assert.is_nil(next_event())
    assert.equal(13, rig.settled(redis))
  end))
end)
