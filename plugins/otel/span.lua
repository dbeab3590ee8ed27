-- Spans of a request in OTLP's JSON mapping: one of the server for the request, below it one of a client for each attempt on
-- a target. Names and attributes are those of OpenTelemetry's semantic conventions for HTTP and generative AI. What a client
-- sent stands in them only as its path, its host and the model's name: no query, header or body. Without I/O.

local attributes = require "otel.attributes"

local M = {}

local SERVER, CLIENT, ERROR = 2, 3, 2 -- SpanKind, StatusCode
local TEXT_MAX = 1024                 -- bytes of a text that a client chose

-- RFC 9110, section 9.3, and RFC 5789; others count as one.
local METHODS = {}
for name in ("CONNECT DELETE GET HEAD OPTIONS PATCH POST PUT TRACE"):gmatch "%u+" do METHODS[name] = true end

local OPERATIONS = { ["openai-chat"] = "chat", ["openai-responses"] = "chat", ["openai-embeddings"] = "embeddings",
  ["anthropic-messages"] = "chat" }

-- Characters of more than one byte by what begins them (Unicode, table 3-7).
local CHARACTERS = { "^[\194-\223][\128-\191]", "^\224[\160-\191][\128-\191]", "^[\225-\236\238\239][\128-\191][\128-\191]",
  "^\237[\128-\159][\128-\191]", "^\240[\144-\191][\128-\191][\128-\191]", "^[\241-\243][\128-\191][\128-\191][\128-\191]",
  "^\244[\128-\143][\128-\191][\128-\191]" }
local REPLACEMENT = "\239\191\189" -- U+FFFD

local function character(text, at)
  for _, pattern in ipairs(CHARACTERS) do
    local one = text:match(pattern, at)
    if one then return one end
  end
end

-- A text that a client chose, as far as it goes in a span: a collector refuses a batch whole where a string is no UTF-8.
local function cut(text)
  if not text or not text:find("[\128-\255]") then return text and text:sub(1, TEXT_MAX) end
  local out, size, at = {}, 0, 1
  while at <= #text do
    local plain = text:match("^[%z\1-\127]+", at)
    local piece = plain and plain:sub(1, TEXT_MAX - size) or character(text, at)
    size = size + #(piece or REPLACEMENT)
    if size > TEXT_MAX or piece == "" then break end
    out[#out + 1] = piece or REPLACEMENT
    at = at + #(piece or "x")
  end
  return table.concat(out)
end

--- The host and port of a URL's or Host field's authority.
-- @tparam string authority "host", "host:port", "[v6]:port"
-- @tparam number|nil default port where it names none
-- @treturn string host, without brackets
-- @treturn number|nil port
function M.authority(authority, default)
  local host, port = authority:match "^%[(.-)%]:?(%d*)$"
  if not host then host, port = authority:match "^([^:]*):?(%d*)$" end
  return host or authority, tonumber(port) or default
end

local function method_of(map, method)
  map["http.request.method"] = METHODS[method] and method or "_OTHER"
  if not METHODS[method] then map["http.request.method_original"] = cut(method) end
  return METHODS[method] and method or "HTTP"
end

local function gen_ai(map, api, provider, model)
  local operation = OPERATIONS[api]
  if not operation then return end
  map["gen_ai.operation.name"] = operation
  map["gen_ai.provider.name"] = provider
  map["gen_ai.request.model"] = cut(model)
end

local function server_attributes(r)
  local map = {}
  local verb = method_of(map, r.method)
  map["url.scheme"], map["url.path"] = r.scheme, cut(r.path)
  map["http.route"], map["tollgate.route"] = r.route_path, r.route
  map["network.protocol.version"] = r.version
  map["server.address"], map["server.port"] = M.authority(cut(r.host))
  map["client.address"] = r.client
  map["http.response.status_code"] = r.status
  map["tollgate.consumer"], map["tollgate.tenant"] = r.consumer, r.tenant
  map["tollgate.request_id"] = r.id
  gen_ai(map, r.api, r.provider, r.model)
  if r.usage then
    map["gen_ai.usage.input_tokens"], map["gen_ai.usage.output_tokens"] = r.usage.input, r.usage.output
  end
  if r.ended ~= "ok" then
    map["error.type"] = r.ended
  elseif r.status and r.status >= 500 then
    map["error.type"] = tostring(r.status)
  end
  return map, verb
end

-- tracestate as it came; ASCII, or nothing (W3C Trace Context, section 3.3.1.3): half a list would say what is not so.
local function state_of(trace)
  return trace.state and not trace.state:find("[\128-\255]") and trace.state or nil
end

local function finish(span, map, failed)
  span.attributes = attributes.list(map)
  if failed then span.status = { code = ERROR } end
  return span
end

--- The request's span.
-- @tparam table r id, trace (as ctx.trace), started (seconds since the epoch), seconds, method, scheme, host, path, version,
--   client (address, or nil), route, route_path, api, status (or nil), ended, provider, model, usage, consumer, tenant
-- @treturn table
function M.server(r)
  local map, verb = server_attributes(r)
  return finish({ traceId = r.trace.trace_id, spanId = r.trace.span_id, parentSpanId = r.trace.parent_id,
    traceState = state_of(r.trace), name = r.route_path and verb .. " " .. r.route_path or verb, kind = SERVER,
    startTimeUnixNano = attributes.nanoseconds(r.started), endTimeUnixNano = attributes.nanoseconds(r.started + r.seconds) },
    map, r.ended ~= "ok" and r.ended ~= "client_gone" or r.status ~= nil and r.status >= 500)
end

--- The span of an attempt.
-- @tparam table r as for server
-- @tparam table a target (name, provider, model, url), outcome (as of the phase `attempt`), over (seconds since the epoch)
-- @treturn table
function M.attempt(r, a)
  local map, o = {}, a.outcome
  local verb = method_of(map, r.method)
  local scheme, authority = a.target.url:match "^(%a+)://([^/]*)"
  if scheme then
    map["server.address"], map["server.port"] = M.authority(authority, scheme == "https" and 443 or 80)
    map["url.scheme"] = scheme
  end
  map["tollgate.target"] = a.target.name
  map["http.response.status_code"] = o.status
  if o.attempt > 1 then map["http.request.resend_count"] = o.attempt - 1 end
  gen_ai(map, r.api, a.target.provider, a.target.model or r.model)
  map["error.type"] = o.error or (o.status or 0) >= 400 and (cut(o.code) or tostring(o.status)) or nil
  local begun = math.max(a.over - o.seconds, r.started) -- two clocks tell, one in whole milliseconds
  return finish({ traceId = r.trace.trace_id, spanId = o.span_id, parentSpanId = r.trace.span_id,
    traceState = state_of(r.trace), name = verb, kind = CLIENT, startTimeUnixNano = attributes.nanoseconds(begun),
    endTimeUnixNano = attributes.nanoseconds(math.max(a.over, begun)) }, map,
    map["error.type"] ~= nil and o.error ~= "client_gone")
end

return M
