-- A bounded queue of what is to be exported, and its way out in batches: one at a time and in order, tried again with growing
-- pauses. What finds the queue full is dropped; so is a batch that a collector refuses, or does not take for too long. All
-- I/O is handed in, so that it runs against a fake clock.

local M = {}

local FIRST, LARGEST = 1, 30 -- seconds between two tries

local Exporter = {}
Exporter.__index = Exporter

--- A new one.
-- @tparam table options batch (items of one request), queue (items that wait), retry (seconds that a batch is tried)
-- @tparam table io send(items) → as answer.judge; now() and sleep(seconds); random() from 0 to 1; count(outcome, n) with
--   "exported", "rejected", "failed", "dropped"; tell(message or nil) of a failure, or that there is none any more
function M.new(options, io)
  return setmetatable({ options = options, io = io, first = 1, last = 0, busy = false }, Exporter)
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

-- Tries until a time.
local function deliver(self, items, limit)
  local io, pause = self.io, FIRST
  while true do
    local verdict, n, message = io.send(items)
    if verdict == "ok" then
      io.tell(n > 0 and (message or "the collector rejected some items") or nil)
      io.count("rejected", math.min(n, #items))
      return io.count("exported", #items - math.min(n, #items))
    end
    io.tell(message)
    -- Half of a pause is random, so that workers and replicas do not come together.
    local wait = math.max(n or 0, pause * (0.5 + io.random() / 2))
    if verdict == "failed" or io.now() + wait > math.min(limit(), self.limit or math.huge) then
      return io.count("failed", #items)
    end
    io.sleep(wait)
    pause = math.min(pause * 2, LARGEST)
  end
end

--- Sends what waits, until nothing does. Does nothing where it runs already. Waits.
function Exporter:run()
  if self.busy then return end
  self.busy = true
  while self:waiting() > 0 do
    local begun = self.io.now()
    deliver(self, batch_of(self), function() return begun + self.options.retry end)
  end
  self.busy = false
end

--- Sets a time behind which nothing is tried again; nil takes it back.
-- @tparam number|nil limit as of io.now
function Exporter:until_time(limit) self.limit = limit end

return M
