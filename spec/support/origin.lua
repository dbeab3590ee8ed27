-- A scripted HTTP origin in the spec's own loop: a handler per request, one coroutine per connection, and
-- the connection itself in reach to answer late, badly, in pieces or not at all.
--
-- handler(req, conn): req as in message.read_request, with its body read (unless stream_body = true; then
-- req:read() gives its pieces). conn is a stream (stream.lua) with respond, start, chunk and finish. When
-- the handler returns, the next request of the connection is read.
local json = require "dkjson"
local loop = require "spec.support.loop"
local message = require "spec.support.message"
local stream = require "spec.support.stream"
local tls = require "spec.support.tls"

local M = {}

local Conn = setmetatable({}, { __index = stream.Stream })
Conn.__index = Conn

local reasons = { [200] = "OK", [204] = "No Content", [304] = "Not Modified", [400] = "Bad Request", [404] = "Not Found",
  [429] = "Too Many Requests", [500] = "Internal Server Error", [503] = "Service Unavailable" }

local function head(response, extra)
  local status = response.status or 200
  return ("HTTP/1.1 %d %s\r\n%s%s\r\n"):format(status, response.reason or reasons[status] or "Status",
    message.header_lines(response.headers or {}), extra)
end

--- Sends a whole answer: { status, reason, headers (map or list), body (a table is sent as JSON) }.
-- length = false leaves Content-Length out and ends the body by closing.
function Conn:respond(response)
  response = response or {}
  local headers, body, extra = response.headers or {}, response.body or "", ""
  if type(body) == "table" then
    body = json.encode(body)
    if not message.has(headers, "content-type") then extra = "Content-Type: application/json\r\n" end
  end
  local status = response.status or 200
  local bodiless = status == 204 or status == 304
  if response.length ~= false and not bodiless and not message.has(headers, "content-length") then
    extra = extra .. "Content-Length: " .. #body .. "\r\n"
  end
  if self.method == "HEAD" or bodiless then body = "" end
  local ok, err = self:write(head(response, extra) .. body)
  if response.length == false then self:close() end
  return ok, err
end

--- Sends the head of a chunked answer; chunk and finish follow.
function Conn:start(response)
  return self:write(head(response or {}, "Transfer-Encoding: chunked\r\n"))
end

function Conn:chunk(data)
  return self:write(message.chunk(data))
end

--- Ends a chunked answer, with trailers if given.
function Conn:finish(trailers)
  return self:write("0\r\n" .. message.header_lines(trailers or {}) .. "\r\n")
end

local function keeps_alive(req)
  local connection = (req.headers.connection or ""):lower()
  if req.version == "1.0" then return connection:match("keep%-alive") ~= nil end
  return not connection:match("close")
end

local function serve_one(self, conn)
  local req = message.read_request(conn)
  if not req then return false end
  if not self.options.stream_body and not message.read_body(req) then return false end
  conn.method = req.method
  self.requests[#self.requests + 1] = req
  self.handler(req, conn)
  while not req.complete and not conn.closed do
    if not req:read() then break end
  end
  return req.complete and keeps_alive(req) and not conn.handle:is_closing()
end

local function serve(self, conn)
  setmetatable(conn, Conn)
  self.connections = self.connections + 1
  self.open = self.open + 1
  self.conns[conn] = true
  while serve_one(self, conn) do end
  conn:close()
  self.conns[conn] = nil
  self.open = self.open - 1
end

local Origin = {}
Origin.__index = Origin

--- Starts an origin on a free port (or options.port) of 127.0.0.1 (or options.host, an address); options.tls (see
-- tls.acceptor) makes it speak TLS.
-- @return o: .port, .url, .requests (list), .connections (accepted so far), .open, .handler (may be replaced)
function M.start(handler, options)
  local self = setmetatable({ handler = handler, options = options or {}, requests = {}, connections = 0, open = 0,
    conns = {} }, Origin)
  self.listener = stream.listen(function(conn) serve(self, conn) end, self.options.port, self.options.host,
    self.options.tls and tls.acceptor(self.options.tls))
  self.port = self.listener.port
  local host, scheme = self.options.host or "127.0.0.1", self.options.tls and "https" or "http"
  self.url = ("%s://%s:%d"):format(scheme, host:find(":", 1, true) and "[" .. host .. "]" or host, self.port)
  loop.on_end(function() self:close() end)
  return self
end

--- Waits for the n-th request and returns it.
function Origin:wait_request(n, limit_ms)
  return loop.wait_for(function() return self.requests[n] end, "request " .. n .. " at the origin", limit_ms)
end

--- Stops listening and closes every connection.
function Origin:close()
  self.listener.close()
  for conn in pairs(self.conns) do conn:close() end
end

--- A TCP server without a protocol: on_stream(stream) in a coroutine for each connection. .port, .close()
function M.server(on_stream)
  local streams = {}
  local listener = stream.listen(function(conn)
    streams[#streams + 1] = conn
    on_stream(conn)
  end)
  loop.on_end(function()
    listener.close()
    for _, conn in ipairs(streams) do conn:close() end
  end)
  return listener
end

return M
