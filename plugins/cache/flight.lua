-- Single flight: of requests that miss the same key at once one leads, the others follow and take what it brings.
--
-- Who leads is said by an entry in the dictionary that the workers share, with the leader's name and a lease, so that one
-- worker's death frees it. Followers in the leader's worker are told; those in other workers look at the entry, one of
-- them for all. A leader ends in one of three ways:
--
--   value   the followers take it
--   pass    there is an answer that cannot be shared: all followers go on by themselves, and so do later ones for a second
--   again   there is none: the followers look again, and one of them leads next
--
-- A follower is never failed by its leader. `shared`, `condition` and `now` are the host's, or a spec's.

local M = {}

local POLL = 0.02     -- seconds between two looks at the entry of another worker's leader
local BACKSTOP = 0.5  -- seconds after which a follower looks by itself, whatever it was told
local PASS = 1        -- seconds that "pass" is remembered

local Flights = {}
Flights.__index = Flights

--- The flights of a worker.
-- @tparam table host shared, condition, now
-- @tparam string prefix of the entries
-- @tparam number lease seconds
-- @treturn table
function M.new(host, prefix, lease)
  return setmetatable({ shared = host.shared, condition = host.condition, now = host.now, prefix = prefix, lease = lease,
    by_key = {} }, Flights)
end

local function settle(self, flight, outcome, value)
  flight.outcome, flight.value = outcome, value
  flight.condition:notify()
end

local function forget(self, flight)
  if self.by_key[flight.key] == flight then self.by_key[flight.key] = nil end
end

local function open(self, key, leader)
  local flight = { key = key, leader = leader, condition = self.condition(), asked = -math.huge }
  self.by_key[key] = flight
  return flight
end

--- Leads or follows.
-- @tparam string key
-- @tparam string who a name that no other request has
-- @treturn string "lead", "follow", or "pass" (go on without a flight)
-- @treturn table|nil flight; who leads must end it with `finish`
function Flights:join(key, who)
  local flight = self.by_key[key]
  if flight and flight.leader then return "follow", flight end
  local entry = self.prefix .. key
  local added, err = self.shared.add(entry, who, self.lease)
  if added or err ~= "exists" then
    if flight then settle(self, flight, "again") end
    flight = open(self, key, who)
    flight.entry = added and entry or nil -- without one, only this worker's requests follow
    return "lead", flight
  end
  if self.shared.get(entry) == "pass" then return "pass" end
  return "follow", flight or open(self, key)
end

-- One look at the entry of a leader elsewhere.
local function look(self, flight)
  flight.asked = self.now()
  local value, err = self.shared.get(self.prefix .. flight.key)
  if value ~= nil and value ~= "pass" or err then return end
  forget(self, flight)
  settle(self, flight, value == "pass" and "pass" or "again")
end

--- Says that the leader's answer has begun, for those who read along.
-- @tparam table flight
-- @tparam string form of the answer
function Flights:begin(flight, form)
  flight.begun = form
  flight.condition:notify()
end

--- Waits for what the leader brings.
-- @tparam table flight
-- @tparam number seconds at most
-- @tparam string|nil form in which the follower would read along
-- @treturn string "value", "pass", "again", "timeout", or "begun": there is an answer of that form to read along with
-- @return the value
function Flights:wait(flight, seconds, form)
  local until_, me = self.now() + seconds, {}
  while not flight.outcome do
    if form and flight.begun == form then return "begun" end
    local now, limit = self.now(), BACKSTOP
    if now >= until_ then return "timeout" end
    if not flight.leader and (flight.looker == me or now - flight.asked > 4 * POLL) then
      flight.looker, limit = me, POLL
      look(self, flight)
    end
    if not flight.outcome then flight.condition:wait(math.min(limit, until_ - now)) end
  end
  return flight.outcome, flight.value
end

--- Tells followers of this worker the value, ahead of `finish`: until then later ones follow too.
-- @tparam table flight
-- @param value
function Flights:tell(flight, value)
  settle(self, flight, "value", value)
end

--- Ends a flight. Once more does nothing.
-- @tparam table flight
-- @tparam string outcome "value", "pass" or "again"
-- @param value
function Flights:finish(flight, outcome, value)
  if flight.finished then return end
  flight.finished = true
  forget(self, flight)
  if not flight.outcome then settle(self, flight, outcome, value) end
  if not flight.entry or self.shared.get(flight.entry) ~= flight.leader then return end
  if outcome == "pass" then self.shared.set(flight.entry, "pass", PASS)
  else self.shared.delete(flight.entry) end
end

--- Renews the leases of all that this worker leads. One that has lapsed is another's: its flight goes on here alone.
-- Flights of other workers that nobody has looked at for long are looked at, so that none is kept for ever.
function Flights:renew()
  for _, flight in pairs(self.by_key) do
    if not flight.leader then
      if self.now() - flight.asked > BACKSTOP then look(self, flight) end
    elseif flight.entry then
      if self.shared.get(flight.entry) == flight.leader then self.shared.expire(flight.entry, self.lease)
      else flight.entry = nil end
    end
  end
end

return M
