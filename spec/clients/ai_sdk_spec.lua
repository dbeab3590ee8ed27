-- The npm package `ai` with its providers for OpenAI (responses, chat completions, embeddings) and Anthropic, with
-- their own defaults (retries included), against the gateway with a stand-in origin behind it.
local support = require "spec.support"
local rig = require "spec.clients.rig"
local async = support.async

local node = rig.runner [[
const ai = require('ai');
const { createOpenAI } = require('@ai-sdk/openai');
const { createAnthropic } = require('@ai-sdk/anthropic');
const { z } = require('zod');
globalThis.AI_SDK_LOG_WARNINGS = false;
const options = { apiKey: process.env.KEY, baseURL: process.env.URL };
const openai = createOpenAI(options), anthropic = createAnthropic(options);
const models = [openai.chat('gpt-test'), openai.responses('gpt-test'), anthropic('claude-test')];
const ask = (model, more) => ({ model, prompt: 'Hello!', maxOutputTokens: 30, ...more });
const of_each = async (one) => { const all = []; for (const model of models) all.push(await one(model)); return all; };
// What a stream gave, and whether it failed.
const collect = async (model, more) => {
  const seen = { text: '', failed: false };
  const { fullStream } = ai.streamText(ask(model, { onError: () => {}, ...more }));
  try {
    for await (const part of fullStream) {
      if (part.type === 'text-delta' && (seen.text += part.text) === part.text) await heard();
      if (part.type === 'error') seen.failed = true;
      if (part.type === 'finish') { seen.input = part.totalUsage.inputTokens; seen.output = part.totalUsage.outputTokens; }
    }
  } catch { seen.failed = true; }
  return seen;
};
]]

local function each_model(expected) return { expected, expected, expected } end

local function start(limits, origin)
  limits.monthly_tokens = limits.monthly_tokens or 1000000
  return rig.start(limits, origin.url)
end

describe("the npm package ai", function()
  setup(function() for _, name in ipairs { "ai", "@ai-sdk/openai", "@ai-sdk/anthropic" } do rig.require_package(name) end end)

  it("gets answers and streams of each API, with their usage", async(function()
    local gw = start({}, support.llm_origin())
    local seen = node(gw, [[
      const plain = await of_each(async (model) => {
        const { text, usage } = await ai.generateText(ask(model));
        return { text, input: usage.inputTokens, output: usage.outputTokens, failed: false };
      });
      return { plain, streamed: await of_each((model) => collect(model)) };
    ]])
    local expected = each_model { text = rig.answer, input = 9, output = 4, failed = false }
    assert.same({ plain = expected, streamed = expected }, seen)
    for _, line in ipairs(gw:wait_access(6)) do assert.equal(13, line.tokens.used) end
  end))

  it("calls tools and makes objects with each API, and embeds", async(function()
    local origin = support.llm_origin { each = function(req, body)
      if body.tools and not req.body:find("tool_choice.*json", 1) then return { tool = rig.tool } end
      return { deltas = { '{"port":"Brest",', '"metres":6.5}' } }
    end }
    local gw = start({}, origin)
    local seen = node(gw, [[
      const inputSchema = z.object({ port: z.string(), hours: z.array(z.number()) });
      const tools = { get_tide: ai.tool({ description: 'When', inputSchema }) };
      const called = await of_each(async (model) => (await ai.generateText(ask(model, { tools }))).toolCalls
        .map((call) => ({ name: call.toolName, input: call.input }))[0]);
      const streamed = await of_each(async (model) => (await ai.streamText(ask(model, { tools })).toolCalls)
        .map((call) => ({ name: call.toolName, input: call.input }))[0]);
      const schema = z.object({ port: z.string(), metres: z.number() });
      const objects = [];
      for (const model of models.slice(0, 2)) objects.push((await ai.generateText(ask(model,
        { output: ai.Output.object({ schema }) }))).output);
      const { embeddings, usage } = await ai.embedMany({ model: openai.embedding('embed-test'), values: ['tide', 'ebb'] });
      return { called, streamed, objects, embeddings, tokens: usage.tokens };
    ]])
    local call = { name = "get_tide", input = { port = "Brest", hours = { 6, 18 } } }
    local object, vector = { port = "Brest", metres = 6.5 }, { 0.125, 0.25, 0.375, 0.5 }
    assert.same({ called = each_model(call), streamed = each_model(call), objects = { object, object },
      embeddings = { vector, vector }, tokens = 9 }, seen)
    for i, line in ipairs(gw:wait_access(9)) do assert.equal(i == 9 and 9 or 13, line.tokens.used) end
  end))

  it("sends a prompt of 1 MB unchanged, and reads 32 streams at once", async(function()
    local origin = rig.many_streams(function(body)
      local content = body.input and body.input[1].content or body.messages[1].content
      return type(content) == "table" and content[1].text or content
    end)
    local gw = start({ monthly_tokens = 10000000, concurrency = 32 }, origin)
    local seen = node(gw, [[
      const texts = await parallel(32, async (i) => (await collect(models[i % 3], { prompt: String(i) })).text);
      await ai.generateText(ask(models[1], { prompt: big }));
      return { texts, hash: hash(big) };
    ]])
    rig.assert_own_streams(seen.texts, 32)
    assert.equal(seen.hash, support.sha256(origin.bodies()[33].input[1].content[1].text))
    for _, line in ipairs(gw:wait_access(33)) do assert.equal(13, line.tokens.used) end
  end))

  it("aborts a stream of each API, which frees the key's only slot", async(function()
    local origin = support.llm_origin { each = function(_, body) return body.stream and { stall_after = 5 } or {} end }
    local gw = start({ concurrency = 1 }, origin)
    local seen = node(gw, [[
      return of_each(async (model) => {
        const leave = new AbortController();
        const { textStream } = ai.streamText(ask(model, { abortSignal: leave.signal }));
        for await (const piece of textStream) { leave.abort(); break; }
        return (await ai.generateText(ask(model))).text;
      });
    ]])
    assert.same(each_model(rig.answer), seen)
    local ended = {}
    for _, line in ipairs(gw:wait_access(6)) do ended[line.ended] = (ended[line.ended] or 0) + 1 end
    assert.same({ client_gone = 3, ok = 3 }, ended)
  end))

  it("raises what is wrong with its key, or that the budget is spent", async(function()
    local origin = support.llm_origin()
    local gw = start({ monthly_tokens = 10 }, origin)
    local seen = node(gw, [[
      const stranger = { apiKey: 'sk-unknown', baseURL: process.env.URL };
      const unknown = [createOpenAI(stranger)('gpt-test'), createAnthropic(stranger)('claude-test')];
      const all = [];
      for (const model of unknown)
        all.push(await ai.generateText(ask(model)).then(() => 'an answer', (err) => [err.statusCode, err.isRetryable]));
      for (const model of models)
        all.push(await ai.generateText(ask(model, { maxRetries: 0 }))
          .then(() => 'an answer', (err) => [err.statusCode, err.message]));
      return all;
    ]])
    assert.same({ { 401, false }, { 401, false } }, { seen[1], seen[2] })
    for i = 3, 5 do
      assert.equal(429, seen[i][1])
      assert.matches("Monthly token budget reached", seen[i][2])
    end
    assert.equal(0, #origin.requests)
  end))

  -- Its own backoff is 2 s and then 4 s, so left alone it would be refused twice.
  it("waits out a rate limit as the answer says, with a single retry", async(function()
    local gw = start({ rps = 0.4, burst = 1 }, support.llm_origin())
    local seen = node(gw, "await ai.generateText(ask(models[0])); return (await ai.generateText(ask(models[2]))).text;")
    assert.equal(rig.answer, seen)
    assert.same({ 200, 429, 200 }, rig.statuses(gw, 3))
  end))

  it("sees that a stream of each API was cut, reset, or ended in an error", async(function()
    local origin, env = rig.broken_streams()
    local gw = start({}, origin)
    local seen = node(gw, [[
      const all = {};
      for (const how of ['cut', 'reset', 'fail'])
        for (const make of [openai.chat, openai.responses, anthropic]) {
          const { text, failed } = await collect(make(how), { maxRetries: 0 });
          (all[how] ??= []).push([text.startsWith('Hello'), failed]);
        }
      return all;
    ]], env)
    local failed = each_model { true, true }
    assert.same({ cut = failed, reset = failed, fail = failed }, seen)
    local causes = {}
    for i, line in ipairs(gw:wait_access(9)) do causes[i] = line.tokens.usage_missing end
    for i = 1, 9 do assert.equal(i > 6 and "error_event" or "cut_off", causes[i]) end
  end))
end)
