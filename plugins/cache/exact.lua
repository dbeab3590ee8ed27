-- Exact responses: the answer to the very same question. A question is a POST to an LLM API, or where the route says so a
-- GET of JSON. It is the same however it is asked, as a stream or not: one JSON answer is kept, and played as a stream of
-- that API for those who ask for one.

local tg = require "tollgate"
local chat = require "cache.chat"
local chat_replay = require "cache.chat_replay"
local control = require "cache.control"
local lookup = require "cache.lookup"
local messages = require "cache.messages"
local question = require "cache.question"
local responses = require "cache.responses"
local store = require "cache.store"

local M = {}

local function is_object(body) return type(tg.json.decode(body, 1)) == "table" end
local function is_json(body) return tg.json.decode(body, 1) ~= nil end

local APIS = {
  ["openai-chat"] = { complete = chat.complete, assemble = chat.assemble, replay = chat_replay.replay, asks_usage = true },
  ["openai-responses"] = { complete = responses.complete, assemble = responses.assemble, replay = responses.replay },
  ["anthropic-messages"] = { complete = messages.complete, assemble = messages.assemble, replay = messages.replay },
  ["openai-embeddings"] = { complete = is_object },
}
local PLAIN = { complete = is_json }

local SLICE = 262144 -- bytes of a stream that are read in one go

-- Lets others go on.
local function pause() tg.timer.sleep(0) end

-- Members of a request that say how, and not what, is to be answered.
local FORM = { "stream", "stream_options" }

-- Header fields of a GET that make its answer another one.
local PARTIAL = { "range", "if-match", "if-none-match", "if-modified-since", "if-unmodified-since", "if-range" }
local GET_VARIES = { "accept", "accept-language" }

local Ask = {}
Ask.__index = Ask

function Ask:look() return store.look(self.conf, self.key) end

function Ask:flight_key() return self.key end

function Ask:put(text)
  local stored, err = store.put(self.conf, self.key, text, self.ttl)
  return stored and "stored" or "error", err
end

function Ask:answer(text)
  if not self.stream then return 200, text, { ["content-type"] = "application/json" } end
  local stream = self.api.replay(text, { include_usage = self.include_usage })
  if not stream then return nil end
  return 200, stream, self:stream_headers()
end

function Ask:stream_headers()
  return { ["content-type"] = "text/event-stream; charset=utf-8", ["cache-control"] = "no-cache" }
end

function Ask:storable(response)
  local kind = (response.headers["content-type"] or ""):lower():match("^%s*([^;%s]*)")
  self.came_as_stream = kind == "text/event-stream"
  local fits = self.came_as_stream and self.api.assemble ~= nil or kind == "application/json"
  local vary = response.headers.vary
  if not fits or control.forbids(response.headers["cache-control"]) then return false end
  return self.method == "POST" or not vary or vary:lower():match("^%s*accept%-encoding%s*$") ~= nil
end

-- The request goes up: usage belongs to the answer that is kept, whoever asked for it.
function Ask:forward() end

function Ask:text(ctx)
  local body, why = ctx:recorded()
  if not body then return nil, why == "too_large" and "too_large" or "incomplete" end
  if not self.came_as_stream then
    if self.api.complete(body) then return body end
    return nil, "incomplete"
  end
  local parser, events = tg.sse.parser(self.conf.max_stream), {}
  for _, bytes in ipairs { body, tg.llm.taken_usage(ctx) } do
    for at = 1, #bytes, SLICE do
      for _, event in ipairs(parser:feed(bytes:sub(at, at + SLICE - 1)) or {}) do events[#events + 1] = event end
      if at > SLICE then pause() end
    end
  end
  local text = self.api.assemble(events, pause)
  if text and self.api.complete(text) then return text end
  return nil, "not_assembled"
end

-- Who shares answers: the kind, and the name within it.
local function owner_of(conf, consumer)
  if conf.shared then return "shared", "shared" end
  if consumer and consumer.tenant then return "tenant", consumer.tenant end
  if consumer then return "key", consumer.id end
  return "anonymous", "anonymous"
end

local function any_header(headers, names)
  for _, name in ipairs(names) do
    if headers[name] then return name end
  end
end

-- Why the request's head keeps it away from the cache: a reason as RFC 9211 has it, and a detail.
local function bypass_of_head(self, ctx, wanted)
  local request = ctx.request
  local get = self.conf.get and request.method == "GET"
  if not get and (request.method ~= "POST" or not APIS[ctx.route.api]) then return "method" end
  if wanted.no_store then return "request" end
  if ctx.no_cache or any_header(request.headers, self.bypass_headers) then return "bypass" end
  if request.headers["content-encoding"] or get and any_header(request.headers, PARTIAL) then return "bypass" end
  return nil
end

-- The body's canonical form and members, or nil.
local function read_body(request)
  local body = request:body()
  local members = tg.json.decode(body, 1)
  if type(members) ~= "table" then return nil end
  return tg.json.canonical(body, FORM), members
end

local function new_ask(self, ctx, wanted, body, members)
  local conf, request = self.conf, ctx.request
  local kind, owner = owner_of(conf, ctx.consumer)
  local get = request.method == "GET"
  local names = get and self.get_headers or self.headers
  local hash = question.hash({ version = conf.version, route = ctx.route.name, api = ctx.route.api, method = request.method,
    host = get and request.host or nil, path = request.path, query = request.query, body = body, kind = kind, owner = owner },
    function(name) return request.headers[name] end, names, tg.crypto.sha256)
  return setmetatable({
    conf = conf, ttl = self.ttl, api = APIS[ctx.route.api] or PLAIN, method = request.method,
    key = ("cache:exact:%s:%s"):format(tg.redis.encode(owner), tg.redis.tag(hash)),
    stream = members and members.stream == true or false,
    refresh = wanted.no_cache, only_if_cached = wanted.only_if_cached, max_age = wanted.max_age,
  }, Ask)
end

--- Makes what access needs of a configuration.
-- @tparam table self conf; gets ttl, headers, get_headers, bypass_headers
function M.prepare(self)
  local conf = self.conf
  self.ttl = conf.ttl or 300
  self.max_record = math.max(conf.max_size, conf.max_stream)
  self.headers, self.get_headers, self.bypass_headers = {}, {}, {}
  for _, name in ipairs(GET_VARIES) do table.insert(self.get_headers, name) end
  for _, name in ipairs(conf.headers) do
    table.insert(self.headers, name:lower())
    table.insert(self.get_headers, name:lower())
  end
  table.sort(self.headers)
  for _, name in ipairs(conf.bypass.headers) do table.insert(self.bypass_headers, name:lower()) end
end

--- Answers from the cache, or lets the request go on.
function M.access(self, ctx)
  local conf, request = self.conf, ctx.request
  local headers = request.headers
  local wanted = conf.client_control and control.request(headers["cache-control"], headers.pragma) or {}
  local fwd = bypass_of_head(self, ctx, wanted)
  if fwd then return lookup.bypass(self, ctx, fwd) end
  local body, members
  if request.method == "POST" then
    body, members = read_body(request)
    if not body then return lookup.bypass(self, ctx, "bypass", "body") end
    local why = question.bypass(members, conf.bypass, tg.json.decode)
    if why then return lookup.bypass(self, ctx, "bypass", "body") end
  end
  local ask = new_ask(self, ctx, wanted, body, members)
  if ask.stream and ask.api.asks_usage then
    -- On a miss the origin has to tell the usage, whoever asked: it belongs to the answer that is kept.
    ask.include_usage = tg.llm.want_usage(ctx)
    if ask.include_usage == nil then return lookup.bypass(self, ctx, "bypass", "body") end
  end
  if ask.stream and not ask.api.replay then return lookup.bypass(self, ctx, "bypass", "body") end
  if ask.stream then ask.form = ask.include_usage and "stream with usage" or "stream" end
  return lookup.access(self, ctx, ask)
end

return M
