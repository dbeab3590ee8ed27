-- What the workers of a replica have in common: figures of plugins, which the admin listener sums, and timers that run in one
-- of them.
local uv = require "luv"
local support = require "spec.support"
local rig = require "spec.host.supervision_rig"

local async = support.async

-- name{labels} → number, of /metrics.
local function samples(gw)
  local all = {}
  for line in gw:admin("/metrics").body:gmatch "([^\n]+)\n" do
    local name, value = line:match "^([%a_].*) (%S+)$"
    if name then
      assert.is_nil(all[name], name .. " is there twice")
      all[name] = tonumber(value)
    end
  end
  return all
end

-- Answers with the pid of its worker, and counts.
local COUNTS = [[
local tg = require "tollgate"
local ffi = require "ffi"
ffi.cdef "int getpid(void);"
local asked = tg.metrics.counter("asked_total", "Requests", { "worker" })
local plain = tg.metrics.counter("plain_total", "Requests")
local level = tg.metrics.gauge("level", "Level")
local took = tg.metrics.histogram("took", "Time", { "what" }, { 1, 10 })
return { version = "1.0.0", priority = 1, schema = {}, init = function() level:set(2) end,
  access = function()
    local pid = tostring(ffi.C.getpid())
    asked:inc(1, pid)
    plain:inc()
    took:observe(5, "x")
    tg.shared.set("k", "v")
    return 200, pid
  end }
]]

-- Asks until every worker has answered; returns how many requests that took.
local function ask_all(gw, n)
  local seen, count, asked = {}, 0, 0
  support.wait_for(function()
    local pid = rig.body(gw)
    asked = asked + 1
    if not seen[pid] then seen[pid], count = true, count + 1 end
    return count == n
  end, "all workers to answer")
  return asked
end

describe("the figures of plugins", function()
  it("are summed over workers, and those of a worker that died are kept", async(function()
    local gw = rig.start { config = { workers = 2 }, plugin = COUNTS }
    local asked = ask_all(gw, 2)
    local all = samples(gw)
    assert.same({ asked, asked, asked, 0, 5 * asked, 4 },
      { all.plain_total, all['took_count{what="x"}'], all['took_bucket{what="x",le="10"}'],
        all['took_bucket{what="x",le="1"}'], all['took_sum{what="x"}'], all.level })
    local first = gw:workers()[1]
    local own = all[('asked_total{worker="%d"}'):format(first)]
    assert.truthy(own >= 1)

    for _ = 1, 2 do -- what one that died had kept of another is kept too
      local pid = gw:workers()[1]
      uv.kill(pid, "sigkill")
      support.wait_for(function()
        local pids = gw:workers()
        return #pids == 2 and pids[1] ~= pid
      end, "another worker")
      asked = asked + ask_all(gw, 2)
    end
    all = samples(gw)
    assert.equal(own, all[('asked_total{worker="%d"}'):format(first)])
    assert.same({ asked, asked, 4 }, { all.plain_total, all['took_count{what="x"}'], all.level })
  end))

  it("do not wait for a worker that is stuck, and outlive a reload", async(function()
    local gw = rig.start { config = { workers = 2, reload = { watch = false } }, plugin = COUNTS }
    local asked = ask_all(gw, 2)
    gw:write("plugins/answer.lua", "-- another\n" .. COUNTS)
    assert.equal(0, gw:command("reload").code)
    asked = asked + ask_all(gw, 2)
    gw:pause()
    local all = samples(gw)
    gw:resume()
    assert.same({ asked, 4 }, { all.plain_total, all.level })
    assert.same({ 1, true, 0 },
      { all.tollgate_shared_entries, all.tollgate_shared_used_bytes > 0, all.tollgate_shared_emptied_total })
    assert.truthy(all.tollgate_shared_size_bytes > all.tollgate_shared_used_bytes)
  end))
end)

describe("a timer with once = true", function()
  -- Runs are counted in the dictionary by pid.
  local TICKS = [[
local tg = require "tollgate"
local ffi = require "ffi"
ffi.cdef "int getpid(void);"
local pid = tostring(ffi.C.getpid())
local function count(name) tg.shared.incr(name, 1, 0) end
return { version = "1.0.0", priority = 1, schema = {},
  init = function()
    tg.timer.every(0.02, function() count("every " .. pid) end, { once = true })
    tg.timer.every(0.02, function() count("all " .. pid) end, { once = false })
    tg.timer.after(0.2, function() count "after" end, { once = true })
  end,
  access = function(_, ctx)
    local key = ctx.request.path:sub(2):gsub("-", " ")
    return 200, tostring(tg.shared.get(key) or 0)
  end }
]]

  local function count(gw, key) return tonumber((rig.body(gw, "/" .. key))) end

  it("runs in one worker, and in another one once that died", async(function()
    local gw = rig.start { config = { workers = 2 }, plugin = TICKS }
    local pids = gw:workers()
    for _, pid in ipairs(pids) do
      support.wait_for(function() return count(gw, "all-" .. pid) >= 20 end, "all workers' timer")
    end
    local runs = { count(gw, "every-" .. pids[1]), count(gw, "every-" .. pids[2]) }
    local leader = runs[1] > 0 and 1 or 2
    assert.truthy(runs[leader] > 0)
    assert.equal(0, runs[3 - leader])
    assert.equal(1, count(gw, "after"))

    uv.kill(pids[leader], "sigkill")
    support.wait_for(function()
      local all = 0
      for _, pid in ipairs(gw:workers()) do all = all + (pid ~= pids[leader] and count(gw, "every-" .. pid) or 0) end
      return all > 0
    end, "another worker to take over")
  end))

  it("runs where tg.timer.leads() is true", async(function()
    local gw = rig.start { config = { workers = 2 }, plugin = [[
local tg = require "tollgate"
return { version = "1.0.0", priority = 1, schema = {},
  init = function()
    tg.timer.every(0.02, function() tg.shared.incr("agree " .. tostring(tg.timer.leads()), 1, 0) end, { once = true })
    tg.timer.every(0.02, function() if not tg.timer.leads() then tg.shared.incr("others", 1, 0) end end)
  end,
  access = function()
    return 200, ("%s %s %s"):format(tg.shared.get "agree true", tg.shared.get "agree false", tg.shared.get "others")
  end }
]] }
    support.wait_for(function() return (rig.body(gw)):match "^%d+ nil %d+$" end, "both workers' timers")
  end))

  it("is refused where its options make no sense", async(function()
    for options, message in pairs {
      ["{ twice = true }"] = "tg.timer.every: unknown option; there are: once (true",
      ["{ once = 1 }"] = "tg.timer.every: once must be a boolean, not number",
      ["1"] = "tg.timer.every: the options must be a table, not number",
    } do
      local dir = support.tmpdir()
      support.write_file(dir .. "/gateway.lua", 'return { routes = { { name = "a", path = "/*", plugins = { p = {} } } }, ' ..
        'plugin_path = { "plugins" }, listen = "127.0.0.1:0", data_dir = "' .. dir .. '" }')
      support.write_file(dir .. "/plugins/p.lua", [[local tg = require "tollgate"
        return { version = "1", schema = {}, init = function() tg.timer.every(1, print, ]] .. options .. ") end }")
      local run = support.tollgate({ "run", "-c", dir .. "/gateway.lua" })
      assert.equal(1, run.code)
      assert.truthy(run.err:find(message, 1, true), run.err)
    end
  end))
end)

describe("the name of a replica", function()
  local NAMES = [[
local tg = require "tollgate"
local ffi = require "ffi"
ffi.cdef "int getpid(void);"
return { version = "1.0.0", priority = 1, schema = {},
  access = function()
    return 200, ("%s %s %.3f"):format(tostring(ffi.C.getpid()), tg.replica(), tg.monotonic())
  end }
]]

  -- pid → name, of as many workers as there are; and the largest difference to this process's clock, in seconds.
  local function names(gw, n)
    local all, off = {}, 0
    support.wait_for(function()
      local pid, name, now = rig.body(gw):match "^(%d+) (%S+) (%S+)$"
      off = math.max(off, math.abs(uv.hrtime() / 1e9 - tonumber(now)))
      all[pid] = name
      local count = 0
      for _ in pairs(all) do count = count + 1 end
      return count == n
    end, "all workers")
    return all, off
  end

  it("is its workers' own, whoever dies and whatever is loaded; another replica has another", async(function()
    local gw = rig.start { config = { workers = 2 }, plugin = NAMES }
    local all, off = names(gw, 2)
    local _, name = next(all)
    assert.matches("^%S+%-%x%x%x%x%x%x%x%x$", name)
    assert.truthy(#name < 64)
    assert.truthy(off < 5, "the clocks are " .. off .. " s apart")
    for _, other in pairs(all) do assert.equal(name, other) end
    uv.kill(gw:workers()[1], "sigkill")
    assert.equal(0, gw:command("reload").code)
    support.wait_for(function() return #gw:workers() == 2 end, "another worker")
    for _, other in pairs(names(gw, 2)) do assert.equal(name, other) end
    local _, foreign = next((names(rig.start { plugin = NAMES }, 1)))
    assert.are_not.equal(name, foreign)
  end))
end)
