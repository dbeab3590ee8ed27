-- OpenAI's responses, as a cache needs them: which answers are complete, the answer that a stream amounts to, and a
-- stream that amounts to an answer. No I/O. The event that ends a stream holds the whole answer, which is taken from it
-- byte for byte, and put into it again.

local json = require("tollgate").json
local text = require "cache.text"

local M = {}

local null = json.null

local ENDED = { completed = true, incomplete = true }
local LAST = { ["response.completed"] = true, ["response.incomplete"] = true }
local FAILED = { ["response.failed"] = true, ["response.cancelled"] = true, error = true }

local function count(list)
  return text.is_array(list) and #list or -1
end

--- Whether a JSON answer is complete and holds no error.
-- @tparam string body
-- @treturn boolean
function M.complete(body)
  local value = json.decode(body, 2)
  return text.is_object(value) and ENDED[value.status] == true and (value.error == nil or value.error == null)
    and text.is_array(value.output)
end

--- The answer that a stream amounts to.
-- @tparam {table,...} events of tg.sse
-- @tparam function|nil pause called now and then
-- @treturn string|nil JSON
-- @treturn string why the stream amounts to none
function M.assemble(events, pause)
  local body, why
  local items = 0
  text.each(events, pause, function(event)
    local data = json.decode(event.data, 1)
    if not text.is_object(data) then
      if not event.data:match("^%s*%[DONE%]%s*$") then why = "an event that is no JSON object" end
    elseif FAILED[data.type] then why = "an error"
    elseif data.type == "response.output_item.done" then items = items + 1
    elseif LAST[data.type] then body = data.response and tostring(data.response) end
  end)
  if why then return nil, why end
  if not body or not M.complete(body) then return nil, "no complete answer" end
  -- Some origins leave out of the last event what the stream has told.
  if items > 0 and count(json.decode(body, 2).output) ~= items then return nil, "not all items are in the last event" end
  return body
end

-- The stream of an answer

local Writer = {}
Writer.__index = Writer

function Writer:event(kind, fields)
  fields.type, fields.sequence_number = kind, self.sequence
  self.sequence = self.sequence + 1
  text.event(self.out, fields)
end

-- An event about a part of an item.
function Writer:about(kind, at, fields)
  for name, value in pairs(at) do fields[name] = value end
  self:event(kind, fields)
end

-- Text in pieces: KIND.delta …, KIND.done with all of it under `member`.
function Writer:text(kind, at, value, member, more)
  for piece in text.pieces(value) do
    self:about(kind .. ".delta", at, { delta = piece, logprobs = more and json.empty_array or nil })
  end
  self:about(kind .. ".done", at, { [member] = value, logprobs = more })
end

local function at_of(item, index, more)
  local at = { item_id = item.id, output_index = index }
  for name, value in pairs(more or {}) do at[name] = value end
  return at
end

local function part_of(part, member)
  local begun = text.copy(part)
  begun[member] = ""
  if begun.annotations ~= nil then begun.annotations = json.empty_array end
  if begun.logprobs ~= nil then begun.logprobs = json.empty_array end
  return begun
end

local PARTS = {
  output_text = { member = "text", kind = "response.output_text" },
  refusal = { member = "refusal", kind = "response.refusal" },
  reasoning_text = { member = "text", kind = "response.reasoning_text" },
}

function Writer:part(item, index, i, part)
  local known, at = text.is_object(part) and PARTS[part.type], at_of(item, index, { content_index = i - 1 })
  if not known or type(part[known.member]) ~= "string" then
    self:about("response.content_part.added", at, { part = part })
    return self:about("response.content_part.done", at, { part = part })
  end
  self:about("response.content_part.added", at, { part = part_of(part, known.member) })
  local logprobs = part.type == "output_text" and (text.is_array(part.logprobs) and part.logprobs or json.empty_array) or nil
  self:text(known.kind, at, part[known.member], known.member, logprobs)
  for n, annotation in ipairs(text.is_array(part.annotations) and part.annotations or {}) do
    self:about("response.output_text.annotation.added", at, { annotation_index = n - 1, annotation = annotation })
  end
  self:about("response.content_part.done", at, { part = part })
end

function Writer:summary(item, index, i, part)
  local at = at_of(item, index, { summary_index = i - 1 })
  self:about("response.reasoning_summary_part.added", at, { part = part_of(part, "text") })
  self:text("response.reasoning_summary_text", at, part.text, "text")
  self:about("response.reasoning_summary_part.done", at, { part = part })
end

local inputs = {
  function_call = { member = "arguments", kind = "response.function_call_arguments" },
  custom_tool_call = { member = "input", kind = "response.custom_tool_call_input" },
  mcp_call = { member = "arguments", kind = "response.mcp_call_arguments" },
}

-- An item as it begins: without what its own events bring.
local function begun(item)
  local start, input = text.copy(item), inputs[item.type]
  if start.status ~= nil then start.status = "in_progress" end
  if text.is_array(item.content) then start.content = json.empty_array end
  if item.type == "reasoning" and text.is_array(item.summary) then start.summary = json.empty_array end
  if input and type(item[input.member]) == "string" then start[input.member] = "" end
  return start
end

function Writer:item(index, item)
  local input = inputs[item.type]
  self:event("response.output_item.added", { output_index = index, item = begun(item) })
  for i, part in ipairs(item.type == "reasoning" and text.is_array(item.summary) and item.summary or {}) do
    if text.is_object(part) and type(part.text) == "string" then self:summary(item, index, i, part) end
  end
  for i, part in ipairs(text.is_array(item.content) and item.content or {}) do self:part(item, index, i, part) end
  if input and type(item[input.member]) == "string" then
    self:text(input.kind, at_of(item, index), item[input.member], input.member)
  end
  self:event("response.output_item.done", { output_index = index, item = item })
end

local function in_progress(answer)
  local start = text.copy(answer)
  start.status, start.output, start.usage, start.incomplete_details = "in_progress", json.empty_array, null, null
  if start.completed_at ~= nil then start.completed_at = null end
  return start
end

--- A stream for a stored answer.
-- @tparam string body
-- @treturn string|nil the bytes of the stream; nil where the body is no such answer
function M.replay(body)
  local answer = json.decode(body)
  if not text.is_object(answer) or not ENDED[answer.status] or not text.is_array(answer.output) then return nil end
  local self = setmetatable({ sequence = 0, out = {} }, Writer)
  self:event("response.created", { response = in_progress(answer) })
  self:event("response.in_progress", { response = in_progress(answer) })
  for i, item in ipairs(answer.output) do
    if not text.is_object(item) then return nil end
    self:item(i - 1, item)
  end
  self:event("response." .. answer.status, { response = json.raw(body) })
  return table.concat(self.out)
end

return M
