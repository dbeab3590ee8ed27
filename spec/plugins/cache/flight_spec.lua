-- Single flight, by itself: a clock, a dictionary and waiting that the spec drives. Two tables of flights over one
-- dictionary are two workers.
local flight = require "plugins.cache.flight"

local LEASE = 10

-- A world of coroutines: `spawn` starts one, `run` lets time pass until all have ended.
local function world()
  local self = { time = 0, entries = {}, waiting = {} }
  local shared = {}
  local function live(key)
    local entry = self.entries[key]
    if entry and entry.expires <= self.time then self.entries[key] = nil end
    return self.entries[key]
  end
  function shared.get(key) return live(key) and live(key).value end
  function shared.add(key, value, ttl)
    if self.busy then return nil, "busy" end
    if live(key) then return nil, "exists" end
    self.entries[key] = { value = value, expires = self.time + ttl }
    return true
  end
  function shared.set(key, value, ttl) self.entries[key] = { value = value, expires = self.time + ttl } end
  function shared.delete(key) self.entries[key] = nil end
  function shared.expire(key, ttl) if live(key) then live(key).expires = self.time + ttl end end
  local function wait(condition, seconds)
    table.insert(self.waiting, { co = coroutine.running(), at = self.time + seconds, condition = condition })
    return coroutine.yield()
  end
  local function notify(condition)
    for _, one in ipairs(self.waiting) do
      if one.condition == condition then one.at = self.time end
    end
  end
  self.host = { shared = shared, now = function() return self.time end,
    condition = function() return { wait = wait, notify = notify } end }
  function self.worker() return flight.new(self.host, "f:", LEASE) end
  function self.spawn(fn) assert(coroutine.resume(coroutine.create(fn))) end
  function self.sleep(seconds) wait({}, seconds) end
  function self.run()
    while #self.waiting > 0 do
      local first = 1
      for i, one in ipairs(self.waiting) do
        if one.at < self.waiting[first].at then first = i end
      end
      local one = table.remove(self.waiting, first)
      self.time = math.max(self.time, one.at)
      assert(coroutine.resume(one.co))
    end
  end
  function self.drop(co) -- as where a client leaves
    for i = #self.waiting, 1, -1 do
      if self.waiting[i].co == co then table.remove(self.waiting, i) end
    end
  end
  return self
end

describe("flights", function()
  it("have one leader, whose value all others get, in its worker and not before the end", function()
    local w = world()
    local flights, got = w.worker(), {}
    w.spawn(function()
      local role, mine = flights:join("k", "first")
      assert.equal("lead", role)
      w.sleep(3)
      flights:finish(mine, "value", "v")
    end)
    for i = 1, 100 do
      w.spawn(function()
        local role, theirs = flights:join("k", "follower " .. i)
        assert.equal("follow", role)
        local outcome, value = flights:wait(theirs, 60)
        got[i] = outcome .. value .. w.time
      end)
    end
    w.run()
    for i = 1, 100 do assert.equal("valuev3", got[i]) end
    assert.equal("lead", (flights:join("k", "later")))
  end)

  it("of different keys do not meet", function()
    local flights = world().worker()
    assert.equal("lead", (flights:join("a", "1")))
    assert.equal("lead", (flights:join("b", "2")))
    assert.equal("follow", (flights:join("a", "3")))
  end)

  it("let followers of another worker look again, soon after the end", function()
    local w = world()
    local one, two = w.worker(), w.worker()
    local got = {}
    w.spawn(function()
      local _, mine = one:join("k", "1")
      w.sleep(3)
      one:finish(mine, "value", "v")
    end)
    for i = 1, 50 do
      w.spawn(function()
        local role, theirs = two:join("k", "2." .. i)
        assert.equal("follow", role)
        got[i] = two:wait(theirs, 60)
        assert.is_true(w.time >= 3 and w.time < 3.1)
      end)
    end
    w.run()
    for i = 1, 50 do assert.equal("again", got[i]) end
  end)

  it("are looked at by another follower where the one that looked for all has left", function()
    local w = world()
    local one, two = w.worker(), w.worker()
    local _, mine = one:join("k", "1")
    local looker, got
    w.spawn(function()
      looker = coroutine.running()
      two:wait(select(2, two:join("k", "2")), 60)
      error "it was dropped"
    end)
    w.spawn(function() got = two:wait(select(2, two:join("k", "3")), 60) .. " " .. (w.time < 4 and "soon" or w.time) end)
    w.spawn(function()
      w.sleep(1)
      w.drop(looker)
      w.sleep(2)
      one:finish(mine, "value", "v")
    end)
    w.run()
    assert.equal("again soon", got)
  end)

  it("pass on to the next leader where the first brought nothing, one at a time", function()
    local w = world()
    local flights, asked, leading, most = w.worker(), 0, 0, 0
    for i = 1, 10 do
      w.spawn(function()
        while true do
          local role, mine = flights:join("k", "r" .. i)
          if role == "lead" then
            asked, leading = asked + 1, leading + 1
            most = math.max(most, leading)
            w.sleep(1)
            leading = leading - 1
            return flights:finish(mine, asked < 4 and "again" or "value", "v")
          end
          local outcome = flights:wait(mine, 60)
          if outcome == "value" then return end
        end
      end)
    end
    w.run()
    assert.equal(4, asked)
    assert.equal(1, most)
    assert.equal(4, w.time)
  end)

  it("let all pass, and for a second later ones too, where the answer cannot be shared", function()
    local w = world()
    local one, two = w.worker(), w.worker()
    local got = {}
    local _, mine = one:join("k", "1")
    for i, flights in ipairs { one, two } do
      w.spawn(function() got[i] = flights:wait(select(2, flights:join("k", "f" .. i)), 60) end)
    end
    w.spawn(function()
      w.sleep(1)
      one:finish(mine, "pass")
    end)
    w.run()
    assert.same({ "pass", "pass" }, got)
    assert.equal("pass", (one:join("k", "later")))
    w.time = w.time + 1
    assert.equal("lead", (one:join("k", "later still")))
  end)

  it("come free by their lease where the leader's worker died, and are renewed where it lives", function()
    local w = world()
    local dead, alive = w.worker(), w.worker()
    dead:join("k", "dead")
    local role
    w.spawn(function()
      while role ~= "lead" do
        local theirs
        role, theirs = alive:join("k", "alive")
        if role == "follow" then assert.equal("again", alive:wait(theirs, 60)) end
      end
    end)
    w.run()
    assert.is_true(w.time >= LEASE and w.time < LEASE + 1)
    for _ = 1, 10 do
      w.time = w.time + LEASE / 3
      alive:renew()
    end
    assert.equal("follow", (w.worker():join("k", "other")))
  end)

  it("do not end what is another's by then", function()
    local w = world()
    local one, two = w.worker(), w.worker()
    local _, mine = one:join("k", "1")
    w.time = LEASE + 1
    assert.equal("lead", (two:join("k", "2")))
    one:renew()
    one:finish(mine, "value", "v")
    assert.equal("follow", (w.worker():join("k", "3")))
  end)

  it("tell a follower that its time is over", function()
    local w = world()
    local flights = w.worker()
    flights:join("k", "1")
    w.spawn(function()
      assert.equal("timeout", flights:wait(select(2, flights:join("k", "2")), 5))
      assert.equal(5, w.time)
    end)
    w.run()
  end)

  it("give the value to those who come between the telling and the end", function()
    local flights = world().worker()
    local _, mine = flights:join("k", "1")
    flights:tell(mine, "v")
    local role, theirs = flights:join("k", "2")
    assert.equal("follow", role)
    assert.same({ "value", "v" }, { flights:wait(theirs, 1) })
    flights:finish(mine, "value")
    flights:finish(mine, "again") -- once more does nothing
    assert.equal("lead", (flights:join("k", "3")))
  end)

  it("lead where the dictionary cannot be had, for their worker alone", function()
    local w = world()
    w.busy = true
    local flights = w.worker()
    local role, mine = flights:join("k", "1")
    assert.equal("lead", role)
    assert.equal("follow", (flights:join("k", "2")))
    flights:finish(mine, "value", "v")
    assert.equal("lead", (flights:join("k", "3")))
  end)

  it("of other workers are not kept for ever", function()
    local w = world()
    local one, two = w.worker(), w.worker()
    for i = 1, 100 do
      local _, mine = one:join("k" .. i, "1." .. i)
      two:join("k" .. i, "2." .. i) -- and its client leaves
      one:finish(mine, "value", "v")
    end
    w.time = w.time + 1
    two:renew()
    one:renew()
    assert.is_nil(next(two.by_key))
    assert.is_nil(next(one.by_key))
  end)
end)
