-- tollgate test: busted in a coroutine of the host. Its arguments, output and exit codes are busted's own; on top of them come
-- the primitives, `tollgate.testing`, and a search for what was left open, also where a spec failed.
local support = require "spec.support"
local gateway = require "spec.support.gateway"
local async = support.async

local PASSING = [[
local tg = require "tollgate"
describe("things", function()
  before_each(function() tg.timer.sleep(0.001) end)
  it("wait", function()
    tg.timer.sleep(0.001)
    assert.has_error(function() tg.timer.sleep(0.001) error "late" end)
  end)
  it("pass #fast", function() assert.equal(1, 1) end)
end)
]]
local FAILING = 'describe("things", function() it("fail", function() assert.equal(1, 2) end) end)\n'
local LEAKING = 'require("tollgate.process").start { "/bin/sleep", "60" }\n'

-- Runs `tollgate test ARGS…` in a folder with spec/x_spec.lua and these files.
local function run(spec, args, files)
  local dir = support.tmpdir()
  support.write_file(dir .. "/spec/x_spec.lua", spec)
  for name, text in pairs(files or {}) do support.write_file(dir .. "/" .. name, text) end
  local line = { "test", "-o", "TAP", unpack(args or {}) }
  return support.tollgate(line, { cwd = dir }), dir
end

describe("tollgate test", function()
  it("runs the specs, which may wait anywhere, and ends with 0", async(function()
    local res = run(PASSING)
    assert.same({ 0, "" }, { res.code, res.err })
    assert.equal("ok 1 - things wait\nok 2 - things pass #fast\n1..2\n", res.out)
  end))

  it("takes busted's arguments", async(function()
    assert.equal("ok 1 - things pass #fast\n1..1\n", run(PASSING, { "--tags=fast" }).out)
    assert.equal("ok 1 - things wait\n1..1\n", run(PASSING, { "--filter", "things wait", "spec/x_spec.lua" }).out)
    local res = run(PASSING, { "--no-such-option" })
    assert.equal(1, res.code)
    assert.matches("^tollgate test: error: ", res.err)
    assert.matches("^%d+%.%d+", support.tollgate({ "test", "--version" }).out)
  end))

  it("ends with 1 where a spec fails, does not load, or is not there", async(function()
    local res = run(FAILING)
    assert.equal(1, res.code)
    assert.matches("not ok 1 - things fail\n# spec/x_spec.lua @ 1\n# Failure message: spec/x_spec.lua:1: Expected objects",
      res.out, 1, true)
    assert.equal(1, run("local x = = 1").code)
    assert.equal(1, run("error 'boom'").code)
    assert.equal(1, run(PASSING, { "spec/none_spec.lua" }).code)
  end))

  it("looks for what was left open, also where a spec failed", async(function()
    for _, spec in ipairs { LEAKING .. PASSING, LEAKING .. FAILING } do
      local res = run(spec)
      assert.equal(70, res.code)
      assert.matches("leak: process %d+ still ran and was killed", res.err)
      assert.equal(spec:find(FAILING, 1, true) ~= nil, res.out:find("not ok", 1, true) ~= nil)
    end
  end))

  it("takes os.exit in a spec for an error of it, and goes on", async(function()
    for _, spec in ipairs { "os.exit(0)", "it('ends', function() os.exit(0) end) " .. PASSING } do
      local res = run(spec)
      assert.equal(1, res.code)
      assert.matches("os.exit(0) was called", res.out, 1, true)
    end
    assert.matches("ok 3", run("it('ends', function() os.exit(0) end) " .. PASSING).out)
  end))

  it("passes JUnit output through, to stdout or a file", async(function()
    local out = run(FAILING .. PASSING, { "-o", "junit" }).out
    local suites = out:match("^%s*<testsuites ([^>]*)>.*</testsuites>%s*$")
    assert.matches("tests='3'", suites)
    assert.matches("failures='1'", suites)
    local res, dir = run(FAILING .. PASSING, { "-o", "junit", "-Xoutput", "report.xml" })
    assert.same({ 1, "" }, { res.code, res.out })
    assert.matches("<failure>spec/x_spec%.lua:1: ", support.read_file(dir .. "/report.xml"))
  end))

  it("keeps the gateways' own output out of it", async(function()
    local res = run([[
      local testing = require "tollgate.testing"
      it("serves", function()
        local gw = testing.gateway { config = 'return { listen = "127.0.0.1:0", admin = false, data_dir = "data", ' ..
          'routes = { { name = "r", path = "/*" } } }' }
        gw:request("GET", "/")
        gw:stop()
      end) ]])
    assert.same({ 0, "ok 1 - serves\n1..1\n", "" }, { res.code, res.out, res.err })
  end))

  it("says so where busted is not installed", async(function()
    local res = support.tollgate({ "test" }, { env = { LUA_PATH = "/nowhere/?.lua" } })
    assert.same({ 1, "tollgate test: busted is not installed (Debian: lua-busted)\n" }, { res.code, res.err })
  end))
end)

describe("tollgate.testing", function()
  local stamp = [[return { schema = { word = { type = "string", required = true } },
    access = function(conf, ctx) ctx.request.headers["x-stamp"] = conf.word
      if ctx.request.path == "/boom" then error "boom" end end }]]

  local function use(body)
    local text = ([[
      local testing = require "tollgate.testing"
      it("is used", function() %s end) ]]):format(body)
    return run(text, {}, { ["plugins/stamp.lua"] = stamp })
  end

  it("asks a real gateway that answers with what it got", async(function()
    local res = use [[
      local gw = testing.gateway { plugins = { stamp = { word = "hi" } } }
      local res = gw:request("POST", "/a/b?c=d", { body = "text", headers = { ["x-mine"] = "1" } })
      assert.equal(200, res.status)
      local got = res:json()
      assert.same({ "POST", "/a/b", "c=d", "text", "hi", "1" },
        { got.method, got.path, got.query, got.body, got.headers["x-stamp"], got.headers["x-mine"] })
      assert.equal(500, gw:request("GET", "/boom").status)
      gw:wait_log "plugins/stamp.lua:3: boom"
      assert.error_matches(function() gw:wait_log("bang", 0.05) end, 'does not have "bang":.*stamp%.lua:3: boom')
      gw:stop() ]]
    assert.same({ 0, "" }, { res.code, res.err }, res.out)
  end))

  it("raises with the gateway's words where it does not start", async(function()
    local res = use [[
      assert.error_matches(function() testing.gateway { plugins = { stamp = {} } } end,
        "the gateway did not start:\n.*routes%[1%]%.plugins%.stamp%.word: is required") ]]
    assert.same({ 0, "" }, { res.code, res.err }, res.out)
  end))

  it("fails where the gateway does not end well", async(function()
    local res = use [[
      local gw = testing.gateway { plugins = { stamp = { word = "hi" } } }
      gw.process:kill(9)
      assert.error_matches(function() gw:stop() end, "the gateway ended with code 137:\n.*is ready") ]]
    assert.same({ 0, "" }, { res.code, res.err }, res.out)
  end))

  it("leaves no folder behind", async(function()
    local tmp = support.tmpdir()
    local dir = support.tmpdir()
    support.write_file(dir .. "/spec/x_spec.lua", [[
      local testing = require "tollgate.testing"
      it("is used", function()
        testing.gateway { plugins = {} }:stop()
        pcall(testing.gateway, { plugins = { nothing = {} } })
      end) ]])
    local res = support.tollgate({ "test" }, { cwd = dir, env = { TMPDIR = tmp } })
    assert.equal(0, res.code, res.out)
    assert.equal("", support.exec { cmd = "ls", args = { tmp } }.out)
  end))
end)

describe("plain busted", function()
  -- As new plugins get it: `tollgate new` writes the .busted.
  local function folder(spec)
    local dir = support.tmpdir()
    assert.equal(0, support.tollgate({ "new", "plugin", "stamp" }, { cwd = dir }).code)
    support.write_file(dir .. "/spec/x_spec.lua", spec)
    return dir
  end

  local function busted(lua, dir, args, env)
    return support.exec { cmd = lua, args = { "/usr/bin/busted", "-o", "TAP", unpack(args) }, cwd = dir,
      env = env or { TOLLGATE_BIN = gateway.binary() } }
  end

  -- Those that are installed here: /usr/bin/busted itself runs under whatever `lua` is.
  local function interpreters()
    local list = {}
    for _, version in ipairs { "jit", "5.1", "5.2", "5.3", "5.4", "" } do
      local name = "/usr/bin/lua" .. version
      local usable = support.read_file(name) and
        support.exec { cmd = name, args = { "-e", "require 'busted.core'" } }.code == 0
      if usable then list[#list + 1] = name end
    end
    assert.is_true(#list > 0)
    return list
  end

  it("runs the specs under tollgate, with any Lua, and with its arguments as they are", async(function()
    local dir = folder(PASSING)
    for _, lua in ipairs(interpreters()) do
      local res = busted(lua, dir, { "--filter", "it's (not) \"here\"", "--filter", "things wait" })
      assert.same({ 0, "ok 1 - things wait\n1..1\n", "" }, { res.code, res.out, res.err }, lua)
    end
  end))

  it("ends with the exit code that the specs have under tollgate", async(function()
    for _, lua in ipairs(interpreters()) do
      local res = busted(lua, folder(FAILING), { "spec/x_spec.lua" })
      assert.equal(1, res.code, lua)
      assert.matches("not ok 1 - things fail", res.out, 1, true)
      assert.equal(70, busted(lua, folder(LEAKING .. PASSING), { "spec/x_spec.lua" }).code, lua)
    end
  end))

  it("says what is missing where there is no tollgate", async(function()
    local res = busted("/usr/bin/luajit", folder(PASSING), {}, { TOLLGATE_BIN = "/nowhere/tollgate" })
    assert.equal(127, res.code)
    assert.matches("TOLLGATE_BIN", res.err)
  end))
end)
