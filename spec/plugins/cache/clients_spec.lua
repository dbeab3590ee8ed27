-- The npm clients openai and @anthropic-ai/sdk, unmodified: what they make of an answer from the cache is, value by value,
-- what they make of the origin's, as a stream and plain, in whichever form it was asked first.
local support = require "spec.support"
local clients = require "spec.clients.rig"
local rig = require "spec.plugins.cache.rig"
local async = support.async

local redis
local up, down = support.shared(function() redis = support.redis() end)

local run = clients.runner [[
const { OpenAI } = require('openai');
const Anthropic = require('@anthropic-ai/sdk');
// Every form of a question, asked of one gateway.
const forms = (host, content) => {
  const chat = { model: 'm', messages: [{ role: 'user', content }], max_tokens: 20 };
  const response = { model: 'm', input: content };
  const withUsage = { ...chat, stream_options: { include_usage: true } };
  const openai = new OpenAI({ apiKey: process.env.KEY, baseURL: host + '/v1' });
  const anthropic = new Anthropic({ apiKey: process.env.KEY, baseURL: host });
  return {
    chatPlain: () => openai.chat.completions.create(chat),
    chatStream: () => openai.chat.completions.stream(chat).finalChatCompletion(),
    chatUsage: () => openai.chat.completions.stream(withUsage).finalChatCompletion(),
    responsePlain: () => openai.responses.create(response),
    responseStream: () => openai.responses.stream(response).finalResponse(),
    claudePlain: () => anthropic.messages.create(chat),
    claudeStream: () => anthropic.messages.stream(chat).finalMessage(),
  };
};
const kept = async (plain) => {
  while (!/hit/.test((await plain().asResponse()).headers.get('cache-status'))) await new Promise((r) => setTimeout(r, 5));
};
const value = async (promise) => {
  const copy = JSON.parse(JSON.stringify(await promise));
  delete copy._request_id;
  return copy;
};
]]

local CASES = {
  text = { deltas = { "Grüße, ", "日本語 😀 ", "\"quoted\"\\n", ("x"):rep(9000) } },
  tool = { tool = clients.tool },
}

-- What the clients make of an answer from the cache in each form, asked first as a stream and, another question, plain,
-- against what they make of the origin's own, through a gateway without a cache.
local function compare(case, names)
  redis:must("FLUSHALL")
  local origin, own = support.llm_origin(CASES[case]), support.llm_origin(CASES[case])
  local gw = rig.gateway { redis = redis, origin = origin.url }
  local bare = rig.gateway { redis = redis, origin = own.url, plugins = { cache = false } }
  local seen = run(gw, ([[
    const out = [], names = %s, [plain] = names;
    for (const first of names.slice(0, 2)) {
      const cached = forms(process.env.HOST, first), straight = forms(process.env.STRAIGHT, first);
      await value(cached[first]());
      await kept(cached[plain]);
      for (const name of names)
        out.push({ what: name + ', ' + first + ' first', cached: await value(cached[name]()),
          straight: await value(straight[name]()) });
    }
    return out;
  ]]):format(support.encode(names)), { KEY = rig.secrets.a, STRAIGHT = "http://127.0.0.1:" .. bare.port })
  assert.equal(2 * #names, #seen)
  for _, one in ipairs(seen) do assert.same(one.straight, one.cached, one.what) end
  assert.equal(2, #origin.requests)
end

describe("real clients, before a cache", function()
  setup(function()
    clients.require_package "openai"
    clients.require_package "@anthropic-ai/sdk"
    up()
  end)
  teardown(down)

  for case in pairs(CASES) do
    for api, names in pairs { chat = { "chatPlain", "chatStream", "chatUsage" }, response = { "responsePlain", "responseStream" },
      claude = { "claudePlain", "claudeStream" } } do
      it(("cannot tell a replay of %s from an answer (%s)"):format(api, case), async(function()
        compare(case, names)
      end))
    end
  end
end)
