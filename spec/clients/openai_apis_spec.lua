-- The npm client `openai` beyond plain chat completions (those are in openai_spec.lua): tools, structured output, the
-- responses API and embeddings, against the gateway with a stand-in origin behind it.
local support = require "spec.support"
local rig = require "spec.clients.rig"
local async = support.async

local node = rig.runner [[
const { OpenAI } = require('openai');
const { zodResponseFormat, zodTextFormat } = require('openai/helpers/zod');
const { z } = require('zod');
const client = new OpenAI({ apiKey: process.env.KEY, baseURL: process.env.URL });
const hello = { model: 'gpt-test', max_completion_tokens: 30, messages: [{ role: 'user', content: 'Hello!' }] };
const ask = { model: 'gpt-test', max_output_tokens: 30, input: 'Hello!' };
const tide = z.object({ port: z.string(), metres: z.number() });
]]

local OBJECT = { port = "Brest", metres = 6.5 }

describe("the npm client openai, beyond chat", function()
  setup(function() rig.require_package "openai" end)

  it("calls tools, streamed or not, in both APIs", async(function()
    local gw = rig.start({ monthly_tokens = 100000 }, support.llm_origin({ tool = rig.tool }).url)
    local seen = node(gw, [[
      const parameters = { type: 'object', properties: { port: { type: 'string' } } };
      const chat = { ...hello, tools: [{ type: 'function', function: { name: 'get_tide', parameters } }] };
      const responses = { ...ask, tools: [{ type: 'function', name: 'get_tide', parameters, strict: false }] };
      const messages = [(await client.chat.completions.create(chat)).choices[0].message,
        await client.chat.completions.stream(chat).finalMessage()];
      const outputs = [await client.responses.create(responses), await client.responses.stream(responses).finalResponse()];
      return [...messages.map(({ tool_calls }) => tool_calls[0].function), ...outputs.map(({ output }) => output[0])]
        .map((call) => [call.name, call.arguments]);
    ]])
    local call = { rig.tool.name, rig.tool.arguments }
    assert.same({ call, call, call, call }, seen)
    for _, line in ipairs(gw:wait_access(4)) do assert.equal(13, line.tokens.used) end
  end))

  it("parses structured output in both APIs", async(function()
    local origin = support.llm_origin { deltas = { '{"port":"Brest",', '"metres":6.5}' } }
    local gw = rig.start({ monthly_tokens = 100000 }, origin.url)
    local seen = node(gw, [[
      return [(await client.chat.completions.parse({ ...hello, response_format: zodResponseFormat(tide, 'tide') }))
        .choices[0].message.parsed,
        (await client.responses.parse({ ...ask, text: { format: zodTextFormat(tide, 'tide') } })).output_parsed];
    ]])
    assert.same({ OBJECT, OBJECT }, seen)
  end))

  it("gets responses, plain and streamed, with their usage", async(function()
    local gw = rig.start({ monthly_tokens = 100000 }, support.llm_origin().url)
    local seen = node(gw, [[
      const plain = await client.responses.create(ask);
      const types = [];
      let last, text = '';
      for await (const event of await client.responses.create({ ...ask, stream: true })) {
        types.push(event.type);
        text += event.type === 'response.output_text.delta' ? event.delta : '';
        last = event;
      }
      return { plain: plain.output_text, text, types: types.length, last: last.type,
        tokens: [plain.usage.total_tokens, last.response.usage.total_tokens] };
    ]])
    assert.same({ plain = rig.answer, text = rig.answer, types = 11, last = "response.completed", tokens = { 13, 13 } }, seen)
    for _, line in ipairs(gw:wait_access(2)) do assert.equal(13, line.tokens.used) end
  end))

  it("gets embeddings, as it asks for them (base64) and as numbers", async(function()
    local origin = support.llm_origin()
    local gw = rig.start({ monthly_tokens = 100000 }, origin.url)
    local seen = node(gw, [[
      const input = ['tide', 'ebb'];
      const own = await client.embeddings.create({ model: 'embed-test', input });
      const numbers = await client.embeddings.create({ model: 'embed-test', input: 'tide', encoding_format: 'float' });
      return { own: own.data.map((each) => each.embedding), numbers: numbers.data[0].embedding, usage: own.usage };
    ]])
    local vector = { 0.125, 0.25, 0.375, 0.5 }
    assert.same({ own = { vector, vector }, numbers = vector, usage = { prompt_tokens = 9, total_tokens = 9 } }, seen)
    assert.equal("base64", origin.bodies()[1].encoding_format)
    for _, line in ipairs(gw:wait_access(2)) do
      assert.same({ 9, 9, 0 }, { line.tokens.used, line.tokens.input, line.tokens.output })
    end
  end))

  it("sees that a stream of responses was cut, reset, or ended in an error", async(function()
    local origin, env = rig.broken_streams()
    local gw = rig.start({ monthly_tokens = 100000 }, origin.url)
    local seen = node(gw, [[
      const one = async (model) => {
        let last;
        try {
          for await (const event of await client.responses.create({ ...ask, model, stream: true })) {
            last = event.type;
            if (last === 'response.output_text.delta') await heard();
          }
        } catch { return [last, 'raised']; }
        return [last, 'ended'];
      };
      return [await one('cut'), await one('reset'), await one('fail')];
    ]], env)
    local cut = { "response.output_text.delta", "raised" }
    assert.same({ cut, cut, { "error", "ended" } }, seen) -- which is how this client hands an error event on
    for i, line in ipairs(gw:wait_access(3)) do
      assert.equal(i == 3 and "error_event" or "cut_off", line.tokens.usage_missing)
    end
  end))

  it("raises refusals in the shape that it knows", async(function()
    local gw = rig.start({ monthly_tokens = 10 }, support.llm_origin().url)
    local seen = node(gw, [[
      const nothing = () => 'an answer';
      return [await client.responses.create(ask).then(nothing, failure),
        await client.responses.create({ ...ask, max_output_tokens: 'many' }).then(nothing, failure),
        await client.embeddings.create({ model: 'e', input: 'tide '.repeat(20) }).then(nothing, failure)];
    ]])
    local shapes = {}
    for i, err in ipairs(seen) do shapes[i] = { err.name, err.status, err.code } end
    local spent = { "RateLimitError", 429, "insufficient_quota" }
    assert.same({ spent, { "BadRequestError", 400, "invalid_type" }, spent }, shapes)
    assert.same({ 429, 400, 429 }, rig.statuses(gw, 3)) -- none was tried again
  end))
end)
