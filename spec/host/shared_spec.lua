-- tg.shared: what goes in comes out, with OpenResty's results; bounds, misuse, and a small dictionary that is full.
local support = require "spec.support"
local probe = require "spec.host.probe"
local async = support.async

local on, up, down = probe.shared { shared = { size = "1m" } }
setup(up)
teardown(down)

it("keeps strings, numbers and booleans, and bytes as they are", async(function()
  assert.same({ "text", 1.5, true, false, 9007199254740992, -0.25 }, { on.eval [[
    local out = {}
    for i, value in ipairs { "text", 1.5, true, false, 2 ^ 53, -0.25 } do
      assert(tg.shared.set("keeps" .. i, value) == true)
      out[i] = tg.shared.get("keeps" .. i)
    end
    return unpack(out)
  ]] })
  assert.is_true(on.eval [[
    local bytes = {}
    for i = 0, 255 do bytes[#bytes + 1] = string.char(i) end
    bytes = table.concat(bytes)
    for n = 0, 2000, 7 do
      local value = bytes:rep(10):sub(1, n)
      assert(tg.shared.set(bytes .. n, value))
      assert(tg.shared.get(bytes .. n) == value, n)
    end
    assert(tg.shared.set("nan", 0 / 0))
    local nan = tg.shared.get "nan"
    return nan ~= nan and tg.shared.set("inf", math.huge) and tg.shared.get "inf" == math.huge
  ]])
end))

it("is one dictionary for all requests, until an entry is deleted", async(function()
  on.eval [[ tg.shared.set("all", "here") ]]
  assert.equal("here", on.eval [[ return tg.shared.get "all" ]])
  assert.same({ true, true }, { on.eval [[ return tg.shared.delete "all", tg.shared.delete "all" ]] })
  assert.equal(0, on.eval [[ return #{ tg.shared.get "all" } ]])
  on.eval [[ tg.shared.set("all", 1) tg.shared.set("all", nil) ]]
  assert.is_nil((on.eval [[ return tg.shared.get "all" ]]))
  -- A number is the key of its text.
  assert.equal("seven", on.eval [[ tg.shared.set(7, "seven") return tg.shared.get "7" ]])
end))

it("adds only what is not there", async(function()
  assert.same({ true, nil, false }, { on.eval [[ return tg.shared.add("add", "first") ]] })
  assert.same({ nil, "exists" }, { on.eval [[ return tg.shared.add("add", "second") ]] })
  assert.equal("first", on.eval [[ return tg.shared.get "add" ]])
end))

it("counts", async(function()
  assert.same({ nil, "not found" }, { on.eval [[ return tg.shared.incr("count", 1) ]] })
  assert.same({ 11, nil, false }, { on.eval [[ return tg.shared.incr("count", 1, 10) ]] })
  assert.same({ 9.5 }, { (on.eval [[ return tg.shared.incr("count", -1.5, 10) ]]) })
  assert.equal(9.5, on.eval [[ return tg.shared.get "count" ]])
  assert.same({ nil, "not a number" }, { on.eval [[ tg.shared.set("count", "9") return tg.shared.incr("count", 1, 0) ]] })
end))

it("swaps a value for another one only where it is what it was", async(function()
  assert.same({ nil, "changed" }, { on.eval [[ return tg.shared.swap("swap", "a", "b") ]] })
  assert.same({ true, nil, false }, { on.eval [[ return tg.shared.swap("swap", nil, "a") ]] })
  assert.same({ nil, "changed" }, { on.eval [[ return tg.shared.swap("swap", nil, "b") ]] })
  assert.same({ nil, "changed" }, { on.eval [[ return tg.shared.swap("swap", "A", "b") ]] })
  assert.same({ true, nil, false }, { on.eval [[ return tg.shared.swap("swap", "a", 1) ]] })
  assert.same({ nil, "changed" }, { on.eval [[ return tg.shared.swap("swap", "1", 2) ]] })
  assert.same({ true, true }, { on.eval [[ return tg.shared.swap("swap", 1, true, 100), tg.shared.ttl "swap" > 0 ]] })
  assert.same({ true, 0 }, { on.eval [[ return tg.shared.swap("swap", true, "\0x"), tg.shared.ttl "swap" ]] })
  assert.equal("\0x", on.eval [[ return tg.shared.get "swap" ]])
  assert.same({ nil, "no memory" }, { on.eval [[ return tg.shared.swap("swap", "\0x", ("x"):rep(2 ^ 18)) ]] })
end))

it("lets entries expire", async(function()
  -- The longest is long enough for any machine, the shortest is waited for.
  assert.same({ true, true, true }, { on.eval [[
    tg.shared.set("brief", 1, 0.02)
    tg.shared.add("brief2", 1, 0.0001)
    tg.shared.incr("brief3", 1, 0, 0.02)
    tg.shared.set("long", 1, 1000)
    tg.shared.set("ever", 1)
    local ttl = tg.shared.ttl "long"
    local function gone(key)
      for _ = 1, 1000 do
        if tg.shared.get(key) == nil then return true end
        tg.timer.sleep(0.005)
      end
    end
    assert(ttl > 0 and ttl <= 1000 and tg.shared.ttl "ever" == 0)
    return gone "brief", gone "brief2", gone "brief3"
  ]] })
  assert.same({ 1, 1 }, { on.eval [[ return tg.shared.get "long", tg.shared.get "ever" ]] })
  assert.same({ nil, "not found" }, { on.eval [[ return tg.shared.ttl "brief" ]] })
  assert.same({ nil, "not found" }, { on.eval [[ return tg.shared.expire("brief", 1) ]] })
  assert.same({ true, true, true }, { on.eval [[
    return tg.shared.expire("long", 0), tg.shared.ttl "long" == 0, tg.shared.expire("ever", 0.001)
  ]] })
  support.wait_for(function() return on.eval [[ return tg.shared.get "ever" == nil ]] end, "the entry's end")
end))

it("refuses keys and values that are too large, as a failure of the request's data", async(function()
  assert.same({ nil, "empty key" }, { on.eval [[ return tg.shared.get "" ]] })
  assert.same({ nil, "key too long" }, { on.eval [[ return tg.shared.set(("k"):rep(65536), 1) ]] })
  for _, call in ipairs { "get(k)", "add(k, 1)", "incr(k, 1)", "delete(k)", "expire(k, 1)", "ttl(k)", "set(k, nil)",
    "swap(k, 1, 2)" } do
    assert.same({ nil, "key too long" }, { on.eval("local k = ('k'):rep(65536) return tg.shared." .. call) })
  end
  assert.equal("edge", on.eval [[ local k = ("k"):rep(65535) tg.shared.set(k, "edge") return tg.shared.get(k) ]])
  -- What did not fit leaves what was there.
  assert.same({ "no memory", "old" }, { on.eval [[
    tg.shared.set("large", "old")
    local ok, err = tg.shared.set("large", ("x"):rep(2 ^ 18))
    assert(ok == nil)
    return err, tg.shared.get "large"
  ]] })
  assert.equal(200000, on.eval [[ tg.shared.set("large", ("x"):rep(200000)) return #tg.shared.get "large" ]])
end))

it("lets what was not used for longest go when it is full", async(function()
  local first, forced, kept, newest = on.eval [[
    local value, forced = ("x"):rep(900), 0
    tg.shared.set("full first", 1)
    tg.shared.set("full kept", 1)
    for i = 1, 5000 do
      local _, _, one = tg.shared.set("full" .. i, value)
      forced = forced + (one and 1 or 0)
      assert(tg.shared.get("full" .. i) == value)
      assert(tg.shared.get "full kept" == 1)
    end
    return tg.shared.get "full first", forced > 1000, tg.shared.get "full kept", #tg.shared.get "full5000"
  ]]
  assert.same({ nil, true, 1, 900 }, { first, forced, kept, newest })
end))

it("names the function and says what to do where it is misused", async(function()
  for code, message in pairs {
    ["tg.shared.get()"] = "tg.shared.get: the key must be a string, not no value",
    ["tg.shared.get({})"] = "tg.shared.get: the key must be a string, not table",
    ["tg.shared.set('k', {})"] = "tg.shared.set: the value must be a string, a number or a boolean, not table (tg.json.encode",
    ["tg.shared.set('k')"] = "tg.shared.set: the value must be",
    ["tg.shared.add('k', nil)"] = "tg.shared.add: the value must be",
    ["tg.shared.set('k', 1, -1)"] = "tg.shared.set: the time to live must be a number of seconds from 0",
    ["tg.shared.set('k', 1, '1')"] = "tg.shared.set: the time to live",
    ["tg.shared.set('k', 1, 0/0)"] = "tg.shared.set: the time to live",
    ["tg.shared.swap('k', {}, 1)"] = "tg.shared.swap: the value must be a string, a number or a boolean, not table",
    ["tg.shared.swap('k', 1)"] = "tg.shared.swap: the value must be",
    ["tg.shared.swap('k', 1, 2, -1)"] = "tg.shared.swap: the time to live",
    ["tg.shared.expire('k')"] = "tg.shared.expire: the time to live must be a number",
    ["tg.shared.incr('k', '1')"] = "tg.shared.incr: by must be a number, not string",
    ["tg.shared.incr('k', 1, true)"] = "tg.shared.incr: init must be a number, not boolean",
    ["tg.shared.incr('k', 1, nil, 1)"] = "tg.shared.incr: an init ttl needs an init",
  } do
    assert.truthy(on.raised(code):find(message, 1, true), code .. ": " .. on.raised(code))
  end
end))

it("is not there while files load", async(function()
  local dir = support.tmpdir()
  support.write_file(dir .. "/plugins/early.lua", [[
    require("tollgate").shared.get "k"
    return { version = "1.0.0", priority = 1, schema = {} }
  ]])
  support.write_file(dir .. "/gateway.lua", [[
    return { plugin_path = { "plugins" }, routes = { { name = "r", path = "/", plugins = { early = {} } } } }
  ]])
  local res = support.tollgate({ "check", "-c", dir .. "/gateway.lua" })
  assert.equal(1, res.code)
  assert.truthy(res.err:find("tg.shared.get: the dictionary is not there while files load; call it in init", 1, true), res.err)
end))

it("serves init and stop too", async(function()
  local gw = support.gateway {
    config = { redis = "redis://127.0.0.1:1/0", routes = { { name = "r", path = "/", plugins = { both = {} } } } },
    files = { ["plugins/both.lua"] = [[
      local tg = require "tollgate"
      return { version = "1.0.0", priority = 1, schema = {},
        init = function() tg.shared.set("both", "from init") end,
        access = function() return 200, tg.shared.get "both" end,
        stop = function() tg.log.warn("stop sees ", tg.shared.get "both") end,
      }
    ]] },
  }
  assert.equal("from init", gw:request({ path = "/" }).body)
  gw:stop()
  assert.truthy(gw.log():find("stop sees from init", 1, true))
end))
