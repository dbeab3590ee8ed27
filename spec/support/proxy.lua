-- A TCP proxy that misbehaves on request: it holds bytes back, delays them, or cuts a connection at an
-- exact byte or at an exact Redis command or reply. It is how specs lose a reply that was already on its
-- way, which is what an admission of unknown outcome is.
--
-- Directions are "up" (client to server) and "down". A side that was cut stays cut; held bytes of a
-- connection whose client is gone still reach the server on release("up"): a command that arrives late.
local loop = require "spec.support.loop"
local resp = require "spec.support.resp"
local stream = require "spec.support.stream"

local M = {}

local Proxy = {}
Proxy.__index = Proxy

local Link = {}
Link.__index = Link

local other = { up = "down", down = "up" }

function Link:cut(side)
  if side ~= "server" then self.client:close() end
  if side ~= "client" and self.server then self.server:close() end
end

function Link:forward(way, bytes)
  local target = way == "up" and self.server or self.client
  if not target.closed then target:send(bytes) end
end

-- Bytes in excess of a byte limit are dropped with the connection.
local function within_limit(self, way, bytes)
  local limit = self.proxy.limits[way]
  if not limit then return bytes, false end
  self.proxy.limits[way] = limit - #bytes
  return bytes:sub(1, limit), #bytes >= limit
end

local function deliver(self, way, bytes)
  local allowed, last = within_limit(self, way, bytes)
  if allowed ~= "" then self:forward(way, allowed) end
  if not last then return end
  self.proxy.limits[way] = nil
  self:cut()
end

-- What a hook may answer for one frame; `self` is the link.
local actions = {
  pass = deliver,
  drop = function() end,
  hold = function(self, way, bytes)
    self.held[way] = {}
    table.insert(self.held[way], bytes)
  end,
  cut = function(self) self:cut() end,
  pass_cut = function(self, way, bytes)
    deliver(self, way, bytes)
    self:cut()
  end,
  -- Only for commands: it runs, and its reply is swallowed with the connection.
  lose_reply = function(self, way, bytes)
    self.lose[self.count.up] = true
    deliver(self, way, bytes)
  end,
  -- Only for commands: the client is cut now, the command stays held for release("up").
  hold_cut = function(self, way, bytes)
    self.held[way] = { bytes }
    self:cut("client")
  end,
}

local function on_frame(self, way, frame, value)
  self.count[way] = self.count[way] + 1
  self.proxy.frames[way] = self.proxy.frames[way] + 1
  if self.held[way] then return table.insert(self.held[way], frame) end
  if way == "down" and self.lose[self.count.down] then return self:cut() end
  local hook = self.proxy.hooks[way]
  local action = hook and hook(value, self) or "pass"
  local act = actions[action] or error("proxy: no action " .. tostring(action))
  act(self, way, frame)
end

local function by_frames(self, way, bytes)
  self.partial[way] = self.partial[way] .. bytes
  while true do
    local value, after = resp.decode(self.partial[way])
    if not after then return end
    local frame = self.partial[way]:sub(1, after - 1)
    self.partial[way] = self.partial[way]:sub(after)
    on_frame(self, way, frame, value)
  end
end

local function pump(self, way)
  local source = way == "up" and self.client or self.server
  while true do
    local bytes = source:read_some()
    if not bytes then break end
    if self.proxy.delays[way] then loop.sleep(self.proxy.delays[way]) end
    if self.proxy.resp then
      by_frames(self, way, bytes)
    elseif self.held[way] then
      table.insert(self.held[way], bytes)
    else
      deliver(self, way, bytes)
    end
  end
  -- A FIN is passed on, unless bytes are still held for that side.
  local target = way == "up" and self.server or self.client
  if source.err == "reset" and not self.held[way] then return target:reset() end
  if source.eof and not self.held[way] then target:shutdown() end
  if self.client.eof and self.server.eof then self:cut() end
end

local function serve(self, client)
  self.connections = self.connections + 1
  if self.refusing then return client:reset() end
  local link = setmetatable({ proxy = self, client = client, held = {}, lose = {}, count = { up = 0, down = 0 },
    partial = { up = "", down = "" } }, Link)
  for way in pairs(self.holding) do link.held[way] = {} end
  local server, err = stream.dial(self.to)
  if not server then
    client:close()
    return nil, err
  end
  link.server = server
  self.links[#self.links + 1] = link
  loop.spawn(pump, link, "up")
  loop.spawn(pump, link, "down")
end

--- Starts a proxy.
-- @param options to: a port or a Unix socket's path; resp = true where Redis is spoken (needed for hooks and
--   for counting commands); port, host: where it listens (default: a free port of 127.0.0.1)
-- @return p: .port, .connections (so far), .frames.up / .frames.down (commands and replies seen), and methods
function M.start(options)
  local self = setmetatable({ to = options.to, resp = options.resp, connections = 0, links = {}, hooks = {}, limits = {},
    delays = {}, holding = {}, frames = { up = 0, down = 0 } }, Proxy)
  self.listener = stream.listen(function(client) serve(self, client) end, options.port, options.host)
  self.port = self.listener.port
  loop.on_end(function() self:close() end)
  return self
end

--- Connections that are open at the client's side.
function Proxy:open()
  local n = 0
  for _, link in ipairs(self.links) do
    if not link.client.closed then n = n + 1 end
  end
  return n
end

--- Holds a direction ("up", "down"; nil: both) of all connections, also of later ones, until release.
function Proxy:hold(way)
  for _, each in ipairs(way and { way } or { "up", "down" }) do
    self.holding[each] = true
    for _, link in ipairs(self.links) do link.held[each] = link.held[each] or {} end
  end
end

--- Lets go what is held, in order.
function Proxy:release(way)
  for _, each in ipairs(way and { way } or { "up", "down" }) do
    self.holding[each] = nil
    for _, link in ipairs(self.links) do
      local held = link.held[each]
      link.held[each] = nil
      for _, bytes in ipairs(held or {}) do deliver(link, each, bytes) end
    end
  end
end

--- Delays every read of a direction by so many ms; nil ends it.
function Proxy:delay(way, ms)
  self.delays[way] = ms
end

--- Cuts all connections now. side: "client" or "server" for one side only.
function Proxy:cut(side)
  for _, link in ipairs(self.links) do link:cut(side) end
end

--- Answers every new connection with a reset (true), or serves again (false).
function Proxy:refuse(refusing)
  self.refusing = refusing
end

--- Calls fn(args, link) for each Redis command; it returns nil or "pass", "drop", "hold" (with all that
-- follows on that connection), "cut", "pass_cut", "lose_reply" (it runs, its reply is lost), "hold_cut" (the client is
-- cut, the command runs on release("up")).
function Proxy:on_command(fn)
  assert(self.resp, "support.proxy{ resp = true }")
  self.hooks.up = fn
end

--- Calls fn(value, link) for each Redis reply; it returns nil or "pass", "drop", "hold", "cut", "pass_cut".
function Proxy:on_reply(fn)
  assert(self.resp, "support.proxy{ resp = true }")
  self.hooks.down = fn
end

local function count_down(n, action)
  return function()
    n = n - 1
    if n == 0 then return action end
  end
end

--- Once, from now: up = n or down = n cuts after exactly n bytes of that direction; commands = n lets the
-- n-th command run and loses its reply; replies = n cuts after the n-th reply was passed on.
function Proxy:cut_after(options)
  for way in pairs(other) do
    if options[way] then self.limits[way] = options[way] end
  end
  if options.commands then self:on_command(count_down(options.commands, "lose_reply")) end
  if options.replies then self:on_reply(count_down(options.replies, "pass_cut")) end
end

--- Stops listening and cuts everything.
function Proxy:close()
  self.listener.close()
  self:cut()
end

return M
