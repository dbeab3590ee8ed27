-- Where a plugin may wait: at any depth of its own coroutines, in pcall, metamethods and iterators. Where LuaJIT cannot yield it
-- raises and says so, and nothing of the wait is left. A request that ends drops its coroutine and what it waits for.
local support = require "spec.support"
local rig = require "spec.host.plugin_rig"
local async = support.async

-- Runs the code of the request's body; `wait()` is a wait of the host.
local plugin = [[
  local tg = require "tollgate"
  local counts = { begun = 0, woken = 0, freed = 0 }
  local function watch(where)
    counts.begun = counts.begun + 1
    local proxy = newproxy(true)
    getmetatable(proxy).__gc = function() counts.freed = counts.freed + 1 end
    return proxy
  end
  return {
    access = function(_, ctx)
      local path = ctx.request.path
      if path == "/counts" then
        collectgarbage(); collectgarbage()
        return 200, { begun = counts.begun, woken = counts.woken, freed = counts.freed, kb = collectgarbage("count") }
      elseif path == "/sleep" then
        local held = watch()
        tg.timer.sleep(1000)
        counts.woken = counts.woken + 1
        return 200, tostring(held)
      elseif path == "/redis" then
        local held = watch()
        local _, err = tg.redis.call("GET", "k")
        counts.woken = counts.woken + 1
        return 200, tostring(held) .. tostring(err)
      elseif path == "/body" then
        local held = watch()
        local text = ctx.request:body()
        counts.woken = counts.woken + 1
        return 200, text .. tostring(held)
      elseif path == "/nested" then
        local held = watch()
        coroutine.wrap(function() coroutine.wrap(function() tg.timer.sleep(1000) end)() end)()
        counts.woken = counts.woken + 1
        return 200, tostring(held)
      elseif path == "/quick" then
        ctx.scratch = { ctx.request.headers.host, ctx.request:body() }
        return 200, "quick"
      end
      local chunk = assert(loadstring(ctx.request:body(), "=probe"))
      local function wait(...) tg.timer.sleep(0.001); return ... end
      setfenv(chunk, setmetatable({ tg = tg, ctx = ctx, wait = wait }, { __index = _G }))
      local ok, result = pcall(chunk)
      return 200, { ok, tostring(result) }
    end,
    response = function(_, ctx) if ctx.request.path == "/response" then watch(); tg.timer.sleep(1000) end end,
  }
]]

local on, up, down = rig.shared(function()
  local redis = support.redis()
  return { plugins = { wait = plugin }, redis = redis,
    config = { redis = { url = redis.url, timeout = 3600, connect_timeout = 5 } } }
end)
setup(up)
teardown(down)

local function run(code)
  local res = on.gw:request { path = "/run", body = code }
  assert.equal(200, res.status, res.body)
  local result = support.json(res)
  return result[1], result[2]
end

local function returns(expected, code)
  assert.same({ true, expected }, { run(code) })
end

local function raises(pattern, code)
  local ok, message = run(code)
  assert.is_false(ok)
  assert.matches(pattern, message)
end

describe("a wait works", function()
  it("in coroutine.wrap and resume, at any depth, between the plugin's own yields", async(function()
    returns("1 2 3 ", [[
      local out = ""
      for n in coroutine.wrap(function() for i = 1, 3 do wait(); coroutine.yield(i); wait() end end) do out = out .. n .. " " end
      return out ]])
    returns("deep", [[
      local function nest(n)
        if n == 0 then return wait("deep") end
        return coroutine.wrap(function() return nest(n - 1) end)()
      end
      return nest(20) ]])
    returns("true a true b false cannot resume dead coroutine", [[
      local co = coroutine.create(function(x) wait(); local y = coroutine.yield(wait(x)); return wait(y) end)
      local out = {}
      for _, x in ipairs { "a", "b", "c" } do
        local ok, value = coroutine.resume(co, x)
        out[#out + 1] = tostring(ok) .. " " .. value
      end
      return table.concat(out, " ") ]])
  end))

  it("in pcall, xpcall, metamethods and iterators, also behind an error", async(function()
    returns("true v", [[ local ok, v = pcall(wait, "v"); return tostring(ok) .. " " .. v ]])
    returns("false after", [[
      local ok, m = pcall(function() wait(); error("after", 0) end)
      wait()
      return tostring(ok) .. " " .. m ]])
    returns("handled x", [[
      local _, m = xpcall(function() wait(); error("x", 0) end, function(m) return "handled " .. m end)
      return wait(m) ]])
    returns("indexed 3", [[
      local t = setmetatable({}, { __index = function(_, k) return wait(k) end, __add = function() return wait(3) end })
      return t.indexed .. " " .. t + t ]])
    returns("6", [[ local sum = 0
      for n in function(_, n) n = (n or 0) + 1; wait(); return n <= 3 and n or nil end do sum = sum + n end
      return sum ]])
  end))

  it("with an error in a coroutine, which reaches who resumed it", async(function()
    returns("false inside dead", [[
      local co = coroutine.create(function() wait(); error("inside", 0) end)
      local ok, m = coroutine.resume(co)
      return tostring(ok) .. " " .. m .. " " .. coroutine.status(co) ]])
    raises("^probe:1: inside$", [[ return coroutine.wrap(function() wait(); error("inside") end)() ]])
  end))
end)

describe("a wait raises, with a message that says why,", function()
  local reason = "tg%.timer%.sleep cannot wait here: LuaJIT cannot yield across the C function"

  it("in table.sort, string.gsub and require", async(function()
    raises(reason, [[ table.sort({ 3, 2, 1 }, function(a, b) wait(); return a < b end) ]])
    raises(reason, [[ return (("abc"):gsub(".", function(c) return wait(c) end)) ]])
    raises(reason, [[ package.preload.waits = function() wait(); return {} end; return require "waits" ]])
    raises("tg%.redis%.call cannot wait here: LuaJIT cannot yield",
      [[ table.sort({ 2, 1 }, function() tg.redis.call("PING") end) ]])
  end))

  it("in a finalizer and in an FFI callback", async(function()
    raises(reason, [[
      local err
      local proxy = newproxy(true)
      getmetatable(proxy).__gc = function() err = select(2, pcall(wait)) end
      proxy = nil
      collectgarbage()
      error(err, 0) ]])
    raises(reason, [[
      local ffi = require "ffi"
      ffi.cdef "void qsort(void *, size_t, size_t, int (*)(const void *, const void *));"
      local err
      local compare = ffi.cast("int (*)(const void *, const void *)", function()
        err = select(2, pcall(wait))
        return 0
      end)
      ffi.C.qsort(ffi.new("int[2]"), 2, 4, compare)
      compare:free()
      error(err, 0) ]])
  end))

  it("in a coroutine that was resumed below one of these", async(function()
    raises("a coroutine cannot wait here: LuaJIT cannot yield across the C function",
      [[ table.sort({ 2, 1 }, function() coroutine.wrap(function() wait() end)() return true end) ]])
  end))

  it("and the next wait is a wait again: nothing of the one that failed comes in between", async(function()
    returns("false PONG true", [[
      local ok = pcall(table.sort, { 2, 1 }, function()
        coroutine.wrap(function() tg.timer.sleep(0.02) end)()
      end)
      local reply, before = tg.redis.call("PING"), tg.now()
      tg.timer.sleep(0.05)
      return tostring(ok) .. " " .. reply .. " " .. tostring(tg.now() - before > 0.04) ]])
    returns("false", [[
      return (pcall(table.sort, { 2, 1 }, function() coroutine.wrap(function() tg.redis.call("PING") end)() end)) ]])
  end))
end)

describe("a request that ends", function()
  local function counts() return support.json(on.gw:request { path = "/counts" }) end

  -- A client that leaves while its request waits: the coroutine is collected and was never resumed.
  local function leaves(path, send)
    local before = counts()
    local c = on.gw:connect()
    if send then c:send(send) else c:send_request { path = path } end
    support.wait_for(function() return counts().begun == before.begun + 1 end, "the wait")
    c:close()
    support.wait_for(function() return counts().freed == before.freed + 1 end, "the coroutine to be collected")
    assert.equal(before.woken, counts().woken)
  end

  it("because its client leaves drops its coroutine: in a sleep, also below the plugin's own coroutines", async(function()
    leaves "/sleep"
    leaves "/nested"
  end))

  it("likewise while it waits for a body that does not come", async(function()
    leaves("/body", "POST /body HTTP/1.1\r\nhost: a\r\ncontent-length: 5\r\n\r\nab")
  end))

  it("likewise in the response phase", async(function()
    local before = counts()
    local c = on.gw:connect()
    c:send_request { path = "/response" }
    support.wait_for(function() return counts().begun == before.begun + 1 end, "the wait")
    c:close()
    support.wait_for(function() return counts().freed == before.freed + 1 end, "the coroutine to be collected")
  end))

  it("likewise while Redis does not answer; the reply that comes later is nobody's", async(function()
    on.gw:wait_log("redis: usable")
    on.options.redis:must("SET", "k", "value")
    on.options.redis:pause()
    leaves "/redis"
    on.options.redis:resume()
    returns("value", [[ return tg.redis.call("GET", "k") ]])
  end))
end)

it("1,000 requests leave Lua's memory as it was", async(function()
  local c = on.gw:connect()
  local function many()
    for _ = 1, 500 do assert.equal(200, c:request({ path = "/quick", body = "some body" }).status) end
    for _ = 1, 500 do assert.equal(200, c:request({ path = "/run", body = "return wait(1)" }).status) end
    return support.json(c:request { path = "/counts" }).kb
  end
  many()
  local before = many()
  assert.is_true(many() < before + 20)
end))
