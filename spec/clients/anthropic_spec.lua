-- The npm client `@anthropic-ai/sdk`, unmodified and with its own defaults (retries included), against the gateway
-- with a stand-in origin behind it: what a program that only changes its base URL and its key will see.
local support = require "spec.support"
local rig = require "spec.clients.rig"
local async = support.async

local node = rig.runner [[
const Anthropic = require('@anthropic-ai/sdk');
const client = new Anthropic({ apiKey: process.env.KEY, baseURL: process.env.HOST });
const hello = { model: 'claude-test', max_tokens: 30, messages: [{ role: 'user', content: 'Hello!' }] };
const text = (message) => message.content.filter((part) => part.type === 'text').map((part) => part.text).join('');
const kind = (err) => ({ ...failure(err), name: err.constructor.name, type: err.error?.error?.type,
  shouldRetry: err.headers?.get('x-should-retry'), retryAfter: err.headers?.get('retry-after') });
]]

describe("the npm client @anthropic-ai/sdk", function()
  setup(function() rig.require_package "@anthropic-ai/sdk" end)

  it("gets an answer, streamed or not, with all its usage", async(function()
    local origin = support.llm_origin()
    local gw = rig.start({ monthly_tokens = 1000 }, origin.url)
    local seen = node(gw, [[
      const plain = await client.messages.create(hello);
      const stream = client.messages.stream(hello);
      let events = 0, pieces = '';
      stream.on('text', (piece) => { pieces += piece; });
      for await (const event of stream) events++;
      const final = await stream.finalMessage();
      return { plain: text(plain), usage: plain.usage, streamed: text(final), pieces, events, reason: final.stop_reason,
        input: final.usage.input_tokens, output: final.usage.output_tokens };
    ]])
    assert.same({ input_tokens = 9, output_tokens = 4, cache_creation_input_tokens = 0, cache_read_input_tokens = 0 }, seen.usage)
    seen.usage = nil
    -- The SDK does not hand "ping" on.
    assert.same({ plain = rig.answer, streamed = rig.answer, pieces = rig.answer, events = 9, reason = "end_turn", input = 9,
      output = 4 }, seen)
    for i, line in ipairs(gw:wait_access(2)) do assert.same({ 13, 13 }, { line.tokens.used, 9 + line.tokens.output }, i) end
    assert.is_nil(origin.requests[1].headers["x-api-key"])
  end))

  it("uses tools, streamed or not", async(function()
    local gw = rig.start({ monthly_tokens = 10000 }, support.llm_origin({ tool = rig.tool }).url)
    local seen = node(gw, [[
      const tools = [{ name: 'get_tide', description: 'When', input_schema: { type: 'object',
        properties: { port: { type: 'string' }, hours: { type: 'array', items: { type: 'integer' } } } } }];
      const plain = await client.messages.create({ ...hello, tools });
      const final = await client.messages.stream({ ...hello, tools }).finalMessage();
      return [plain, final].map((message) => ({ reason: message.stop_reason, name: message.content[0].name,
        input: message.content[0].input }));
    ]])
    local expected = { reason = "tool_use", name = "get_tide", input = { port = "Brest", hours = { 6, 18 } } }
    assert.same({ expected, expected }, seen)
  end))

  it("parses a structured output", async(function()
    local origin = support.llm_origin { deltas = { '{"port":"Brest",', '"metres":6.5}' } }
    local gw = rig.start({ monthly_tokens = 10000 }, origin.url)
    local seen = node(gw, [[
      const { z } = require('zod');
      const { betaZodOutputFormat } = require('@anthropic-ai/sdk/helpers/beta/zod');
      const message = await client.beta.messages.parse({ ...hello,
        output_format: betaZodOutputFormat(z.object({ port: z.string(), metres: z.number() })) });
      return message.parsed_output;
    ]])
    assert.same({ port = "Brest", metres = 6.5 }, seen)
    assert.equal("beta=true", origin.requests[1].query)
    assert.equal(13, gw:wait_access(1)[1].tokens.used)
  end))

  it("sends a prompt of 1 MB unchanged, and reads 32 streams at once", async(function()
    local origin = rig.many_streams(function(body) return body.messages[1].content end)
    local gw = rig.start({ monthly_tokens = 10000000, concurrency = 32 }, origin.url)
    local seen = node(gw, [[
      const one = async (i) => text(await client.messages.stream({ ...hello,
        messages: [{ role: 'user', content: String(i) }] }).finalMessage());
      const texts = await parallel(32, one);
      await client.messages.create({ ...hello, messages: [{ role: 'user', content: big }] });
      return { texts, hash: hash(big) };
    ]])
    rig.assert_own_streams(seen.texts, 32)
    assert.equal(seen.hash, support.sha256(origin.bodies()[33].messages[1].content))
    for _, line in ipairs(gw:wait_access(33)) do assert.equal(13, line.tokens.used) end
  end))

  it("aborts a stream, which frees the key's only slot", async(function()
    local origin = support.llm_origin { each = function(_, body) return body.stream and { stall_after = 5 } or {} end }
    local gw = rig.start({ concurrency = 1 }, origin.url)
    local seen = node(gw, [[
      const stream = await client.messages.create({ ...hello, stream: true });
      for await (const event of stream) if (event.type === 'content_block_delta') break;
      return text(await client.messages.create(hello));
    ]])
    assert.equal(rig.answer, seen)
    support.wait_for(function() return origin.open <= 1 end, "the end of the stream's connection at the origin")
    local ended = {}
    for _, line in ipairs(gw:wait_access(2)) do ended[line.ended] = true end
    assert.same({ client_gone = true, ok = true }, ended)
  end))

  it("raises what is wrong with its key or its request, and does not retry", async(function()
    local origin = support.llm_origin()
    local gw = rig.start({ monthly_tokens = 10 }, origin.url)
    local seen = node(gw, [[
      const stranger = new Anthropic({ apiKey: 'sk-unknown', baseURL: process.env.HOST });
      const nothing = () => 'an answer';
      return [await stranger.messages.create(hello).then(nothing, kind),
        await client.messages.create({ ...hello, max_tokens: -1 }).then(nothing, kind),
        await client.messages.create(hello).then(nothing, kind)];
    ]])
    assert.same({ "AuthenticationError", 401, "authentication_error" }, { seen[1].name, seen[1].status, seen[1].type })
    assert.same({ "BadRequestError", 400, "invalid_request_error" }, { seen[2].name, seen[2].status, seen[2].type })
    assert.same({ "RateLimitError", 429, "rate_limit_error", "false" },
      { seen[3].name, seen[3].status, seen[3].type, seen[3].shouldRetry })
    assert.is_true(tonumber(seen[3].retryAfter) > 0)
    assert.same({ 401, 400, 429 }, rig.statuses(gw, 3))
    assert.equal(0, #origin.requests)
  end))

  -- Its own backoff adds up to at most 1.5 s over both retries; the bucket takes 2 s.
  it("waits out a rate limit as the answer says, with a single retry", async(function()
    local gw = rig.start({ rps = 0.5, burst = 1 }, support.llm_origin().url)
    assert.equal(rig.answer, node(gw, "await client.messages.create(hello); return text(await client.messages.create(hello));"))
    assert.same({ 200, 429, 200 }, rig.statuses(gw, 3))
  end))

  it("sees that a stream was cut, reset, or ended in an error, behind what did arrive", async(function()
    local origin, env = rig.broken_streams()
    local gw = rig.start({ monthly_tokens = 1000 }, origin.url)
    local seen = node(gw, [[
      const one = async (model) => {
        let got = '';
        try {
          for await (const event of await client.messages.create({ ...hello, model, stream: true }))
            if (event.type === 'content_block_delta') { got += event.delta.text; await heard(); }
        } catch (err) { return { got, failed: true }; }
        return { got, failed: false };
      };
      return [await one('cut'), await one('reset'), await one('fail')];
    ]], env)
    local failed = { got = "Hello,", failed = true }
    assert.same({ failed, failed, failed }, seen)
    for i, line in ipairs(gw:wait_access(3)) do
      assert.equal(i == 3 and "ok" or "origin_cut", line.ended)
      -- The input as the stream's begin told it, and 6 bytes of text.
      assert.same({ 9 + 2, i == 3 and "error_event" or "cut_off" }, { line.tokens.used, line.tokens.usage_missing })
    end
  end))
end)
