-- idempotency on LLM routes, with quota behind it: streams played back byte for byte, streams that failed run again, and a
-- replay costs nothing.
local support = require "spec.support"
local rig = require "spec.plugins.idempotency.rig"
local quota = require "spec.plugins.quota.rig"
local async = support.async

local PATHS = { chat = "/v1/chat/completions", responses = "/v1/responses", messages = "/v1/messages" }

local function start(redis, origin, conf, limits)
  local routes = {}
  for name, path in pairs(PATHS) do
    routes[#routes + 1] = { name = name, path = path, targets = { { url = origin.url } },
      plugins = { idempotency = conf or {}, quota = {} } }
  end
  return rig.gateway { redis = redis, origin = origin.url, config = { routes = routes },
    limits = limits or { monthly_tokens = 100000, concurrency = 4 } }
end

local function ask(gw, key, fields, api)
  return gw:request(rig.post(key, { path = PATHS[api or "chat"], body = rig.merged({ model = "m", max_tokens = 20,
    messages = { { role = "user", content = "hi" } }, input = "hi" }, fields) }))
end

describe("a stream", function()
  it("is played back byte for byte, for each API", async(function()
    local redis, origin = rig.redis(), support.llm_origin { tool = { name = "get_tide", arguments = '{"port":"Brest"}' } }
    local gw = start(redis, origin)
    for api in pairs(PATHS) do
      local first = ask(gw, api, { stream = true }, api)
      local again = ask(gw, api, { stream = true }, api)
      assert.same({ api, 200, "true", first.body }, { api, unpack(rig.seen(again)) })
      assert.is_true(#first.body > 100)
      assert.equal("text/event-stream", again.headers["content-type"])
      assert.equal(422, ask(gw, api, {}, api).status) -- not the same request
    end
    assert.equal(3, #origin.requests)
  end))

  it("has, as the client's own stream, no usage event that only the gateway asked for; or the one that it asked for",
    async(function()
      local redis, origin = rig.redis(), support.chat_origin()
      local gw = start(redis, origin)
      assert.is_nil(ask(gw, "a", { stream = true }).body:find("prompt_tokens", 1, true))
      assert.is_nil(ask(gw, "a", { stream = true }).body:find("prompt_tokens", 1, true))
      local more = { stream = true, stream_options = { include_usage = true } }
      assert.equal(ask(gw, "b", more).body, ask(gw, "b", more).body)
      assert.is_truthy(ask(gw, "b", more).body:find("prompt_tokens", 1, true))
    end))

  it("that broke off, ended without its last event or in an error, runs again", async(function()
    local redis = rig.redis()
    local origin = support.llm_origin { each = function(_, body)
      return ({ cut = { cut_after = 3 }, fail = { fail_after = 3 } })[body.model]
    end }
    local gw = start(redis, origin)
    for _ = 1, 2 do
      ask(gw, "cut", { stream = true, model = "cut" })
      assert.is_nil(ask(gw, "fail", { stream = true, model = "fail" }).headers["idempotency-replayed"])
    end
    assert.equal(4, #origin.requests)
    rig.wait_state(redis, "none")
  end))

  it("whose client leaves is read on to its end, charged and stored", async(function()
    local redis, origin = rig.redis(), support.chat_origin { delay_ms = 20, deltas = { "a", "b", "c", "d", "e" },
      usage = { prompt_tokens = 11, completion_tokens = 22, total_tokens = 33 } }
    local gw = start(redis, origin)
    local c = gw:connect()
    c:send_request(rig.post("key", { path = PATHS.chat, body = { model = "m", max_tokens = 20, stream = true,
      messages = { { role = "user", content = "hi" } } } }))
    c:read_until("data:", true)
    c:close()
    rig.wait_state(redis, "done")
    assert.equal(33, quota.settled(redis))
    local line = gw:wait_access(1)[1]
    assert.same({ "client_gone", 33 }, { line.ended, line.tokens.used })
  end))
end)

describe("a replay", function()
  it("takes no token, no slot and no reservation", async(function()
    local redis, origin = rig.redis(), support.chat_origin()
    local gw = start(redis, origin, nil, { monthly_tokens = 1000, rps = 0.001, burst = 1, concurrency = 1 })
    assert.equal(200, ask(gw, "key").status)
    assert.equal(13, quota.settled(redis))
    for _ = 1, 5 do
      local res = ask(gw, "key")
      assert.same({ 200, "true" }, { res.status, res.headers["idempotency-replayed"] })
    end
    assert.equal(13, quota.settled(redis))
    assert.equal(429, ask(gw, "other").status)
    assert.equal(1, #origin.requests)
    for _, line in ipairs(gw:wait_access(6)) do assert.is_true(not line.tokens or line.tokens.used <= 13) end
    assert.is_nil(gw.access()[2].tokens)
  end))

  it("is not stopped by a budget that is spent, whose refusal is not stored", async(function()
    local redis, origin = rig.redis(), support.chat_origin()
    local gw = start(redis, origin, nil, { monthly_tokens = 25 })
    assert.equal(200, ask(gw, "key").status)
    for _ = 1, 2 do assert.equal(429, ask(gw, "poor", { max_tokens = 24 }).status) end
    assert.equal("true", ask(gw, "key").headers["idempotency-replayed"])
    assert.equal(1, #redis:must("KEYS", "idem:*"))
  end))
end)
