-- Chat completions: what streams of many kinds amount to, which amount to nothing, and that an answer which is played as a
-- stream amounts to itself, however that is split.
local lua = require "spec.plugins.cache.lua"
local support = require "spec.support"
local async = support.async

-- An answer with all that a message may hold, unknown members included.
local RICH = [=[{"id":"c1","object":"chat.completion","created":1741570283,"model":"m","service_tier":"default",
 "system_fingerprint":"fp","x_vendor":{"deep":[1,{"a":[]}],"big":12345678901234567890},"citations":["u1","u2"],
 "choices":[
 {"index":0,"finish_reason":"tool_calls","stop_reason":null,"content_filter_results":{"hate":{"filtered":false}},
  "logprobs":{"content":[{"token":"Hé","logprob":-0.5,"bytes":[72,195,169],"top_logprobs":[]},{"token":"y","logprob":-1.25,
  "bytes":null,"top_logprobs":[]}],"refusal":[]},
  "message":{"role":"assistant","content":"%s","refusal":null,"reasoning_content":"I thïnk, %s","reasoning":"therefore",
   "reasoning_details":[{"type":"reasoning.text","index":0,"text":"I am","signature":"s"}],
   "annotations":[{"type":"url_citation","url_citation":{"url":"u","start_index":0}}],"vendor":{"x":[1,2]},
   "tool_calls":[{"id":"call_1","type":"function","function":{"name":"f",
    "arguments":"{\"n\":1.0,\"q\":\"\\\"ü\\\"\"}"}},
    {"id":"call_2","type":"custom","custom":{"name":"sql","input":"select 1;\n%s"}},
    {"id":"call_3","type":"function","extra_content":{"google":{"thought_signature":"sig"}},
     "function":{"name":"g","arguments":""}}]}},
 {"index":1,"finish_reason":"stop","logprobs":null,"content_filter_results":{},"stop_reason":7,
  "message":{"role":"assistant","content":null,"refusal":"I can't."}},
 {"index":2,"finish_reason":"function_call","logprobs":null,"content_filter_results":{},"stop_reason":null,
  "message":{"role":"assistant","content":null,"refusal":null,"function_call":{"name":"h","arguments":"{\"a\": [1,2]}"}}}],
 "usage":{"prompt_tokens":82,"completion_tokens":17,"total_tokens":99,"prompt_tokens_details":{"cached_tokens":64}}}]=]

local function rich()
  local long = ("Zwölf Boxkämpfer, 日本語 😀 \\\"jagen\\\" \\n"):rep(400)
  return (RICH:gsub("%%s", function() return long end))
end

describe("the stream of a chat completion", function()
  it("amounts to its answer, with usage that came as a chunk of its own", async(function()
    local all = lua.run [[
      local chat = require "cache.chat"
      local out = {}
      for _, name in ipairs { "chat-stream", "chat-tools", "chat-azure", "chat-groq", "chat-comments",
        "chat-no-usage", "chat-usage-null" } do
        local text = read("spec/fixtures/llm/" .. name .. ".sse")
        local whole, why = chat.assemble(events(text))
        for _, size in ipairs { 1, 7, 100 } do
          if chat.assemble(events(text, size)) ~= whole then error(name .. " depends on the split") end
        end
        out[name] = whole and tg.json.decode(whole) or "none: " .. why
      end
      return out
    ]]
    for name, found in pairs(all) do assert(type(found) == "table", name .. " " .. tostring(found)) end
    local tools = all["chat-tools"]
    assert.equal("chat.completion", tools.object)
    assert.same({ { id = "call_1", type = "function", ["function"] = { name = "get_tide", arguments = '{"port":"Brest"}' } } },
      tools.choices[1].message.tool_calls)
    assert.equal("tool_calls", tools.choices[1].finish_reason)
    assert.equal(79, tools.usage.total_tokens)
    local azure = all["chat-azure"]
    assert.equal("chatcmpl-AbC123", azure.id)
    assert.equal("gpt-4o-mini-2024-07-18", azure.model)
    assert.equal("Filtered water.", azure.choices[1].message.content)
    assert.equal(34, azure.usage.total_tokens)
    assert.equal("safe", azure.prompt_filter_results[1].content_filter_results.hate.severity)
    assert.equal("req_01ja", all["chat-groq"].x_groq.id)
    for _, name in ipairs { "chat-stream", "chat-comments", "chat-no-usage", "chat-usage-null" } do
      assert.is_string(all[name].choices[1].message.content, name)
    end
    assert.is_nil(all["chat-no-usage"].usage)
  end))

  it("amounts to nothing where it is cut, fails, or cannot be put together without a guess", async(function()
    local why = lua.run [[
      local chat = require "cache.chat"
      local out = {}
      for _, name in ipairs { "chat-cut", "chat-error", "chat-usage-on-each" } do
        local whole
        whole, out[name] = chat.assemble(events(read("spec/fixtures/llm/" .. name .. ".sse")))
        assert(whole == nil)
      end
      local function try(name, ...)
        local list = {}
        for i, delta in ipairs { ... } do
          list[i] = { event = "", data = '{"id":"x","choices":[{"index":0,"delta":' .. delta .. ',"finish_reason":null}]}' }
        end
        list[#list + 1] = { event = "", data = '{"choices":[{"index":0,"delta":{},"finish_reason":"stop"}]}' }
        list[#list + 1] = { event = "", data = "[DONE]" }
        local whole, reason = chat.assemble(list)
        out[name] = whole or reason
      end
      try("again", '{"vendor":"a"}', '{"vendor":"a"}')
      try("other", '{"vendor":"a"}', '{"vendor":"b"}')
      try("objects", '{"vendor":{"a":1}}', '{"vendor":{"b":1}}')
      try("audio", '{"audio":{"id":"a","data":"AAAA"}}')
      try("index", '{"tool_calls":[{"index":1,"id":"a"}]}')
      try("parts", '{"content":[{"type":"text","text":"x"}]}')
      try("mixed", '{"content":"a"}', '{"content":[1]}')
      try("ids", '{"tool_calls":[{"index":0,"id":"a"}]}', '{"tool_calls":[{"index":0,"id":"b"}]}')
      out.unfinished = select(2, chat.assemble { { event = "", data = '{"choices":[{"index":0,"delta":{"content":"a"}}]}' },
        { event = "", data = "[DONE]" } })
      out.garbage = select(2, chat.assemble { { event = "", data = "{" } })
      out.twice = select(2, chat.assemble { { event = "", data = '{"id":"a","id":"b"}' } })
      return out
    ]]
    for _, name in ipairs { "chat-cut", "chat-usage-on-each" } do assert.equal("no [DONE]", why[name]) end
    assert.equal("an error", why["chat-error"])
    assert.matches('"vendor":"a"', why.again)
    for _, name in ipairs { "other", "objects" } do assert.equal("a member was said twice: vendor", why[name]) end
    assert.equal("audio in pieces", why.audio)
    assert.equal("a call of a tool out of order", why.index)
    assert.matches('"content":[{"text":"x","type":"text"}]', why.parts, 1, true)
    assert.equal("text that is no text: content", why.mixed)
    assert.equal("a member was said twice: id", why.ids)
    assert.equal("a choice did not finish", why.unfinished)
    assert.equal("an event that is no JSON object", why.garbage)
    assert.equal("an event that is no JSON object", why.twice)
  end))

  it("is played from a stored answer so that it amounts to that answer", async(function()
    local path = support.write_file(support.tmpdir() .. "/rich.json", rich())
    local sizes = lua.run(([[
      local chat, replay = require "cache.chat", require "cache.chat_replay"
      local file = assert(io.open(%q))
      local bodies, sizes = { rich = file:read "*a" }, {}
      file:close()
      for _, name in ipairs { "chat", "chat-tools" } do bodies[name] = read("spec/fixtures/llm/" .. name .. ".json") end
      for name, body in pairs(bodies) do
        assert(chat.complete(body), name)
        local stream = replay.replay(body, { include_usage = true })
        for _, size in ipairs { 1, 13, 5000, #stream } do same(assert(chat.assemble(events(stream, size))), body, name) end
        local quiet = replay.replay(body, { include_usage = false })
        assert(not quiet:find('"usage"', 1, true), name)
        local without = tg.json.decode(body)
        without.usage = nil
        same(assert(chat.assemble(events(quiet))), tg.json.encode(without), name)
        for line in stream:gmatch("[^\n]+") do sizes[#sizes + 1] = #line end
      end
      assert(replay.replay('{"choices":[]}', {}) == nil and replay.replay('[1]', {}) == nil)
      return sizes
    ]]):format(path))
    -- No line is long, so that clients which read lines of limited length can read them.
    for _, size in ipairs(sizes) do assert.is_true(size < 10000) end
  end))

  it("begins with the role and ends with the reason, usage where it was asked for, and [DONE]", async(function()
    local chunks = lua.run [[
      local out = tg.json.array()
      local body = read "spec/fixtures/llm/chat.json"
      for _, event in ipairs(events(require("cache.chat_replay").replay(body, { include_usage = true }))) do
        out[#out + 1] = event.data == "[DONE]" and "[DONE]" or tg.json.decode(event.data)
      end
      return out
    ]]
    assert.equal("assistant", chunks[1].choices[1].delta.role)
    assert.equal("", chunks[1].choices[1].delta.content)
    assert.is_nil(chunks[1].usage)
    assert.equal("[DONE]", chunks[#chunks])
    assert.same({}, chunks[#chunks - 1].choices)
    assert.is_number(chunks[#chunks - 1].usage.total_tokens)
    assert.equal("stop", chunks[#chunks - 2].choices[1].finish_reason)
    assert.same({}, chunks[#chunks - 2].choices[1].delta)
    for i = 1, #chunks - 1 do assert.equal("chat.completion.chunk", chunks[i].object) end
  end))

  it("tells answers that are complete from others", async(function()
    local seen = lua.run [[
      local complete, out = require("cache.chat").complete, {}
      for name, body in pairs {
        error = '{"error":{"message":"no"}}', none = '{"choices":[]}', list = "[]", cut = '{"choices":[{',
        twice = '{"a":1,"a":2}',
        failed = '{"choices":[{"finish_reason":"error","message":{}}]}',
        inner = '{"choices":[{"finish_reason":"stop","error":{"code":502},"message":{}}]}',
        length = '{"choices":[{"finish_reason":"length","message":{"content":"x"}}],"error":null}',
      } do out[name] = complete(body) end
      return out
    ]]
    assert.same({ error = false, none = false, list = false, cut = false, twice = false, failed = false, inner = false,
      length = true }, seen)
  end))
end)
