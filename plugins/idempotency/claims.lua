-- The claims that a worker holds, and when their leases are renewed: one timer for all of them, and batches of scripts. Time is
-- counted in ticks of that timer, which no change of the clock can hold up. Without I/O of its own.
--
-- A claim is { key, owner, lease_ms, keep_ms (0: none), lost }. Six ticks or more make a lease; it is renewed from the second
-- on, so that three further tries fit in where Redis does not answer.

local M = {}
local Claims = {}
Claims.__index = Claims

local TICKS = 6

--- @tparam function run (keys, args) → list of "ok" and "lost", or nil, err; may wait
-- @tparam number batch claims in a call; 1 where each key may be in another place
function M.new(run, batch)
  return setmetatable({ run = run, batch = batch, list = {}, n = 0 }, Claims)
end

--- Seconds between ticks that a lease needs.
-- @tparam number lease in seconds
function M.interval(lease) return lease / TICKS end

function Claims:add(claim)
  claim.ticks, claim.at = 0, self.n + 1
  self.n = self.n + 1
  self.list[self.n] = claim
end

--- Nothing where it is not held.
function Claims:remove(claim)
  local at, last = claim.at, self.list[self.n]
  if not at then return end
  self.list[at], last.at = last, at
  self.list[self.n] = nil
  self.n, claim.at = self.n - 1, nil
end

-- Those that are due, as a list of batches.
local function due(self, tick_ms)
  local batches, batch = {}, nil
  for i = 1, self.n do
    local claim = self.list[i]
    claim.ticks = claim.ticks + 1
    if claim.ticks * tick_ms * 3 >= claim.lease_ms then
      if not batch or #batch == self.batch then
        batch = {}
        batches[#batches + 1] = batch
      end
      batch[#batch + 1] = claim
    end
  end
  return batches
end

local function renew(self, batch)
  local keys, args = {}, {}
  for i, claim in ipairs(batch) do
    keys[i] = claim.key
    args[4 * i - 3], args[4 * i - 2], args[4 * i - 1], args[4 * i] = claim.owner, "renew", claim.lease_ms, claim.keep_ms
  end
  local answers, err = self.run(keys, args)
  if not answers then return err end
  for i, claim in ipairs(batch) do
    if answers[i] == "ok" then
      claim.ticks = 0
    elseif claim.at then -- not one that has ended meanwhile
      claim.lost = true
      self:remove(claim)
    end
  end
end

--- A tick: renews what is due. May wait. What fails, and what would have come behind it, is due again with the next tick.
-- @tparam number tick_ms since the tick before
-- @treturn string|nil an error
function Claims:tick(tick_ms)
  for _, batch in ipairs(due(self, tick_ms)) do
    local err = renew(self, batch)
    if err then return err end
  end
end

return M
