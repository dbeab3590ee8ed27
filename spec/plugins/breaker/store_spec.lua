-- Several workers on one shared state, in orders that are drawn: each step of each worker on the dictionary may come between
-- any two of another one's. What must hold holds after each of them.
local lua = require "spec.plugins.breaker.lua"
local machine, state, store = lua.machine, lua.state, lua.store

local KEY = "breaker:a:m"

describe("a store", function()
  it("tries again where another worker was faster", function()
    local others, dictionary = 3, nil
    dictionary = lua.dictionary(function()
      if others == 0 or not dictionary.values[KEY] then return end
      others = others - 1
      local s = state.decode(state.new(), dictionary.values[KEY])
      s.in_a_row = s.in_a_row + 1
      dictionary.values[KEY] = state.encode(s)
    end)
    local one = store.new(dictionary)
    local function count(s) s.in_a_row = s.in_a_row + 1 return true, s.in_a_row end
    assert.equal(1, one:step(KEY, count))
    assert.equal(5, one:step(KEY, count))
  end)

  it("gives up where it is always late", function()
    local dictionary = lua.dictionary()
    local get = dictionary.get
    local s = state.decode(state.new(), nil)
    function dictionary.get(key)
      local bytes = get(key)
      s.probe = s.probe + 1
      dictionary.values[key] = state.encode(s)
      return bytes
    end
    assert.same({ nil, "contended" }, { store.new(dictionary):step(KEY, function(mine) mine.epoch = 7 return true, 1 end) })
  end)

  it("has what it saw last decide while the dictionary is not to be had", function()
    local dictionary, rules = lua.dictionary(), lua.rules()
    local one = store.new(dictionary)
    for _ = 1, 5 do one:step(KEY, machine.record, rules, 0, machine.BAD, 1000, 0) end
    dictionary.busy = true
    assert.same({ nil, "busy" }, { one:step(KEY, machine.admit, rules, 1000) })
    assert.same({ machine.REFUSE, 400 }, { one:guess(KEY, machine.admit, rules, 1600) })
    assert.same({ state.OPEN, "busy" }, { one:read(KEY).state, select(2, one:read(KEY)) })
    assert.equal(machine.PASS, (one:guess("breaker:never seen", machine.admit, rules, 1600)))
    dictionary.busy = false
    dictionary.values[KEY] = nil -- evicted: closed
    assert.equal(machine.PASS, (one:step(KEY, machine.admit, rules, 1600)))
  end)
end)

-- What the workers do, and what must hold.
local function world(seed)
  math.randomseed(seed)
  local random = math.random
  local self = { now = 1000, probes = {}, opened = 0, closed = 0, tried = 0 }
  local rules = lua.rules { jitter = 0.2, consecutive = random(2, 5), min_requests = random(2, 8), probe_lease = random(50, 400),
    cooldown = random(20, 200), cooldown_max = random(200, 800), bucket_ms = random(10, 100),
    hint = random(2) == 1 and "open" or "lower_threshold" }
  local dictionary = lua.dictionary(coroutine.yield)
  local last = { state = state.CLOSED, forced = state.AUTO, epoch = 0 } -- as it was seen behind the last swap
  local look, may_close = state.new(), 0 -- steps under way that may close it
  local swap = dictionary.swap

  -- Each change that is made, whoever makes it.
  function dictionary.swap(key, before, value)
    local ok, err = swap(key, before, value)
    if not ok then return nil, err end
    local s = state.decode(look, value)
    if s.state ~= last.state then
      assert(s.epoch > last.epoch, "a change of state without a new epoch")
      if s.state == state.CLOSED then assert(may_close > 0, "closed without a probe that succeeded") end
      assert(not (last.state == state.CLOSED and s.state == state.HALF_OPEN and last.forced ~= state.FORCED_OPEN),
        "half-open out of the blue")
      assert(s.state ~= state.HALF_OPEN or last.forced ~= state.AUTO or self.now >= last.until_ms, "half-open too early")
    end
    if s.state == state.OPEN and last.state ~= state.OPEN then
      assert(s.cooldown <= rules.cooldown_max and s.until_ms <= self.now + s.cooldown * 1.2 + 1e-6, "the cooldown is too long")
      assert((s.due == 0) == (s.reason == state.HINT), "what a hint opened tells others, or what it found does not")
    end
    last = { state = s.state, forced = s.forced, epoch = s.epoch, until_ms = s.until_ms }
    return true
  end

  local function live()
    local n = 0
    for _, until_ms in pairs(self.probes) do n = n + (until_ms > self.now and 1 or 0) end
    return n
  end

  local function finish(one, token)
    local kind = ({ machine.GOOD, machine.BAD, machine.BAD, machine.NONE })[random(4)]
    for _ = 1, random(0, 20) do coroutine.yield() end
    local may = token < 0 and kind == machine.GOOD and 1 or 0
    may_close = may_close + may
    local what = one:step(KEY, machine.record, rules, token, kind, self.now, random())
    if token < 0 then self.probes[token] = nil end
    if what == machine.CLOSED_AGAIN then
      assert(token < 0 and kind == machine.GOOD, "closed by something other than a probe that succeeded")
      self.closed = self.closed + 1
    end
    self.opened = self.opened + (what == machine.OPENED and 1 or 0)
    may_close = may_close - may
  end

  local function request(one)
    local now = self.now -- others' time goes on while this one waits for the dictionary
    local verdict, token = one:step(KEY, machine.admit, rules, now)
    if verdict == machine.TRY then
      assert(live() == 0, "two probes within a lease")
      assert(self.probes[token] == nil, "one number for two probes")
      self.tried = self.tried + 1
      self.probes[token] = now + rules.probe_lease
      if random(10) == 1 then return end -- its worker dies
    end
    if verdict ~= machine.REFUSE and token then finish(one, token) end
  end

  local hint_ms = 0
  local function other(one)
    local what = random(6)
    if what <= 3 then
      hint_ms = hint_ms + random(0, 2)
      self.opened = self.opened
        + (one:step(KEY, machine.hint, rules, "other", hint_ms, random(-900, 0), self.now, random()) and 1 or 0)
    elseif what == 4 then
      one:step(KEY, machine.claim, self.now)
    elseif what == 5 and random(5) == 1 then
      self.probes = {} -- an operator's word ends them
      may_close = may_close + 1
      one:step(KEY, machine.force, random(0, 2), self.now)
      may_close = may_close - 1
      self.probes = {}
    end
  end

  function self.worker()
    local one = store.new(dictionary)
    return coroutine.create(function()
      while true do
        if random(12) == 1 then other(one) else request(one) end
      end
    end)
  end
  self.random = random
  return self
end

describe("several workers", function()
  it("never have two probes within a lease, and close only by a probe that succeeded", function()
    local opened, closed, tried = 0, 0, 0
    for seed = 1, 60 do
      local w = world(seed)
      local workers = {}
      for i = 1, w.random(2, 6) do workers[i] = w.worker() end
      for step = 1, 4000 do
        local ok, err = coroutine.resume(workers[w.random(#workers)])
        assert(ok, ("seed %d, step %d: %s"):format(seed, step, tostring(err)))
        if w.random(4) == 1 then w.now = w.now + w.random(0, 12) end
      end
      opened, closed, tried = opened + w.opened, closed + w.closed, tried + w.tried
    end
    assert.truthy(opened > 200 and closed > 50 and tried > 300, ("%d %d %d"):format(opened, closed, tried))
  end)
end)
