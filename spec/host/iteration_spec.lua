-- Loops over pairs and next in the gateway's Lua states: LuaJIT's own end early, or leave elements out, once a loop that was
-- compiled is given up (host/lua/iteration.lua).
local support = require "spec.support"
local async = support.async

-- A loop is inside another one, so that the outer one is given up for compilation; counts how often that had not all.
local LOOPS = [[
local inner = { 1, 2, 3, 4, 5 }
local outer = { a = inner, b = inner, c = inner, d = inner, e = inner }
local function interpreted(...) for _ = 1, 100 do end end
local wrong = 0
for _ = 1, 200000 do
  interpreted()
  local n = 0
  for _, list in ITERATE(outer) do
    for _ in ITERATE(list) do end
    n = n + 1
  end
  if n ~= 5 then wrong = wrong + 1 end
end
]]

for name, form in pairs { pairs = "pairs(%1)", next = "next, %1" } do
  local loops = LOOPS:gsub("ITERATE%((%l+)%)", form)

  it("have every element, however often they run: " .. name .. " in tollgate exec", async(function()
    local file = support.tmpdir() .. "/loops.lua"
    support.write_file(file, loops .. "print(wrong)")
    local res = support.tollgate { "exec", file }
    assert.same({ 0, "0\n", "" }, { res.code, res.out, res.err })
  end))

  it("have every element, however often they run: " .. name .. " in a plugin", async(function()
    local gw = support.gateway { config = { redis = "redis://127.0.0.1:1", watchdog = 20,
      routes = { { name = "r", path = "/*", plugins = { loops = {} } } } },
      files = { ["plugins/loops.lua"] = "return { access = function()\n" .. loops .. "return 200, tostring(wrong) end }" } }
    assert.equal("0", gw:request({ timeout = 20000 }).body)
  end))
end

-- Lists of several lengths, and none, by one loop, as encoders of JSON look at a table: what is compiled anew again and again.
it("have every element of lists of any length", async(function()
  local file = support.tmpdir() .. "/lengths.lua"
  support.write_file(file, [[
    local function length(t)
      local max = 0
      for k in pairs(t) do
        if type(k) ~= "number" then return -1 end
        if k > max then max = k end
      end
      return max
    end
    local wrong = 0
    for round = 1, 200 do
      for i = 1, 2000 do
        -- The first lengths of a round, which are alike, decide what is compiled.
        local r = i < 300 and round % 5 or (i * i + i % 7 + round) % 5
        local t = r == 0 and {} or r == 1 and { "a" } or r == 2 and { "a", "b" } or r == 3 and { 17, 4, 2004 } or { x = 1, y = 2 }
        if length(t) ~= (r == 4 and -1 or r) then wrong = wrong + 1 end
      end
      jit.flush()
    end
    print(wrong)
  ]])
  local res = support.tollgate { "exec", file }
  assert.same({ 0, "0\n", "" }, { res.code, res.out, res.err })
end))

it("are as the built-in ones otherwise", async(function()
  local file = support.tmpdir() .. "/same.lua"
  support.write_file(file, [[
    local seen = {}
    for k, v in pairs { 10, 20, x = 30 } do seen[#seen + 1] = tostring(k) .. "=" .. v end
    table.sort(seen)
    print(table.concat(seen, " "), next({}), next({ 5 }), next({ 5 }, 1))
    print(select("#", pairs {}), pcall(pairs))
    print(pcall(function() for _ in pairs(nil) do end end))
    print(pcall(next, {}, "none"))
    local t = { a = 1, b = 2, c = 3 }
    for k in pairs(t) do t[k] = nil end
    print(next(t))
  ]])
  local res = support.tollgate { "exec", file }
  assert.same({ 0, "" }, { res.code, res.err })
  local lines = {}
  for line in res.out:gmatch "[^\n]+" do lines[#lines + 1] = line end
  assert.equal("1=10 2=20 x=30\tnil\t1\tnil", lines[1])
  assert.matches("^3\tfalse\tbad argument #1 to 'pairs' %(table expected", lines[2])
  assert.matches("^false\t[^\t]*same.lua:6: bad argument #1 to 'pairs' %(table expected, got nil%)$", lines[3])
  assert.matches("^false\t.*invalid key to 'next'", lines[4])
  assert.equal("nil", lines[5])
end))
