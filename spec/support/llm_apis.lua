-- The wire forms of the four LLM APIs that llm.lua answers, from one set of options: for each API where it
-- is, its answer as JSON, the events of its stream, and its errors. Each event knows the answer's text that
-- it brings and the usage that it reports, so that a spec can say what was told by any point of a stream.
--
-- usage is { input, output }; each API gets it under its own names. An event is { data, name, text, usage }.
local ffi = require "ffi"
local json = require "dkjson"
local chat = require "spec.support.chat"

local M = {}

local null = json.null
local function list(t) return setmetatable(t or {}, { __jsontype = "array" }) end
local function map(t) return setmetatable(t or {}, { __jsontype = "object" }) end

local function halves(text)
  local half = math.floor(#text / 2)
  return { text:sub(1, half), text:sub(half + 1) }
end

-- What of the answer comes in pieces: text, or the arguments of a tool's call.
local function pieces(o) return o.tool and halves(o.tool.arguments) or o.deltas end

-- Chat completions

local function chat_options(o)
  local usage = o.usage and { prompt_tokens = o.usage.input, completion_tokens = o.usage.output,
    total_tokens = o.usage.input + o.usage.output }
  return setmetatable({ usage = usage }, { __index = o })
end

M["openai-chat"] = {
  suffix = "/chat/completions",
  answer = function(o, body) return chat.answer(chat_options(o), body) end,
  events = function(o, body)
    local events = {}
    for i, data in ipairs(chat.events(chat_options(o), body)) do
      events[i] = { data = data, text = "" }
      if data:find('"prompt_tokens"', 1, true) then events[i].usage = o.usage end
    end
    for i, text in ipairs(o.tool and {} or o.deltas) do events[i + 1].text = text end
    return events
  end,
  failure = function(text) return { data = json.encode { error = { message = text, type = "server_error", code = "x" } } } end,
}

-- Responses

local function responses_usage(usage)
  if not usage then return null end
  return { input_tokens = usage.input, input_tokens_details = { cached_tokens = 0 }, output_tokens = usage.output,
    output_tokens_details = { reasoning_tokens = 0 }, total_tokens = usage.input + usage.output }
end

local function output_item(o, status)
  local done = status == "completed"
  if o.tool then
    return { id = "fc_1", type = "function_call", status = status, call_id = "call_1", name = o.tool.name,
      arguments = done and o.tool.arguments or "" }
  end
  local part = { type = "output_text", annotations = list(), logprobs = list(), text = table.concat(o.deltas) }
  return { id = "msg_1", type = "message", status = status, role = "assistant", content = list(done and { part } or {}) }
end

local function response(o, body, status)
  local done = status ~= "in_progress"
  return { id = "resp_1", object = "response", created_at = o.created, status = status, error = null,
    incomplete_details = null, instructions = null, metadata = map(), model = body.model or null,
    output = list(done and { output_item(o, "completed") } or {}), parallel_tool_calls = true,
    tool_choice = "auto", tools = list(), usage = done and responses_usage(o.usage) or null }
end

M["openai-responses"] = {
  suffix = "/responses",
  answer = function(o, body) return response(o, body, "completed") end,
  events = function(o, body)
    local events = {}
    local function add(name, fields, text)
      fields.type, fields.sequence_number = name, #events
      events[#events + 1] = { name = name, data = json.encode(fields), text = text or "" }
    end
    local id = o.tool and "fc_1" or "msg_1"
    add("response.created", { response = response(o, body, "in_progress") })
    add("response.output_item.added", { output_index = 0, item = output_item(o, "in_progress") })
    if not o.tool then
      add("response.content_part.added", { item_id = id, output_index = 0, content_index = 0,
        part = { type = "output_text", annotations = list(), logprobs = list(), text = "" } })
    end
    local kind = o.tool and "response.function_call_arguments" or "response.output_text"
    for _, text in ipairs(pieces(o)) do
      add(kind .. ".delta", { item_id = id, output_index = 0, content_index = 0, delta = text, logprobs = list() }, text)
    end
    local item = output_item(o, "completed")
    if o.tool then
      add(kind .. ".done", { item_id = id, output_index = 0, arguments = o.tool.arguments, name = o.tool.name })
    else
      add(kind .. ".done", { item_id = id, output_index = 0, content_index = 0, text = item.content[1].text,
        logprobs = list() })
      add("response.content_part.done", { item_id = id, output_index = 0, content_index = 0, part = item.content[1] })
    end
    add("response.output_item.done", { output_index = 0, item = item })
    add("response.completed", { response = response(o, body, "completed") })
    events[#events].usage = o.usage or nil
    return events
  end,
  failure = function(text)
    return { name = "error", data = json.encode { type = "error", code = "server_error", message = text, param = null } }
  end,
}

-- Messages

local function messages_usage(usage, output)
  return { input_tokens = usage.input, cache_creation_input_tokens = 0, cache_read_input_tokens = 0,
    output_tokens = output or usage.output }
end

local function stop_reason(o) return o.tool and "tool_use" or "end_turn" end

local function message(o, body, content, reason, usage)
  return { id = "msg_1", type = "message", role = "assistant", model = body.model, content = content,
    stop_reason = reason, stop_sequence = null, usage = usage }
end

M["anthropic-messages"] = {
  suffix = "/messages",
  answer = function(o, body)
    local block = o.tool and { type = "tool_use", id = "toolu_1", name = o.tool.name, input = json.decode(o.tool.arguments) }
      or { type = "text", text = table.concat(o.deltas) }
    return message(o, body, { block }, stop_reason(o), o.usage and messages_usage(o.usage) or nil)
  end,
  events = function(o, body)
    local events = {}
    local function add(name, fields, text)
      fields.type = name
      events[#events + 1] = { name = name, data = json.encode(fields), text = text or "" }
    end
    local start = o.usage and messages_usage(o.usage, 1) or nil
    add("message_start", { message = message(o, body, list(), null, start) })
    events[1].input = o.usage and o.usage.input
    add("content_block_start", { index = 0, content_block = o.tool
      and { type = "tool_use", id = "toolu_1", name = o.tool.name, input = map() } or { type = "text", text = "" } })
    add("ping", {})
    for _, text in ipairs(pieces(o)) do
      add("content_block_delta", { index = 0, delta = o.tool and { type = "input_json_delta", partial_json = text }
        or { type = "text_delta", text = text } }, text)
    end
    add("content_block_stop", { index = 0 })
    add("message_delta", { delta = { stop_reason = stop_reason(o), stop_sequence = null },
      usage = o.usage and { output_tokens = o.usage.output } or nil })
    events[#events].usage = o.usage or nil
    add("message_stop", {})
    return events
  end,
  failure = function(text)
    return { name = "error", data = json.encode { type = "error", error = { type = "overloaded_error", message = text } } }
  end,
}

-- Embeddings

local function vector(dimensions, base64)
  if not base64 then
    local numbers = {}
    for i = 1, dimensions do numbers[i] = i / 8 end
    return list(numbers)
  end
  local floats = ffi.new("float[?]", dimensions)
  for i = 1, dimensions do floats[i - 1] = i / 8 end
  return M.base64(ffi.string(floats, 4 * dimensions))
end

local DIGITS = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/"

--- RFC 4648, section 4.
function M.base64(bytes)
  local out = {}
  for i = 1, #bytes, 3 do
    local a, b, c = bytes:byte(i, i + 2)
    local n = a * 65536 + (b or 0) * 256 + (c or 0)
    for place = 0, 3 do
      local digit = math.floor(n / 64 ^ (3 - place)) % 64
      local pad = place == 2 and not b or place == 3 and not c
      out[#out + 1] = pad and "=" or DIGITS:sub(digit + 1, digit + 1)
    end
  end
  return table.concat(out)
end

M["openai-embeddings"] = {
  suffix = "/embeddings",
  answer = function(o, body)
    local data, input = {}, type(body.input) == "table" and body.input or { body.input }
    for i = 1, type(input[1]) == "number" and 1 or #input do
      data[i] = { object = "embedding", index = i - 1,
        embedding = vector(body.dimensions or o.dimensions, body.encoding_format == "base64") }
    end
    return { object = "list", data = list(data), model = body.model,
      usage = o.usage and { prompt_tokens = o.usage.input, total_tokens = o.usage.input } or nil }
  end,
}

return M
