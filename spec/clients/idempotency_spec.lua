-- The npm clients `openai` and `@anthropic-ai/sdk` on a route with idempotency: what they make of a replay is what they made of
-- the answer, and their own retries run once.
local support = require "spec.support"
local rig = require "spec.clients.rig"
local async = support.async

local openai = rig.runner [[
  const { OpenAI } = require('openai');
  const client = new OpenAI({ apiKey: process.env.KEY, baseURL: process.env.URL });
  const keyed = (key) => ({ headers: { 'Idempotency-Key': key } });
  const ask = (key, more) => client.chat.completions.create(
    { model: 'm', messages: [{ role: 'user', content: 'Hello!' }], max_tokens: 20, ...more }, keyed(key));
  const all = async (stream) => { const list = []; for await (const chunk of await stream) list.push(chunk); return list; };
]]

local anthropic = rig.runner [[
  const Anthropic = require('@anthropic-ai/sdk');
  const client = new Anthropic({ apiKey: process.env.KEY, baseURL: process.env.HOST });
  const ask = (key, more) => client.messages.create({ model: 'm', max_tokens: 20,
    messages: [{ role: 'user', content: 'Hello!' }], ...more }, { headers: { 'Idempotency-Key': key } });
  const all = async (stream) => { const list = []; for await (const event of await stream) list.push(event); return list; };
]]

local function start(origin, conf)
  local routes = {}
  for _, path in ipairs { "chat/completions", "responses", "messages" } do
    routes[#routes + 1] = { name = path:match("%a+"), path = "/v1/" .. path, methods = { "POST" },
      targets = { { url = origin.url } }, plugins = { idempotency = conf or {}, quota = {} } }
  end
  return support.gateway {
    files = { ["keys.jsonl"] = support.keys { { id = "k", tenant = "t", secret = rig.secret, monthly_tokens = 100000 } } },
    config = { plugins = { auth = { keys = "keys.jsonl" } }, routes = routes },
  }
end

describe("a replay", function()
  setup(function()
    rig.require_package "openai"
    rig.require_package "@anthropic-ai/sdk"
  end)

  for name, run in pairs { openai = openai, ["@anthropic-ai/sdk"] = anthropic } do
    it("is to " .. name .. " what the answer was, whole and as a stream", async(function()
      local origin = support.llm_origin { tool = rig.tool }
      local gw = start(origin)
      local seen = run(gw, [[
        const out = [];
        for (let i = 0; i < 2; i++) {
          const { data, response } = await ask('whole', {}).withResponse();
          const streamed = await ask('stream', { stream: true }).withResponse();
          out.push({ data, replayed: response.headers.get('idempotency-replayed'),
            streamReplayed: streamed.response.headers.get('idempotency-replayed'), events: await all(streamed.data) });
        }
        return out;
      ]])
      assert.is_true(#seen[1].events > 3)
      assert.same(seen[1].events, seen[2].events)
      assert.same(seen[1].data, seen[2].data)
      assert.is_nil(seen[1].replayed or seen[1].streamReplayed)
      assert.same({ "true", "true" }, { seen[2].replayed, seen[2].streamReplayed })
      assert.equal(2, #origin.requests)
    end))
  end

  it("is what a client's own retry gets, where its first try timed out", async(function()
    local origin = support.llm_origin { delay_ms = 700 }
    local gw = start(origin, { wait = 10 })
    local seen = openai(gw, [[
      const answer = await client.chat.completions.create({ model: 'm', messages: [{ role: 'user', content: 'Hello!' }] },
        { headers: { 'Idempotency-Key': 'slow' }, timeout: 400, maxRetries: 5 });
      return answer.choices[0].message.content;
    ]])
    assert.equal(rig.answer, seen)
    assert.equal(1, #origin.requests)
  end))

  it("is waited for by a client that is told that the request still runs", async(function()
    local origin = support.llm_origin { delay_ms = 300 }
    local gw = start(origin, { retry_after = 1 })
    local seen = openai(gw, [[
      const answers = await parallel(3, () => ask('same', {}));
      return answers.map((answer) => answer.choices[0].message.content);
    ]])
    assert.same({ rig.answer, rig.answer, rig.answer }, seen)
    assert.equal(1, #origin.requests)
  end))

  it("is no answer to another request: UnprocessableEntityError, without a retry", async(function()
    local origin = support.llm_origin()
    local gw = start(origin)
    local seen = openai(gw, [[
      await ask('key', {});
      return ask('key', { max_tokens: 21 }).then(() => 'an answer', failure);
    ]])
    assert.same({ "UnprocessableEntityError", 422, "idempotency_key_reused" }, { seen.name, seen.status, seen.code })
    assert.same({ 200, 422 }, rig.statuses(gw, 2))
  end))
end)
