-- HTTP/1.1 messages as a spec wants them: every header in order and as it was written, besides a map for
-- look-ups, and the bodies' framing followed exactly. It parses what both sides of the gateway send; it is
-- strict about framing and knows nothing of connections' reuse.
local M = {}

-- A bad message fails the spec that met it.
local function parse_fields(text)
  local list, map = {}, {}
  for line in text:gmatch("(.-)\r\n") do
    local name, value = line:match("^([^%s:]+):[ \t]*(.-)[ \t]*$")
    if not name then error("bad header line: " .. ("%q"):format(line), 0) end
    list[#list + 1] = { name, value }
    local key = name:lower()
    map[key] = map[key] and (map[key] .. ", " .. value) or value
  end
  return list, map
end

-- Readers return the next piece of a body, nil at its end, or nil and the reason when it was cut.
local function read_none() return nil end

local function length_reader(stream, left)
  return function(limit_ms)
    if left == 0 then return nil end
    local piece, err = stream:read_some(limit_ms, left)
    if not piece then return nil, err end
    left = left - #piece
    return piece
  end
end

local function chunk_reader(stream, message)
  local done = false
  return function(limit_ms)
    if done then return nil end
    local line, err = stream:read_until("\r\n", true, limit_ms)
    if not line then return nil, err end
    local digits = line:match("^(%x+)[^\r]*\r\n$") or error("bad chunk size: " .. ("%q"):format(line), 0)
    local size = tonumber(digits, 16)
    if size > 0 then
      local data, cut = stream:read_n(size + 2, limit_ms)
      if not data then return nil, cut end
      if data:sub(-2) ~= "\r\n" then error("a chunk does not end in CRLF", 0) end
      message.chunks[#message.chunks + 1] = size
      return data:sub(1, -3)
    end
    local trailer = ""
    repeat
      local field, cut = stream:read_until("\r\n", true, limit_ms)
      if not field then return nil, cut end
      trailer = trailer .. field
    until field == "\r\n"
    message.trailers = select(2, parse_fields(trailer:sub(1, -3)))
    done = true
  end
end

local function close_reader(stream)
  return function(limit_ms)
    local piece, err = stream:read_some(limit_ms)
    if piece then return piece end
    if err == "closed" and stream.eof then return nil end
    return nil, err
  end
end

local function body_reader(stream, message, until_close)
  if (message.headers["transfer-encoding"] or ""):lower():match("chunked%s*$") then
    message.chunks = {}
    return chunk_reader(stream, message)
  end
  local length = message.headers["content-length"]
  if length then
    local n = length:match("^%d+$") or error("bad content-length: " .. length, 0)
    return length_reader(stream, tonumber(n))
  end
  return until_close and close_reader(stream) or read_none
end

-- message:read(limit_ms): the next piece of the body. message.complete says that its end was seen.
local function attach(message, read)
  function message.read(self, limit_ms)
    if self.complete then return nil end
    local piece, err = read(limit_ms)
    if piece then return piece end
    if not err then self.complete = true end
    return nil, err
  end
  if read == read_none then message.complete = true end
end

--- Reads the rest of a body into message.body; true, or nil and the reason (message.body has what came).
function M.read_body(message, limit_ms)
  local pieces = { message.body }
  while true do
    local piece, err = message:read(limit_ms)
    if not piece then
      message.body = table.concat(pieces)
      if err then return nil, err end
      return true
    end
    pieces[#pieces + 1] = piece
  end
end

local function read_head(stream, limit_ms)
  local head, err, part = stream:read_until("\r\n\r\n", true, limit_ms)
  if not head then return nil, err, part end
  local first, rest = head:match("^(.-)\r\n(.*)\r\n$")
  local list, map = parse_fields(rest)
  return { raw = head, first = first, list = list, headers = map, complete = false, body = "" }
end

--- Reads a response's head: status, reason, version, headers (map, lower case), list ({ name, value }…),
-- raw, interim (the 1xx that came before). The body follows by res:read() or read_body.
function M.read_response(stream, method, limit_ms)
  local interim = {}
  while true do
    local res, err, part = read_head(stream, limit_ms)
    if not res then return nil, err, part end
    local version, status, reason = res.first:match("^HTTP/(1%.[01]) (%d%d%d) ?(.*)$")
    if not status then error("bad status line: " .. ("%q"):format(res.first), 0) end
    res.version, res.status, res.reason, res.interim = version, tonumber(status), reason, interim
    if res.status >= 200 or res.status == 101 then
      local empty = method == "HEAD" or res.status == 204 or res.status == 304 or res.status == 101
      attach(res, empty and read_none or body_reader(stream, res, true))
      return res
    end
    interim[#interim + 1] = res
  end
end

--- Reads a request's head: method, target, path, query, version, headers, list, raw.
function M.read_request(stream, limit_ms)
  local req, err = read_head(stream, limit_ms)
  if not req then return nil, err end
  req.method, req.target, req.version = req.first:match("^(%S+) (%S+) HTTP/(1%.[01])$")
  if not req.method then error("bad request line: " .. ("%q"):format(req.first), 0) end
  req.path, req.query = req.target:match("^([^?]*)%??(.*)$")
  attach(req, body_reader(stream, req, false))
  return req
end

--- Header lines of a map (sorted by name) or of a list of pairs (in order).
function M.header_lines(headers)
  local lines, names = {}, {}
  for _, pair in ipairs(headers) do lines[#lines + 1] = pair[1] .. ": " .. pair[2] .. "\r\n" end
  for name in pairs(headers) do
    if type(name) == "string" then names[#names + 1] = name end
  end
  table.sort(names)
  for _, name in ipairs(names) do lines[#lines + 1] = name .. ": " .. tostring(headers[name]) .. "\r\n" end
  return table.concat(lines)
end

--- Whether a map or list of pairs has a header, whatever its case.
function M.has(headers, wanted)
  for name, pair in pairs(headers) do
    if type(name) == "number" then name = pair[1] end
    if name:lower() == wanted then return true end
  end
  return false
end

function M.chunk(data)
  return ("%x\r\n"):format(#data) .. data .. "\r\n"
end

return M
