-- A stand-in for an LLM provider that speaks all four APIs, by the request's path: JSON answers, streams,
-- and the ways in which they go wrong. What each API looks like is in llm_apis.lua; chat.lua is the older
-- one for chat completions alone.
local json = require "dkjson"
local apis = require "spec.support.llm_apis"
local crypto = require "spec.support.crypto"
local loop = require "spec.support.loop"
local origin = require "spec.support.origin"

local M = { apis = apis }

local defaults = {
  before_end = function() end,
  deltas = { "Hello", ",", " world", "!" },
  usage = { input = 9, output = 4 },
  delay_ms = 0,            -- before every event
  eol = "\n",
  dimensions = 4,          -- of a vector
  id = "chatcmpl-1", created = 1700000000, finish_reason = "stop",
}

local function layered(...)
  local levels = { n = select("#", ...), ... }
  return setmetatable({}, { __index = function(_, key)
    for i = 1, levels.n do
      local value = levels[i] and levels[i][key]
      if value ~= nil then return value end
    end
  end })
end

--- The name of the API that a path belongs to, or nil.
function M.api_of(path)
  for name, api in pairs(apis) do
    if type(api) == "table" and path:sub(-#api.suffix) == api.suffix then return name end
  end
end

--- An answer that is no stream, as JSON.
function M.answer(api, options, body)
  return json.encode(apis[api].answer(layered(options, defaults), body))
end

--- The events of a stream: { data, name, text, usage } each.
function M.events(api, options, body)
  return apis[api].events(layered(options, defaults), body)
end

--- The bytes of an event.
function M.event_bytes(event, eol)
  eol = eol or "\n"
  return (event.name and "event: " .. event.name .. eol or "") .. "data: " .. event.data .. eol .. eol
end

-- One chunk of HTTP an event; with `split`, one for every so many bytes of an event.
local function send(o, conn, event)
  local bytes = M.event_bytes(event, o.eol)
  for at = 1, #bytes, o.split or #bytes do
    local ok, err = conn:chunk(bytes:sub(at, at + (o.split or #bytes) - 1))
    if not ok then return nil, err end
  end
  return true
end

local function stream(o, conn, api, body)
  conn:start { headers = { ["content-type"] = "text/event-stream" } }
  for i, event in ipairs(M.events(api, o, body)) do
    if o.delay_ms > 0 then loop.sleep(o.delay_ms) end
    if not send(o, conn, event) then return end
    if i == o.cut_after or i == o.fail_after then o.before_end() end
    if i == o.cut_after then return o.cut == "reset" and conn:reset() or conn:close() end
    if i == o.stall_after then return conn:wait_closed() end
    if i == o.fail_after then
      send(o, conn, apis[api].failure "the stand-in failed")
      break
    end
  end
  conn:finish()
end

--- A handler for support.origin.
-- @param options deltas, tool ({ name, arguments (text) }), usage ({ input, output }, false leaves it out), delay_ms,
--   eol, split (bytes a chunk), cut_after / stall_after / fail_after (events; an error event follows), cut ("reset"),
--   before_end (called before a cut or a failure), gzip, status and error (a table: answer with that instead),
--   headers, dimensions, and of chat completions usage_on_every and usage_always; each = function(req, body) may
--   return a table that overrides for one request
function M.handler(options)
  return function(req, conn)
    local api = M.api_of(req.path)
    if not api then return conn:respond { status = 404, body = { error = { message = "no such path: " .. req.path } } } end
    local body = json.decode(req.body) or {}
    local o = layered(options and options.each and options.each(req, body), options, defaults)
    if o.error then return conn:respond { status = o.status or 500, headers = o.headers, body = o.error } end
    if body.stream == true and apis[api].events then return stream(o, conn, api, body) end
    if o.delay_ms > 0 then loop.sleep(o.delay_ms) end
    local headers = { ["content-type"] = "application/json" }
    for name, value in pairs(o.headers or {}) do headers[name] = value end
    local bytes = M.answer(api, o, body)
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
