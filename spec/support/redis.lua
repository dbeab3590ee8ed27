-- A private redis-server for specs, on a Unix socket and a TCP port, without persistence unless asked; a
-- client for it; and a dump of everything that is in it, to show that two instants are byte-identical.
local uv = require "luv"
local files = require "spec.support.files"
local loop = require "spec.support.loop"
local process = require "spec.support.process"
local resp = require "spec.support.resp"
local stream = require "spec.support.stream"

local M = { limit_ms = 10000 }

local Redis = {}
Redis.__index = Redis

local function read_reply(conn)
  while true do
    local bytes = conn.rest or ""
    local value, after = resp.decode(bytes)
    if after then
      conn.rest = bytes:sub(after)
      return value
    end
    local more, err = conn:read_some()
    if not more then error("redis: " .. err, 0) end
    conn.rest = bytes .. more
  end
end

local function client(self)
  if self.conn and not self.conn.closed then return self.conn end
  self.conn = assert(stream.dial(self.socket, M.limit_ms))
  if self.password then self:cmd("AUTH", self.password) end
  return self.conn
end

--- One command: r:cmd("GET", key). Errors come back as { err = "…" }, nil as nil (false within arrays).
function Redis:cmd(...)
  return self:pipeline({ { ... } })[1]
end

--- Commands in one write: r:pipeline{ { "SET", "a", 1 }, { "GET", "a" } }; the list of replies (nil leaves a hole).
function Redis:pipeline(commands)
  local conn = client(self)
  local bytes, replies = {}, {}
  for i, command in ipairs(commands) do bytes[i] = resp.command(unpack(command)) end
  -- One caller at a time: replies are read in the order of the writes.
  while conn.busy do loop.sleep(1) end
  conn.busy = true
  assert(conn:send(table.concat(bytes)))
  for i = 1, #commands do replies[i] = read_reply(conn) end
  conn.busy = false
  return replies
end

--- Raises on an error reply.
function Redis:must(...)
  local reply = self:cmd(...)
  if type(reply) == "table" and reply.err then error("redis: " .. reply.err, 2) end
  return reply
end

local readers = {
  string = function(key) return { "GET", key } end,
  hash = function(key) return { "HGETALL", key } end,
  set = function(key) return { "SMEMBERS", key } end,
  list = function(key) return { "LRANGE", key, 0, -1 } end,
  zset = function(key) return { "ZRANGE", key, 0, -1, "WITHSCORES" } end,
}

local shapes = {
  hash = function(flat)
    local map = {}
    for i = 1, #flat, 2 do map[flat[i]] = flat[i + 1] end
    return map
  end,
  set = function(members)
    table.sort(members)
    return members
  end,
}

local function entry(self, key)
  local kind = self:cmd("TYPE", key)
  local read = readers[kind]
  if not read then return nil end
  local replies = self:pipeline { read(key), { "PEXPIRETIME", key }, { "PTTL", key }, { "DUMP", key } }
  local shape = shapes[kind]
  return { type = kind, value = shape and shape(replies[1]) or replies[1], expires_at = replies[2], bytes = replies[4] },
    replies[3]
end

--- Every key → { type, value, expires_at (ms since the epoch, -1 for never), bytes (as DUMP has them) }; two
-- dumps are equal (assert.same) only when nothing was written in between.
-- @param options pattern (default "*"); pttl = true adds the time left in ms, which changes by itself
function Redis:dump(options)
  options = options or {}
  local all = {}
  for _, key in ipairs(self:must("KEYS", options.pattern or "*")) do
    local found, pttl = entry(self, key)
    if found and options.pttl then found.pttl = pttl end
    all[key] = found
  end
  return all
end

--- Subscribes a connection of its own to a channel; returns a function that waits for the next message's text.
function Redis:listen(channel)
  local conn = assert(stream.dial(self.socket, M.limit_ms))
  assert(conn:send(resp.command("SUBSCRIBE", channel)))
  read_reply(conn)
  return function() return read_reply(conn)[3] end
end

--- Stops the server's process (it keeps its connections and answers nothing) until resume().
function Redis:pause()
  uv.kill(self.pid, "sigstop")
end

function Redis:resume()
  uv.kill(self.pid, "sigcont")
end

local function answers(self)
  if self.process.exited then return true end
  for _, to in ipairs { self.port, self.socket } do
    local conn = stream.dial(to, 1000)
    if not conn then return false end
    conn:send(resp.command("PING"))
    local reply = conn:read_some(1000)
    conn:close()
    if not reply or reply:match("^%-LOADING") then return false end
  end
  return true
end

local function launch(self)
  local args = { "--port", self.port, "--bind", "127.0.0.1", "--unixsocket", self.socket, "--dir", self.dir, "--save", "",
    "--appendonly", self.persist and "yes" or "no", "--loglevel", "warning" }
  if self.password then args[#args + 1], args[#args + 2] = "--requirepass", self.password end
  for _, arg in ipairs(self.args) do args[#args + 1] = arg end
  self.process = process.start { cmd = "redis-server", args = args, cwd = self.dir, scope = self.scope, env = self.env }
  self.pid = self.process.pid
  self.conn = nil
  loop.wait_for(function() return answers(self) end, "redis-server")
  return not self.process.exited
end

--- Ends the server at once; what it held is gone, unless it was started with persist = true.
function Redis:stop()
  if self.conn then self.conn:close() end
  if self.process.exited then return end
  self.process:kill("sigkill")
  self.process:wait(5000)
end

--- Stops and starts it again on the same port and socket.
function Redis:restart()
  self:stop()
  -- A connection of somebody, even one that was meant for this server, may have the port meanwhile as its own.
  for attempt = 1, 20 do
    if launch(self) then return end
    if attempt == 20 then error("redis-server ended: " .. self.process:out() .. self.process:err(), 2) end
    loop.sleep(100)
  end
end

--- Starts a server.
-- @param options password, persist, args (further arguments of redis-server, e.g. { "--maxmemory", "2mb" }), env
-- @return r: .port, .socket, .url, .unix_url, .pid, .dir and the methods above
function M.start(options)
  options = options or {}
  local dir = files.tmpdir()
  local self = setmetatable({ dir = dir, socket = dir .. "/redis.sock", args = options.args or {},
    scope = loop.scope(), password = options.password, persist = options.persist, env = options.env }, Redis)
  -- Another process may take the port that was free.
  for attempt = 1, 3 do
    self.port = files.free_port()
    if launch(self) then break end
    if attempt == 3 then error("redis-server ended: " .. self.process:out() .. self.process:err(), 2) end
  end
  local auth = self.password and (":" .. self.password .. "@") or ""
  self.url = ("redis://%s127.0.0.1:%d/0"):format(auth, self.port)
  self.unix_url = "unix://" .. auth .. self.socket
  loop.on_end(function() self:stop() end)
  return self
end

return M
