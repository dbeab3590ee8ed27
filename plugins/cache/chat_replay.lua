-- A stream of chat completions that amounts to a stored answer: the role, the text and the calls of tools in pieces, the
-- reason for its end, usage where it was asked for, [DONE]. No I/O.

local json = require("tollgate").json
local text = require "cache.text"

local M = {}

local null = json.null

-- Members of a message that have deltas of their own, in the order in which they are sent.
local TEXTS = { "reasoning_content", "reasoning", "content", "refusal" }
local OWN = { tool_calls = true, function_call = true, annotations = true, reasoning_details = true }
for _, name in ipairs(TEXTS) do OWN[name] = true end

-- Members of an answer that every chunk repeats; any further ones are in the first.
local REPEATED = { id = true, created = true, model = true, system_fingerprint = true, service_tier = true }

local Writer = {}
Writer.__index = Writer

function Writer:chunk(choices, usage)
  local chunk = { object = "chat.completion.chunk", choices = choices }
  for name, value in pairs(self.answer) do
    if REPEATED[name] or (not self.begun and name ~= "choices" and name ~= "usage" and name ~= "object") then
      chunk[name] = value
    end
  end
  self.begun = true
  if self.include_usage then chunk.usage = usage or null end
  text.data(self.out, chunk)
end

function Writer:delta(choice, delta, more)
  local one = { index = choice.index or 0, delta = delta, finish_reason = null }
  if choice.logprobs ~= nil then one.logprobs = null end
  for name, value in pairs(more or {}) do one[name] = value end
  self:chunk(json.array { one })
end

-- The logprobs of a text go with its first piece; what else there is goes with the first delta.
local function first_logprobs(choice)
  if not text.is_object(choice.logprobs) then return nil end
  local rest = text.copy(choice.logprobs)
  for _, name in ipairs { "content", "refusal" } do
    if text.is_array(rest[name]) then rest[name] = json.empty_array end
  end
  return { logprobs = rest }
end

local function logprobs_of(choice, name)
  local list = text.is_object(choice.logprobs) and choice.logprobs[name]
  return text.is_array(list) and #list > 0 and { logprobs = { [name] = list } } or nil
end

function Writer:text(choice, name, value)
  local more = logprobs_of(choice, name)
  for piece in text.pieces(value) do
    self:delta(choice, { [name] = piece }, more)
    more = nil
  end
  if more then self:delta(choice, { [name] = "" }, more) end
end

-- The role, whether there is text, and what is not sent in pieces.
local function first_delta(message)
  local delta = {}
  for name, value in pairs(message) do
    if not OWN[name] or (name ~= "tool_calls" and value == null) then delta[name] = value end
  end
  if type(message.content) == "string" then delta.content = "" end
  return delta
end

-- A call without its input, and the input: { delta, part, member, text }.
local function split_call(call)
  local head = text.copy(call)
  for part, member in pairs { ["function"] = "arguments", custom = "input" } do
    if text.is_object(call[part]) and type(call[part][member]) == "string" then
      head[part] = text.copy(call[part])
      head[part][member] = ""
      return head, part, member, call[part][member]
    end
  end
  return head
end

function Writer:tool_call(choice, index, call)
  local head, part, member, input = split_call(call)
  head.index = index
  self:delta(choice, { tool_calls = json.array { head } })
  for piece in text.pieces(input or "") do
    self:delta(choice, { tool_calls = json.array { { index = index, [part] = { [member] = piece } } } })
  end
end

function Writer:function_call(choice, call)
  local head = text.copy(call)
  head.arguments = ""
  self:delta(choice, { function_call = head })
  for piece in text.pieces(call.arguments) do self:delta(choice, { function_call = { arguments = piece } }) end
end

function Writer:choice(choice)
  local message = choice.message
  self:delta(choice, first_delta(message), first_logprobs(choice))
  if text.is_array(message.reasoning_details) then
    self:delta(choice, { reasoning_details = message.reasoning_details })
  end
  for _, name in ipairs(TEXTS) do
    if type(message[name]) == "string" then self:text(choice, name, message[name])
    elseif message[name] ~= nil and message[name] ~= null then self:delta(choice, { [name] = message[name] }) end
  end
  if text.is_array(message.annotations) then self:delta(choice, { annotations = message.annotations }) end
  for i, call in ipairs(text.is_array(message.tool_calls) and message.tool_calls or {}) do
    self:tool_call(choice, i - 1, call)
  end
  local call = message.function_call
  if text.is_object(call) and type(call.arguments) == "string" then self:function_call(choice, call) end
  local last = {}
  for name, value in pairs(choice) do
    if name ~= "message" and name ~= "logprobs" and name ~= "index" then last[name] = value end
  end
  self:delta(choice, {}, last)
end

local function has_messages(answer)
  if not text.is_object(answer) or not text.is_array(answer.choices) then return false end
  for _, choice in ipairs(answer.choices) do
    if not text.is_object(choice) or not text.is_object(choice.message) then return false end
  end
  return #answer.choices > 0
end

--- A stream for a stored answer.
-- @tparam string body
-- @tparam table options include_usage (boolean): whether the client asked for usage
-- @treturn string|nil the bytes of the stream; nil where the body is no such answer
function M.replay(body, options)
  local answer = json.decode(body)
  if not has_messages(answer) then return nil end
  local self = setmetatable({ answer = answer, include_usage = options.include_usage, out = {} }, Writer)
  for _, choice in ipairs(answer.choices) do self:choice(choice) end
  if options.include_usage and answer.usage ~= nil and answer.usage ~= null then
    self:chunk(json.empty_array, answer.usage)
  end
  self.out[#self.out + 1] = "data: [DONE]\n\n"
  return table.concat(self.out)
end

return M
