-- Chat completions, as a cache needs them: which answers are complete, the answer that a stream amounts to, and a stream
-- that amounts to an answer. No I/O.
--
-- What a stream says is put together without a guess: text that comes in pieces is joined where it is known to come so
-- (content, refusal, reasoning, arguments of tools), and what is not known may be said once, or again in the same words.
-- Anything else makes the stream one that cannot be assembled, and the answer is not kept.

local json = require("tollgate").json
local text = require "cache.text"

local M = {}

local null = json.null

-- Members of a delta whose text is to be joined.
local JOINED = { content = true, refusal = true, reasoning_content = true, reasoning = true }

local function fail(why) error({ why = why }, 0) end

local function same(a, b)
  return a == b or (type(a) == type(b) and json.encode(a) == json.encode(b))
end

-- Says a member again: the first that is not null counts, and no other may differ.
local function take(into, name, value)
  local old = into[name]
  if old == nil or old == null then
    into[name] = value
  elseif value ~= null and not same(old, value) then
    fail("a member was said twice: " .. name)
  end
end

-- A member whose later values replace earlier ones; objects are merged, one level deep.
local function replace(into, name, value)
  local old = into[name]
  if value == null and old ~= nil then return end
  if text.is_object(old) and text.is_object(value) then
    for key, one in pairs(value) do old[key] = one end
  else
    into[name] = value
  end
end

-- Joins text; `parts` holds the pieces until the end.
local function join(parts, into, name, value)
  if value == null then
    if into[name] == nil then into[name] = null end
  elseif type(value) ~= "string" then
    if into[name] ~= nil and into[name] ~= null then fail("text that is no text: " .. name) end
    into[name] = value
  else
    local list = parts[name]
    if not list then
      if into[name] ~= nil and into[name] ~= null then fail("text that is no text: " .. name) end
      list = {}
      parts[name] = list
    end
    list[#list + 1] = value
    into[name] = ""
  end
end

local function settle(parts, into)
  for name, list in pairs(parts) do into[name] = table.concat(list) end
end

-- Tools' calls

-- The function's (or the custom tool's) name, and the text of its input.
local function tool_part(call, name, value, input)
  if not text.is_object(value) then fail("a call of a tool that is no object") end
  local part = call.parts[name]
  if not part then
    part = { value = {}, parts = {} }
    call.parts[name] = part
  end
  for member, one in pairs(value) do
    if member == input then join(part.parts, part.value, member, one)
    elseif one ~= null and one ~= "" then take(part.value, member, one)
    elseif part.value[member] == nil then part.value[member] = one end
  end
end

local function tool_member(call, name, value)
  if name == "function" then tool_part(call, name, value, "arguments")
  elseif name == "custom" then tool_part(call, name, value, "input")
  elseif name == "id" or name == "type" then
    if value ~= null and value ~= "" then take(call.value, name, value) end
  elseif name ~= "index" then replace(call.value, name, value) end
end

local function call_of(message, delta)
  local index = delta.index
  if type(index) ~= "number" then
    if index ~= nil and index ~= null or type(delta.id) ~= "string" then fail("a call of a tool without index") end
    index = #message.calls -- calls that come whole need none
  end
  if index > #message.calls or index < 0 then fail("a call of a tool out of order") end
  local call = message.calls[index + 1]
  if not call then
    call = { value = {}, parts = {} }
    message.calls[index + 1] = call
  end
  return call
end

local function tool_calls(message, list)
  if list == null then return end
  if not text.is_array(list) then fail("tool_calls are no list") end
  for _, delta in ipairs(list) do
    if not text.is_object(delta) then fail("a call of a tool that is no object") end
    local call = call_of(message, delta)
    for name, value in pairs(delta) do tool_member(call, name, value) end
  end
end

local function settled_call(call)
  for name, part in pairs(call.parts) do
    settle(part.parts, part.value)
    call.value[name] = part.value
  end
  return call.value
end

-- Messages

local function append(into, name, list)
  if list == null then
    if into[name] == nil then into[name] = null end
    return
  end
  if not text.is_array(list) then fail("no list: " .. name) end
  if not text.is_array(into[name]) then into[name] = json.array() end
  for _, one in ipairs(list) do table.insert(into[name], one) end
end

-- OpenRouter's: pieces of one detail have one index and type.
local function reasoning_details(message, list)
  if list == null then return end
  if not text.is_array(list) then fail("reasoning_details are no list") end
  local details = message.details or { list = {}, by = {} }
  message.details = details
  for _, delta in ipairs(list) do
    if not text.is_object(delta) then fail("a detail that is no object") end
    local key = type(delta.index) == "number" and delta.index .. " " .. tostring(delta.type)
    local detail = key and details.by[key]
    if not detail then
      detail = { value = {}, parts = {} }
      details.list[#details.list + 1] = detail
      if key then details.by[key] = detail end
    end
    for name, value in pairs(delta) do
      if name == "text" or name == "summary" then join(detail.parts, detail.value, name, value)
      else take(detail.value, name, value) end
    end
  end
end

local function function_call(message, value)
  if value == null then return end
  tool_part(message, "function_call", value, "arguments")
end

local function delta_member(message, name, value)
  if JOINED[name] then join(message.joined, message.value, name, value)
  elseif name == "tool_calls" then tool_calls(message, value)
  elseif name == "function_call" then function_call(message, value)
  elseif name == "annotations" then append(message.value, name, value)
  elseif name == "reasoning_details" then reasoning_details(message, value)
  elseif name == "audio" and value ~= null then fail("audio in pieces")
  else take(message.value, name, value) end
end

local function settled_message(message)
  local value = message.value
  settle(message.joined, value)
  if message.parts.function_call then
    settled_call(message)
  end
  if #message.calls > 0 then
    value.tool_calls = json.array()
    for i, call in ipairs(message.calls) do value.tool_calls[i] = settled_call(call) end
  end
  if message.details then
    value.reasoning_details = json.array()
    for i, detail in ipairs(message.details.list) do
      settle(detail.parts, detail.value)
      value.reasoning_details[i] = detail.value
    end
  end
  -- A stream begins with "" whatever follows; where that is no text, an answer has null.
  local speaks = value.tool_calls or value.function_call or type(value.refusal) == "string" and value.refusal ~= ""
  if value.content == nil or value.content == "" and speaks then value.content = null end
  value.role = value.role or "assistant"
  return value
end

-- Choices

local function logprobs(choice, value)
  if value == null or not text.is_object(value) then
    if choice.logprobs == nil then choice.logprobs = null end
    return
  end
  if not text.is_object(choice.logprobs) then choice.logprobs = {} end
  for name, list in pairs(value) do append(choice.logprobs, name, list) end
end

local function add_choice(state, delta)
  if not text.is_object(delta) then fail("a choice that is no object") end
  local index = delta.index == nil and 0 or delta.index
  if type(index) ~= "number" then fail("a choice without index") end
  local choice = state.choices[index]
  if not choice then
    choice = { value = { index = index, finish_reason = null }, message = { value = {}, joined = {}, calls = {}, parts = {} } }
    state.choices[index] = choice
    state.count = state.count + 1
  end
  for name, value in pairs(delta) do
    if name == "delta" then
      for member, one in pairs(text.is_object(value) and value or {}) do delta_member(choice.message, member, one) end
    elseif name == "logprobs" then logprobs(choice.value, value)
    elseif name ~= "index" then replace(choice.value, name, value) end
  end
end

-- A chunk that is there for something else (Azure's filter results) names neither id nor model.
local function is_empty(value) return value == "" or value == 0 or value == null end

local function add_member(state, name, value)
  if name == "choices" then
    if not text.is_array(value) then fail("choices are no list") end
    for _, choice in ipairs(value) do add_choice(state, choice) end
  elseif name == "error" and value ~= null then fail("an error")
  elseif name == "id" or name == "created" or name == "model" then
    if state.top[name] == nil or is_empty(state.top[name]) then state.top[name] = value end
  elseif name ~= "object" and name ~= "obfuscation" then
    if name == "usage" and value ~= null then state.top.usage = nil end -- cumulated, where there are several
    if not (name == "usage" and value == null) then replace(state.top, name, value) end
  end
end

local function add(state, event)
  if event.event == "error" then fail("an error") end
  if event.data:match("^%s*%[DONE%]%s*$") then
    state.done = true
    return
  end
  local chunk = json.decode(event.data)
  if not text.is_object(chunk) then fail("an event that is no JSON object") end
  for name, value in pairs(chunk) do add_member(state, name, value) end
end

local function finish(state)
  if not state.done then fail("no [DONE]") end
  if state.count == 0 then fail("no choice") end
  local top = state.top
  top.object, top.choices = "chat.completion", json.array()
  for i = 0, state.count - 1 do
    local choice = state.choices[i]
    if not choice or choice.value.finish_reason == null then fail("a choice did not finish") end
    if choice.value.finish_reason == "error" then fail("an error") end
    choice.value.message = settled_message(choice.message)
    top.choices[i + 1] = choice.value
  end
  return json.encode(top)
end

--- The answer that a stream amounts to.
-- @tparam {table,...} events of tg.sse
-- @tparam function|nil pause called now and then
-- @treturn string|nil JSON
-- @treturn string why the stream amounts to none: it is cut, holds an error, or says what cannot be put together
function M.assemble(events, pause)
  local state = { top = {}, choices = {}, count = 0 }
  return text.assemble(events, pause, function(event) add(state, event) end, function() return finish(state) end)
end

--- Whether a JSON answer is complete and holds no error.
-- @tparam string body
-- @treturn boolean
function M.complete(body)
  local value = json.decode(body, 3)
  if not text.is_object(value) or (value.error ~= nil and value.error ~= null) then return false end
  if not text.is_array(value.choices) or #value.choices == 0 then return false end
  for _, choice in ipairs(value.choices) do
    if not text.is_object(choice) or choice.finish_reason == "error" or choice.message == nil then return false end
    if choice.error ~= nil and choice.error ~= null then return false end
  end
  return true
end

return M
