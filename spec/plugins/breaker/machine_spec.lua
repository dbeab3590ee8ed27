-- One breaker, one step after another, by a clock of the spec's own.
local lua = require "spec.plugins.breaker.lua"
local machine, state = lua.machine, lua.state

local GOOD, BAD, NONE = machine.GOOD, machine.BAD, machine.NONE

local Breaker = {}
Breaker.__index = Breaker

-- A breaker with a clock.
local function breaker(more)
  return setmetatable({ s = state.decode(state.new(), nil), now = 100000, rules = lua.rules(more) }, Breaker)
end

function Breaker:admit() return select(2, machine.admit(self.s, self.rules, self.now)) end

function Breaker:pass()
  local verdict, token = self:admit()
  assert.equal(machine.PASS, verdict)
  return token
end

function Breaker:try()
  local verdict, token, how = self:admit()
  assert.equal(machine.TRY, verdict)
  return token, how
end

-- The ms until it makes sense to ask again.
function Breaker:refused()
  local verdict, ms = self:admit()
  assert.equal(machine.REFUSE, verdict)
  return ms
end

function Breaker:done(token, kind, dice)
  return (select(2, machine.record(self.s, self.rules, token, kind, self.now, dice or 0)))
end

-- n requests that end alike, one after another; what the last one did.
function Breaker:run(kind, n)
  local what
  for _ = 1, n or 1 do what = self:done(self:pass(), kind) end
  return what
end

-- A hint written at `ms` by a clock that is `ahead` of ours.
function Breaker:hint(ms, ahead)
  return (select(2, machine.hint(self.s, self.rules, "other", ms, ahead or 0, self.now, 0)))
end

function Breaker:open()
  assert.equal(machine.OPENED, self:run(BAD, self.rules.consecutive))
  return self
end

-- Closed, by nobody's probe.
function Breaker:reset()
  machine.force(self.s, state.FORCED_CLOSED, self.now)
  machine.force(self.s, state.AUTO, self.now)
end

describe("a breaker that is closed", function()
  it("opens by failures in a row, which one good answer ends", function()
    local b = breaker()
    for _ = 1, 3 do
      assert.is_nil(b:run(BAD, 4))
      assert.is_nil(b:run(GOOD, 20))
    end
    assert.equal(machine.OPENED, b:run(BAD, 5))
    assert.same({ state.OPEN, state.CONSECUTIVE, 1000 }, { b.s.state, b.s.reason, b:refused() })
  end)

  it("opens by ratio, from a number of requests on", function()
    local b = breaker { consecutive = false }
    assert.is_nil(b:run(BAD, 9))
    assert.equal(machine.OPENED, b:run(BAD))
    assert.same({ state.RATIO, 10, 10 }, { b.s.reason, b.s.requests, b.s.failures })
    b = breaker { consecutive = false }
    b:run(GOOD, 11)
    assert.is_nil(b:run(BAD, 10))
    assert.equal(machine.OPENED, b:run(BAD))
    assert.same({ 22, 11 }, { b.s.requests, b.s.failures })
  end)

  it("forgets what is older than its window", function()
    local b = breaker { consecutive = false }
    b:run(BAD, 9)
    b.now = b.now + 9999
    assert.same({ 9, 9 }, { machine.counts(b.s, b.rules, b.now) })
    b.now = b.now + 1
    assert.is_nil(b:run(BAD, 9))
    assert.same({ 9, 9 }, { machine.counts(b.s, b.rules, b.now) })
    for _ = 1, 100 do
      b.now = b.now + 1000
      assert.is_nil(b:run(GOOD))
    end
    assert.same({ 10, 0 }, { machine.counts(b.s, b.rules, b.now) })
    b.now = b.now + 1e9
    assert.same({ 0, 0 }, { machine.counts(b.s, b.rules, b.now) })
  end)

  it("counts anew where the window has another length", function()
    local b = breaker()
    b:run(BAD, 4)
    b.rules.bucket_ms = 500
    assert.is_nil(b:run(BAD, 4))
    assert.equal(machine.OPENED, b:run(BAD))
  end)

  it("takes no notice of what says nothing", function()
    local b = breaker()
    b:run(BAD, 4)
    b:run(NONE, 100)
    assert.equal(machine.OPENED, b:run(BAD))
  end)
end)

describe("a breaker that is open", function()
  it("lets one probe through once the cooldown is over, and closes when that succeeds", function()
    local b = breaker():open()
    b.now = b.now + 999
    assert.equal(1, b:refused())
    b.now = b.now + 1
    local probe, how = b:try()
    assert.equal(machine.HALF_OPENED, how)
    for _ = 1, 100 do assert.equal(1000, b:refused()) end
    b.now = b.now + 2500
    assert.equal(500, b:refused())
    assert.equal(machine.CLOSED_AGAIN, b:done(probe, GOOD))
    assert.same({ 0, 0 }, { machine.counts(b.s, b.rules, b.now) })
    b:pass()
  end)

  it("opens for longer each time that a probe fails, up to a limit, and from the start once it was closed", function()
    local b, seen = breaker():open(), {}
    for i = 1, 5 do
      b.now = b.now + b:refused()
      assert.equal(machine.OPENED, b:done(b:try(), BAD))
      seen[i] = b:refused()
      assert.equal(state.PROBE, b.s.reason)
    end
    assert.same({ 2000, 4000, 8000, 8000, 8000 }, seen)
    b.now = b.now + 8000
    b:done(b:try(), GOOD)
    b:open()
    assert.equal(1000, b:refused())
  end)

  it("waits longer by jitter, never shorter", function()
    for dice, ms in pairs { [0] = 1000, [0.5] = 1250, [1] = 1500 } do
      local b = breaker { jitter = 0.5 }
      for _ = 1, 5 do b:done(b:pass(), BAD, dice) end
      assert.equal(ms, b:refused())
    end
  end)

  it("has the next request probe where a probe said nothing, or its lease has ended", function()
    local b = breaker():open()
    b.now = b.now + 1000
    assert.equal(machine.GIVEN_BACK, b:done(b:try(), NONE))
    local first, how = b:try()
    assert.is_nil(how)
    b.now = b.now + 3000
    local second
    second, how = b:try()
    assert.equal(machine.OVERDUE, how)
    assert.is_nil(b:done(first, GOOD)) -- it is nobody's probe any more
    assert.is_nil(b:done(first, BAD))
    assert.equal(machine.OPENED, b:done(second, BAD))
    assert.is_nil(b:done(second, GOOD))
    assert.equal(state.OPEN, b.s.state)
  end)

  it("takes a late probe's word where no other one has begun", function()
    local b = breaker():open()
    b.now = b.now + 1000
    local probe = b:try()
    b.now = b.now + 100000
    assert.equal(machine.CLOSED_AGAIN, b:done(probe, GOOD))
  end)

  it("counts nothing of what began before", function()
    local b = breaker()
    local before = b:pass()
    b:open()
    for _ = 1, 50 do assert.is_nil(b:done(before, GOOD)) end
    b.now = b.now + 1000
    local probe = b:try()
    for _ = 1, 50 do assert.is_nil(b:done(before, GOOD)) end
    assert.equal(state.HALF_OPEN, b.s.state)
    b:done(probe, GOOD)
    for _ = 1, 50 do assert.is_nil(b:done(before, BAD)) end
    assert.same({ 0, 0 }, { machine.counts(b.s, b.rules, b.now) })
  end)
end)

describe("a hint", function()
  it("opens, once, and what it opened has nothing to tell others", function()
    local b = breaker()
    assert.equal(machine.OPENED, b:hint(5000))
    assert.same({ state.OPEN, state.HINT, "other", 1000 }, { b.s.state, b.s.reason, state.by(b.s), b:refused() })
    assert.is_false((machine.claim(b.s, b.now)))
    b.now = b.now + 1000
    b:reset()
    assert.is_nil(b:hint(5000))
    assert.is_nil(b:hint(4999))
    assert.equal(state.CLOSED, b.s.state)
    assert.equal(machine.OPENED, b:hint(5001))
  end)

  it("that was written before the last successful probe does nothing", function()
    local b = breaker():open()
    b.now = 200000
    b:done(b:try(), GOOD)
    local ahead = 7e9
    assert.is_nil(b:hint(200000 + ahead, ahead))
    assert.is_nil(b:hint(199000 + ahead, ahead))
    assert.equal(machine.OPENED, b:hint(200001 + ahead, ahead))
  end)

  it("does nothing to one that is open or half-open, then or later", function()
    local b = breaker():open()
    assert.is_nil(b:hint(5000))
    assert.equal(state.CONSECUTIVE, b.s.reason)
    b.now = b.now + 1000
    local probe = b:try()
    assert.is_nil(b:hint(6000))
    assert.equal(state.HALF_OPEN, b.s.state)
    b:done(probe, NONE)
    b:reset()
    assert.is_nil(b:hint(6000))
  end)

  it("counts again where Redis's clock was set back", function()
    local b = breaker()
    b:hint(9e9, 9e9)
    b:reset()
    assert.equal(machine.OPENED, b:hint(5000, 0))
  end)

  it("has a probe that fails tell others, for it is own evidence", function()
    local b = breaker()
    b:hint(5000)
    b.now = b.now + 1000
    b:done(b:try(), BAD)
    assert.same({ true, b.now }, { machine.claim(b.s, b.now) })
    assert.is_false((machine.claim(b.s, b.now)))
    assert.equal(2000, b:refused())
  end)

  it("lowers the thresholds to a half where so configured, for as long as hints live", function()
    local b = breaker { hint = "lower_threshold" }
    assert.equal(machine.LOWERED, b:hint(5000))
    assert.is_nil(b:run(BAD, 2))
    assert.equal(machine.OPENED, b:run(BAD))
    assert.same({ state.HINT, "other" }, { b.s.reason, state.by(b.s) })
    assert.is_false((machine.claim(b.s, b.now)))
    b = breaker { hint = "lower_threshold" }
    b:run(BAD, 3)
    assert.equal(machine.OPENED, b:hint(5000)) -- what it has seen already is enough
    b = breaker { hint = "lower_threshold", consecutive = false }
    b:hint(5000)
    b:run(GOOD, 3)
    assert.is_nil(b:run(BAD))
    assert.equal(machine.OPENED, b:run(BAD))
    b = breaker { hint = "lower_threshold" }
    b:hint(5000)
    b.now = b.now + 30000
    assert.is_nil(b:run(BAD, 4))
    assert.equal(machine.OPENED, b:run(BAD))
    assert.equal(state.CONSECUTIVE, b.s.reason)
  end)

  it("is told of an opening by own evidence, once, and not when that is old", function()
    local b = breaker():open()
    local at = b.now
    b.now = at + 2000
    assert.same({ true, at }, { machine.claim(b.s, b.now) })
    assert.same({ false }, { machine.claim(b.s, b.now) })
    b = breaker():open()
    b.now = b.now + 2001
    assert.same({ true }, { machine.claim(b.s, b.now) })
    b = breaker():open()
    b.now = b.now + 1000
    b:done(b:try(), GOOD)
    assert.is_false((machine.claim(b.s, b.now)))
  end)
end)

describe("an operator", function()
  it("keeps a breaker open; released it probes", function()
    local b = breaker()
    assert.is_true(machine.force(b.s, state.FORCED_OPEN, b.now))
    assert.is_false(machine.force(b.s, state.FORCED_OPEN, b.now))
    b.now = b.now + 1e9
    assert.equal(1000, b:refused())
    assert.equal(state.OPEN, machine.effective(b.s))
    assert.is_nil(b:hint(5000))
    machine.force(b.s, state.AUTO, b.now)
    local probe = b:try()
    b:refused()
    b:done(probe, GOOD)
    b:pass()
  end)

  it("keeps a breaker closed; released it has counted nothing", function()
    local b = breaker():open()
    b.now = b.now + 1000
    local probe = b:try()
    machine.force(b.s, state.FORCED_CLOSED, b.now)
    assert.equal(state.CLOSED, machine.effective(b.s))
    for _ = 1, 50 do assert.same({ machine.PASS }, { b:admit() }) end
    assert.is_nil(b:done(probe, BAD))
    assert.is_nil(b:hint(5000))
    machine.force(b.s, state.AUTO, b.now)
    assert.is_nil(b:done(probe, BAD))
    assert.equal(state.CLOSED, b.s.state)
    assert.is_nil(b:hint(5000)) -- it was seen
    b:run(BAD, 4)
    assert.equal(state.CLOSED, b.s.state)
  end)

  it("ends a probe that is under way", function()
    local b = breaker():open()
    b.now = b.now + 1000
    local probe = b:try()
    machine.force(b.s, state.FORCED_OPEN, b.now)
    machine.force(b.s, state.AUTO, b.now)
    assert.is_nil(b:done(probe, GOOD))
    assert.are_not.equal(probe, (b:try()))
  end)
end)

describe("the bytes of a state", function()
  it("are always as many, and read back as what they were", function()
    local b = breaker():open()
    state.set_by(b.s, ("r"):rep(200))
    local bytes = state.encode(b.s)
    assert.equal(state.SIZE, #bytes)
    local other = state.decode(state.new(), bytes)
    assert.same({ state.OPEN, 5, 100000, ("r"):rep(79) }, { other.state, other.failures, other.since, state.by(other) })
    state.set_by(other, "short")
    assert.equal("short", state.by(other))
    assert.truthy(state.SIZE < 400)
  end)

  it("of another layout, or none, are a closed breaker", function()
    local b = breaker():open()
    for _, bytes in ipairs { "", "x", ("\0"):rep(state.SIZE), ("\255"):rep(state.SIZE), state.encode(b.s) .. "x", 7 } do
      local s = state.decode(b.s, bytes)
      assert.same({ state.CLOSED, 0, 0 }, { s.state, s.epoch, s.until_ms })
    end
    assert.equal(state.CLOSED, state.decode(b.s, nil).state)
  end)
end)
