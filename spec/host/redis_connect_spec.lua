-- tg.redis.connect against a real Redis: transactions, commands that wait, what makes a connection unfit to be lent
-- again, the bound of the pool, and who gives a connection back.
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

-- Runs code that has a connection as `c`, which it does not release.
local function eval(code, ...) return on.eval("local c = assert(tg.redis.connect())\n" .. code:format(...)) end

local function connections()
  return select(2, r:must("CLIENT", "LIST"):gsub("cmd=", ""))
end

-- Whether a client waits in BLPOP right now.
local function blocked() return r:must("CLIENT", "LIST"):find " flags=b%a* [^\n]*cmd=blpop" end

it("runs a transaction", async(function()
  assert.same({ "OK", "QUEUED", "QUEUED", { "OK", 2 }, "2" }, { eval [[
    return c:call "MULTI", c:call("SET", "n", 1), c:call { "INCR", "n" }, c:call "EXEC", c:call("GET", "n")
  ]] })
  assert.same({ "OK", "QUEUED", "QUEUED",
    { "OK", { err = "WRONGTYPE Operation against a key holding the wrong kind of value" } } },
    eval [[ return c:pipeline({ { "MULTI" }, { "SET", "t", "v" }, { "LPUSH", "t", "x" }, { "EXEC" } }, { timeout = 2 }) ]])
  assert.is_nil(eval [[
    assert(c:call("WATCH", "n") == "OK")
    tg.redis.call("SET", "n", "from elsewhere")
    c:call "MULTI"
    c:call("SET", "n", "mine")
    return c:call "EXEC"
  ]])
  assert.equal("from elsewhere", r:cmd("GET", "n"))
end))

it("waits on the server beyond the timeout", async(function()
  local popped = support.spawn(function()
    return on.eval [[
      local c = tg.redis.connect()
      return c:call { "BLPOP", "list", 10, timeout = 0.05 }
    ]]
  end)
  support.wait_for(blocked, "BLPOP")
  assert.equal("PONG", on.eval [[ return tg.redis.call "PING" ]])
  r:must("RPUSH", "list", "x")
  assert.same({ "list", "x" }, popped:join())
  -- Each waits for longer than its timeout, and Redis takes up to 0.1 s more.
  local waits = {}
  for i, command in ipairs { [["BLPOP", "nothing", 0.5]], [["BLMPOP", 0.5, 1, "nothing", "LEFT"]],
    [["XREAD", "COUNT", 1, "BLOCK", 500, "STREAMS", "nothing", "$"]], [["BZPOPMIN", "nothing", "0.5"]],
    [["BRPOPLPUSH", "nothing", "to", 0.5]] } do
    waits[i] = function()
      return eval("local reply, err = c:call { %s, timeout = 0.4 } return reply == nil and err == nil", command)
    end
  end
  waits[6] = function() return eval [[ c:call("SET", "w", 1); return c:call { "WAIT", 1, 500, timeout = 0.4 } == 0 ]] end
  waits[7] = function()
    return eval [[
      local got = assert(c:pipeline({ { "BLPOP", "nothing", 0.5 }, { "BLPOP", "nothing", 0.5 }, { "PING" } }, { timeout = 0.4 }))
      return got[1] == false and got[2] == false and got[3] == "PONG"
    ]]
  end
  assert.same({ true, true, true, true, true, true, true }, support.all(waits))
end))

describe("a connection that is given back", function()
  local own, own_up, own_down = probe.shared(config) -- with an empty pool
  setup(own_up)
  teardown(own_down)

  -- Whether no connection was made between a release and the next use.
  local function reused(code)
    return own.eval(([[
      local function count()
        return tg.redis.call("INFO", "stats"):match "total_connections_received:(%%d+)"
      end
      local c = assert(tg.redis.connect())
      assert(c:call "PING" == "PONG")
      local before = count()
      %s
      c:release()
      c = assert(tg.redis.connect())
      assert(c:call "PING" == "PONG")
      return count() == before
    ]]):format(code))
  end

  it("is lent again where it is as it was", async(function()
    for _, code in ipairs { "", [[c:call "MULTI"; c:call "EXEC"]], [[c:call "MULTI"; c:call "DISCARD"]],
      [[c:call("WATCH", "k"); c:call "UNWATCH"]], [[c:pipeline { { "WATCH", "k" }, { "MULTI" }, { "EXEC" } }]],
      [[c:call("BLPOP", "k", 0.001)]], [[c:call "NOSUCH"]] } do
      assert.is_true(reused(code), code)
    end
  end))

  it("is closed where its state may have changed", async(function()
    for _, code in ipairs { [[c:call("SELECT", 1)]], [[c:call "MULTI"]], [[c:call("WATCH", "k")]], [[c:pipeline { { "MULTI" } }]],
      [[c:call("CLIENT", "SETNAME", "me")]], [[c:call "RESET"]],
      [[tg.timer.after(0, function() c:call("BLPOP", "k", 10) end); tg.timer.sleep(0.02)]] } do
      assert.is_false(reused(code), code)
    end
    assert.same({ "0", "none" }, { own.eval [[
      local c = tg.redis.connect()
      c:call("SELECT", 1)
      c:call("SET", "one", 1)
      c:release()
      c = tg.redis.connect()
      return c:call("CLIENT", "INFO"):match " db=(%d+)", c:call("TYPE", "one")
    ]] })
  end))
end)

it("gives back what a task forgot, and what is collected", async(function()
  for _ = 1, 40 do assert.equal("PONG", eval [[ return c:call "PING" ]]) end
  assert.equal(64, on.eval [[
    local n = 0
    for _ = 1, 64 do
      local c = assert(tg.redis.connect { timeout = 5 })
      n = n + (c:call "PING" == "PONG" and 1 or 0)
      c = nil
      collectgarbage()
    end
    return n
  ]])
  local taken = on.eval [[
    local ended
    tg.timer.after(0, function() ended = tg.redis.connect() end)
    tg.timer.sleep(0.05)
    local ok, err = pcall(ended.call, ended, "PING")
    ended:release()
    return tostring(ok) .. " " .. err
  ]]
  assert.equal("false conn:call: this connection has been released, by release() or with the task that took it", taken)
  assert.truthy(on.raised([[ local c = tg.redis.connect(); c:release(); c:release(); c:pipeline {} ]])
    :find("conn:pipeline: this connection has been released", 1, true))
end))

it("lends a bounded number, and the longest wait is served first", async(function()
  assert.same({ 16, "timeout", true, true }, { on.eval [[
    local taken, order = {}, {}
    for i = 1, 16 do taken[i] = assert(tg.redis.connect()) end
    local none, err = tg.redis.connect { timeout = 0.05 }
    assert(none == nil)
    for i = 1, 3 do
      tg.timer.after(0, function()
        local c = assert(tg.redis.connect { timeout = 5 })
        assert(c:call "PING" == "PONG")
        order[#order + 1] = i
        tg.timer.sleep(0.01)
      end)
      tg.timer.sleep(0.01)
    end
    assert(#order == 0)
    taken[1]:call("SELECT", 2)
    taken[1]:release()
    while #order < 3 do tg.timer.sleep(0.005) end
    for i = 2, 16 do taken[i]:release() end
    return #taken, err, order[1] == 1, order[2] == 2 and order[3] == 3
  ]] })
  assert.is_true(connections() <= 18) -- 16, the shared one, the spec's own
end))

it("forgets a wait that was given up", async(function()
  local holder = support.spawn(function()
    return on.eval [[
      local taken = {}
      for i = 1, 16 do taken[i] = assert(tg.redis.connect()) end
      tg.redis.call("SET", "all", "taken")
      while not tg.redis.call("GET", "enough") do tg.timer.sleep(0.005) end
      return #taken
    ]]
  end)
  support.wait_for(function() return r:cmd("GET", "all") end, "all connections to be taken")
  local before = #on.gw:access_lines()
  local code = [[ tg.redis.connect { timeout = 20 } tg.log.warn "this must not be" ]]
  for _ = 1, 3 do
    local c = on.gw:connect()
    c:send(("POST / HTTP/1.1\r\nhost: h\r\ncontent-length: %d\r\n\r\n%s"):format(#code, code))
    c:close()
  end
  on.gw:wait_access(before + 3)
  r:must("SET", "enough", 1)
  assert.equal(16, holder:join())
  assert.equal("PONG", eval [[ return c:call "PING" ]])
  assert.is_nil(on.gw:log():find("this must not be", 1, true))
end))

it("gives up what waits on the server when its request goes", async(function()
  local code = [[ tg.redis.connect():call("BLPOP", "never", 0) ]]
  local c = on.gw:connect()
  c:send(("POST / HTTP/1.1\r\nhost: h\r\ncontent-length: %d\r\n\r\n%s"):format(#code, code))
  support.wait_for(blocked, "BLPOP")
  c:close()
  support.wait_for(function() return not blocked() end, "BLPOP to be gone")
  r:must("RPUSH", "never", "x")
  assert.equal(1, r:cmd("LLEN", "never"))
end))

it("is closed for good once it was lost", async(function()
  assert.same({ "closed", "closed", "closed", "PONG" }, { on.eval [[
    local c, other = tg.redis.connect(), tg.redis.connect()
    local id = c:call("CLIENT", "ID")
    local got = {}
    tg.timer.after(0, function() got[1] = select(2, c:call("BLPOP", "k", 0)) end)
    tg.timer.sleep(0.02)
    assert(other:call("CLIENT", "KILL", "ID", id) == 1)
    while not got[1] do tg.timer.sleep(0.005) end
    got[2] = select(2, c:call "PING")
    got[3] = select(2, c:pipeline { { "PING" } })
    c:release()
    got[4] = tg.redis.connect():call "PING"
    return got[1], got[2], got[3], got[4]
  ]] })
  r:pause()
  local got = { eval [[ return select(2, c:call { "PING", timeout = 0.05 }), select(2, c:call "PING") ]] }
  r:resume()
  assert.same({ "timeout", "down" }, got)
end))

it("says down, at once, where Redis is known not to answer", async(function()
  local own = support.redis()
  local gw = support.gateway {
    config = { redis = { url = own.unix_url, timeout = 20 }, routes = { { name = "r", path = "/*", plugins = { ask = {} } } } },
    files = { ["plugins/ask.lua"] = [[
      local tg = require "tollgate"
      return { version = "1.0.0", priority = 1, schema = {},
        init = function()
          tg.timer.after(0, function() tg.log.warn("init got ", (assert(tg.redis.connect()):call "PING")) end)
        end,
        access = function()
          local c, err = tg.redis.connect()
          if not c then return 200, err end
          return 200, c:call "PING"
        end,
      }
    ]] },
  }
  gw:wait_log "init got PONG"
  assert.equal("PONG", gw:request({ path = "/" }).body)
  own:stop()
  gw:wait_log "redis: not usable"
  assert.equal("down", gw:request({ path = "/" }).body)
  own:restart()
  support.wait_for(function() return gw:request({ path = "/" }).body == "PONG" end, "a connection")
end))

it("ends with the gateway while connections are lent and wanted", async(function()
  local gw = support.gateway {
    config = { redis = r.unix_url, routes = { { name = "r", path = "/*", plugins = { hold = {} } } } },
    files = { ["plugins/hold.lua"] = [[
      local tg = require "tollgate"
      local kept = {}
      return { version = "1.0.0", priority = 1, schema = {},
        init = function()
          for i = 1, 18 do
            tg.timer.after(0, function()
              kept[i] = assert(tg.redis.connect { timeout = 100 })
              tg.redis.call("INCR", "kept")
              kept[i]:call("BLPOP", "never", 0)
            end)
          end
        end,
      }
    ]] },
  }
  support.wait_for(function() return r:cmd("GET", "kept") == "16" end, "16 connections")
  gw:stop()
end))

it("names the function and says what to do where it is misused", async(function()
  for code, message in pairs {
    ["tg.redis.connect(1)"] = "tg.redis.connect: the options must be a table, not number",
    ["tg.redis.connect { time = 1 }"] = "tg.redis.connect: unknown option 'time' in the options; there is: timeout",
    ["tg.redis.connect():call('SUBSCRIBE', 'c')"] = "conn:call: SUBSCRIBE is not for here; use tg.redis.subscribe",
    ["tg.redis.connect():call('MONITOR')"] = "conn:call: MONITOR would break the order of replies",
    ["tg.redis.connect():call('CLIENT', 'REPLY', 'OFF')"] = "conn:call: CLIENT would break the order of replies",
    ["tg.redis.connect():call('HELLO', 3)"] = "conn:call: HELLO would break",
    ["tg.redis.connect():call()"] = "conn:call: the name of a command is missing",
    ["tg.redis.connect():pipeline { { 'PING' }, 'PING' }"] = "conn:pipeline: command 2: it must be a table",
    ["tg.redis.connect().call('PING')"] = "bad argument #1 to 'call' (tollgate.redis.conn expected",
  } do
    assert.truthy(on.raised(code):find(message, 1, true), code .. ": " .. on.raised(code))
  end
end))
