-- What commands show on a real terminal (a pty): colours and when there are none, bars in UTF-8 and ASCII, lines that fit, and
-- a line for who waits. What is no terminal gets plain text.
local uv = require "luv"
local support = require "spec.support"
local gateway = require "spec.support.gateway"
local async = support.async

-- Runs tollgate on a terminal; options: columns, streams ("stderr": stdout is a pipe), env, cwd.
local function on_terminal(options, ...)
  local env = { TERM = "xterm", LC_ALL = "C.UTF-8", NO_COLOR = false, LC_CTYPE = false, LANG = false }
  for name, value in pairs(options.env or {}) do env[name] = value end
  return support.exec { cmd = "python3", cwd = options.cwd, env = env, timeout = 30000,
    args = { uv.cwd() .. "/spec/support/on_pty.py", tostring(options.columns or 80), options.streams or "all",
      gateway.binary(), ... } }
end

local function plain(text) return (text:gsub("\27%[[%d;]*[mK]", "")) end

local function columns_of(line) return #line:gsub("[\128-\191]", "") end

local function assert_fits(text, columns)
  for line in plain(text):gmatch "[^\n]+" do
    assert.is_true(columns_of(line) <= columns, columns_of(line) .. " columns: " .. line)
  end
end

-- A gateway, and its folder for commands.
local function start()
  return support.gateway { config = { redis = "redis://127.0.0.1:1", routes = { { name = "r", path = "/*" } } } }
end

describe("tollgate status", function()
  it("has colours and bars on a terminal, plain text elsewhere", async(function()
    local gw = start()
    local shown = on_terminal({ cwd = gw.dir }, "status")
    assert.equal(0, shown.code)
    assert.matches("\27%[31mnot ready: ", shown.out)
    assert.matches("·", shown.out, 1, true)
    assert.matches("bars: connections", shown.out, 1, true)
    assert.is_nil(on_terminal({ cwd = gw.dir, columns = 60 }, "status").out:find("bars:", 1, true))
    local piped = support.tollgate({ "status" }, { cwd = gw.dir, env = { TERM = "xterm", LC_ALL = "C.UTF-8" } })
    assert.equal(0, piped.code)
    assert.is_nil(piped.out:find("[\27\128-\255]"))
    assert.is_nil(piped.out:find("bars:", 1, true))
  end))

  it("goes by NO_COLOR, TERM and --color, and draws in ASCII where the locale is", async(function()
    local gw = start()
    local function colours(env, ...)
      return on_terminal({ cwd = gw.dir, env = env }, "status", ...).out:find("\27", 1, true) ~= nil
    end
    assert.is_true(colours {})
    assert.is_true(colours { NO_COLOR = "" })
    assert.is_false(colours { NO_COLOR = "1" })
    assert.is_false(colours { TERM = "dumb" })
    assert.is_false(colours({}, "--color=never"))
    assert.is_true(colours({ NO_COLOR = "1" }, "--color", "always"))
    assert.is_true(colours({}, "--color=auto"))
    assert.matches("\27%[", support.tollgate({ "status", "--color=always" }, { cwd = gw.dir }).out)
    local ascii = on_terminal({ cwd = gw.dir, env = { LC_ALL = "C" } }, "status")
    assert.is_nil(ascii.out:find("[\128-\255]"))
    assert.matches("%.%.%.%.", plain(ascii.out))
  end))

  it("fits into the terminal", async(function()
    local gw = start()
    for _, columns in ipairs { 80, 100, 200 } do
      local shown = on_terminal({ cwd = gw.dir, columns = columns }, "status")
      local table_of = plain(shown.out):match("\n(worker .-)\nfiles:")
      assert_fits(table_of, columns)
    end
  end))

  it("--json has no colours there either", async(function()
    local gw = start()
    local shown = on_terminal({ cwd = gw.dir }, "status", "--json", "--color=always")
    assert.equal(0, shown.code)
    assert.equal(gw.pid, support.decode(shown.out).pid)
  end))
end)

describe("tollgate usage", function()
  it("has bars of budgets, in the page and, where there is room, in the table", async(function()
    local redis = support.redis()
    local origin = support.chat_origin { usage = { prompt_tokens = 30, completion_tokens = 20, total_tokens = 50 } }
    local gw = support.gateway { config = { redis = redis.url, routes = { { name = "chat", path = "/v1/chat/completions",
      targets = { { url = origin.url } },
      plugins = { auth = { keys = "keys.jsonl" }, quota = {} } } } },
      files = { ["keys.jsonl"] = support.keys { { id = "alice", secret = "tg-s", monthly_tokens = 100, concurrency = 2 } } } }
    gw:wait_log("redis: usable")
    assert.equal(200, gw:request({ path = "/v1/chat/completions", headers = { authorization = "Bearer tg-s" },
      body = { model = "m", max_tokens = 20, messages = { { role = "user", content = "hi" } } } }).status)
    local half = ("█"):rep(15) .. ("·"):rep(15)
    local page = on_terminal({ cwd = gw.dir }, "usage", "alice")
    assert.equal(0, page.code)
    assert.matches(half, plain(page.out), 1, true)
    assert_fits(page.out, 80)
    local ascii = on_terminal({ cwd = gw.dir, env = { LC_ALL = "POSIX" } }, "usage", "alice").out
    assert.matches(("#"):rep(15) .. ("."):rep(15), plain(ascii), 1, true)
    assert.matches("████████········", plain(on_terminal({ cwd = gw.dir, columns = 150 }, "usage").out), 1, true)
    assert.is_nil(on_terminal({ cwd = gw.dir }, "usage").out:find("█", 1, true))
    assert.is_nil(support.tollgate({ "usage" }, { cwd = gw.dir, env = { LC_ALL = "C.UTF-8" } }).out:find("[\27\128-\255]"))
  end))
end)

describe("what takes longer than a second", function()
  -- A configuration whose plugin takes its time to load.
  local function slow(seconds)
    local dir = support.tmpdir()
    support.write_file(dir .. "/plugins/slow.lua",
      'os.execute "sleep ' .. seconds .. '"\nreturn { schema = {}, access = function() end }')
    support.write_file(dir .. "/gateway.lua",
      'return { plugin_path = { "plugins" }, routes = { { name = "r", path = "/*", plugins = { slow = {} } } } }')
    return dir
  end

  it("is told on stderr, and wiped, where that is a terminal; stdout stays clean", async(function()
    local dir = slow(2.3)
    local res = on_terminal({ cwd = dir, streams = "stderr" }, "check")
    assert.equal(0, res.code)
    assert.equal("gateway.lua: 1 routes, no faults\n", res.out)
    assert.matches("\r[%l ]+: 1 s", res.err)
    assert.matches("\r\27%[K$", res.err)
  end))

  it("is not told elsewhere", async(function()
    local res = support.tollgate({ "check" }, { cwd = slow(1.2), timeout = 30000 })
    assert.same({ 0, "", "gateway.lua: 1 routes, no faults\n" }, { res.code, res.err, res.out })
  end))
end)
