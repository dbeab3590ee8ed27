-- The gateway between two strangers: npm clients before it and, as the origin, a mock of the LLM APIs that others
-- wrote (@copilotkit/aimock), so that not only our own idea of these APIs is tested. What a client sees through the
-- gateway is what it sees without, and the usage that the mock tells is what is charged.
local support = require "spec.support"
local rig = require "spec.clients.rig"
local async = support.async

local node = rig.runner [[
const { OpenAI } = require('openai');
const Anthropic = require('@anthropic-ai/sdk');
const openai = new OpenAI({ apiKey: process.env.KEY, baseURL: process.env.HOST + '/v1' });
const anthropic = new Anthropic({ apiKey: process.env.KEY, baseURL: process.env.HOST });
const messages = (content) => ({ max_tokens: 50, messages: [{ role: 'user', content }] });
// Of an object, what is the same each time.
const lasting = (value) => JSON.parse(JSON.stringify(value, (key, v) => /^(id|item_id|call_id|created|created_at|_request_id)$/
  .test(key) ? undefined : v));
const all = async (stream) => { const list = []; for await (const each of await stream) list.push(lasting(each)); return list; };
]]

local EVERY = [[
  const say = process.env.SAY;
  const chat = { model: 'gpt-4o', ...messages(say) }, claude = { model: 'claude-sonnet-4', ...messages(say) };
  const ask = { model: 'gpt-4o', max_output_tokens: 50, input: say };
  return [lasting(await openai.chat.completions.create(chat)),
    await all(openai.chat.completions.create({ ...chat, stream: true, stream_options: { include_usage: true } })),
    await all(openai.chat.completions.create({ ...chat, stream: true })),
    lasting(await anthropic.messages.create(claude)), await all(anthropic.messages.create({ ...claude, stream: true })),
    lasting(await openai.responses.create(ask)), await all(openai.responses.create({ ...ask, stream: true }))];
]]
local CALLS = 7

local mock_url
local up, down = support.shared(function()
  local mock = support.start { cmd = "node", args = { "spec/clients/mock.js" }, env = { NODE_PATH = support.npm.path() } }
  mock_url = support.wait_for(function() return mock:out():match("(http://[%w.:]+)\n") end, "the mock", 15000)
end)

describe("before a mock by others", function()
  setup(function()
    rig.require_package "@copilotkit/aimock"
    up()
  end)
  teardown(down)

  for _, say in ipairs { "hello", "tool" } do
    it("clients see of each API what they see without a gateway, and its usage is charged: " .. say, async(function()
      local gw = rig.start({ monthly_tokens = 100000 }, mock_url)
      local through = node(gw, EVERY, { SAY = say })
      local direct = node(gw, EVERY, { SAY = say, HOST = mock_url })
      assert.equal(CALLS, #direct)
      assert.same(direct, through)
      for i, line in ipairs(gw:wait_access(CALLS)) do
        assert.same({ i, 33, 11, 22 }, { i, line.tokens.used, line.tokens.input, line.tokens.output })
      end
    end))
  end

  it("usage of no token at all counts as none, and what was relayed is charged", async(function()
    local gw = rig.start({ monthly_tokens = 100000 }, mock_url)
    local script = [[
      const claude = { model: 'claude-sonnet-4', ...messages('uncounted') };
      const plain = await anthropic.messages.create(claude);
      const streamed = await all(anthropic.messages.create({ ...claude, stream: true }));
      return [plain.usage, streamed.length];
    ]]
    local seen = node(gw, script)
    assert.same({ input_tokens = 0, output_tokens = 0 }, seen[1])
    -- "user" and "uncounted", and 27 bytes of text.
    local charge = math.ceil(13 / 3) + 27 / 3
    for _, line in ipairs(gw:wait_access(2)) do
      assert.same({ charge, "no_usage" }, { line.tokens.used, line.tokens.usage_missing })
    end
  end))
end)
