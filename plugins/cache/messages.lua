-- Anthropic's messages, as a cache needs them: which answers are complete, the answer that a stream amounts to, and a
-- stream that amounts to an answer. No I/O. A tool's input is text in a stream and a value in an answer: it goes over
-- byte for byte, numbers and order included.

local json = require("tollgate").json
local text = require "cache.text"

local M = {}

local null = json.null

local function fail(why) error({ why = why }, 0) end

-- Deltas whose text is joined: type → the member of delta and block.
local JOINED = { text_delta = "text", thinking_delta = "thinking" }

local deltas = {}

for kind, member in pairs(JOINED) do
  deltas[kind] = function(block, delta)
    if type(delta[member]) ~= "string" then fail("a delta without text") end
    local parts = block.parts[member] or { block.value[member] }
    block.parts[member] = parts
    parts[#parts + 1] = delta[member]
  end
end

function deltas.input_json_delta(block, delta)
  if type(delta.partial_json) ~= "string" then fail("a delta without text") end
  table.insert(block.input, delta.partial_json)
end

function deltas.signature_delta(block, delta) block.value.signature = delta.signature end

function deltas.citations_delta(block, delta)
  block.citations = block.citations or json.array()
  table.insert(block.citations, delta.citation)
end

local function settled(block)
  local value = block.value
  for member, parts in pairs(block.parts) do value[member] = table.concat(parts) end
  if block.citations then value.citations = block.citations end
  local input = table.concat(block.input)
  if input ~= "" then
    value.input = json.raw(input)
    if not value.input then fail("a tool's input that is no JSON") end
  end
  return value
end

local events = {}

function events.ping() end

function events.message_start(state, data)
  if state.message or not text.is_object(data.message) then fail("a message_start out of place") end
  state.message = data.message
  state.usage = data.message.usage and json.decode(tostring(data.message.usage), 1) or nil
end

function events.content_block_start(state, data)
  if data.index ~= #state.blocks or not text.is_object(data.content_block) then fail("a block out of order") end
  state.blocks[#state.blocks + 1] = { value = data.content_block, parts = {}, input = {} }
end

function events.content_block_delta(state, data)
  local block = type(data.index) == "number" and state.blocks[data.index + 1]
  local add = text.is_object(data.delta) and deltas[data.delta.type]
  if not block or block.stopped or not add then fail("a delta that is not known") end
  add(block, data.delta)
end

function events.content_block_stop(state, data)
  local block = type(data.index) == "number" and state.blocks[data.index + 1]
  if not block or block.stopped then fail("the end of a block that is not open") end
  block.stopped = true
end

-- A field of usage that is there replaces, one that is absent or null stands.
function events.message_delta(state, data)
  if not state.message or not text.is_object(data.delta) then fail("a message_delta out of place") end
  for name, value in pairs(data.delta) do state.message[name] = value end
  for name, value in pairs(text.is_object(data.usage) and data.usage or {}) do
    state.usage = state.usage or {}
    if value ~= null or state.usage[name] == nil then state.usage[name] = value end
  end
  for name, value in pairs(data) do
    if name ~= "type" and name ~= "delta" and name ~= "usage" then state.message[name] = value end
  end
end

function events.message_stop(state) state.stopped = true end

local function add(state, event)
  local data = json.decode(event.data, 2)
  if not text.is_object(data) then fail("an event that is no JSON object") end
  if state.stopped then
    if data.type == "ping" then return end
    fail("an event behind the end")
  end
  local handle = events[data.type]
  if not handle then fail("an event that is not known: " .. tostring(data.type)) end
  handle(state, data)
end

local function finish(state)
  local message = state.message
  if not message or not state.stopped then fail("the stream is cut") end
  if message.stop_reason == nil or message.stop_reason == null then fail("the message did not stop") end
  message.content = json.array()
  for i, block in ipairs(state.blocks) do
    if not block.stopped then fail("a block did not end") end
    message.content[i] = settled(block)
  end
  message.usage = state.usage
  return json.encode(message)
end

--- The answer that a stream amounts to.
-- @tparam {table,...} list events of tg.sse
-- @tparam function|nil pause called now and then
-- @treturn string|nil JSON
-- @treturn string why the stream amounts to none
function M.assemble(list, pause)
  local state = { blocks = {} }
  return text.assemble(list, pause, function(event) add(state, event) end, function() return finish(state) end)
end

--- Whether a JSON answer is complete and holds no error.
-- @tparam string body
-- @treturn boolean
function M.complete(body)
  local value = json.decode(body, 2)
  return text.is_object(value) and value.type == "message" and text.is_array(value.content)
    and value.stop_reason ~= nil and value.stop_reason ~= null
end

-- The stream of an answer

-- A block as it begins, and the deltas that fill it.
local function split_block(block)
  local start, list = text.copy(block), {}
  if type(block.thinking) == "string" then
    start.thinking = ""
    for piece in text.pieces(block.thinking) do list[#list + 1] = { type = "thinking_delta", thinking = piece } end
  end
  if type(block.text) == "string" then
    start.text = ""
    for piece in text.pieces(block.text) do list[#list + 1] = { type = "text_delta", text = piece } end
  end
  if block.citations ~= nil and block.citations ~= null then
    local citations = json.decode(tostring(block.citations), 1)
    start.citations = json.empty_array
    for _, one in ipairs(citations) do list[#list + 1] = { type = "citations_delta", citation = one } end
  end
  if type(block.signature) == "string" and block.type == "thinking" then
    start.signature = ""
    list[#list + 1] = { type = "signature_delta", signature = block.signature }
  end
  if block.input ~= nil then
    start.input = {}
    local input = tostring(block.input)
    if input == "{}" then input = "" end
    if input == "" then list[#list + 1] = { type = "input_json_delta", partial_json = "" } end
    for piece in text.pieces(input) do list[#list + 1] = { type = "input_json_delta", partial_json = piece } end
  end
  return start, list
end

local function begun(message)
  local start = text.copy(message)
  start.content, start.stop_reason, start.stop_sequence = json.empty_array, null, null
  if text.is_object(message.usage) then
    start.usage = text.copy(message.usage)
    if start.usage.output_tokens then start.usage.output_tokens = 1 end -- a placeholder, as the API has it
  end
  return start
end

--- A stream for a stored answer.
-- @tparam string body
-- @treturn string|nil the bytes of the stream; nil where the body is no such answer
function M.replay(body)
  local message, out = json.decode(body, 3), {}
  if not text.is_object(message) or not text.is_array(message.content) then return nil end
  text.event(out, { type = "message_start", message = begun(message) })
  for i, block in ipairs(message.content) do
    if not text.is_object(block) then return nil end
    local start, list = split_block(block)
    text.event(out, { type = "content_block_start", index = i - 1, content_block = start })
    for _, delta in ipairs(list) do text.event(out, { type = "content_block_delta", index = i - 1, delta = delta }) end
    text.event(out, { type = "content_block_stop", index = i - 1 })
  end
  local stop_sequence = message.stop_sequence == nil and null or message.stop_sequence
  text.event(out, { type = "message_delta", usage = message.usage or {},
    delta = { stop_reason = message.stop_reason, stop_sequence = stop_sequence, container = message.container } })
  text.event(out, { type = "message_stop" })
  return table.concat(out)
end

return M
