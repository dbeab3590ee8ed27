-- Three replicas around one Redis: a breaker that one opens the others open sooner, and nothing there closes any.
local support = require "spec.support"
local rig = require "spec.plugins.breaker.rig"

local async = support.async

local KEY = "cb:hint:a:m"

-- Three gateways at one origin.
local function replicas(redis, o, conf, more)
  local all = {}
  for i = 1, 3 do
    local options = { origin = o, redis = redis.url, conf = conf }
    for key, value in pairs(more or {}) do options[key] = value end
    all[i] = rig.gateway(options)
  end
  -- Until each of them listens: the nudge is heard only then.
  support.wait_for(function() return redis:must("PUBSUB", "NUMSUB", "cb:nudge")[2] == 3 * (more and more.workers or 1) end,
    "the replicas to listen")
  return all
end

-- When a gateway's log has a line, in ms since midnight.
local function at(gw, text)
  gw:wait_log(text)
  for line in gw.log():gmatch "[^\n]+" do
    if line:find(text) then
      local h, m, s, ms = line:match "T(%d+):(%d+):(%d+)%.(%d+)Z"
      return ((h * 60 + m) * 60 + s) * 1000 + ms
    end
  end
end

-- Waits until replicas have looked for hints at least n times more.
local function looks(redis, n)
  local function count() return tonumber(redis:must("INFO", "commandstats"):match "cmdstat_mget:calls=(%d+)" or 0) end
  local before = count()
  support.wait_for(function() return count() - before >= n end, "looks for hints")
end

-- Every command but those of looking, by MONITOR, until stop() gives them.
local function monitor(redis)
  local seen, conn = {}, support.connect(redis.port)
  conn:write "MONITOR\r\n"
  support.spawn(function()
    local rest = ""
    while true do
      local bytes = conn:read_some(60000)
      if not bytes then return end
      rest = rest .. bytes
      rest = rest:gsub("[^\n]*\n", function(line)
        if line:find(KEY, 1, true) and not line:find('"MGET"', 1, true) then seen[#seen + 1] = line end
        return ""
      end)
    end
  end)
  return function()
    conn:close()
    return seen
  end
end

describe("a breaker that opens", function()
  it("opens those of other replicas within a second, by a hint of 30 seconds", async(function()
    local redis, o = support.redis(), rig.origin(503)
    local all = replicas(redis, o, { cooldown = 60 }, { workers = 2 })
    rig.ask(all[1], 3)
    local began, slowest = at(all[1], "breaker a:m: open for [^\n]*3 failures in a row"), 0
    for i = 2, 3 do slowest = math.max(slowest, at(all[i], "breaker a:m: open for [^\n]*opened its own") - began) end
    io.stderr:write(("from one replica's OPEN to that of all: %d ms\n"):format(slowest))
    assert.truthy(slowest < 1000, slowest .. " ms")
    assert.equal(3, o.count())
    local text, ttl = redis:must("GET", KEY), redis:must("PTTL", KEY)
    local name, ms = text:match "^open:([^:]+):(%d+)$"
    local now = redis:must "TIME"
    assert.truthy(math.abs(now[1] * 1000 + now[2] / 1000 - ms) < 20000)
    assert.truthy(ttl > 0 and ttl <= 30000, ttl)
    for i = 2, 3 do
      local s = rig.state(all[i])
      assert.same({ "open", "hint", name }, { s.state, s.reason, s.hint_by })
      assert.equal(503, rig.ask(all[i], 4))
      assert.equal(1, rig.lines(all[i], "breaker a:m: open for"))
    end
    assert.equal(3, o.count())
  end))

  it("is not echoed: what a hint opened writes none, and none is written again", async(function()
    local redis, o = support.redis(), rig.origin(503)
    local all = replicas(redis, o, { cooldown = 60, hint_interval = 0.05 })
    local stop = monitor(redis)
    rig.ask(all[1], 3)
    for i = 2, 3 do rig.wait(all[i], "open") end
    local text = redis:must("GET", KEY)
    for i = 1, 3 do -- many looks later
      looks(redis, 30)
      assert.equal("open", rig.state(all[i]).state)
    end
    assert.equal(text, redis:must("GET", KEY))
    local sets = {}
    for _, line in ipairs(stop()) do
      if line:find('"SET"', 1, true) then sets[#sets + 1] = line end
    end
    assert.equal(1, #sets, table.concat(sets))
  end))

  it("tells others again where its probe fails, and so does one that a hint opened", async(function()
    local redis, o = support.redis(), rig.origin(503)
    local all = replicas(redis, o, { cooldown = 0.3 })
    rig.ask(all[1], 3)
    rig.wait(all[2], "open")
    local first = redis:must("GET", KEY)
    support.wait_for(function() return rig.state(all[2]).probe_in == 0 end, "the cooldown's end")
    assert.equal(503, rig.ask(all[2], 1))
    assert.equal(4, o.count())
    support.wait_for(function() return redis:must("GET", KEY) ~= first end, "the hint of the probe that failed")
    assert.equal("probe", rig.state(all[2]).reason)
    assert.equal(1, rig.lines(all[2], "the probe failed"))
  end))
end)

describe("a hint", function()
  it("closes nothing when it goes, and opens nothing that has probed since", async(function()
    local redis, o = support.redis(), rig.origin(503)
    local all = replicas(redis, o, { cooldown = 1, hint_interval = 0.05 })
    rig.ask(all[1], 3)
    for i = 2, 3 do rig.wait(all[i], "open") end
    redis:must("DEL", KEY)
    for i = 1, 3 do assert.are_not.equal("closed", rig.state(all[i]).state) end
    o.mode = 200
    for i = 1, 3 do
      support.wait_for(function() return rig.state(all[i]).probe_in == 0 end, "the cooldown's end")
      assert.equal(200, rig.ask(all[i], 1))
      assert.equal("closed", rig.state(all[i]).state)
    end
    assert.equal(6, o.count()) -- one probe each
    -- One that was written before is no news, one that is written now is.
    local time = redis:must "TIME"
    redis:must("SET", KEY, ("open:elsewhere:%d"):format(time[1] * 1000 - 5000), "EX", 30)
    looks(redis, 20)
    for i = 1, 3 do assert.equal("closed", rig.state(all[i]).state) end
    redis:must("SET", KEY, ("open:elsewhere:%d"):format(time[1] * 1000 + 500000), "EX", 30)
    for i = 1, 3 do assert.equal("elsewhere", rig.wait(all[i], "open").hint_by) end
  end))

  it("of the replica itself does nothing, nor does what is none", async(function()
    local redis, o = support.redis(), rig.origin(503)
    local gw = rig.gateway { origin = o, redis = redis.url, conf = { cooldown = 0.1, hint_interval = 0.05 } }
    rig.ask(gw, 3)
    local own = support.wait_for(function() return redis:must("GET", KEY) end, "the hint")
    o.mode = 200
    support.wait_for(function() return rig.state(gw).probe_in == 0 end, "the cooldown's end")
    assert.equal(200, rig.ask(gw, 1))
    local time = redis:must "TIME"
    local later = ("%s:%d"):format(own:match "^(open:[^:]+):", time[1] * 1000 + 60000)
    for _, text in ipairs { later, "open", "close:x:99999999999999", "open:x:", "" } do
      redis:must("SET", KEY, text, "EX", 30)
      looks(redis, 3)
      assert.equal("closed", rig.state(gw).state, text)
    end
    redis:must("DEL", KEY)
    redis:must("RPUSH", KEY, "a list")
    o.mode = 503
    rig.ask(gw, 3)
    assert.equal("open", rig.state(gw).state) -- by itself
  end))

  it("lowers the thresholds, or is left unread, where so configured", async(function()
    local redis, o = support.redis(), rig.origin(503)
    local lower = rig.gateway { origin = o, redis = redis.url, conf = { consecutive = 4, cooldown = 60, hint = "lower_threshold",
      hint_interval = 0.05 } }
    local off = rig.gateway { origin = o, redis = redis.url, conf = { consecutive = 4, cooldown = 60, hint = "off" } }
    local time = redis:must "TIME"
    redis:must("SET", KEY, ("open:elsewhere:%d"):format(time[1] * 1000), "EX", 30)
    support.wait_for(function()
      return (support.prometheus.sum(lower:samples(), "breaker_hints_total", { what = "lowered" }) or 0) == 1
    end, "the hint to be heard")
    assert.equal("closed", rig.state(lower).state)
    rig.ask(lower, 2)
    local s = rig.state(lower)
    assert.same({ "open", "hint", "elsewhere" }, { s.state, s.reason, s.hint_by })
    assert.matches(":elsewhere:", redis:must("GET", KEY)) -- it told nobody
    rig.ask(off, 4)
    assert.equal("open", rig.state(off).state)
    assert.matches(":elsewhere:", redis:must("GET", KEY))
  end))
end)

describe("the script that tells others", function()
  it("writes the hint for 30 seconds by Redis's own clock and nudges, unless it comes too late", async(function()
    local redis = support.redis()
    local text, heard = support.read_file "plugins/breaker/announce.lua", redis:listen "cb:nudge"
    local function announce(limit) return redis:must("EVAL", text, 1, KEY, "web%3A1", "cb:nudge", limit) end
    local before = redis:must "TIME"
    assert.equal("late", announce(before[1] * 1000 - 10000))
    assert.equal(0, redis:must("EXISTS", KEY))
    assert.equal("told", announce(before[1] * 1000 + 60000))
    assert.equal(KEY, heard())
    local name, ms = redis:must("GET", KEY):match "^open:([^:]+):(%d+)$"
    assert.equal("web%3A1", name)
    assert.truthy(tonumber(ms) >= math.floor(before[1] * 1000 + before[2] / 1000))
    assert.truthy(redis:must("PTTL", KEY) > 20000)
    assert.equal("told", announce(0))
  end))
end)

describe("without Redis", function()
  it("breakers open and close by themselves, and no request waits", async(function()
    local redis, o = support.redis(), rig.origin()
    local all = replicas(redis, o, { cooldown = 0.3, hint_interval = 0.05 })
    redis:pause()
    for i = 1, 2 do
      rig.ask(all[i], 5)
      o.mode = 503
      rig.ask(all[i], 3)
      assert.equal("open", rig.state(all[i]).state)
      o.mode = 200
      support.wait_for(function() return rig.state(all[i]).probe_in == 0 end, "the cooldown's end")
      assert.equal(200, rig.ask(all[i], 1))
      assert.equal("closed", rig.state(all[i]).state)
      for _, line in ipairs(all[i]:wait_access(9)) do assert.truthy(line.seconds == nil or line.seconds < 1) end
    end
    assert.equal("closed", rig.state(all[3]).state)
    redis:resume()
    support.wait_for(function() return redis:must("PUBSUB", "NUMSUB", "cb:nudge")[2] >= 3 end, "the replicas to listen again")
    o.mode = 503
    rig.ask(all[3], 3)
    rig.wait(all[1], "open")
  end))
end)
