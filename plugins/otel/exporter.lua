-- A bounded queue of what is to be exported, and its way out in batches: one at a time and in order, tried again with growing
-- pauses. What finds the queue full is dropped; so is a batch that a collector refuses, or does not take for too long. A
-- collector that asks to be left alone is: the next batch waits as well. All I/O is handed in, so that it runs against a fake
-- clock.

local M = {}

local FIRST, LARGEST = 1, 30 -- seconds between two tries

local Exporter = {}
Exporter.__index = Exporter

--- A new one.
-- @tparam table options batch (items of one request), queue (items that wait), retry (seconds that a batch is tried)
-- @tparam table io send(items) → as answer.judge, an error that it raises is "failed"; now() and sleep(seconds); random() from
--   0 to 1; count(outcome, n) with "exported", "rejected", "failed", "dropped"; tell(message or nil) of a failure, or that
--   there is none any more
function M.new(options, io)
  -- Items stand at first to last, those up to due have waited long enough; until rest the collector is left alone.
  return setmetatable({ options = options, io = io, first = 1, last = 0, due = 0, rest = -math.huge, busy = false }, Exporter)
end

--- How many items wait.
function Exporter:waiting() return self.last - self.first + 1 end

--- Whether a batch is full.
function Exporter:full() return self:waiting() >= self.options.batch end

--- Takes an item, or drops it.
-- @treturn boolean whether it was taken
function Exporter:add(item)
  if self:waiting() >= self.options.queue then
    self.io.count("dropped", 1)
    return false
  end
  self.last = self.last + 1
  self[self.last] = item
  return true
end

local function batch_of(self)
  local items = {}
  for i = 1, math.min(self:waiting(), self.options.batch) do
    items[i] = self[self.first]
    self[self.first] = nil
    self.first = self.first + 1
  end
  return items
end

local function try(self, items)
  local fine, verdict, n, message = pcall(self.io.send, items)
  if not fine then return "failed", nil, tostring(verdict) end
  if verdict == "again" and n then self.rest = self.io.now() + n end
  return verdict, n, message
end

-- Waits before a batch for as long as the collector has asked for; behind a stop, only where that leaves time to try.
local function leave_alone(self)
  local now = self.io.now()
  if self.rest > now and self.rest <= (self.limit or math.huge) then self.io.sleep(self.rest - now) end
end

-- Tries a batch until it is over with.
local function deliver(self, items)
  local io, pause, begun = self.io, FIRST, self.io.now()
  while true do
    local verdict, n, message = try(self, items)
    if verdict == "ok" then
      io.tell(n > 0 and (message or "the collector rejected some items") or nil)
      io.count("rejected", math.min(n, #items))
      return io.count("exported", #items - math.min(n, #items))
    end
    io.tell(message)
    -- Half of a pause is random, so that workers and replicas do not come together. A pause that the collector asks for
    -- does not use a batch's time up: there is a try behind it.
    local now, wait = io.now(), math.max(n or 0, pause * (0.5 + io.random() / 2))
    local over = now + (n and 0 or wait) > begun + self.options.retry
    if verdict == "failed" or over or now + wait > (self.limit or math.huge) then return io.count("failed", #items) end
    io.sleep(wait)
    pause = math.min(pause * 2, LARGEST)
  end
end

--- Has `run`, under way or to come, send all that waits by now, though it makes no full batch.
function Exporter:flush() self.due = self.last end

--- Sends full batches, and what is flushed. Does nothing where it runs already. Waits.
function Exporter:run()
  if self.busy then return end
  self.busy = true
  while self:full() or self.first <= self.due do
    leave_alone(self)
    deliver(self, batch_of(self))
  end
  self.busy = false
end

--- Sets a time behind which nothing is tried again; nil takes it back.
-- @tparam number|nil limit as of io.now
function Exporter:until_time(limit) self.limit = limit end

return M
