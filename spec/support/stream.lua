-- One byte stream (TCP or Unix socket) for coroutines: raw bytes in, raw bytes out, nothing hidden.
-- Reading starts at once and buffers without bound, so that a peer's FIN or reset is seen while a spec
-- writes; `pause` stops it, to play a reader that stalls.
--
-- Errors are nil and a short constant: "closed" (FIN, or closed here), "reset", "refused", "timeout", else
-- the system's name. Fields: `closed` (either side ended it), `eof` (a FIN came), `err`, `received` (bytes).
local ffi = require "ffi"
local uv = require "luv"
local loop = require "spec.support.loop"

ffi.cdef "int getsockopt(int fd, int level, int name, void *value, unsigned *size);"
local SOL_SOCKET, SO_ERROR, ECONNRESET = 1, 4, 104

local Stream = {}
Stream.__index = Stream

local M = { Stream = Stream }

local names = { ECONNRESET = "reset", EPIPE = "closed", ECONNREFUSED = "refused", EOF = "closed", ECANCELED = "closed" }

local function name_of(err)
  local code = err:match("^([%w_]+)")
  return names[code] or code
end

local function wake(self)
  local reader = self.reader
  self.reader = nil
  if reader then reader() end
  if not self.closed then return end
  local watchers = self.watchers
  self.watchers = {}
  for _, resume in ipairs(watchers) do resume(true) end
end

-- libuv tells an end also where the last bytes and a reset came in one turn; the reset is pending at the socket then.
local function was_reset(handle)
  local value, size = ffi.new("int[1]"), ffi.new("unsigned[1]", 4)
  local fd = handle:fileno()
  return fd and ffi.C.getsockopt(fd, SOL_SOCKET, SO_ERROR, value, size) == 0 and value[0] == ECONNRESET
end

function Stream:resume()
  if self.handle:is_closing() then return end
  self.handle:read_start(loop.callback(function(err, data)
    if data then
      self.parts[#self.parts + 1] = data
      self.size = self.size + #data
      self.received = self.received + #data
    elseif err then
      self.err, self.closed = name_of(err), true
    elseif was_reset(self.handle) then
      self.err, self.closed = "reset", true
    else
      self.eof, self.closed = true, true
    end
    wake(self)
  end))
end

--- Stops reading; the kernel's buffers fill and the peer stalls. A FIN is not seen until resume().
function Stream:pause()
  self.handle:read_stop()
end

local function buffered(self)
  if #self.parts ~= 1 then self.parts = { table.concat(self.parts) } end
  return self.parts[1]
end

local function take(self, n)
  local all = buffered(self)
  local taken, rest = all:sub(1, n), all:sub(n + 1)
  self.parts, self.size = { rest }, #rest
  return taken
end

-- Waits for more bytes; nil and the reason when none can come.
local function fill(self, limit_ms)
  if self.closed then return nil, self.err or "closed" end
  local size = self.size
  local _, err = loop.wait(function(resume) self.reader = resume end, limit_ms or self.limit_ms)
  if self.size > size then return true end
  self.reader = nil
  return nil, err or self.err or "closed"
end

--- Waits until there is something to read; true, or nil and the reason.
function Stream:wait_data(limit_ms)
  if self.size > 0 then return true end
  return fill(self, limit_ms)
end

--- All bytes that are there (at most `most`), after waiting for at least one.
function Stream:read_some(limit_ms, most)
  local ok, err = self:wait_data(limit_ms)
  if not ok then return nil, err end
  return take(self, math.min(self.size, most or self.size))
end

--- Exactly n bytes; on failure nil, the reason, and what there is (left unread).
function Stream:read_n(n, limit_ms)
  while self.size < n do
    local ok, err = fill(self, limit_ms)
    if not ok then return nil, err, buffered(self) end
  end
  return take(self, n)
end

--- Bytes up to and including the first match of a Lua pattern (or of plain text).
function Stream:read_until(pattern, plain, limit_ms)
  while true do
    local _, last = buffered(self):find(pattern, 1, plain)
    if last then return take(self, last) end
    local ok, err = fill(self, limit_ms)
    if not ok then return nil, err, buffered(self) end
  end
end

--- Bytes to the end of the stream, and "closed", "reset" or "timeout".
function Stream:read_all(limit_ms)
  while true do
    local ok, err = fill(self, limit_ms)
    if not ok then return take(self, self.size), err end
  end
end

--- Waits until the peer has ended the stream; true, or nil and "timeout".
function Stream:wait_closed(limit_ms)
  if self.closed then return true end
  return loop.wait(function(resume) self.watchers[#self.watchers + 1] = resume end, limit_ms or self.limit_ms)
end

--- Writes and waits until the kernel took all of it; true, or nil and the reason.
function Stream:send(bytes, limit_ms)
  if self.handle:is_closing() then return nil, "closed" end
  return loop.wait(function(resume)
    -- A handle that has met an error refuses at once, and then calls nobody.
    local request, refused = self.handle:write(bytes, loop.callback(function(err)
      if err then return resume(nil, name_of(err)) end
      resume(true)
    end))
    if not request then resume(nil, name_of(refused)) end
  end, limit_ms or self.limit_ms)
end
Stream.write = Stream.send

--- Sends a FIN after what was written.
function Stream:shutdown()
  if not self.handle:is_closing() then pcall(self.handle.shutdown, self.handle) end
end

local function end_here(self, close)
  if self.handle:is_closing() then return end
  close(self.handle)
  self.closed, self.err = true, self.err or "closed"
  wake(self)
end

function Stream:close()
  end_here(self, self.handle.close)
end

--- Ends the connection by a reset instead of a FIN.
function Stream:reset()
  end_here(self, self.handle.close_reset or self.handle.close)
end

--- Wraps a connected luv handle. The caller sees to its closing.
function M.wrap(handle, limit_ms)
  local self = setmetatable({ handle = handle, parts = {}, size = 0, received = 0, closed = false, eof = false,
    watchers = {}, limit_ms = limit_ms }, Stream)
  self:resume()
  return self
end

--- Connects to a port on 127.0.0.1 (number), or to a Unix socket (path); not closed at the run's end.
-- @param wrap what the handle is put into (TLS: see tls.lua)
-- @param from the address to connect from, such as "127.0.0.2" (default 127.0.0.1)
-- @return a stream, or nil and the reason
function M.dial(to, limit_ms, wrap, from)
  local handle = type(to) == "number" and uv.new_tcp() or uv.new_pipe(false)
  if from then assert(handle:bind(from, 0)) end
  local ok, err = loop.wait(function(resume)
    local on_connect = loop.callback(function(e)
      if e then return resume(nil, name_of(e)) end
      resume(true)
    end)
    if type(to) == "number" then handle:connect("127.0.0.1", to, on_connect) else handle:connect(to, on_connect) end
  end, limit_ms or 5000)
  if not ok then
    loop.close(handle)
    return nil, err
  end
  if type(to) == "number" then handle:nodelay(true) end
  return M.wrap(wrap and wrap(handle) or handle, limit_ms)
end

--- Listens on a free port of 127.0.0.1 (or on `port`); on_stream(stream) runs in a coroutine each.
-- @param wrap what each handle is put into (TLS: see tls.lua)
-- @return { port, handle, close }
function M.listen(on_stream, port, host, wrap)
  local server = uv.new_tcp()
  assert(server:bind(host or "127.0.0.1", port or 0))
  assert(server:listen(1024, loop.callback(function(err)
    assert(not err, err)
    local client = uv.new_tcp()
    server:accept(client)
    client:nodelay(true)
    loop.spawn(on_stream, M.wrap(wrap and wrap(client) or client))
  end)))
  return { port = server:getsockname().port, handle = server, close = function() loop.close(server) end }
end

return M
