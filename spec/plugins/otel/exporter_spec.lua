-- The queue of otel and its way out, against a fake clock and a collector that answers by script.
package.path = "plugins/?.lua;" .. package.path
local exporter = require "otel.exporter"

-- Runs against verdicts: each { verdict, n, message }; the last one repeats.
local function fixture(options, verdicts)
  local on = { time = 0, sent = {}, counts = {}, told = {}, sleeps = {} }
  local io = {
    now = function() return on.time end,
    sleep = function(seconds)
      on.sleeps[#on.sleeps + 1] = seconds
      on.time = on.time + seconds
    end,
    random = function() return 1 end,
    count = function(outcome, n) on.counts[outcome] = (on.counts[outcome] or 0) + n end,
    tell = function(message) on.told[#on.told + 1] = message or false end,
    send = function(items)
      on.sent[#on.sent + 1] = table.concat(items, " ")
      if on.during then on.during() end
      return unpack(verdicts[math.min(#on.sent, #verdicts)], 1, 3)
    end,
  }
  on.exporter = exporter.new({ batch = options.batch or 2, queue = options.queue or 5, retry = options.retry or 60 }, io)
  function on.add(...)
    for _, item in ipairs { ... } do on.exporter:add(item) end
    return on
  end
  function on.run()
    on.exporter:flush()
    on.exporter:run()
  end
  return on
end

describe("otel's exporter", function()
  it("sends in order, in batches, and counts", function()
    local on = fixture({}, { { "ok", 0 } }).add("a", "b", "c")
    assert.is_true(on.exporter:full())
    on.run()
    assert.same({ "a b", "c" }, on.sent)
    assert.equal(3, on.counts.exported)
    assert.equal(0, on.exporter:waiting())
    assert.is_false(on.exporter:full())
  end)

  it("waits for a batch to be full, but for what is flushed", function()
    local on = fixture({}, { { "ok", 0 } }).add("a")
    on.exporter:run()
    assert.same({}, on.sent)
    on.add("b", "c").exporter:run()
    assert.same({ "a b" }, on.sent)
    on.exporter:flush()
    on.during = function()
      on.during = nil
      on.add("d") -- behind what is flushed
    end
    on.exporter:run()
    assert.same({ { "a b", "c" }, 1 }, { on.sent, on.exporter:waiting() })
    on.during = function()
      on.during = nil
      on.exporter:flush()
    end
    on.add("e", "f").exporter:run()
    assert.same({ "a b", "c", "d e", "f" }, on.sent)
  end)

  it("drops what finds the queue full, the newest, and keeps the rest", function()
    local on = fixture({}, { { "ok", 0 } }).add("a", "b", "c", "d", "e", "f", "g")
    assert.equal(2, on.counts.dropped)
    on.run()
    assert.same({ "a b", "c d", "e" }, on.sent)
  end)

  it("has room again for what has been taken out to be sent", function()
    local on = fixture({ batch = 5 }, { { "ok", 0 } }).add("a", "b", "c", "d", "e")
    on.during = function()
      on.during = nil
      on.add("f")
      on.run() -- which runs already
    end
    on.run()
    assert.same({ "a b c d e", "f" }, on.sent)
    assert.is_nil(on.counts.dropped)
  end)

  it("tries a batch again with growing pauses, and in order", function()
    local again = { "again", nil, "status 503" }
    local on = fixture({}, { again, again, again, { "ok", 0 } }).add("a", "b", "c")
    on.run()
    assert.same({ "a b", "a b", "a b", "a b", "c" }, on.sent)
    assert.same({ 1, 2, 4 }, on.sleeps)
    assert.same({ "status 503", "status 503", "status 503", false, false }, on.told)
    assert.equal(3, on.counts.exported)
  end)

  it("leaves a collector alone for as long as it says, and pauses 30 s at most", function()
    local on = fixture({ retry = 1000 }, { { "again", 17, "status 429" }, { "ok", 0 } }).add("a")
    on.run()
    assert.same({ 17 }, on.sleeps)
    on = fixture({ retry = 1000 }, { { "again" } }).add("a")
    on.run()
    assert.equal(30, on.sleeps[6])
    assert.equal(30, on.sleeps[#on.sleeps])
  end)

  it("tries once more behind a pause that the collector asks for; the next batch waits, too", function()
    local on = fixture({ retry = 30 }, { { "again", 60, "status 429" } }).add("a", "b", "c")
    on.run()
    assert.same({ "a b", "a b", "c", "c" }, on.sent)
    assert.same({ 60, 60, 60 }, on.sleeps)
    assert.equal(3, on.counts.failed)
  end)

  it("takes an error for a failure, and goes on", function()
    local on = fixture({}, { { "ok", 0 } }).add("a", "b", "c")
    on.during = function()
      on.during = nil
      error("no such header", 0)
    end
    on.run()
    assert.same({ { "a b", "c" }, { "no such header", false } }, { on.sent, on.told })
    assert.same({ failed = 2, rejected = 0, exported = 1 }, on.counts)
    on.add("d")
    on.run()
    assert.equal(2, on.counts.exported)
  end)

  it("gives a batch up that is not taken for too long, and goes on with the next", function()
    local on = fixture({ retry = 10 }, { { "again", nil, "timeout" } }).add("a", "b", "c")
    on.run()
    assert.equal(3, on.counts.failed)
    assert.equal(0, on.exporter:waiting())
    assert.is_true(on.time <= 20)
  end)

  it("does not try again what can never be taken", function()
    local on = fixture({}, { { "failed", nil, "status 400" }, { "ok", 0 } }).add("a", "b", "c")
    on.run()
    assert.same({ "a b", "c" }, on.sent)
    assert.same({ {}, 2, 1 }, { on.sleeps, on.counts.failed, on.counts.exported })
  end)

  it("counts what the collector rejected of a batch", function()
    local on = fixture({}, { { "ok", 1, "too old" } }).add("a", "b")
    on.run()
    assert.same({ exported = 1, rejected = 1 }, on.counts)
    assert.same({ "too old" }, on.told)
  end)

  it("ends in time behind a stop, after one try", function()
    local on = fixture({}, { { "again" } }).add("a", "b", "c")
    on.exporter:until_time(0.5)
    on.run()
    assert.same({ "a b", "c" }, on.sent)
    assert.equal(3, on.counts.failed)
  end)

  it("tries once behind a stop where the collector wants to be left alone for longer than there is time", function()
    local on = fixture({}, { { "again", 5 }, { "ok", 0 } }).add("a", "b", "c")
    on.exporter:until_time(0.5)
    on.run()
    assert.same({ { "a b", "c" }, {} }, { on.sent, on.sleeps })
    assert.same({ 2, 1 }, { on.counts.failed, on.counts.exported })
  end)
end)
