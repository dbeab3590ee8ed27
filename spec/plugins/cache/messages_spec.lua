-- Anthropic's messages: what streams amount to, which amount to nothing, and that an answer which is played as a stream
-- amounts to itself, a tool's input byte for byte.
local lua = require "spec.plugins.cache.lua"
local support = require "spec.support"
local async = support.async

local RICH = [=[{"id":"msg_1","type":"message","role":"assistant","model":"claude","stop_reason":"tool_use",
 "stop_sequence":null,"container":{"id":"c"},"vendor":[1,{"a":[]}],
 "content":[
 {"type":"thinking","thinking":"@","signature":"sig=="},
 {"type":"redacted_thinking","data":"EmwKAhgB"},
 {"type":"text","text":"@","citations":[{"type":"char_location","cited_text":"x","document_index":0,"n":1.0}]},
 {"type":"text","text":""},
 {"type":"tool_use","id":"toolu_1","name":"f","input":{"z": 1.0, "a": [12345678901234567890, "ü \" @"], "e": {}}},
 {"type":"server_tool_use","id":"srv_1","name":"web_search","input":{}},
 {"type":"web_search_tool_result","tool_use_id":"srv_1","content":[{"type":"web_search_result","url":"u","page_age":null}]}],
 "usage":{"input_tokens":10,"cache_creation_input_tokens":0,"cache_read_input_tokens":null,"output_tokens":25,
  "cache_creation":{"ephemeral_5m_input_tokens":0},"service_tier":"standard","server_tool_use":{"web_search_requests":1}}}]=]

local function rich()
  local long = ("Zwölf 日本語 😀 \\\"x\\\" \\n"):rep(500)
  return (RICH:gsub("@", function() return long end))
end

describe("the stream of a message", function()
  it("amounts to its answer", async(function()
    local all = lua.run [[
      local messages, out = require "cache.messages", {}
      for _, name in ipairs { "messages-stream", "messages-tools", "messages-cache", "messages-late-input", "messages-search" } do
        local text = read("spec/fixtures/llm/" .. name .. ".sse")
        local whole, why = messages.assemble(events(text))
        for _, size in ipairs { 1, 7, 100 } do
          if messages.assemble(events(text, size)) ~= whole then error(name .. " depends on the split") end
        end
        if whole then assert(messages.complete(whole), name) end
        out[name] = whole and tg.json.decode(whole) or "none: " .. why
      end
      return out
    ]]
    for name, found in pairs(all) do assert(type(found) == "table", name .. " " .. tostring(found)) end
    local search = all["messages-search"]
    assert.equal("I will look.", search.content[1].text)
    assert.same({ query = "tides" }, search.content[2].input)
    assert.equal("Tides", search.content[3].content[1].title)
    assert.equal(10682, search.usage.input_tokens) -- the last report
    assert.equal(1, search.usage.server_tool_use.web_search_requests)
    for _, block in ipairs(all["messages-tools"].content) do
      if block.type == "tool_use" then assert.is_table(block.input) end
    end
    assert.equal("message", all["messages-stream"].type)
    assert.is_string(all["messages-stream"].stop_reason)
  end))

  it("amounts to nothing where it is cut, fails, or cannot be put together without a guess", async(function()
    local why = lua.run [[
      local messages, out = require "cache.messages", {}
      for _, name in ipairs { "messages-cut", "messages-error" } do
        local whole
        whole, out[name] = messages.assemble(events(read("spec/fixtures/llm/" .. name .. ".sse")))
        assert(whole == nil)
      end
      local function try(name, ...)
        local list = { { data = '{"type":"message_start","message":{"type":"message","content":[],"usage":{}}}' } }
        for _, data in ipairs { ... } do list[#list + 1] = { data = data } end
        list[#list + 1] = { data = '{"type":"message_delta","delta":{"stop_reason":"end_turn"},"usage":{"output_tokens":1}}' }
        list[#list + 1] = { data = '{"type":"message_stop"}' }
        local whole, reason = messages.assemble(list)
        out[name] = whole or reason
      end
      local start, stop = '{"type":"content_block_start","index":0,"content_block":{"type":"tool_use","input":{}}}',
        '{"type":"content_block_stop","index":0}'
      try("whole", start, stop)
      try("open", start)
      try("input", start, '{"type":"content_block_delta","index":0,"delta":{"type":"input_json_delta","partial_json":"{"}}', stop)
      try("delta", start, '{"type":"content_block_delta","index":0,"delta":{"type":"new_delta"}}', stop)
      try("event", '{"type":"new_event"}')
      try("order", '{"type":"content_block_start","index":1,"content_block":{}}')
      try("behind", start, stop, '{"type":"content_block_delta","index":0,"delta":{"type":"text_delta","text":""}}')
      return out
    ]]
    assert.matches("the stream is cut", why["messages-cut"])
    assert.equal("an event that is not known: error", why["messages-error"])
    assert.matches('"input":{}', why.whole, 1, true)
    assert.equal("a block did not end", why.open)
    assert.equal("a tool's input that is no JSON", why.input)
    assert.equal("a delta that is not known", why.delta)
    assert.equal("an event that is not known: new_event", why.event)
    assert.equal("a block out of order", why.order)
    assert.equal("a delta that is not known", why.behind)
  end))

  it("is played from a stored answer so that it amounts to that answer, inputs byte for byte", async(function()
    local path = support.write_file(support.tmpdir() .. "/rich.json", rich())
    local seen = lua.run(([[
      local messages = require "cache.messages"
      local file = assert(io.open(%q))
      local bodies, names, longest = { rich = file:read "*a" }, {}, 0
      file:close()
      for _, name in ipairs { "messages", "messages-tools", "messages-cache-null" } do
        bodies[name] = read("spec/fixtures/llm/" .. name .. ".json")
      end
      for name, body in pairs(bodies) do
        assert(messages.complete(body), name)
        local stream = messages.replay(body)
        for _, size in ipairs { 1, 13, 5000, #stream } do
          local whole = assert(messages.assemble(events(stream, size)))
          same(whole, body, name)
          if name == "rich" then
            local before = tg.json.decode(tg.json.decode(body, 3).content[5] and body, 3).content[5].input
            assert(tostring(before) == tostring(tg.json.decode(whole, 3).content[5].input))
          end
        end
        for line in stream:gmatch("[^\n]+") do longest = math.max(longest, #line) end
      end
      for _, event in ipairs(events(messages.replay(bodies.messages))) do names[#names + 1] = event.event end
      assert(messages.replay '{"content":7}' == nil and messages.replay '[]' == nil)
      return { names = names, longest = longest }
    ]]):format(path))
    assert.is_true(seen.longest < 15000)
    local names = seen.names
    assert.same({ "message_start", "content_block_start", "content_block_delta", "content_block_stop", "message_delta",
      "message_stop" }, { names[1], names[2], names[3], names[#names - 2], names[#names - 1], names[#names] })
  end))

  it("tells answers that are complete from others", async(function()
    local seen = lua.run [[
      local complete, out = require("cache.messages").complete, {}
      for name, body in pairs {
        error = '{"type":"error","error":{}}', open = '{"type":"message","content":[],"stop_reason":null}', list = "[]",
        whole = '{"type":"message","content":[],"stop_reason":"max_tokens"}',
      } do out[name] = complete(body) end
      return out
    ]]
    assert.same({ error = false, open = false, list = false, whole = true }, seen)
  end))
end)
