-- tollgate exec FILE: the file runs as `lua FILE` would run it, with the plugins' primitives at hand; its exit code and its
-- output are its own, its timers run to their end, and what it leaves open is told by exit code 70.
local support = require "spec.support"
local async = support.async

-- Runs a file with this text; in out and err its folder is written as DIR.
local function exec(text, args, options)
  local dir = support.tmpdir()
  support.write_file(dir .. "/file.lua", text)
  local line = { "exec", unpack(options and options.before or {}) }
  line[#line + 1] = dir .. "/file.lua"
  for _, arg in ipairs(args or {}) do line[#line + 1] = arg end
  local res = support.tollgate(line, { env = options and options.env, stdin = options and options.stdin, cwd = dir })
  local literal = dir:gsub("%p", "%%%0")
  return { code = res.code, out = res.out:gsub(literal, "DIR"), err = res.err:gsub(literal, "DIR") }
end

local function same(expected, res) assert.same({ code = expected[1], out = expected[2], err = expected[3] or "" }, res) end

describe("tollgate exec", function()
  it("gives the file its arguments, as ... and as arg", async(function()
    local text = 'local a, b = ...; print(a, b, select("#", ...), arg[0], #arg, arg[1], arg[2])'
    same({ 0, "one\ttwo words\t2\tDIR/file.lua\t2\tone\ttwo words\n" }, exec(text, { "one", "two words" }))
    same({ 0, "nil\tnil\t0\tDIR/file.lua\t0\tnil\tnil\n" }, exec(text))
    same({ 0, "--redis\tx\t2\tDIR/file.lua\t2\t--redis\tx\n" }, exec(text, { "--redis", "x" }))
  end))

  it("gives it stdin, and a first line that begins with #", async(function()
    same({ 0, "HELLO\n" }, exec("#!/usr/bin/env tollgate\nprint(io.read('*a'):upper())", {}, { stdin = "hello" }))
  end))

  it("has math.random begin anew each time", async(function()
    local text = "print(math.random(2^50), math.random(2^50))"
    assert.is_not.equal(exec(text).out, exec(text).out)
  end))

  it("ends with 0, or with what os.exit says", async(function()
    same({ 0, "" }, exec "return 5")
    for code, text in pairs { [0] = "os.exit()", [1] = "os.exit(false)", [5] = "os.exit(5)", [7] = "pcall(os.exit, 7)" } do
      local res = exec(text .. " print 'on'")
      -- pcall catches the end, as it catches an error.
      same(code == 7 and { 0, "on\n" } or { code, "" }, res)
    end
    same({ 0, "" }, exec "os.exit(true)")
    same({ 3, "" }, exec "local function deep() os.exit(3) end deep()")
  end))

  it("tells an error with its traceback, and ends with 1", async(function()
    local res = exec "local function f()\n  error 'boom'\nend\nf()\n"
    assert.same({ 1, "" }, { res.code, res.out })
    assert.matches("^DIR/file%.lua:2: boom\nstack traceback:\n.*DIR/file%.lua:2: in function 'f'\n", res.err)
    assert.matches("DIR/file%.lua:4: in main chunk", res.err)
    assert.matches("error object of type table", exec("error {}").err)
    assert.matches("^mine\n", exec("error(setmetatable({}, { __tostring = function() return 'mine' end }))").err)
    local syntax = exec "local x = = 1"
    assert.same({ 1, "" }, { syntax.code, syntax.out })
    assert.matches("^DIR/file%.lua:1: unexpected symbol", syntax.err)
    local missing = support.tollgate { "exec", "/nowhere/file.lua" }
    assert.equal(1, missing.code)
    assert.matches("/nowhere/file.lua", missing.err, 1, true)
  end))

  it("asks for a file where none is named", async(function()
    local res = support.tollgate { "exec" }
    assert.same({ 2, "" }, { res.code, res.out })
    assert.matches("name a file", res.err)
  end))

  it("has the primitives, which wait", async(function()
    local origin = support.origin(function(_, conn) conn:respond { body = "from the origin" } end)
    same({ 0, "200 from the origin\ntrue\n" }, exec([[
      local tg = require "tollgate"
      local res = assert(tg.http.get(arg[1]))
      tg.timer.sleep(0.001)
      print(res.status .. " " .. res.body)
      print((tg.shared.set("a", 1)))]], { origin.url }))
  end))

  it("has Redis where --redis or TOLLGATE_REDIS names one, and says down where none does", async(function()
    local redis = support.redis()
    local text = 'print(require("tollgate").redis.call("PING"))'
    same({ 0, "PONG\n" }, exec(text, {}, { before = { "--redis", redis.url } }))
    same({ 0, "PONG\n" }, exec(text, {}, { env = { TOLLGATE_REDIS = redis.url } }))
    same({ 0, "nil\tdown\n" }, exec(text, {}, { env = { TOLLGATE_REDIS = false } }))
    local wrong = exec(text, {}, { before = { "--redis", "http://x" } })
    assert.equal(1, wrong.code)
    assert.matches("--redis: ", wrong.err, 1, true)
  end))

  it("runs timers of after to their end, also those that they start", async(function()
    same({ 0, "main\none\ntwo\n" }, exec [[
      local after = require("tollgate").timer.after
      after(0.02, function()
        print "one"
        after(0.02, function() require("tollgate").timer.sleep(0.01) print "two" end)
      end)
      print "main"]])
  end))

  it("ends timers of every with the file", async(function()
    same({ 0, "done\n" }, exec [[
      local tg = require "tollgate"
      tg.timer.every(0.001, function() tg.timer.sleep(60) end)
      tg.timer.sleep(0.01)
      print "done"]])
  end))

  it("does not wait for timers where the file failed", async(function()
    same({ 4, "" }, exec [[require("tollgate").timer.after(60, function() print "late" end) os.exit(4)]])
  end))

  it("ends with 1 where a timer raised", async(function()
    local res = exec [[require("tollgate").timer.after(0, function() error "in a timer" end) print "main"]]
    assert.same({ 1, "main\n" }, { res.code, res.out })
    assert.matches("DIR/file%.lua:1: in a timer", res.err)
  end))

  it("names what was left open, and ends with 70", async(function()
    local leak = [[require("tollgate.process").start { "/bin/sleep", "60" } ]]
    for _, rest in ipairs { "", "error 'boom'", "os.exit(0)" } do
      local res = exec(leak .. rest)
      assert.equal(70, res.code)
      assert.matches("leak: process %d+ still ran and was killed", res.err)
      assert.equal(rest:find "boom" ~= nil, res.err:find "boom" ~= nil)
    end
  end))
end)
