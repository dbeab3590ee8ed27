-- Stands in for an LLM: answers chat completions as OpenAI does (JSON or a stream of events, gzipped JSON
-- when asked, with usage), so that a gateway can be tried and tested without a provider. Shows a plugin that
-- answers by itself: `access` returns status, body and headers; a body that is a function is called in the
-- request's coroutine for one chunk after another, may wait in between, and ends by returning nil.
local ffi = require "ffi"
local tg = require "tollgate"

ffi.cdef [[
int deflateInit2_(void *, int level, int method, int bits, int memory, int strategy, const char *, int);
int deflate(void *, int flush);
int deflateEnd(void *);
]]
local z_stream = ffi.typeof [[struct {
  const char *next_in; unsigned avail_in; unsigned long total_in;
  char *next_out; unsigned avail_out; unsigned long total_out;
  const char *msg; void *state; void *zalloc; void *zfree; void *opaque;
  int data_type; unsigned long adler, reserved;
}]]
local libz = ffi.load "libz.so.1"

local M = {
  version = "1.0.0", priority = 10,
  schema = { delay = { type = "duration", default = 0.05, max = 10, doc = "seconds between the events of a stream" } },
}

local function gzip(text)
  local z = z_stream()
  local room = #text + 1024   -- more than deflate needs for what is as short as this
  local out = ffi.new("char[?]", room)
  z.next_in, z.avail_in, z.next_out, z.avail_out = text, #text, out, room
  assert(libz.deflateInit2_(z, 6, 8, 15 + 16, 8, 0, "1.2", ffi.sizeof(z)) == 0, "zlib: deflateInit2")
  libz.deflate(z, 4)          -- Z_FINISH
  libz.deflateEnd(z)
  return ffi.string(out, room - z.avail_out)
end

-- As many words as the request allows, a word being a token here.
local function compose(request)
  local most = tonumber(request.max_completion_tokens) or tonumber(request.max_tokens) or 100
  local words = {}
  for word in ("This is a stand-in for a language model; it got your message and has nothing to add."):gmatch "%S+" do
    if #words < most then words[#words + 1] = (#words > 0 and " " or "") .. word end
  end
  return words
end

-- Choices are put together as text: a list without elements is one in JSON only.
local function completion(object, request, choices, usage)
  return ('{"id":"chatcmpl-standin","object":"%s","created":%d,"model":%s,"choices":[%s]%s}'):format(object, tg.now(),
    tg.json.encode(request.model or "standin"), choices, usage and ',"usage":' .. tg.json.encode(usage) or "")
end

local function events(request, words, usage)
  local list = {}
  local function add(choices, with_usage)
    list[#list + 1] = "data: " .. completion("chat.completion.chunk", request, choices, with_usage) .. "\n\n"
  end
  for _, word in ipairs(words) do
    add(('{"index":0,"delta":{"content":%s},"finish_reason":null}'):format(tg.json.encode(word)))
  end
  add '{"index":0,"delta":{},"finish_reason":"stop"}'
  local options = request.stream_options
  if type(options) == "table" and options.include_usage == true then add("", usage) end
  list[#list + 1] = "data: [DONE]\n\n"
  return list
end

-- A body for the host: the next event at each call, with a pause before all but the first.
local function paced(list, delay)
  local at = 0
  return function()
    at = at + 1
    if at > 1 and list[at] then tg.timer.sleep(delay) end
    return list[at]
  end
end

function M.access(conf, ctx)
  local body = ctx.request:body() or ""
  local request = tg.json.decode(body)
  local headers = { ["content-type"] = "application/json" }
  if type(request) ~= "table" or type(request.messages) ~= "table" then
    return 400, '{"error":{"message":"this is no chat completion request","type":"invalid_request_error"}}', headers
  end
  local words = compose(request)
  local prompt = math.ceil(#body / 4)   -- four bytes a token, about what models do with English
  local usage = { prompt_tokens = prompt, completion_tokens = #words, total_tokens = prompt + #words }
  if request.stream == true then
    headers["content-type"] = "text/event-stream"
    return 200, paced(events(request, words, usage), conf.delay), headers
  end
  local choice = ('{"index":0,"message":{"role":"assistant","content":%s},"finish_reason":"stop"}')
    :format(tg.json.encode(table.concat(words)))
  local text = completion("chat.completion", request, choice, usage)
  if not (ctx.request.headers["accept-encoding"] or ""):find("gzip", 1, true) then return 200, text, headers end
  headers["content-encoding"] = "gzip"
  return 200, gzip(text), headers
end

return M
