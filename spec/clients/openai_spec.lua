-- The npm client `openai`, unmodified and with its own defaults (retries included), against the gateway with
-- a stand-in origin behind it: what a program that only changes its base URL and its key will see. Node
-- scripts are in this file; each prints one JSON value. What the client saw is compared with what the gateway
-- logged and what the origin received.
local support = require "spec.support"
local rig = require "spec.clients.rig"
local async = support.async

local SECRET = "sk-test"

-- Around each script: `client` as a program makes it, `create(options, more)`, and `collect(stream)`. The value
-- that the script returns is printed.
local FRAME = [[
const { OpenAI } = require('openai');
const client = new OpenAI({ apiKey: process.env.KEY, baseURL: process.env.URL });
const hello = { model: 'gpt-test', messages: [{ role: 'user', content: 'Hello!' }], max_tokens: 20 };
const create = (options, more) => client.chat.completions.create({ ...hello, ...options }, more);
const collect = async (stream) => {
  const seen = { text: '', chunks: 0, usage: [], empty: 0 };
  for await (const chunk of stream) {
    seen.chunks++;
    seen.text += chunk.choices[0]?.delta?.content ?? '';
    if (chunk.choices.length === 0) seen.empty++;
    if (chunk.usage) seen.usage.push(chunk.usage);
    if (chunk.choices[0]?.finish_reason) seen.finish = chunk.choices[0].finish_reason;
  }
  return seen;
};
const failure = (err) => ({ name: err.constructor.name, status: err.status, code: err.code, type: err.type,
  retryAfter: err.headers?.get('retry-after'), shouldRetry: err.headers?.get('x-should-retry'), id: err.requestID });
(async () => { %s })().then((value) => console.log(JSON.stringify(value)), (err) => { console.error(err); process.exit(1); });
]]

local function node(gw, script, env)
  local variables = { KEY = SECRET, URL = "http://127.0.0.1:" .. gw.port .. "/v1" }
  for name, value in pairs(env or {}) do variables[name] = value end
  local source = FRAME:gsub("%%s", function() return script end)
  local result = support.npm.node { source = source, env = variables }
  assert(result.code == 0, result.err)
  return support.decode(result.out)
end

local function start(limits, origin)
  local record = { id = "k", tenant = "t", secret = SECRET }
  for name, value in pairs(limits) do record[name] = value end
  return support.gateway {
    files = { ["keys.jsonl"] = support.keys { record } },
    config = {
      plugins = { auth = { keys = "keys.jsonl" } },
      routes = { { name = "chat", path = "/v1/chat/completions", methods = { "POST" },
        targets = { { url = origin.url } }, plugins = { quota = {} } } },
    },
  }
end

local function statuses(gw, n)
  local list = {}
  for i, line in ipairs(gw:wait_access(n)) do list[i] = line.status end
  return list
end

local ANSWER = "Hello, world!"

describe("the npm client openai", function()
  setup(function()
    local found = io.open(support.npm.path() .. "/openai/package.json")
    assert(found, "the npm packages are missing: scripts/setup --tests")
    found:close()
  end)

  it("gets an answer with its usage, and the request's id", async(function()
    local origin = support.chat_origin()
    local gw = start({ monthly_tokens = 1000 }, origin)
    local seen = node(gw, [[
      const { data, request_id, response } = await create({}).withResponse();
      return { text: data.choices[0].message.content, usage: data.usage, model: data.model, request_id,
        left: response.headers.get('x-ratelimit-remaining-tokens') };
    ]])
    assert.equal(ANSWER, seen.text)
    assert.equal("gpt-test", seen.model)
    assert.same({ prompt_tokens = 9, completion_tokens = 4, total_tokens = 13 }, seen.usage)
    local line = gw:wait_access(1)[1]
    assert.equal(line.id, seen.request_id)
    assert.equal(13, line.tokens.used)
    assert.is_true(tonumber(seen.left) < 1000)
    assert.is_nil(origin.requests[1].headers.authorization)
  end))

  it("reads a stream, and sees no trace of the usage that the gateway asked for", async(function()
    local origin = support.chat_origin()
    local gw = start({ monthly_tokens = 1000 }, origin)
    local seen = node(gw, "return collect(await create({ stream: true }));")
    assert.same({ text = ANSWER, chunks = 6, usage = {}, empty = 0, finish = "stop" }, seen)
    assert.is_true(origin.bodies()[1].stream_options.include_usage)
    assert.equal(13, gw:wait_access(1)[1].tokens.used)
  end))

  it("gets the usage of a stream where it asks for it, once", async(function()
    local gw = start({ monthly_tokens = 1000 }, support.chat_origin())
    local seen = node(gw, "return collect(await create({ stream: true, stream_options: { include_usage: true } }));")
    local usage = { prompt_tokens = 9, completion_tokens = 4, total_tokens = 13 }
    assert.same({ text = ANSWER, chunks = 7, usage = { usage }, empty = 1, finish = "stop" }, seen)
  end))

  it("aborts a stream, which ends it at the origin and frees the key's only slot", async(function()
    local origin = support.chat_origin { each = function(_, body)
      return body.stream and { stall_after = 3 } or {}
    end }
    local gw = start({ concurrency = 1 }, origin)
    local seen = node(gw, [[
      const stream = await create({ stream: true });
      let chunks = 0;
      for await (const chunk of stream) if (++chunks === 3) break;
      const after = await create({});
      return { chunks, aborted: stream.controller.signal.aborted, text: after.choices[0].message.content };
    ]])
    assert.same({ chunks = 3, aborted = true, text = ANSWER }, seen)
    support.wait_for(function() return origin.open <= 1 end, "the end of the stream's connection at the origin")
    local ended = {}
    for _, line in ipairs(gw:wait_access(2)) do ended[line.ended] = true end
    assert.same({ client_gone = true, ok = true }, ended)
  end))

  it("sends a prompt of 1 MB unchanged", async(function()
    local origin = support.chat_origin()
    local gw = start({ monthly_tokens = 10000000 }, origin)
    local seen = node(gw, [[
      const content = 'All work and no play. Ünïcödé "quoted"\n'.repeat(30000).slice(0, 1 << 20);
      const answer = await create({ messages: [{ role: 'user', content }] });
      const hash = require('crypto').createHash('sha256').update(content).digest('hex');
      return { text: answer.choices[0].message.content, hash };
    ]])
    assert.equal(ANSWER, seen.text)
    assert.equal(seen.hash, support.sha256(origin.bodies()[1].messages[1].content))
  end))

  it("reads 32 streams at once, each its own", async(function()
    local origin = support.chat_origin { delay_ms = 5, each = function(_, body)
      local deltas = {}
      for i = 1, 20 do deltas[i] = body.messages[1].content .. i .. " " end
      return { deltas = deltas }
    end }
    local gw = start({ monthly_tokens = 100000, concurrency = 32 }, origin)
    local texts = node(gw, [[
      const one = async (i) => (await collect(await create({ stream: true,
        messages: [{ role: 'user', content: `stream ${i}, part ` }] }))).text;
      return Promise.all(Array.from({ length: 32 }, (_, i) => one(i + 1)));
    ]])
    assert.equal(32, #texts)
    for i, text in ipairs(texts) do
      local parts = {}
      for part = 1, 20 do parts[part] = ("stream %d, part %d "):format(i, part) end
      assert.equal(table.concat(parts), text)
    end
    for _, line in ipairs(gw:wait_access(32)) do assert.equal(13, line.tokens.used) end
  end))

  it("raises AuthenticationError for an unknown key, without a retry", async(function()
    local origin = support.chat_origin()
    local gw = start({}, origin)
    local seen = node(gw, "return create({}).then(() => 'an answer', failure);", { KEY = "sk-unknown" })
    assert.equal("AuthenticationError", seen.name)
    assert.equal(401, seen.status)
    assert.equal("invalid_api_key", seen.code)
    assert.same({ 401 }, statuses(gw, 1))
    assert.equal(0, #origin.requests)
  end))

  -- The client's own backoff adds up to at most 1.5 s over both retries; the bucket takes 2 s. So this passes
  -- only where the client waits for what Retry-After says, and then with a single retry.
  it("waits out a rate limit as Retry-After says, and then gets its answer", async(function()
    local origin = support.chat_origin()
    local gw = start({ rps = 0.5, burst = 1 }, origin)
    local seen = node(gw, [[
      await create({});
      return (await create({})).choices[0].message.content;
    ]])
    assert.equal(ANSWER, seen)
    assert.same({ 200, 429, 200 }, statuses(gw, 3))
    assert.equal(2, #origin.requests)
  end))

  it("raises RateLimitError once its two retries were refused too", async(function()
    local origin = support.chat_origin { each = function(_, body)
      return body.stream and { stall_after = 2 } or {}
    end }
    local gw = start({ concurrency = 1 }, origin)
    local seen = node(gw, [[
      const stream = await create({ stream: true });
      const refused = await create({}).then(() => 'an answer', failure);
      stream.controller.abort();
      return refused;
    ]])
    assert.equal("RateLimitError", seen.name)
    assert.equal(429, seen.status)
    assert.equal("rate_limit_exceeded", seen.code)
    assert.equal("1", seen.retryAfter)
    local counts = {}
    for _, line in ipairs(gw:wait_access(4)) do
      counts[line.status] = (counts[line.status] or 0) + 1
      if line.status == 429 then assert.equal("concurrency", line.refusal) end
    end
    assert.same({ [200] = 1, [429] = 3 }, counts)
    assert.equal(1, #origin.requests)
  end))

  it("does not retry where the month's budget is spent", async(function()
    local origin = support.chat_origin()
    local gw = start({ monthly_tokens = 10 }, origin)
    local seen = node(gw, "return create({}).then(() => 'an answer', failure);")
    assert.equal("RateLimitError", seen.name)
    assert.equal(429, seen.status)
    assert.equal("insufficient_quota", seen.code)
    assert.equal("false", seen.shouldRetry)
    assert.is_true(tonumber(seen.retryAfter) > 0)
    assert.same({ 429 }, statuses(gw, 1))
    assert.equal(0, #origin.requests)
  end))

  it("sees that a stream was cut, behind what did arrive", async(function()
    for _, cut in ipairs { "close", "reset" } do
      local ear = rig.ear()
      local gw = start({ monthly_tokens = 1000 }, support.chat_origin { cut_after = 3, cut = cut, before_end = ear.wait })
      local seen = node(gw, [[
        let chunks = 0, text = '';
        try {
          for await (const chunk of await create({ stream: true })) {
            chunks++;
            text += chunk.choices[0].delta.content ?? '';
            if (chunks === 3) await (await fetch(process.env.HEARD)).text();
          }
        } catch (err) {
          return { chunks, text, failed: true };
        }
        return { chunks, text, failed: false };
      ]], { HEARD = ear.url })
      assert.same({ chunks = 3, text = "Hello,", failed = true }, seen)
      assert.equal("origin_cut", gw:wait_access(1)[1].ended)
    end
  end))
end)
