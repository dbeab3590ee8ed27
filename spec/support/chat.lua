-- A stand-in for an OpenAI-like chat completions API: one JSON answer, or a stream of chunks, with usage
-- as the real one gives it (on a stream only when stream_options.include_usage asks, as one last chunk
-- with no choices). Options bend it: slow, cut short, split bytes, another line end, wrong usage, a call of
-- a tool instead of text. llm.lua does the same for all APIs.
local json = require "dkjson"
local crypto = require "spec.support.crypto"
local loop = require "spec.support.loop"
local origin = require "spec.support.origin"

local M = {}

local defaults = {
  before_end = function() end,
  deltas = { "Hello", ",", " world", "!" },
  usage = { prompt_tokens = 9, completion_tokens = 4, total_tokens = 13 },
  delay_ms = 0,            -- before every event
  eol = "\n",
  id = "chatcmpl-1", created = 1700000000, finish_reason = "stop",
}

local order = { keyorder = { "id", "object", "created", "model", "choices", "index", "delta", "message", "role",
  "content", "finish_reason", "usage", "prompt_tokens", "completion_tokens", "total_tokens" } }

local function encode(value) return json.encode(value, order) end

local function empty_list() return setmetatable({}, { __jsontype = "array" }) end

local function with_defaults(options)
  return setmetatable({}, { __index = function(_, key)
    if options and options[key] ~= nil then return options[key] end
    return defaults[key]
  end })
end

local function answer(o, body)
  local message = { role = "assistant", content = table.concat(o.deltas) }
  if o.tool then
    message.content = json.null
    message.tool_calls = { { id = "call_1", type = "function", ["function"] = o.tool } }
  end
  return { id = o.id, object = "chat.completion", created = o.created, model = body.model, usage = o.usage or nil,
    choices = { { index = 0, message = message, finish_reason = o.tool and "tool_calls" or o.finish_reason } } }
end

-- What the chunks between the first and the last carry.
local function deltas(o)
  local list = {}
  if not o.tool then
    for i, text in ipairs(o.deltas) do list[i] = { content = text } end
    return list
  end
  local half = math.floor(#o.tool.arguments / 2)
  for i, piece in ipairs { "", o.tool.arguments:sub(1, half), o.tool.arguments:sub(half + 1) } do
    local call = { index = 0, ["function"] = { arguments = piece } }
    if i == 1 then call.id, call.type, call["function"].name = "call_1", "function", o.tool.name end
    list[i] = { tool_calls = { call } }
  end
  return list
end

local function chunk(o, body, choices, usage)
  return encode { id = o.id, object = "chat.completion.chunk", created = o.created, model = body.model,
    choices = choices, usage = usage }
end

--- An answer that is no stream, as a table.
function M.answer(options, body)
  return answer(with_defaults(options), body)
end

--- The data of the events of a stream, "[DONE]" included.
function M.events(options, body)
  local o = with_defaults(options)
  local asked = type(body.stream_options) == "table" and body.stream_options.include_usage == true
  local every = o.usage_on_every and o.usage or (asked and json.null or nil)
  local list = { chunk(o, body, { { index = 0, delta = { role = "assistant", content = "" },
    finish_reason = json.null } }, every) }
  for _, delta in ipairs(deltas(o)) do
    list[#list + 1] = chunk(o, body, { { index = 0, delta = delta, finish_reason = json.null } }, every)
  end
  list[#list + 1] = chunk(o, body, { { index = 0, delta = setmetatable({}, { __jsontype = "object" }),
    finish_reason = o.tool and "tool_calls" or o.finish_reason } }, every)
  if o.usage and (asked or o.usage_always) then list[#list + 1] = chunk(o, body, empty_list(), o.usage) end
  list[#list + 1] = "[DONE]"
  return list
end

-- One chunk of HTTP an event; with `split`, one for every so many bytes of an event.
local function send_event(o, conn, data)
  local bytes = "data: " .. data .. o.eol .. o.eol
  if not o.split then return conn:chunk(bytes) end
  for at = 1, #bytes, o.split do
    local ok, err = conn:chunk(bytes:sub(at, at + o.split - 1))
    if not ok then return nil, err end
  end
  return true
end

local function stream(o, conn, body)
  conn:start { headers = { ["content-type"] = "text/event-stream" } }
  for i, data in ipairs(M.events(o, body)) do
    if o.delay_ms > 0 then loop.sleep(o.delay_ms) end
    if not send_event(o, conn, data) then return end
    if i == o.cut_after then o.before_end() end
    if i == o.cut_after then return o.cut == "reset" and conn:reset() or conn:close() end
    if i == o.stall_after then return conn:wait_closed() end
  end
  conn:finish()
end

--- A handler for support.origin.
-- @param options deltas, tool ({ name, arguments (text) }), usage (false leaves it out), usage_on_every, usage_always,
--   delay_ms, eol, split (bytes a chunk), cut_after / stall_after (events), cut ("reset"), before_end (called before a cut),
--   gzip, status and error (a table: answer with that instead), headers; each = function(req, body) may
--   return a table that overrides for one request
function M.handler(options)
  return function(req, conn)
    local body = json.decode(req.body) or {}
    local own = options and options.each and options.each(req, body) or {}
    local o = setmetatable({}, { __index = function(_, key)
      if own[key] ~= nil then return own[key] end
      if options and options[key] ~= nil then return options[key] end
      return defaults[key]
    end })
    if o.error then return conn:respond { status = o.status or 500, headers = o.headers, body = o.error } end
    if body.stream == true then return stream(o, conn, body) end
    if o.delay_ms > 0 then loop.sleep(o.delay_ms) end
    local headers = { ["content-type"] = "application/json" }
    for name, value in pairs(o.headers or {}) do headers[name] = value end
    local bytes = encode(answer(o, body))
    if o.gzip then bytes, headers["content-encoding"] = crypto.gzip(bytes), "gzip" end
    conn:respond { headers = headers, body = bytes }
  end
end

--- An origin with that handler; its .bodies() are the requests' bodies as tables.
function M.start(options)
  local o = origin.start(M.handler(options))
  function o.bodies()
    local list = {}
    for i, req in ipairs(o.requests) do list[i] = json.decode(req.body) end
    return list
  end
  return o
end

return M
