-- The npm package `@langchain/openai` against the gateway with a stand-in origin behind it: chat completions, the
-- responses API and embeddings. It retries on its own (six times, by its own backoff), so what must not be retried
-- has to say so in a way that it reads.
local support = require "spec.support"
local rig = require "spec.clients.rig"
local async = support.async

local node = rig.runner [[
const { ChatOpenAI, OpenAIEmbeddings } = require('@langchain/openai');
const { z } = require('zod');
const options = (more) => ({ apiKey: process.env.KEY, model: 'gpt-test', maxTokens: 30,
  configuration: { baseURL: process.env.URL }, ...more });
const model = (more) => new ChatOpenAI(options(more));
const models = [model(), model({ useResponsesApi: true })];
const text = (message) => typeof message.content === 'string' ? message.content
  : message.content.map((part) => part.text ?? '').join('');
const of_each = async (one) => { const all = []; for (const each of models) all.push(await one(each)); return all; };
// What a stream gave, and whether it failed.
const collect = async (model, prompt = 'Hello!', more) => {
  const seen = { text: '', failed: false };
  try {
    for await (const chunk of await model.stream(prompt, more)) {
      if (text(chunk) && (seen.text += text(chunk)) === text(chunk)) await heard();
      seen.tokens = chunk.usage_metadata?.total_tokens ?? seen.tokens;
    }
  } catch (err) { seen.failed = true; }
  return seen;
};
]]

local function start(limits, origin)
  limits.monthly_tokens = limits.monthly_tokens or 1000000
  return rig.start(limits, origin.url)
end

describe("the npm package @langchain/openai", function()
  setup(function() rig.require_package "@langchain/openai" end)

  it("gets answers and streams with their usage, and embeddings", async(function()
    local gw = start({}, support.llm_origin())
    local seen = node(gw, [[
      const plain = await of_each(async (model) => {
        const message = await model.invoke('Hello!');
        return { text: text(message), tokens: message.usage_metadata.total_tokens, failed: false };
      });
      const streamed = await of_each((model) => collect(model));
      const vectors = await new OpenAIEmbeddings(options({ model: 'embed-test' })).embedDocuments(['tide', 'ebb']);
      return { plain, streamed, vectors };
    ]])
    local one, vector = { text = rig.answer, tokens = 13, failed = false }, { 0.125, 0.25, 0.375, 0.5 }
    assert.same({ plain = { one, one }, streamed = { one, one }, vectors = { vector, vector } }, seen)
    for i, line in ipairs(gw:wait_access(5)) do assert.equal(i == 5 and 9 or 13, line.tokens.used) end
  end))

  it("calls tools and parses structured output", async(function()
    local origin = support.llm_origin { each = function(_, body)
      return body.tools and { tool = rig.tool } or { deltas = { '{"port":"Brest",', '"metres":6.5}' } }
    end }
    local gw = start({}, origin)
    local seen = node(gw, [[
      const tools = [{ type: 'function', function: { name: 'get_tide', parameters: { type: 'object',
        properties: { port: { type: 'string' }, hours: { type: 'array', items: { type: 'integer' } } } } } }];
      const calls = (message) => message.tool_calls.map(({ name, args }) => ({ name, args }))[0];
      const schema = z.object({ port: z.string(), metres: z.number() });
      return { called: await of_each(async (model) => calls(await model.bindTools(tools).invoke('When?'))),
        object: await models[0].withStructuredOutput(schema, { method: 'jsonSchema' }).invoke('How high?') };
    ]])
    local call = { name = "get_tide", args = { port = "Brest", hours = { 6, 18 } } }
    assert.same({ called = { call, call }, object = { port = "Brest", metres = 6.5 } }, seen)
  end))

  it("sends a prompt of 1 MB unchanged, and reads 32 streams at once", async(function()
    local origin = rig.many_streams(function(body) return (body.messages or body.input)[1].content end)
    local gw = start({ monthly_tokens = 10000000, concurrency = 32 }, origin)
    local seen = node(gw, [[
      const texts = await parallel(32, async (i) => (await collect(models[i % 2], String(i))).text);
      await models[0].invoke(big);
      return { texts, hash: hash(big) };
    ]])
    rig.assert_own_streams(seen.texts, 32)
    assert.equal(seen.hash, support.sha256(origin.bodies()[33].messages[1].content))
    for _, line in ipairs(gw:wait_access(33)) do assert.equal(13, line.tokens.used) end
  end))

  it("aborts a stream, which frees the key's only slot", async(function()
    local origin = support.llm_origin { each = function(_, body) return body.stream and { stall_after = 5 } or {} end }
    local gw = start({ concurrency = 1 }, origin)
    local seen = node(gw, [[
      return of_each(async (model) => {
        const leave = new AbortController();
        try {
          for await (const chunk of await model.stream('Hello!', { signal: leave.signal })) if (text(chunk)) leave.abort();
        } catch {}
        return text(await model.invoke('Hello!'));
      });
    ]])
    assert.same({ rig.answer, rig.answer }, seen)
    local ended = {}
    for _, line in ipairs(gw:wait_access(4)) do
      if line.status == 200 then ended[line.ended] = (ended[line.ended] or 0) + 1 end
    end
    assert.same({ client_gone = 2, ok = 2 }, ended)
  end))

  it("does not retry with an unknown key, nor where the month's budget is spent", async(function()
    local origin = support.llm_origin()
    local gw = start({ monthly_tokens = 10 }, origin)
    local seen = node(gw, [[
      const nothing = () => 'an answer';
      return [await model({ apiKey: 'sk-unknown' }).invoke('Hello!').then(nothing, failure),
        ...await of_each((model) => model.invoke('Hello!').then(nothing, failure))];
    ]])
    assert.equal(401, seen[1].status)
    for i = 2, 3 do
      assert.equal("InsufficientQuotaError", seen[i].name)
      assert.matches("Monthly token budget reached", seen[i].message)
    end
    assert.same({ 401, 429, 429 }, rig.statuses(gw, 3))
    assert.equal(0, #origin.requests)
  end))

  it("gets past a rate limit by its retries", async(function()
    local gw = start({ rps = 1, burst = 1 }, support.llm_origin())
    assert.equal(rig.answer, node(gw, "await models[0].invoke('Hello!'); return text(await models[0].invoke('Hello!'));"))
    local list = rig.statuses(gw, 3)
    assert.same({ 200, 429, 200 }, { list[1], list[2], list[#list] })
  end))

  -- It passes over the error event of the responses API, whoever sends it.
  it("sees that a stream was cut, reset, or ended in an error", async(function()
    local origin, env = rig.broken_streams()
    local gw = start({}, origin)
    local seen = node(gw, [=[
      const all = [];
      for (const [how, useResponsesApi] of [['cut'], ['reset'], ['fail'], ['cut', true], ['reset', true]]) {
        const { text, failed } = await collect(model({ model: how, useResponsesApi, maxRetries: 0 }));
        all.push([text.startsWith('Hello'), failed]);
      }
      return all;
    ]=], env)
    local failed = { true, true }
    assert.same({ failed, failed, failed, failed, failed }, seen)
    for i, line in ipairs(gw:wait_access(5)) do
      assert.equal(i == 3 and "error_event" or "cut_off", line.tokens.usage_missing)
    end
  end))
end)
