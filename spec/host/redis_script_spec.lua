-- tg.redis.script: scripts beside a plugin's file and in a plugin's folder, on a Redis that forgets them.
local support = require "spec.support"
local async = support.async

local ADD = "-- KEYS: counter. ARGV: how much.\nreturn redis.call('INCRBY', KEYS[1], ARGV[1])\n"

-- Runs the Lua code of a request's body with `tg` and the plugin's own `scripts` at hand.
local function plugin(scripts)
  return [[
    local tg = require "tollgate"
    local scripts = { ]] .. scripts .. [[ }
    return { version = "1.0.0", priority = 1, schema = {}, access = function(_, ctx)
      local chunk = assert(loadstring(ctx.request:body(), "=probe"))
      setfenv(chunk, setmetatable({ tg = tg, scripts = scripts }, { __index = _G }))
      local out = { pcall(chunk) }
      for i = 1, table.maxn(out) do out[i] = out[i] == nil and tg.json.null or out[i] end
      return 200, tg.json.encode(out)
    end }
  ]]
end

local function start(r, plugins, files)
  files["plugins/add.lua"] = files["plugins/add.lua"] or ADD
  return support.gateway { files = files,
    config = { redis = { url = r.unix_url, timeout = 5 }, routes = { { name = "r", path = "/*", plugins = plugins } } } }
end

local function eval(gw, code)
  local res = gw:request { method = "POST", path = "/", body = code }
  assert.equal(200, res.status, res.body)
  local out = support.decode(res.body)
  return unpack(out, 1, table.maxn(out))
end

it("runs the script beside the plugin's file or in its folder", async(function()
  local r = support.redis()
  local gw = start(r, { flat = {} }, {
    ["plugins/flat.lua"] = plugin [[ add = tg.redis.script "add", folder = require("deep.more") ]],
    ["plugins/deep/more.lua"] = [[ local s = require("tollgate").redis.script "own" return s ]],
    ["plugins/deep/own.lua"] = "return {'own', #KEYS, #ARGV, KEYS[2], ARGV[1]}",
  })
  assert.same({ true, 5 }, { eval(gw, [[ return scripts.add:run({ "n" }, { 5 }) ]]) })
  assert.same({ true, 7 }, { eval(gw, [[ return scripts.add:run({ "n" }, { "2" }, { timeout = 1 }) ]]) })
  assert.same({ true, { "own", 2, 1, "b", "0.5" } }, { eval(gw, [[ return scripts.folder:run({ "a", "b" }, { 0.5 }) ]]) })
  assert.same({ true, { "own", 0, 0 } }, { eval(gw, [[ return scripts.folder:run() ]]) })
  assert.equal("7", r:cmd("GET", "n"))
  gw:stop()

  gw = start(r, { boxed = {} }, { ["plugins/boxed/init.lua"] = plugin [[ get = tg.redis.script "get" ]],
    ["plugins/boxed/get.lua"] = "return redis.call('GET', KEYS[1])" })
  assert.same({ true, "7" }, { eval(gw, [[ return scripts.get:run { "n" } ]]) })
end))

it("sends the text again where Redis has forgotten it, also to all who ask at once", async(function()
  local r = support.redis()
  local gw = start(r, { flat = {} }, { ["plugins/flat.lua"] = plugin [[ add = tg.redis.script "add" ]] })
  assert.same({ true, 1 }, { eval(gw, [[ return scripts.add:run({ "n" }, { 1 }) ]]) })
  for i = 1, 3 do
    r:must("SCRIPT", "FLUSH")
    local asks = {}
    for k = 1, 5 do asks[k] = function() return (eval(gw, [[ assert(scripts.add:run({ "n" }, { 1 })) ]])) end end
    assert.same({ true, true, true, true, true }, support.all(asks))
    assert.equal(tostring(1 + 5 * i), r:cmd("GET", "n"))
  end
end))

it("is there ahead on each new connection", async(function()
  local r = support.redis()
  local gw = start(r, { flat = {} }, { ["plugins/flat.lua"] = plugin [[ add = tg.redis.script "add" ]] })
  assert.same({ true, 1 }, { eval(gw, [[ return scripts.add:run({ "n" }, { 1 }) ]]) })
  r:restart()
  support.wait_for(function() return eval(gw, [[ assert(tg.redis.call "PING") ]]) end, "Redis to be usable again")
  local sha = r:must("EVAL", "return redis.sha1hex(ARGV[1])", 0, ADD)
  assert.same({ 1 }, r:must("SCRIPT", "EXISTS", sha))
end))

it("reads a script once, and gives its errors", async(function()
  local r = support.redis()
  local gw = start(r, { flat = {} }, {
    ["plugins/flat.lua"] = plugin [[ again = function() return tg.redis.script "add" end, wrong = tg.redis.script "wrong",
      broken = tg.redis.script "broken" ]],
    ["plugins/wrong.lua"] = "return redis.call('LPUSH', KEYS[1], 'x')",
    ["plugins/broken.lua"] = "this is no Lua",
  })
  assert.same({ true, true }, { eval(gw, [[
    local first, _ = scripts.again()
    os.remove("]] .. gw.dir .. [[/plugins/add.lua")
    local second, _ = scripts.again()
    return rawequal(first, second)
  ]]) })
  r:must("SET", "text", "v")
  local ok, none, err = eval(gw, [[ return scripts.wrong:run { "text" } ]])
  assert.is_true(ok)
  assert.is_nil(none)
  assert.truthy(err:find("WRONGTYPE", 1, true), err)
  ok, none, err = eval(gw, [[ return scripts.broken:run() ]])
  assert.same({ true, nil }, { ok, none })
  assert.truthy(err:find("Error compiling script", 1, true), err)
  r:pause()
  ok, none, err = eval(gw, [[ return scripts.wrong:run({ "text" }, nil, { timeout = 0.05 }) ]])
  r:resume()
  assert.same({ true, nil, "timeout" }, { ok, none, err })
end))

it("ends cleanly while a script is under way", async(function()
  local r = support.redis()
  local gw = support.gateway {
    files = { ["plugins/late.lua"] = [[
      local tg = require "tollgate"
      local slow = tg.redis.script "slow"
      return { version = "1.0.0", priority = 1, schema = {}, init = function()
        tg.timer.after(0, function()
          tg.redis.call("SET", "under", "way")
          slow:run({ "k" }, nil, { timeout = 60 })
        end)
      end, access = function() return 200 end }
    ]], ["plugins/slow.lua"] = "return redis.call('SET', KEYS[1], 1)" },
    config = { redis = r.unix_url, routes = { { name = "r", path = "/", plugins = { late = {} } } } },
  }
  support.wait_for(function() return r:cmd("GET", "under") end, "the timer")
  r:pause()
  gw:stop()
  r:resume()
end))

it("raises with the path where it is misused", async(function()
  local r = support.redis()
  local gw = start(r, { flat = {} }, {
    ["plugins/flat.lua"] = plugin [[
      add = tg.redis.script "add", load = function(name) local s = tg.redis.script(name) return s end
    ]],
    ["plugins/empty.lua"] = "",
  })
  local dir = gw.dir .. "/plugins/"
  for code, message in pairs {
    ["scripts.load 'none'"] = "tg.redis.script: " .. dir .. "none.lua: no such file or directory",
    ["scripts.load 'empty'"] = "tg.redis.script: " .. dir .. "empty.lua: must be a file of 1 byte to 1 MiB",
    ["scripts.load '../add'"] = "tg.redis.script: '../add' must be a file's name",
    ["scripts.load ''"] = "tg.redis.script: '' must be a file's name",
    ["scripts.load()"] = "tg.redis.script: the name must be a string, not nil",
    ["scripts.add:run('n', { 1 })"] = dir .. "add.lua: script:run: keys must be a table, not string",
    ["scripts.add:run({ 'n', {} })"] = dir .. "add.lua: script:run: keys[2] must be a string or a number, not table",
    ["scripts.add:run({ 'n' }, { nil, 1 })"] = dir .. "add.lua: script:run: args is a list with holes",
    ["scripts.add:run({ key = 'n' })"] = dir .. "add.lua: script:run: unknown option 'key' in keys, which is a list",
    ["scripts.add:run({ 'n' }, { 1 }, { time = 1 })"] = dir .. "add.lua: script:run: unknown option 'time'",
  } do
    local ok, err = eval(gw, code)
    assert.is_false(ok, code)
    assert.truthy(err:find(message, 1, true), code .. ": " .. err)
  end
  gw:stop()

  local tmp = support.tmpdir()
  support.write_file(tmp .. "/plugins/lost.lua", plugin [[ none = tg.redis.script "nowhere" ]])
  support.write_file(tmp .. "/gateway.lua", [[
    return { plugin_path = { "plugins" }, routes = { { name = "r", path = "/", plugins = { lost = {} } } } }
  ]])
  local res = support.tollgate({ "check", "-c", tmp .. "/gateway.lua" })
  assert.equal(1, res.code)
  assert.truthy(res.err:find("plugins/nowhere.lua: no such file or directory", 1, true), res.err)
end))
