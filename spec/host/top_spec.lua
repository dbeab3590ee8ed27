-- tollgate top: figures of known traffic, once, as JSON and on a terminal; keys, sizes, signals; a gateway that ends, hangs
-- or starts anew meanwhile; and that the terminal is as it was in the end.
local support = require "spec.support"
local process = require "spec.support.process"
local gateway = require "spec.support.gateway"
local loop = require "spec.support.loop"
local async = support.async

local ENTER, LEAVE = "\\x1b\\[\\?1049h", "\\x1b\\[\\?1049l"

local function start(options)
  options = options or {}
  local origin = support.origin(function(req, conn)
    conn:respond { status = req.path == "/shop/bad" and 503 or 200, body = "ok" }
  end)
  return support.gateway { dir = options.dir, config = {
    workers = options.workers, listen = options.listen,
    routes = {
      { name = "shop", path = "/shop/*", targets = { { url = origin.url } } },
      { name = "no-plugin", path = "/no", plugins = { teapot = {} } },
    },
  }, files = { ["plugins/teapot.lua"] = "return { access = function() return 429, 'no' end }" } }
end

local function top(gw, ...)
  local res = gw:command("top", ...)
  assert.same({ 0, "" }, { res.code, res.err })
  return res.out
end

local function row(list, key, name)
  for _, one in ipairs(list) do
    if one[key] == name then return one end
  end
  error("no " .. key .. " " .. name, 2)
end

local function traffic(gw, n)
  for _ = 1, n do assert.equal(200, gw:request({ path = "/shop/a" }).status) end
  for _ = 1, 2 do assert.equal(503, gw:request({ path = "/shop/bad" }).status) end
  assert.equal(429, gw:request({ path = "/no" }).status)
  assert.equal(404, gw:request({ path = "/none" }).status)
  gw:wait_metric("requests_in_flight", 0)
end

-- A terminal with top on it; .go(word) lets it pass a step { "file", word }.
local function terminal(gw, steps, options)
  options = options or {}
  for _, step in ipairs(steps) do
    if step[1] == "file" then step[2] = gw.dir .. "/" .. step[2] end
  end
  local p = process.start { cmd = "python3", args = { "spec/host/top_pty.py" },
    env = { TERM = options.term or "xterm", NO_COLOR = options.no_color or false, LC_ALL = "C.UTF-8" },
    stdin = support.encode { rows = 24, columns = 80, steps = steps,
      argv = { gateway.binary(), "top", "-c", gw.dir .. "/gateway.lua", unpack(options.args or { "--interval", "0.2" }) } } }
  local t = {}
  function t.saw(word) loop.wait_for(function() return p:out():find(word, 1, true) or p.exited end, word, 60000) end
  function t.go(word) gw:write(word, "") end
  function t.done()
    local code = p:wait(120000)
    assert.equal(0, code, p:err())
  end
  return t
end

describe("tollgate top", function()
  it("--json is one object, with what clients counted", async(function()
    local gw = start()
    traffic(gw, 5)
    local was = support.decode(top(gw, "--json", "--interval", "0.1"))
    assert.equal(9, was.requests.total)
    assert.equal(0, was.requests.rate)
    assert.is_false(was.restarted)
    assert.is_true(was.ready and was.seconds >= 0.1)
    local shop = row(was.routes, "route", "shop")
    assert.same({ 7, 2, 0 }, { shop.requests.total, shop.errors.total, shop.refused.total })
    assert.equal(1, row(was.routes, "route", "no-plugin").requests.total)
    assert.equal(1, row(was.routes, "route", "").requests.total)
    assert.same({ 7 }, { row(was.targets, "route", "shop").attempts.total })
    assert.same({ 1, 0 }, { #was.workers, was.workers[1].in_flight })
    assert.is_true(was.workers[1].memory > 1000000 and was.workers[1].redis_usable)
    traffic(gw, 3)
    assert.equal(16, support.decode(top(gw, "--json", "--interval", "0.1")).requests.total)
  end))

  it("--once prints tables without an escape, and so does what is no terminal", async(function()
    local gw = start { workers = 2 }
    traffic(gw, 4)
    local out = top(gw, "--once", "--interval", "0.1")
    assert.is_nil(out:find("\27", 1, true))
    assert.matches("\nshop +0 +%- +%- +0 +0 +6 +2 +0\n", out)
    assert.matches("\nredis usable by 2 of 2 workers", out)
    for line in out:gmatch("[^\n]+") do assert.is_true(#line <= 82, line) end
    local p = process.start { cmd = gateway.binary(), args = { "top", "-c", gw.dir .. "/gateway.lua", "--interval", "0.1" } }
    loop.wait_for(function() return select(2, p:out():gsub("tollgate %d", "")) >= 3 end, "three tables", 30000)
    p:kill("sigterm")
    p:wait(10000)
    assert.is_nil(p:out():find("\27", 1, true))
  end))

  it("refuses an interval that makes no sense, and says where no gateway runs", async(function()
    local gw = start()
    for _, text in ipairs { "0", "x", "-1", "1s", "nan", "inf", "4000" } do
      assert.equal(2, gw:command("top", "--interval", text).code)
    end
    gw:stop()
    local res = gw:command("top")
    assert.equal(1, res.code)
    assert.matches("no gateway runs", res.err)
    res = gw:command("top", "--json")
    assert.same({ 1, "" }, { res.code, res.out })
    assert.matches('^{"error":"no gateway runs', res.err)
  end))

  it("draws figures as they come, follows the terminal's size, and ends at q", async(function()
    local gw = start { workers = 2 }
    traffic(gw, 5)
    local t = terminal(gw, {
      { "expect", ENTER }, { "expect", "shop[^\n]* 7 +2 +0\r" }, { "say", "seen" }, { "expect", "shop[^\n]* 14 +4 +0\r" },
      { "send", "1" }, { "expect", "routes, 3 from 1 on" }, { "send", "2" }, { "expect", "BREAKER" },
      { "send", "\t" }, { "expect", "▾FAIL/S" }, { "send", "\27[D\27[D" }, { "expect", "▾ROUTE" },
      { "send", "4" }, { "expect", "GENERATIONS" },
      { "size", 10, 30 }, { "expect", "\x1b\\[H\x1b\\[K[^\r\n]{1,40}…" }, { "size", 40, 132 },
      { "expect", "generation 1  reloads 0, 0 failed  restarts 0\r" },
      { "send", "q" }, { "expect", LEAVE }, { "expect", "\\[ended code=0 signal=0 same=True\\]" },
    })
    t.saw("seen")
    traffic(gw, 5)
    t.done()
  end))

  it("leaves the terminal as it was at every signal that ends it", async(function()
    local gw = start()
    for name, number in pairs { SIGINT = 2, SIGTERM = 15, SIGHUP = 1, SIGQUIT = 3, SIGABRT = 6 } do
      terminal(gw, { { "expect", ENTER }, { "expect", "workers" }, { "signal", name }, { "expect", LEAVE },
        { "expect", ("\\[ended code=-1 signal=%d same=True\\]"):format(number) } }).done()
    end
    terminal(gw, { { "expect", ENTER }, { "expect", "workers" }, { "send", "\3" }, { "expect", LEAVE },
      { "expect", "\\[ended code=-1 signal=2 same=True\\]" } }).done()
  end))

  it("leaves it when it is stopped, and takes it again", async(function()
    local gw = start()
    terminal(gw, { { "expect", ENTER }, { "expect", "workers" }, { "send", "\26" }, { "expect", LEAVE },
      { "expect", "\\[stopped same=True\\]" }, { "send", "\n" }, { "expect", ENTER }, { "expect", "workers" },
      { "send", "q" }, { "expect", LEAVE }, { "expect", "\\[ended code=0 signal=0 same=True\\]" } }).done()
  end))

  it("has no colour with NO_COLOR, and no screen on a dumb terminal", async(function()
    local gw = start()
    terminal(gw, { { "expect", "^[^\27]*tollgate [^\27]*\n[^\27]*WORKER[^\27]*\n[^\27]*tollgate " }, { "signal", "SIGINT" },
      { "expect", "^[^\27]*\\[ended code=-1 signal=2 same=True\\]" } }, { term = "dumb" }).done()
    traffic(gw, 1)
    terminal(gw, { { "expect", ENTER }, { "expect", "^(?!.*\\x1b\\[[1-9]?[0-9]m).*REQ/S.*WORKER" }, { "send", "q" },
      { "expect", "ended code=0" } }, { no_color = "1" }).done()
  end))

  it("says that the gateway has gone, goes on with the next one, and shows no rate of both", async(function()
    local gw = start()
    traffic(gw, 5)
    local t = terminal(gw, { { "expect", "shop[^\n]* 7 +2 +0\r" }, { "say", "seen" },
      { "expect", "no gateway answers" }, { "say", "gone" }, { "expect", "started anew" },
      { "expect", "shop[^\n]* 3 +2 +0\r" }, { "send", "q" }, { "expect", LEAVE },
      { "expect", "\\[ended code=0 signal=0 same=True\\]" } })
    t.saw("seen")
    gw:kill("sigkill")
    t.saw("gone")
    gw = start { dir = gw.dir }
    traffic(gw, 1)
    t.done()
  end))

  it("says that the gateway does not answer, and still hears keys", async(function()
    local gw = start()
    local t = terminal(gw, { { "expect", "workers" }, { "say", "seen" }, { "expect", "has not answered for" },
      { "send", "2" }, { "expect", "targets, 1" }, { "say", "stuck" }, { "file", "goes-on" },
      { "expect", "\x1b\\[H\x1b\\[Ktollgate " }, { "send", "q" }, { "expect", "\\[ended code=0 signal=0 same=True\\]" } })
    t.saw("seen")
    gw:kill("sigstop")
    t.saw("stuck")
    gw:kill("sigcont")
    t.go("goes-on")
    t.done()
  end))

  it("goes on over a reload", async(function()
    local gw = start()
    traffic(gw, 2)
    local t = terminal(gw, { { "expect", "generation 1" }, { "say", "seen" }, { "expect", "reloads 1, 0 failed" },
      { "expect", "shop[^\n]* 8 +4 +0\r" }, { "send", "q" }, { "expect", "\\[ended code=0 signal=0 same=True\\]" } })
    t.saw("seen")
    assert.equal(0, gw:command("reload").code)
    traffic(gw, 2)
    t.done()
  end))
end)
