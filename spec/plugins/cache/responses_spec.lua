-- OpenAI's responses: the answer in a stream's last event, which streams have none, and that a stored answer is played as a
-- stream with all of its events, and amounts to itself byte for byte.
local lua = require "spec.plugins.cache.lua"
local support = require "spec.support"
local async = support.async

local RICH = [=[{"id": "resp_1", "object": "response", "created_at": 1741487325, "status": "completed", "error": null,
 "incomplete_details": null, "model": "m", "temperature": 1.0, "completed_at": 12, "metadata": {"big": 12345678901234567890},
 "output": [
 {"id":"rs_1","type":"reasoning","summary":[{"type":"summary_text","text":"@"}],
  "content":[{"type":"reasoning_text","text":"deep"}],"encrypted_content":"gAAA"},
 {"id":"ws_1","type":"web_search_call","status":"completed","action":{"type":"search","query":"q"}},
 {"id":"msg_1","type":"message","status":"completed","role":"assistant","content":[
  {"type":"output_text","text":"@","annotations":[{"type":"url_citation","url":"u","start_index":0,"end_index":1}],
   "logprobs":[]},{"type":"refusal","refusal":"no"}]},
 {"id":"fc_1","type":"function_call","status":"completed","call_id":"c1","name":"f","arguments":"{\"a\": 1.0}"},
 {"id":"ctc_1","type":"custom_tool_call","call_id":"c2","name":"sql","input":"select 1"}],
 "usage": {"input_tokens": 3, "output_tokens": 5, "total_tokens": 8}}]=]

local function rich()
  local long = ("Zwölf 日本語 😀 \\\"x\\\" \\n"):rep(500)
  return (RICH:gsub("@", function() return long end))
end

describe("the stream of a response", function()
  it("has its answer in its last event, byte for byte", async(function()
    local seen = lua.run [[
      local responses, out = require "cache.responses", {}
      for _, name in ipairs { "responses-stream", "responses-tools", "responses-incomplete", "responses-refusal" } do
        local text = read("spec/fixtures/llm/" .. name .. ".sse")
        local whole, why = responses.assemble(events(text))
        for _, size in ipairs { 1, 7, 100 } do
          if responses.assemble(events(text, size)) ~= whole then error(name .. " depends on the split") end
        end
        assert(whole == nil or text:find(whole, 1, true), name .. " is not byte for byte")
        out[name] = whole and tg.json.decode(whole).status or "none: " .. why
      end
      for _, name in ipairs { "responses-cut", "responses-error", "responses-failed" } do
        local whole, why = responses.assemble(events(read("spec/fixtures/llm/" .. name .. ".sse")))
        out[name] = whole or why
      end
      out.items = select(2, responses.assemble {
        { data = '{"type":"response.output_item.done","item":{}}' },
        { data = '{"type":"response.completed","response":{"status":"completed","output":[]}}' } })
      return out
    ]]
    assert.same({ ["responses-stream"] = "completed", ["responses-tools"] = "completed", ["responses-incomplete"] = "incomplete",
      ["responses-refusal"] = "completed", ["responses-cut"] = "no complete answer", ["responses-error"] = "an error",
      ["responses-failed"] = "an error", items = "not all items are in the last event" }, seen)
  end))

  it("is played from a stored answer, with all events in order", async(function()
    local path = support.write_file(support.tmpdir() .. "/rich.json", rich())
    local seen = lua.run((([[
      local responses = require "cache.responses"
      local file = assert(io.open "%PATH%")
      local bodies, kinds, texts, longest = { rich = file:read "*a" }, {}, {}, 0
      file:close()
      for _, name in ipairs { "responses", "responses-tools" } do bodies[name] = read("spec/fixtures/llm/" .. name .. ".json") end
      for name, body in pairs(bodies) do
        assert(responses.complete(body), name)
        local stream = responses.replay(body)
        for _, size in ipairs { 1, 13, 5000, #stream } do
          local whole = assert(responses.assemble(events(stream, size)))
          assert(whole == body:match "^%s*(.-)%s*$", name .. " is not byte for byte")
        end
      end
      for i, event in ipairs(events(responses.replay(bodies.rich))) do
        local data = tg.json.decode(event.data)
        assert(data.sequence_number == i - 1 and data.type == event.event)
        if kinds[#kinds] ~= data.type then kinds[#kinds + 1] = data.type end
        if data.delta then
          texts[data.item_id .. data.type] = (texts[data.item_id .. data.type] or "") .. data.delta
          longest = math.max(longest, #data.delta)
        end
      end
      local rich = tg.json.decode(bodies.rich)
      assert(texts["msg_1response.output_text.delta"] == rich.output[3].content[1].text)
      assert(texts["rs_1response.reasoning_summary_text.delta"] == rich.output[1].summary[1].text)
      assert(texts["fc_1response.function_call_arguments.delta"] == rich.output[4].arguments)
      assert(responses.replay '{"status":"failed","output":[]}' == nil)
      return { kinds = kinds, longest = longest }
    ]]):gsub("%%PATH%%", path)))
    assert.is_true(seen.longest <= 4096)
    local r = "response."
    assert.same({ r .. "created", r .. "in_progress",
      r .. "output_item.added", r .. "reasoning_summary_part.added", r .. "reasoning_summary_text.delta",
      r .. "reasoning_summary_text.done", r .. "reasoning_summary_part.done", r .. "content_part.added",
      r .. "reasoning_text.delta", r .. "reasoning_text.done", r .. "content_part.done", r .. "output_item.done",
      r .. "output_item.added", r .. "output_item.done",
      r .. "output_item.added", r .. "content_part.added", r .. "output_text.delta", r .. "output_text.done",
      r .. "output_text.annotation.added", r .. "content_part.done", r .. "content_part.added", r .. "refusal.delta",
      r .. "refusal.done", r .. "content_part.done", r .. "output_item.done",
      r .. "output_item.added", r .. "function_call_arguments.delta", r .. "function_call_arguments.done",
      r .. "output_item.done",
      r .. "output_item.added", r .. "custom_tool_call_input.delta", r .. "custom_tool_call_input.done",
      r .. "output_item.done", r .. "completed" }, seen.kinds)
  end))

  it("tells answers that are complete from others", async(function()
    local seen = lua.run [[
      local complete, out = require("cache.responses").complete, {}
      for _, name in ipairs { "responses", "responses-failed", "responses-queued" } do
        out[name] = complete(read("spec/fixtures/llm/" .. name .. ".json"))
      end
      return out
    ]]
    assert.same({ responses = true, ["responses-failed"] = false, ["responses-queued"] = false }, seen)
  end))
end)
