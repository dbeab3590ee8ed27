-- Streams through the cache, end to end: asked as a stream and plain, a question is one request to the origin, and both
-- answers say the same, calls of tools, reasoning and usage included; what is no whole stream is not kept.
local support = require "spec.support"
local rig = require "spec.plugins.cache.rig"
local async = support.async

local redis
local up, down = support.shared(function() redis = support.redis() end)

local function datas(body)
  local list = {}
  for _, event in ipairs(support.sse(body)) do
    if event.data ~= "[DONE]" then list[#list + 1] = support.decode(event.data) end
  end
  return list
end

-- What an answer says, of both forms: text, input of tools (decoded), and usage (nil where there is none).
local read = {}

read["openai-chat"] = {
  plain = function(body)
    local answer = support.decode(body)
    local message = answer.choices[1].message
    local call = message.tool_calls and message.tool_calls[1]
    return { text = message.content or "", reasoning = message.reasoning_content, name = call and call["function"].name,
      input = call and call["function"].arguments, reason = answer.choices[1].finish_reason, usage = answer.usage }
  end,
  stream = function(body)
    local said = { text = "" }
    for _, chunk in ipairs(datas(body)) do
      local choice = chunk.choices[1]
      local delta = choice and choice.delta or {}
      said.text = said.text .. (delta.content or "")
      if delta.reasoning_content then said.reasoning = (said.reasoning or "") .. delta.reasoning_content end
      for _, call in ipairs(delta.tool_calls or {}) do
        said.name = call["function"].name or said.name
        said.input = (said.input or "") .. call["function"].arguments
      end
      said.reason = choice and choice.finish_reason or said.reason
      said.usage = chunk.usage or said.usage
    end
    assert(body:find("data: %[DONE%]\r?\n\r?\n$"))
    return said
  end,
}

read["openai-responses"] = {
  plain = function(body)
    local answer = support.decode(body)
    local item = answer.output[1]
    return { text = item.content and item.content[1].text or "", name = item.name, input = item.arguments,
      reason = answer.status, usage = answer.usage }
  end,
  stream = function(body)
    local said = { text = "" }
    for i, event in ipairs(datas(body)) do
      assert.equal(i - 1, event.sequence_number)
      if event.type == "response.output_text.delta" then said.text = said.text .. event.delta end
      if event.type == "response.function_call_arguments.delta" then said.input = (said.input or "") .. event.delta end
      if event.type == "response.output_item.done" then said.name = event.item.name end
      if event.type == "response.completed" then said.reason, said.usage = event.response.status, event.response.usage end
    end
    return said
  end,
}

read["anthropic-messages"] = {
  plain = function(body)
    local answer = support.decode(body)
    local block = answer.content[1]
    return { text = block.text or "", name = block.name, input = block.input, reason = answer.stop_reason, usage = answer.usage }
  end,
  stream = function(body)
    local said, input = { text = "" }, ""
    for _, event in ipairs(datas(body)) do
      if event.type == "message_start" then said.usage = event.message.usage end
      if event.type == "content_block_start" then said.name = event.content_block.name end
      if event.type == "content_block_delta" then
        said.text = said.text .. (event.delta.text or "")
        input = input .. (event.delta.partial_json or "")
      end
      if event.type == "message_delta" then
        said.reason = event.delta.stop_reason
        for name, value in pairs(event.usage) do said.usage[name] = value end
      end
    end
    if said.name then said.input = support.decode(input) end
    return said
  end,
}

local TOOL = { name = "get_tide", arguments = '{"port":"Brest","hours":[6,18],"when":{"ü":"\\n"}}' }
local TEXT = { "Grüße, ", "日本", "語 😀 \"quoted\"\\n", ("x"):rep(5000), "" }

local origins = {
  text = { deltas = TEXT },
  tool = { tool = TOOL },
  split = { deltas = TEXT, split = 3, eol = "\r\n" },
}

local function both_ways(api, options, plugins, first_as_stream, include_usage)
  redis:must("FLUSHALL")
  local origin = support.llm_origin(options)
  local gw = rig.gateway { redis = redis, origin = origin.url, plugins = plugins, limits = { monthly_tokens = 100000 } }
  local stream = { stream = true, stream_options = include_usage and { include_usage = true } or nil }
  local asked = first_as_stream and { stream, {} } or { {}, stream }
  local said = {}
  for i = 1, 2 do
    local res, status = rig.send(gw, rig.ask(api, asked[i]))
    assert.equal(200, res.status)
    assert.matches(i == 1 and "fwd=miss; ttl=300; stored" or "tollgate; hit", status)
    said[i] = read[api][asked[i].stream and "stream" or "plain"](res.body)
    if i == 1 then rig.wait_kept(redis, 1) end
  end
  assert.equal(1, #origin.requests)
  local by_form = first_as_stream and { stream = said[1], plain = said[2] } or { plain = said[1], stream = said[2] }
  assert.is_table(by_form.plain.usage)
  if api == "openai-chat" and not include_usage then
    assert.is_nil(by_form.stream.usage)
    by_form.stream.usage = by_form.plain.usage
  end
  assert.same(by_form.plain, by_form.stream)
  return by_form.plain
end

describe("cache, streams", function()
  setup(up)
  teardown(down)
  before_each(async(function() redis:must("FLUSHALL") end))

  for api in pairs(read) do
    for kind, options in pairs(origins) do
      it(("of %s say what the plain answer says, whichever was asked first (%s)"):format(api, kind), async(function()
        for _, plugins in ipairs { {}, { quota = {} } } do
          for _, first_as_stream in ipairs { true, false } do
            local said = both_ways(api, options, plugins, first_as_stream, false)
            if kind == "tool" then
              assert.equal("get_tide", said.name)
              local input = type(said.input) == "string" and support.decode(said.input) or said.input
              assert.same(support.decode(TOOL.arguments), input)
            else
              assert.equal(table.concat(TEXT), said.text)
            end
          end
        end
      end))
    end
  end

  it("tell usage to those alone who asked for it", async(function()
    for _, plugins in ipairs { {}, { quota = {} } } do
      for _, first_as_stream in ipairs { true, false } do
        local said = both_ways("openai-chat", origins.text, plugins, first_as_stream, true)
        assert.equal(13, said.usage.total_tokens)
      end
    end
  end))

  it("keep reasoning, and members that no one knows", async(function()
    local deltas = { { role = "assistant", content = "" }, { reasoning_content = "let me " }, { reasoning_content = "think: ü" },
      { vendor = { a = { 1, 2 } } }, { content = "yes" } }
    local origin = support.origin(function(_, conn)
      conn:start { headers = { ["content-type"] = "text/event-stream" } }
      for i, delta in ipairs(deltas) do
        conn:chunk("data: " .. support.encode { id = "c", created = 1, model = "m", citations = { "u" },
          choices = { { index = 0, delta = delta, finish_reason = i == #deltas and "stop" or support.null } } } .. "\n\n")
      end
      conn:chunk "data: [DONE]\n\n"
      conn:finish()
    end)
    local gw = rig.gateway { redis = redis, origin = origin.url }
    local first = rig.send(gw, rig.ask("openai-chat", { stream = true }))
    rig.wait_kept(redis, 1)
    local plain = support.json(rig.send(gw, rig.ask("openai-chat")))
    local message = plain.choices[1].message
    assert.same({ "let me think: ü", "yes", { a = { 1, 2 } }, { "u" } },
      { message.reasoning_content, message.content, message.vendor, plain.citations })
    local again = rig.send(gw, rig.ask("openai-chat", { stream = true }))
    assert.same(read["openai-chat"].stream(first.body), read["openai-chat"].stream(again.body))
    assert.equal(1, #origin.requests)
  end))

  it("are played as streams, and as long as they are", async(function()
    local gw = rig.gateway { redis = redis, origin = support.llm_origin().url }
    for i, api in ipairs { "openai-chat", "openai-responses", "anthropic-messages" } do
      rig.send(gw, rig.ask(api))
      rig.wait_kept(redis, i)
      local res = rig.send(gw, rig.ask(api, { stream = true }))
      assert.equal("text/event-stream; charset=utf-8", res.headers["content-type"])
      assert.equal("no-cache", res.headers["cache-control"])
      assert.equal(#res.body, tonumber(res.headers["content-length"]))
    end
  end))

  it("are not kept where they are cut, fail or cannot be put together", async(function()
    local broken = { cut = { cut_after = 3 }, reset = { cut_after = 3, cut = "reset" }, fail = { fail_after = 3 } }
    local origin = support.llm_origin { each = function(req) return broken[req.headers["x-how"]] end }
    local gw = rig.gateway { redis = redis, origin = origin.url }
    local n = 0
    for api in pairs(read) do
      for how in pairs(broken) do
        for _ = 1, 2 do
          gw:request(rig.ask(api, { stream = true }, { headers = { ["x-how"] = how } }))
          n = n + 1
        end
      end
    end
    assert.equal(n, #origin.requests)
    gw:request(rig.ask("openai-embeddings"))
    rig.wait_kept(redis, 1)
    rig.wait_count(gw, "cache_fills_total", "openai-chat", "not_assembled", 2)
    rig.wait_count(gw, "cache_fills_total", "openai-chat", "incomplete", 4)
  end))

  it("are kept however long they are, and hold up nobody meanwhile", async(function()
    local long = {}
    for i = 1, 4000 do long[i] = "piece " .. i .. " " end
    local origin = support.llm_origin { deltas = long }
    for i, api in ipairs { "openai-chat", "openai-responses", "anthropic-messages" } do
      local gw = rig.gateway { redis = redis, origin = origin.url, cache = { max_stream = "64m" } }
      gw:request(rig.ask(api, { stream = true }))
      rig.wait_kept(redis, i)
      local res, status = rig.send(gw, rig.ask(api))
      assert.matches("hit", status)
      assert.equal(table.concat(long), read[api].plain(res.body).text)
    end
  end))

  it("are not kept where they are larger than allowed", async(function()
    local origin = support.llm_origin { deltas = TEXT }
    for name, cache in pairs { max_stream = { max_stream = 1000, max_size = 1000 }, max_size = { max_size = 1000 } } do
      local gw = rig.gateway { redis = redis, origin = origin.url, cache = cache }
      assert.equal(200, gw:request(rig.ask("openai-chat", { stream = true })).status, name)
      rig.wait_count(gw, "cache_fills_total", "openai-chat", "too_large", 1)
      assert.equal(0, #redis:must("KEYS", "*"))
    end
  end))

  it("go to their client as they came, whether they are kept or not", async(function()
    local origin = support.llm_origin { deltas = TEXT }
    local bare = rig.gateway { redis = redis, origin = origin.url, cache = { follow = "off" } }
    for api in pairs(read) do
      local res = bare:request(rig.ask(api, { stream = true, stream_options = { include_usage = true } }))
      local straight = support.request(rig.merged(rig.ask(api, { stream = true, stream_options = { include_usage = true } }),
        { port = origin.port }))
      assert.equal(straight.body, res.body)
    end
  end))
end)
