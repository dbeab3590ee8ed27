-- tg.redis.call and tg.redis.pipeline against a real Redis: every kind of reply, errors, deadlines, and a
-- Redis that is paused, stopped, or was never there.
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
before_each(async(function() r:must "FLUSHALL" end))

local function eval(code, ...) return on.eval("return " .. code:format(...)) end

describe("tg.redis.call", function()
  it("gives values of each type of reply", async(function()
    assert.equal("OK", eval [[ tg.redis.call("SET", "k", "v") ]])
    assert.equal("v", eval [[ tg.redis.call("GET", "k") ]])
    assert.equal(1, eval [[ tg.redis.call("INCR", "n") ]])
    assert.is_true(eval [[ tg.redis.call("GET", "absent") == nil and select("#", tg.redis.call("GET", "absent")) == 1 ]])
    assert.equal("", eval [[ tg.redis.call("ECHO", "") ]])
    assert.is_true(eval [[ tg.redis.call("ECHO", "a\0b\r\n\255") == "a\0b\r\n\255" ]])
    assert.same({ "v", false, "1" }, eval [[ tg.redis.call("MGET", "k", "absent", "n") ]])
    assert.is_true(on.eval [[
      local empty = tg.redis.call("KEYS", "nothing*")
      return type(empty) == "table" and next(empty) == nil
    ]])
    assert.same({ 1, { "two", { false, "three" } }, { err = "ERR my own" } },
      eval [[ tg.redis.call("EVAL", "return {1, {'two', {false, 'three'}}, redis.error_reply('ERR my own')}", 0) ]])
    assert.equal("PONG", eval [[ tg.redis.call "ping" ]])
  end))

  it("keeps numbers exact both ways", async(function()
    for text, value in pairs { ["9007199254740992"] = "2^53", ["-9007199254740991"] = "-(2^53 - 1)", ["0.1"] = "0.1",
      ["1000000"] = "1e6", ["1e+300"] = "1e300", ["0.30000000000000004"] = "0.1 + 0.2", ["inf"] = "1/0", ["-0"] = "-0" } do
      local got = eval('tg.redis.call("ECHO", %s)', value)
      assert.is_true(got == text or (text == "-0" and got == "0"), value .. ": " .. got)
    end
    r:must("SET", "large", "9223372036854775806")
    assert.equal("9223372036854775807", eval [[ tg.redis.call("INCR", "large") ]])
    r:must("SET", "exact", "9007199254740991")
    assert.is_true(eval [[ tg.redis.call("INCR", "exact") == 2^53 ]])
    assert.equal("-9223372036854775807", eval [[ tg.redis.call("DECRBY", "small", "9223372036854775807") ]])
  end))

  it("returns Redis's own errors", async(function()
    r:must("SET", "k", "v")
    local none, err = eval [[ tg.redis.call("LPUSH", "k", "x") ]]
    assert.is_nil(none)
    assert.truthy(err:find("^WRONGTYPE "), err)
    none, err = eval [[ tg.redis.call("NOSUCHCOMMAND") ]]
    assert.is_nil(none)
    assert.truthy(err:find("^ERR unknown command"), err)
  end))

  it("takes a table with a deadline of its own", async(function()
    assert.equal("v", eval [[ tg.redis.call { "SET", "k", "v", timeout = 1 } == "OK" and tg.redis.call { "GET", "k" } ]])
    r:pause()
    local none, err = eval [[ tg.redis.call { "GET", "k", timeout = 0.05 } ]]
    r:resume()
    assert.same({ nil, "timeout" }, { none, err })
    support.wait_for(function() return eval [[ tg.redis.call("GET", "k") ]] == "v" end, "Redis to be usable again")
  end))

  it("carries large values", async(function()
    assert.equal(3000000, on.eval [[
      assert(tg.redis.call("SET", "large", ("x"):rep(3000000)) == "OK")
      return #tg.redis.call("GET", "large")
    ]])
    assert.same({ 1000, "999" }, { on.eval [[
      local args = { "RPUSH", "list" }
      for i = 1, 1000 do args[#args + 1] = i - 1 end
      assert(tg.redis.call(args) == 1000)
      local list = tg.redis.call("LRANGE", "list", 0, -1)
      return #list, list[1000]
    ]] })
  end))

  it("works in a plugin's own coroutines", async(function()
    assert.equal("OK", on.eval [[
      local co = coroutine.wrap(function() return tg.redis.call("SET", "inner", 1) end)
      return co()
    ]])
  end))
end)

describe("tg.redis.pipeline", function()
  it("gives replies in order, errors among them", async(function()
    r:must("SET", "text", "v")
    assert.same({ "OK", 2, "v", false, { "1", false },
      { err = "WRONGTYPE Operation against a key holding the wrong kind of value" }, "PONG" }, on.eval [[
      return tg.redis.pipeline { { "SET", "n", 1 }, { "INCR", "n" }, { "GET", "text" }, { "GET", "absent" },
        { "EVAL", "return {'1', false}", 0 }, { "LPUSH", "text", "x" }, { "PING" } }
    ]])
  end))

  it("has as many commands as a list may have", async(function()
    assert.same({ 10000, 10000, 0 }, { on.eval [[
      local commands = {}
      for i = 1, 10000 do commands[i] = { "INCR", "n" } end
      local replies = tg.redis.pipeline(commands)
      for i = 1, 10000 do assert(replies[i] == i) end
      return #replies, replies[10000], #tg.redis.pipeline {}
    ]] })
  end))

  it("keeps the replies of tasks apart", async(function()
    local tasks = {}
    for i = 1, 20 do
      tasks[i] = function()
        return eval([[ (function()
          for round = 1, 20 do
            local got = tg.redis.pipeline { { "ECHO", %d }, { "ECHO", round }, { "NOSUCH" }, { "ECHO", "end" } }
            assert(got[1] == "%d" and got[2] == tostring(round) and got[3].err and got[4] == "end")
            assert(tg.redis.call("ECHO", "%d.") == "%d.")
          end
          return %d
        end)() ]], i, i, i, i, i)
      end
    end
    for i, got in ipairs(support.all(tasks)) do assert.equal(i, got) end
  end))

  it("ends as a whole where a reply does not come in time", async(function()
    r:pause()
    local none, err = eval [[ tg.redis.pipeline({ { "SET", "p", 1 }, { "SET", "q", 1 } }, { timeout = 0.05 }) ]]
    r:resume()
    assert.same({ nil, "timeout" }, { none, err })
    support.wait_for(function() return eval [[ tg.redis.call "PING" ]] == "PONG" end, "Redis to be usable again")
    assert.same({ "1", "1" }, r:must("MGET", "p", "q"))
  end))
end)

it("never resumes a wait whose request is gone", async(function()
  local before = #on.gw:access_lines()
  r:pause()
  local c = on.gw:connect()
  local code = [[
    tg.redis.pipeline { { "SET", "gone", 1 }, { "SET", "gone", 2 } }
    tg.log.warn "this must not be"
  ]]
  c:send(("POST / HTTP/1.1\r\nhost: h\r\ncontent-length: %d\r\n\r\n%s"):format(#code, code))
  c:close()
  on.gw:wait_access(before + 1)
  r:resume()
  support.wait_for(function() return r:cmd("GET", "gone") == "2" end, "the commands that were sent")
  assert.equal("PONG", eval [[ tg.redis.call "PING" ]])
  on.gw:wait_access(before + 2)
  assert.is_nil(on.gw:log():find("this must not be", 1, true))
end))

it("names the function and says what to do where it is misused", async(function()
  for code, message in pairs {
    ["tg.redis.call()"] = "tg.redis.call: the name of a command is missing",
    ["tg.redis.call {}"] = "tg.redis.call: the name of a command is missing",
    ["tg.redis.call('GET', nil)"] = "tg.redis.call: argument 2 must be a string or a number, not nil",
    ["tg.redis.call('GET', true)"] = "tg.redis.call: argument 2 must be a string or a number, not boolean",
    ["tg.redis.call { 'GET', {} }"] = "tg.redis.call: argument 2 must be a string or a number, not table",
    ["tg.redis.call('SET', 'k', 0/0)"] = "tg.redis.call: argument 3 must be a string or a number, not NaN",
    ["tg.redis.call { 'GET', 'k', timout = 1 }"] = "tg.redis.call: unknown option 'timout' in the command; there is: timeout",
    ["tg.redis.call { 'GET', 'k', timeout = 0 }"] = "tg.redis.call: timeout must be a number of seconds above 0",
    ["tg.redis.call { 'GET', 'k', timeout = '1' }"] = "tg.redis.call: timeout must be a number",
    ["tg.redis.call({ 'GET', 'k' }, 1)"] = "tg.redis.call: with a table there is no further argument",
    ["tg.redis.call('blpop', 'k', 0)"] = "tg.redis.call: blpop waits on the server or changes the connection, "
      .. "which all requests share; use a connection of tg.redis.connect()",
    ["tg.redis.call('XREAD', 'BLOCK', 0, 'STREAMS', 's', 0)"] = "tg.redis.call: XREAD waits on the server",
    ["tg.redis.call('MULTI')"] = "tg.redis.call: MULTI waits on the server or changes the connection",
    ["tg.redis.call('CLIENT', 'ID')"] = "tg.redis.call: CLIENT waits on the server or changes",
    ["tg.redis.call('SUBSCRIBE', 'c')"] = "tg.redis.call: SUBSCRIBE is not for here; use tg.redis.subscribe",
    ["tg.redis.call('MONITOR')"] = "tg.redis.call: MONITOR would break the order of replies",
    ["tg.redis.pipeline()"] = "tg.redis.pipeline: the pipeline must be a table, not no value",
    ["tg.redis.pipeline { 'GET' }"] = "tg.redis.pipeline: command 1: it must be a table, not string",
    ["tg.redis.pipeline { { 'GET', 'k' }, { 'GET', false } }"] =
      "tg.redis.pipeline: command 2: argument 2 must be a string or a number, not boolean",
    ["tg.redis.pipeline { { 'PING' }, {} }"] = "tg.redis.pipeline: command 2: the name of a command is missing",
    ["tg.redis.pipeline { { 'WATCH', 'k' } }"] = "tg.redis.pipeline: command 1: WATCH waits on the server",
    ["tg.redis.pipeline { { 'PING', timeout = 1 } }"] = "tg.redis.pipeline: command 1: unknown option 'timeout'",
    ["tg.redis.pipeline({ { 'PING' } }, { timeout = -1 })"] = "tg.redis.pipeline: timeout must be",
    ["tg.redis.pipeline({ { 'PING' } }, { deadline = 1 })"] = "tg.redis.pipeline: unknown option 'deadline'",
    ["table.sort({ 1, 2 }, function() tg.redis.call 'PING' end)"] = "tg.redis.call cannot wait here",
  } do
    assert.truthy(on.raised(code):find(message, 1, true), code .. ": " .. on.raised(code))
  end
  assert.equal("OK", eval [[ tg.redis.call("XADD", "s", "1-1", "f", "v") and tg.redis.call("SET", "after", 1) ]])
  assert.same({ { "s", { { "1-1", { "f", "v" } } } } }, eval [[ tg.redis.call("XREAD", "COUNT", 1, "STREAMS", "s", 0) ]])
end))

it("tells what was lost on the way from what was never sent", async(function()
  local proxy = support.proxy { to = r.socket, resp = true }
  local gw = support.gateway {
    config = { redis = { url = "redis://127.0.0.1:" .. proxy.port, timeout = 5 },
      routes = { { name = "r", path = "/*", plugins = { ask = {} } } } },
    files = { ["plugins/ask.lua"] = [[
      local tg = require "tollgate"
      return { version = "1.0.0", priority = 1, schema = {}, access = function(_, ctx)
        local reply, err
        if ctx.request.path == "/pipeline" then
          reply, err = tg.redis.pipeline { { "ECHO", "a" }, { "ECHO", "b" } }
        else
          reply, err = tg.redis.call("PING")
        end
        return 200, tostring(reply) .. " " .. tostring(err)
      end }
    ]] },
  }
  assert.equal("PONG nil", gw:request({ path = "/" }).body)
  local sent, waits = proxy.frames.up, {}
  proxy:on_reply(function(value) return value == "b" and "cut" or "pass" end)
  proxy:hold "down"
  for i, path in ipairs { "/pipeline", "/" } do
    waits[i] = support.spawn(function() return gw:request({ path = path }).body end)
  end
  support.wait_for(function() return proxy.frames.up >= sent + 3 end, "three commands")
  proxy:refuse(true)
  proxy:cut()
  for _, wait in ipairs(waits) do assert.equal("nil closed", wait:join()) end
  assert.equal("nil down", gw:request({ path = "/" }).body)
  assert.equal("nil down", gw:request({ path = "/pipeline" }).body)
  proxy:release()
  proxy:refuse(false)
  support.wait_for(function() return gw:request({ path = "/" }).body == "PONG nil" end, "Redis to be usable again")
  assert.equal("nil closed", gw:request({ path = "/pipeline" }).body) -- its first reply came
end))

it("is given up at the gateway's end, when Redis hangs", async(function()
  local redis = support.redis()
  local gw = support.gateway { config = { redis = { url = redis.url, timeout = 30 },
    routes = { { name = "r", path = "/", plugins = { asks = {} } } } }, files = { ["plugins/asks.lua"] = [[
      local tg = require "tollgate"
      local asked = 0
      local function ask()
        asked = asked + 1
        tg.redis.call "PING"
      end
      return { priority = 1, schema = {}, access = function()
        if asked == 0 then tg.timer.after(0, ask) end
        return 200, tostring(asked)
      end }
    ]] } }
  gw:wait_log "redis: usable"
  redis:pause()
  support.wait_for(function() return gw:request({ path = "/" }).body == "1" end, "the command to be sent")
  gw:stop()
  redis:resume()
end))

it("is down in tollgate exec without a Redis", async(function()
  local dir = support.tmpdir()
  support.write_file(dir .. "/x.lua", [[
    local tg = require "tollgate"
    print(tg.redis.call "PING")
    print(tg.redis.pipeline { { "PING" } })
    print(tg.redis.connect())
    print(tg.redis.subscribe("c", function() end))
    print(tg.redis.script("s"):run())
  ]])
  support.write_file(dir .. "/s.lua", "return 1")
  local res = support.tollgate({ "exec", dir .. "/x.lua" })
  assert.equal("", res.err)
  assert.equal(("nil\tdown\n"):rep(5), res.out)
  assert.equal(0, res.code)
  res = support.tollgate({ "exec", "--redis", r.unix_url, dir .. "/x.lua" })
  assert.equal("", res.err)
  assert.truthy(res.out:find("^PONG\ntable: .*\nuserdata: .*\nuserdata: .*\n1\n$"), res.out)
  assert.equal(0, res.code)
end))
