-- The HTTP client of the specs, on raw sockets: a spec may send any bytes, split anywhere, and sees the
-- answer's framing. `connect` gives a connection (see stream.lua for its raw reads and writes), `request`
-- does one exchange on a connection of its own.
local json = require "dkjson"
local loop = require "spec.support.loop"
local message = require "spec.support.message"
local stream = require "spec.support.stream"

local M = { limit_ms = 10000 }

local Client = setmetatable({}, { __index = stream.Stream })
Client.__index = Client

--- Connects to a port of 127.0.0.1 or a Unix socket's path; raises when nobody listens.
-- @param limit_ms of every later wait on the connection (default 10000)
-- @param wrap what the handle is put into (see tls.lua)
-- @param from the address to connect from (default 127.0.0.1)
function M.connect(to, limit_ms, wrap, from)
  local conn, err = stream.dial(to, limit_ms or M.limit_ms, wrap, from)
  if not conn then error(("connect to %s: %s"):format(to, err), 2) end
  loop.on_end(function() conn:close() end)
  return setmetatable(conn, Client)
end

--- The bytes of a request: { method, path, headers (map or list of pairs), body, host, chunked }.
-- A table as body is sent as JSON. chunked = { "piece", … } sends a chunked body.
function M.format_request(options)
  local headers, body = options.headers or {}, options.body
  local extra = {}
  local function default(name, value)
    if not message.has(headers, name) then extra[#extra + 1] = { name, value } end
  end
  default("host", options.host or "gateway.test")
  if type(body) == "table" then
    body = json.encode(body)
    default("content-type", "application/json")
  end
  local tail = body or ""
  if options.chunked then
    default("transfer-encoding", "chunked")
    for _, piece in ipairs(options.chunked) do tail = tail .. message.chunk(piece) end
    tail = tail .. "0\r\n\r\n"
  elseif body then
    default("content-length", #body)
  end
  return ("%s %s HTTP/1.1\r\n%s%s\r\n%s"):format(options.method or (tail ~= "" and "POST" or "GET"),
    options.path or "/", message.header_lines(extra), message.header_lines(headers), tail)
end

--- Sends a request on this connection, without reading.
function Client:send_request(options)
  return self:send(M.format_request(options))
end

--- Reads a response's head; then res:read() gives the pieces of its body as they come.
-- @return res, or nil, reason, and the bytes that came
function Client:read_head(options)
  options = options or {}
  return message.read_response(self, options.method, options.timeout)
end

--- Reads a whole response: status, reason, headers (map), list, body, chunks (sizes), trailers, raw (head), interim.
-- @return res, or nil, reason, and the part that came
function Client:read_response(options)
  options = options or {}
  local res, err, part = self:read_head(options)
  if not res then return nil, err, part end
  local ok, cut = message.read_body(res, options.timeout)
  if not ok then return nil, cut, res end
  return res
end

--- One request, one answer, on this connection.
function Client:request(options)
  local ok, err = self:send_request(options)
  -- An answer may be there although the rest of the request was not wanted.
  if not ok and self.size == 0 then return nil, err end
  return self:read_response(options)
end

--- One exchange on a connection of its own: { port, method, path, headers, body, timeout, … }.
function M.request(options)
  local conn = M.connect(options.port or options.socket, options.timeout)
  local res, err, part = conn:request(options)
  conn:close()
  return res, err, part
end

--- The body as JSON; raises where it is none.
function M.json(res)
  local value, _, err = json.decode(res.body)
  if err then error("not JSON: " .. res.body, 2) end
  return value
end

return M
