-- What plugins run besides requests: timers, and log phases that wait while the client is served on. Both end with the
-- gateway, whose exit code 0 says that nothing of them was left.
local support = require "spec.support"
local rig = require "spec.host.plugin_rig"
local async = support.async

-- `code` runs in init with counts and tg at hand; any request answers with the counts.
local function gateway(code, config)
  return rig.start { config = config, plugins = { timers = [[
    local tg = require "tollgate"
    local counts, timers = {}, {}
    local function count(name) counts[name] = (counts[name] or 0) + 1 end
    return {
      init = function() ]] .. code .. [[ end,
      access = function(_, ctx)
        local name = ctx.request.path:match("^/stop/(.+)")
        if name then timers[name]:stop() end
        if ctx.request.path == "/gc" then collectgarbage(); collectgarbage() end
        return 200, counts
      end,
      stop = function()
        for name, n in pairs(counts) do tg.log.info("count ", name, " ", n, ";") end
        local ok, err = pcall(tg.timer.after, 1, function() end)
        tg.log.info("after in stop: ", ok, " ", err, ";")
      end }
  ]] } }
end

local function counts(gw, path) return support.json(gw:request { path = path or "/" }) end

local function reaches(gw, name, n)
  return support.wait_for(function() return (counts(gw)[name] or 0) >= n end, name .. " to be " .. n)
end

describe("tg.timer.after", function()
  it("calls its function once, also where nobody keeps the timer, and with a wait in it", async(function()
    local gw = gateway [[
      tg.timer.after(0, function() count "zero" end)
      tg.timer.after(0.005, function() tg.timer.sleep(0.005); count "late" end)
      timers.far = tg.timer.after(3600, function() count "far" end)
      tg.timer.after(0.05, function() count "end" end)
      collectgarbage()
    ]]
    counts(gw, "/gc")
    reaches(gw, "zero", 1)
    reaches(gw, "late", 1)
    reaches(gw, "end", 1)
    assert.same({ zero = 1, late = 1, ["end"] = 1 }, counts(gw))
  end))

  it("is ended by stop, before it is due, while it waits, and from within", async(function()
    local gw = gateway [[
      timers.before = tg.timer.after(0.02, function() count "before" end)
      timers.before:stop()
      timers.before:stop()
      timers.waiting = tg.timer.after(0, function() count "began"; tg.timer.sleep(0.3); count "ended" end)
      timers.itself = tg.timer.every(0.001, function()
        count "itself"
        timers.itself:stop()
        tg.timer.sleep(0.001)
        count "on"
      end)
      tg.timer.after(0.4, function() count "later" end)
    ]]
    reaches(gw, "began", 1)
    counts(gw, "/stop/waiting")
    reaches(gw, "later", 1)
    assert.same({ began = 1, itself = 1, on = 1, later = 1 }, counts(gw))
  end))
end)

describe("tg.timer.every", function()
  it("calls its function again and again; a run that still waits is not doubled", async(function()
    local gw = gateway [[
      timers.fast = tg.timer.every(0.002, function() count "fast" end)
      local inside = 0
      timers.slow = tg.timer.every(0.001, function()
        inside = inside + 1
        if inside > 1 then count "doubled" end
        tg.timer.sleep(0.01)
        inside = inside - 1
        count "slow"
      end)
    ]]
    reaches(gw, "fast", 10)
    reaches(gw, "slow", 3)
    assert.is_nil(counts(gw).doubled)
    local stopped = counts(gw, "/stop/fast").fast
    reaches(gw, "slow", 10)
    assert.equal(stopped, counts(gw).fast)
  end))

  it("goes on after a run that raises, which is told with a traceback and counted", async(function()
    local gw = gateway [[ tg.timer.every(0.002, function() count "runs"; if counts.runs == 2 then error "boom" end end) ]]
    reaches(gw, "runs", 5)
    gw:wait_log("error a plugin's timer: [^\n]*timers%.lua:5: boom\n\tstack traceback:")
    gw:wait_metric("plugin_errors_total", 1)
  end))
end)

describe("at the end", function()
  it("timers are ended, those that wait too, and none can be started any more", async(function()
    local redis = support.redis()
    local gw = gateway([[
      tg.timer.every(0.001, function() count "ticks" end)
      tg.timer.after(0, function() count "asleep"; tg.timer.sleep(1000); count "woken" end)
      tg.timer.every(0.001, function() tg.redis.call("PING"); tg.timer.sleep(1000); count "woken" end)
      tg.timer.after(1000, function() end)
    ]], { redis = redis.url })
    reaches(gw, "ticks", 3)
    gw:stop()
    assert.matches("count asleep 1;", gw.log())
    assert.is_nil(gw.log():find("count woken", 1, true))
    assert.matches("after in stop: false [^\n]*tg%.timer%.after: this generation has stopped;", gw.log())
  end))
end)

it("a time that is none raises", async(function()
  local gw = gateway [[
    for i, wrong in ipairs { -1, 0/0, 1/0, 1e12, "x", {} } do
      local ok = pcall(tg.timer.after, wrong, function() end)
      if ok then count("after" .. i) end
      ok = pcall(tg.timer.every, wrong, function() end)
      if ok then count("every" .. i) end
    end
    if pcall(tg.timer.every, 0, function() end) then count "zero" end
    if pcall(tg.timer.after, 1) then count "nothing" end
    count "done"
  ]]
  assert.same({ done = 1 }, counts(gw))
end))

describe("a log phase", function()
  local plugin = [[
    local tg = require "tollgate"
    local open
    return {
      access = function(_, ctx) if ctx.request.path == "/open" then open = true end return 200, "answer" end,
      log = function(_, ctx)
        if ctx.request.path == "/open" then return end
        tg.log.info("begins ", ctx.request.path, ";")
        if ctx.request.path == "/long" then tg.timer.sleep(1000) end
        while not open do tg.timer.sleep(0.001) end
        tg.log.info("ends ", ctx.request.path, " ", ctx.ended, ";")
      end }
  ]]

  it("may wait: the client has its answer, and its next request is served meanwhile", async(function()
    local gw = rig.start { plugins = { log = plugin } }
    local c = gw:connect()
    assert.equal("answer", c:request({ path = "/first" }).body)
    gw:wait_log("begins /first;", true)
    assert.is_nil(gw.log():find("ends /first;", 1, true))
    assert.equal("answer", c:request({ path = "/second" }).body)
    c:close()
    gw:wait_log("begins /second;", true)
    gw:request { path = "/open" }
    gw:wait_log("ends /first ok;", true)
    gw:wait_log("ends /second ok;", true)
  end))

  it("is waited for at the end, but not for ever", async(function()
    local gw = rig.start { plugins = { log = plugin } }
    gw:request { path = "/long" }
    gw:request { path = "/long" }
    gw:wait_log("begins /long;.*begins /long;")
    gw:stop()
    assert.matches("warn  stopping: 2 log phases of plugins did not end in time and were given up", gw.log())
    assert.is_nil(gw.log():find("ends", 1, true))
  end))
end)

describe("a timer that lingers", function()
  local plugin = [[
    local tg = require "tollgate"
    return {
      init = function(conf)
        tg.timer.every(0.005, function() tg.log.info("ticks ", conf.name, ";") end, { lingers = true })
        tg.timer.every(0.005, function() tg.log.info("plain ", conf.name, ";") end)
      end,
      schema = { name = { type = "string", default = "%s" } },
      access = function(conf, ctx)
        if ctx.request.path == "/long" then tg.timer.sleep(1000) end
        return 200, conf.name
      end }
  ]]

  -- Waits for a text behind what the log has now.
  local function anew(gw, text)
    local from = #gw.log()
    support.wait_for(function() return gw.log():find(text, from, true) end, text)
  end

  it("goes on behind a reload for requests that run, and ends with the last of them", async(function()
    local gw = rig.start { plugins = { tick = plugin:format("one") }, config = { reload = { watch = false } } }
    local c = gw:connect()
    c:send_request { path = "/long" }
    anew(gw, "plain one;")
    gw:write("plugins/tick.lua", plugin:format("two"))
    assert.equal(0, gw:command("reload").code)
    assert.equal("two", gw:request({}).body)
    anew(gw, "ticks two;")
    local from = #gw.log()
    anew(gw, "ticks one;")
    anew(gw, "ticks two;")
    assert.is_nil(gw.log():find("plain one;", from, true))
    c:close()
    support.wait_for(function() return gw:status().workers[1].generations == 1 end, "the old generation's end")
    from = #gw.log()
    anew(gw, "ticks two;")
    anew(gw, "ticks two;")
    assert.is_nil(gw.log():find("ticks one;", from, true))
  end))

  describe("and runs once", function()
    -- `stop` leaves a run behind, which sends for so many seconds.
    local function leaving(name, seconds)
      return ([[
        local tg = require "tollgate"
        return {
          stop = function()
            tg.timer.after(0, function()
              tg.timer.sleep(%g)
              tg.log.info("sent by %s;")
            end, { lingers = true })
          end,
          access = function() return 200, "%s" end }
      ]]):format(seconds, name, name)
    end

    it("may be made in stop, and the gateway's end waits for it", async(function()
      local gw = rig.start { plugins = { send = leaving("one", 0.2) } }
      gw:stop()
      assert.matches("sent by one;", gw.log())
    end))

    it("holds the generation behind a reload, and what follows does not wait", async(function()
      local gw = rig.start { plugins = { send = leaving("one", 0.5) }, config = { reload = { watch = false } } }
      gw:write("plugins/send.lua", leaving("two", 0))
      assert.equal(0, gw:command("reload").code)
      assert.equal("two", gw:request({}).body)
      gw:wait_log("sent by one;")
      support.wait_for(function() return gw:status().workers[1].generations == 1 end, "the old generation's end")
      gw:stop()
      assert.matches("sent by two;", gw.log())
    end))

    it("is given up where it takes too long: at the end, and where a reload needs its room", async(function()
      local gw = rig.start { plugins = { send = leaving("0", 1000) },
        config = { reload = { watch = false, drain = 0.1 } } }
      for i = 1, 6 do
        gw:write("plugins/send.lua", leaving(tostring(i), 1000))
        local run = gw:command("reload")
        assert.equal(0, run.code, run.err)
        assert.equal(tostring(i), gw:request({}).body)
      end
      assert.matches("generation 1 has not ended after reload.drain", gw.log())
      gw:stop()
      assert.matches("warn  stopping: what plugins do behind stop did not end in time and was given up", gw.log())
      assert.is_nil(gw.log():find("sent by", 1, true))
    end))

    it("may be stopped by one that does not hold the generation, which ends behind it", async(function()
      local gw = rig.start { config = { reload = { watch = false } }, plugins = { send = [[
        local tg = require "tollgate"
        local stopped, held = false, nil
        return {
          init = function()
            held = tg.timer.after(1000, function() end, { lingers = true })
            tg.timer.every(0.01, function()
              if not stopped then return end
              held:stop()
              held:stop()
              local parts = {}
              for i = 1, 1000 do parts[i] = tostring(i) end
              tg.log.info("stopped it and had ", #table.concat(parts), ";")
            end, { lingers = true })
          end,
          stop = function() stopped = true end,
          access = function() return 200, "" end }
      ]] } }
      gw:write("plugins/send.lua", "return { access = function() return 200, 'two' end }")
      assert.equal(0, gw:command("reload").code)
      gw:wait_log("stopped it and had 2893;", true, 20000)
      support.wait_for(function() return gw:status().workers[1].generations == 1 end, "the old generation's end", 20000)
      gw:stop()
    end))

    it("is what stop may make, and nothing else", async(function()
      local gw = rig.start { plugins = { wrong = [[
        local tg = require "tollgate"
        return {
          stop = function()
            tg.log.info(select(2, pcall(tg.timer.after, 0, print)))
            tg.log.info(select(2, pcall(tg.timer.every, 1, print, { lingers = true })))
            tg.timer.after(1000, print, { lingers = true }):stop()
          end,
          access = function() return 200, "" end }
      ]] } }
      gw:stop()
      assert.equal(2, select(2, gw.log():gsub("only after with lingers = true may be called now", "")))
    end))
  end)

  it("is one thing or once, and options have names", async(function()
    local gw = rig.start { plugins = { wrong = [[
      local tg = require "tollgate"
      return { access = function()
        local list = {}
        for i, options in ipairs { { once = true, lingers = true }, { linger = true }, { lingers = 1 } } do
          list[i] = select(2, pcall(tg.timer.every, 1, function() end, options))
        end
        return 200, list
      end }
    ]] } }
    local messages = support.json(gw:request {})
    assert.matches("once and lingers do not go together", messages[1])
    assert.matches("unknown option; there are: once .*, lingers", messages[2])
    assert.matches("lingers must be a boolean, not number", messages[3])
  end))
end)
