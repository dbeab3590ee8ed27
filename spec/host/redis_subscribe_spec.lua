-- tg.redis.subscribe against a real Redis: what comes, in which order, and what is said of what did not come.
local support = require "spec.support"
local probe = require "spec.host.probe"
local async = support.async

local r
local config = {}
local redis_up, redis_down = support.shared(function()
  r = support.redis()
  config.redis = { url = r.unix_url, timeout = 5 }
end)
local on, up, down = probe.shared(config)
setup(redis_up)
setup(up)
teardown(down)
teardown(redis_down)

-- Subscribes in the gateway; what is told gathers in the global list `seen`, one text each.
local function subscribe(code, ...)
  on.eval(([[
    rawset(_G, "seen", {})
    local function note(...) table.insert(seen, table.concat({ ... }, " ")) end
    rawset(_G, "sub", (function() %s end)())
  ]]):format(select("#", ...) > 0 and code:format(...) or code))
  support.wait_for(function() return on.eval "return seen[1]" end, "the subscription")
end

local function seen(n)
  return support.wait_for(function()
    local list = on.eval "return seen"
    return #list >= n and list
  end, n .. " messages")
end

local function stop() on.eval "sub:stop() sub:stop()" end

local ALL = [[return tg.redis.subscribe(%s, note, { on_gap = function(why) note("gap", why) end })]]

it("tells what is published to its channels", async(function()
  subscribe(ALL, [[{ "one", "two" }]])
  assert.same({ "gap start" }, seen(1))
  assert.equal(1, r:must("PUBLISH", "one", "first"))
  assert.equal(1, r:must("PUBLISH", "two", ""))
  assert.equal(0, r:must("PUBLISH", "three", "x"))
  assert.equal(1, r:must("PUBLISH", "one", "a\0b"))
  assert.same({ "gap start", "one first", "two ", "one a\0b" }, seen(4))
  stop()
  support.wait_for(function() return r:must("PUBLISH", "one", "x") == 0 end, "the connection's end")
  assert.equal(4, #seen(4))
end))

it("tells what matches a pattern", async(function()
  subscribe [[return tg.redis.subscribe("a.*", note, { pattern = true, on_gap = note })]]
  r:must("PUBLISH", "a.b", "m")
  assert.same({ "start", "a.b m a.*" }, seen(2))
  stop()
end))

it("calls one at a time, in order, and each may wait", async(function()
  subscribe [[
    local running = 0
    return tg.redis.subscribe("c", function(_, message)
      running = running + 1
      tg.timer.sleep(tonumber(message) % 3 == 0 and 0.003 or 0.001)
      tg.redis.call("ECHO", message)
      note(message, running)
      running = running - 1
    end, { on_gap = note })
  ]]
  local expected = { "start" }
  local commands = {}
  for i = 1, 100 do
    commands[i] = { "PUBLISH", "c", i }
    expected[i + 1] = i .. " 1"
  end
  r:pipeline(commands)
  assert.same(expected, seen(101))
  stop()
end))

it("tells 10,000 messages in order", async(function()
  subscribe [[
    local at = 0
    return tg.redis.subscribe("many", function(_, message)
      at = at + 1
      if tonumber(message) ~= at then note("at", at, message) end
      if at == 10000 then note "all" end
    end, { on_gap = note })
  ]]
  for from = 1, 10000, 1000 do
    local commands = {}
    for i = from, from + 999 do commands[#commands + 1] = { "PUBLISH", "many", i } end
    r:pipeline(commands)
  end
  assert.same({ "start", "all" }, seen(2))
  stop()
end))

it("drops what comes while 1,000 wait, and says so where it was dropped", async(function()
  subscribe [[
    return tg.redis.subscribe("flood", function(_, message)
      note(message)
      if message == "1" then
        while not rawget(_G, "go") do tg.timer.sleep(0.002) end
      end
    end, { on_gap = note })
  ]]
  r:must("PUBLISH", "flood", 1)
  seen(2)
  local commands = {}
  for i = 2, 1500 do commands[#commands + 1] = { "PUBLISH", "flood", i } end
  r:pipeline(commands)
  on.gw:wait_log "a plugin's subscription is behind by 1000 messages"
  -- The rest of the burst may still be on its way; a reply on another connection says nothing of it.
  support.wait_for(function() return r:must("CLIENT", "LIST", "TYPE", "pubsub"):find " omem=0 " end, "the burst to be sent")
  on.eval [[ tg.timer.sleep(0.05) rawset(_G, "go", true) ]]
  local list = seen(1003)
  assert.same({ "start", "1", "2", "1001", "overflow" }, { list[1], list[2], list[3], list[1002], list[1003] })
  assert.equal(1003, #list)
  r:must("PUBLISH", "flood", "after")
  assert.equal("after", seen(1004)[1004])
  stop()
end))

it("goes on where a function raises, and stops from within", async(function()
  subscribe [[
    local sub
    sub = tg.redis.subscribe("c", function(_, message)
      note(message)
      if message == "raise" then error "my own mistake" end
      if message == "stop" then sub:stop() end
    end, { on_gap = note })
    return sub
  ]]
  r:pipeline { { "PUBLISH", "c", "raise" }, { "PUBLISH", "c", "next" }, { "PUBLISH", "c", "stop" }, { "PUBLISH", "c", "lost" } }
  assert.same({ "start", "raise", "next", "stop" }, seen(4))
  on.gw:wait_log "a plugin's subscription: .*my own mistake"
  support.wait_for(function() return r:must("PUBLISH", "c", "x") == 0 end, "the connection's end")
  assert.equal(4, #seen(4))
  stop()

  subscribe [[
    local sub
    sub = tg.redis.subscribe("c", function(_, message)
      note(message)
      sub:stop()
      tg.timer.sleep(0.01)
      note "ran to its end"
    end, { on_gap = note })
    return sub
  ]]
  r:pipeline { { "PUBLISH", "c", 1 }, { "PUBLISH", "c", 2 } }
  assert.same({ "start", "1", "ran to its end" }, seen(3))
  support.wait_for(function() return r:must("PUBLISH", "c", "x") == 0 end, "the connection's end")
end))

it("gives up a run that waits when it is stopped", async(function()
  subscribe [[
    return tg.redis.subscribe("c", function()
      note "waits"
      tg.timer.sleep(0.02)
      note "this must not be"
    end, { on_gap = note })
  ]]
  r:must("PUBLISH", "c", 1)
  seen(2)
  stop()
  on.eval "tg.timer.sleep(0.04)"
  assert.same({ "start", "waits" }, seen(2))
end))

it("comes back when Redis does, and says that it was away", async(function()
  local own = support.redis()
  local proxy = support.proxy { to = own.socket }
  local gw = support.gateway {
    config = { redis = "redis://127.0.0.1:" .. proxy.port, routes = { { name = "r", path = "/*", plugins = { listen = {} } } } },
    files = { ["plugins/listen.lua"] = [[
      local tg = require "tollgate"
      local seen = {}
      return { version = "1.0.0", priority = 1, schema = {},
        init = function()
          tg.redis.subscribe({ "c", "d" }, function(channel, message) table.insert(seen, channel .. message) end,
            { on_gap = function(why) table.insert(seen, why) end })
        end,
        access = function() return 200, table.concat(seen, " ") end,
      }
    ]] },
  }
  local function told(text)
    support.wait_for(function() return gw:request({ path = "/" }).body == text end, text)
  end
  told "start"
  own:must("PUBLISH", "c", 1)
  told "start c1"
  own:restart()
  told "start c1 reconnect"
  assert.equal(1, own:must("PUBLISH", "d", 2))
  told "start c1 reconnect d2"
  proxy:refuse(true)
  proxy:cut()
  support.wait_for(function() return own:must("PUBLISH", "c", "lost") == 0 end, "Redis to see it")
  proxy:refuse(false)
  told "start c1 reconnect d2 reconnect"
  own:must("PUBLISH", "c", 3)
  told "start c1 reconnect d2 reconnect c3"
  own:must("CLIENT", "KILL", "TYPE", "pubsub")
  told "start c1 reconnect d2 reconnect c3 reconnect"
  assert.equal(1, select(2, gw:log():gsub("redis: usable[^\n]*\n", "")) - select(2, gw:log():gsub("redis: not usable", "")))
end))

it("begins once Redis is there, and ends with the gateway while a run waits", async(function()
  local own = support.redis()
  own:stop()
  local gw = support.gateway {
    config = { redis = own.unix_url, routes = { { name = "r", path = "/", plugins = { listen = {} } } } },
    files = { ["plugins/listen.lua"] = [[
      local tg = require "tollgate"
      return { version = "1.0.0", priority = 1, schema = {},
        init = function()
          for i = 1, 3 do
            tg.redis.subscribe("c" .. i, function(_, message)
              tg.redis.call("SET", "got" .. i, message)
              tg.timer.sleep(100)
            end)
          end
          tg.redis.subscribe("unused", print, { pattern = true })
        end,
        access = function() return 200 end,
        stop = function() assert(not pcall(tg.redis.subscribe, "c", print)) tg.log.warn "it does not start while it stops" end,
      }
    ]] },
  }
  own:restart()
  support.wait_for(function()
    local counts = own:must("PUBSUB", "NUMSUB", "c1", "c2")
    return counts[2] == 1 and counts[4] == 1
  end, "the subscriptions")
  own:pipeline { { "PUBLISH", "c1", 1 }, { "PUBLISH", "c1", 2 }, { "PUBLISH", "c2", 1 } }
  support.wait_for(function() return own:cmd("GET", "got1") and own:cmd("GET", "got2") end, "the runs")
  gw:stop()
end))

it("says why Redis refuses, and asks again", async(function()
  local own = support.redis()
  own:must("ACL", "SETUSER", "some", "on", ">pw", "~*", "+@all", "resetchannels")
  local gw = support.gateway {
    config = { redis = "unix://some:pw@" .. own.socket, routes = { { name = "r", path = "/", plugins = { listen = {} } } } },
    files = { ["plugins/listen.lua"] = [[
      local tg = require "tollgate"
      return { version = "1.0.0", priority = 1, schema = {},
        init = function() tg.redis.subscribe("c", print, { on_gap = function(why) tg.log.warn("gap: ", why) end }) end,
        access = function() return 200 end,
      }
    ]] },
  }
  gw:wait_log "redis: SUBSCRIBE: NOPERM"
  own:must("ACL", "SETUSER", "some", "allchannels")
  own:must("CLIENT", "KILL", "USER", "some")
  gw:wait_log "gap: start"
end))

it("names the function and says what to do where it is misused", async(function()
  for code, message in pairs {
    ["tg.redis.subscribe('c')"] = "tg.redis.subscribe: fn must be a function, not no value",
    ["tg.redis.subscribe(nil, print)"] = "tg.redis.subscribe: channels must be a string or a list of strings, not nil",
    ["tg.redis.subscribe({}, print)"] = "tg.redis.subscribe: channels is empty",
    ["tg.redis.subscribe({ 'a', false }, print)"] = "tg.redis.subscribe: channels[2] must be a string or a number, not boolean",
    ["tg.redis.subscribe({ a = 1 }, print)"] = "tg.redis.subscribe: unknown option 'a' in channels, which is a list",
    ["tg.redis.subscribe('c', print, true)"] = "tg.redis.subscribe: the options must be a table, not boolean",
    ["tg.redis.subscribe('c', print, { pattern = 1 })"] = "tg.redis.subscribe: pattern must be true or false, not number",
    ["tg.redis.subscribe('c', print, { on_gap = 1 })"] = "tg.redis.subscribe: on_gap must be a function, not number",
    ["tg.redis.subscribe('c', print, { gap = print })"] = "tg.redis.subscribe: unknown option 'gap'; there are: pattern, on_gap",
  } do
    assert.truthy(on.raised(code):find(message, 1, true), code .. ": " .. on.raised(code))
  end
  local dir = support.tmpdir()
  support.write_file(dir .. "/plugins/early.lua", [[
    require("tollgate").redis.subscribe("c", print)
    return { version = "1.0.0", priority = 1, schema = {} }
  ]])
  support.write_file(dir .. "/gateway.lua", [[
    return { plugin_path = { "plugins" }, routes = { { name = "r", path = "/", plugins = { early = {} } } } }
  ]])
  local res = support.tollgate({ "check", "-c", dir .. "/gateway.lua" })
  assert.equal(1, res.code)
  assert.truthy(res.err:find("tg.redis.subscribe: not while a file is loaded; call it in init", 1, true), res.err)
end))
