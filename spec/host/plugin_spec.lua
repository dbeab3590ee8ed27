-- Plugins as the host runs them: the order of phases and priorities, the same plugin twice, a global plugin switched off
-- for one route, a plugin as a file and as a folder, init and stop, and what the body phase makes of an answer.
local support = require "spec.support"
local rig = require "spec.host.plugin_rig"
local async = support.async

-- Notes each phase in ctx.trail; the log phase writes it.
local function noting(name, priority)
  return ([[
    local tg = require "tollgate"
    local function note(ctx, what)
      ctx.trail = (ctx.trail and ctx.trail .. " " or "") .. "%s." .. what
    end
    return { priority = %s,
      access = function(_, ctx) note(ctx, "access") end,
      response = function(_, ctx) note(ctx, "response") end,
      body = function(_, ctx, _, last) if last then note(ctx, "body") end end,
      finish = function(_, ctx) note(ctx, "finish") end,
      log = function(_, ctx) note(ctx, "log"); tg.log.info("trail: ", ctx.trail, ";") end }
  ]]):format(name, priority)
end

local function hello() return support.origin(function(_, conn) conn:respond { body = "hello" } end) end

describe("phases", function()
  it("run in the order of a request's life, plugins of higher priority first, equal ones by name", async(function()
    local gw = rig.start { target = hello().url,
      plugins = { low = noting("low", 1), high = noting("high", 900), b = noting("b", 50), a = noting("a", 50) } }
    assert.equal("hello", gw:request {}.body)
    local trail = {}
    for _, phase in ipairs { "access", "response", "body", "finish", "log" } do
      for _, name in ipairs { "high", "a", "b", "low" } do trail[#trail + 1] = name .. "." .. phase end
    end
    gw:wait_log("trail: " .. table.concat(trail, " ") .. ";", true)
  end))

  it("a plugin without a priority has 100", async(function()
    local gw = rig.start { target = hello().url,
      plugins = { none = noting("none", "nil"), more = noting("more", 101), less = noting("less", 99) } }
    gw:request {}
    gw:wait_log("trail: more.access none.access less.access", true)
  end))

  it("an answer ends access, and passes response, body, finish and log of all plugins", async(function()
    local answer = [[ return { priority = 50, access = function() return 200, "own" end } ]]
    local gw = rig.start { plugins = { first = noting("first", 90), answer = answer, last = noting("last", 10) } }
    assert.equal("own", gw:request {}.body)
    gw:wait_log("trail: first.access first.response last.response first.body last.body "
      .. "first.finish last.finish first.log last.log;", true)
  end))

  it("a request that no plugin answers on a route without targets is a 500 that says so", async(function()
    local gw = rig.start { plugins = { noting = noting("n", 1) } }
    local res = gw:request {}
    assert.equal(500, res.status)
    assert.matches("no target", res.body)
  end))
end)

describe("where plugins stand", function()
  local tagging = [[
    local seen = setmetatable({}, { __mode = "k" }) -- state by conf: one for each place where the plugin stands
    return { schema = { tag = { type = "string", default = "none" } },
      init = function(conf) seen[conf] = 0 end,
      access = function(conf, ctx)
        seen[conf] = seen[conf] + 1
        ctx.tags = ctx.tags or {}
        table.insert(ctx.tags, conf.tag .. "=" .. seen[conf])
      end,
      response = function(_, ctx) ctx.response.headers["x-tags"] = table.concat(ctx.tags, " ") end }
  ]]
  local answer = [[ return { priority = 1, access = function(_, ctx) return 200, ctx.tags and "tagged" or "plain" end } ]]

  it("twice on one route, each with its own conf and state; and another state on another route", async(function()
    local gw = rig.start { plugins = { tag = tagging, answer = answer }, routes = {
      { name = "two", path = "/two", plugins = { answer = {}, tag = { { tag = "a" }, { tag = "b" } } } },
      { name = "one", path = "/one", plugins = { answer = {}, tag = { tag = "a" } } },
    } }
    assert.equal("a=1 b=1", gw:request { path = "/two" }.headers["x-tags"])
    assert.equal("a=2 b=2", gw:request { path = "/two" }.headers["x-tags"])
    assert.equal("a=1", gw:request { path = "/one" }.headers["x-tags"])
  end))

  it("a global plugin serves every route; one has its own settings, another switches it off", async(function()
    local gw = rig.start { plugins = { tag = tagging, answer = answer }, config = { plugins = { tag = {}, answer = {} } },
      routes = {
        { name = "plain", path = "/plain", plugins = { tag = false } },
        { name = "own", path = "/own", plugins = { tag = { tag = "own" } } },
        { name = "global", path = "/global" },
      } }
    local plain = gw:request { path = "/plain" }
    assert.same({ "plain" }, { plain.body, plain.headers["x-tags"] })
    assert.equal("own=1", gw:request { path = "/own" }.headers["x-tags"])
    assert.equal("none=1", gw:request { path = "/global" }.headers["x-tags"])
  end))

  it("a file, or a folder whose own modules it requires by name", async(function()
    local gw = rig.start { plugins = {
      ["folder/init"] = [[ local words = require "folder.words"
        return { access = function() return 200, words.hello end } ]],
      ["folder/words"] = [[ return { hello = "from the folder" } ]],
      file = [[ return { access = function(_, ctx) if ctx.request.path == "/file" then return 200, "from the file" end end,
        priority = 900 } ]],
    }, routes = { { name = "r", path = "/*", plugins = { file = {}, folder = {} } } } }
    assert.equal("from the file", gw:request { path = "/file" }.body)
    assert.equal("from the folder", gw:request { path = "/" }.body)
  end))
end)

describe("init and stop", function()
  it("frame the life of each place where a plugin stands; stop runs at the end, and what raises there is told", async(function()
    local plugin = [[
      local tg = require "tollgate"
      return { schema = { n = { type = "integer", required = true } },
        init = function(conf) tg.log.info("init ", conf.n, ";") end,
        access = function(conf) return 200, tostring(conf.n) end,
        stop = function(conf) tg.log.info("stop ", conf.n, ";"); if conf.n == 2 then error "at the end" end end }
    ]]
    local gw = rig.start { plugins = { life = plugin }, routes = {
      { name = "one", path = "/one", plugins = { life = { n = 1 } } },
      { name = "two", path = "/two", plugins = { life = { n = 2 } } },
    } }
    assert.matches("init 1;.*init 2;.*ready", gw.log())
    assert.is_nil(gw.log():find("stop", 1, true))
    gw:stop()
    assert.matches("stop 1;", gw.log())
    assert.matches("stop 2;", gw.log())
    assert.matches("routes%[2%]%.plugins%.life: stop: [^\n]*life%.lua:5: at the end", gw.log())
  end))
end)

describe("the body phase", function()
  local editing = [[
    return { schema = { mode = { type = "string", required = true } },
      body = function(conf, ctx, chunk, last)
        if conf.mode == "upper" then return chunk:upper() end
        if conf.mode == "drop" then return "" end
        if conf.mode == "keep" then return nil end
        if conf.mode == "number" then return 7 end
        if conf.mode == "append" and last then return chunk .. "(" .. (ctx.pieces or 0) .. " pieces)" end
        if not last then ctx.pieces = (ctx.pieces or 0) + 1 end
      end }
  ]]
  local function routes(url)
    local list = {}
    for _, mode in ipairs { "upper", "drop", "keep", "append", "number" } do
      list[#list + 1] = { name = mode, path = "/" .. mode, targets = { { url = url } }, plugins = { edit = { mode = mode } } }
    end
    list[#list + 1] = { name = "both", path = "/both", targets = { { url = url } },
      plugins = { edit = { { mode = "upper" }, { mode = "append" } } } }
    return list
  end
  local on, up, down = rig.shared(function()
    local origin = support.origin(function(_, conn)
      conn:start()
      conn:chunk "abc"
      conn:chunk "def"
      conn:finish()
    end)
    return { plugins = { edit = editing }, routes = routes(origin.url), origin = origin }
  end)
  setup(up)
  teardown(down)

  local function get(path)
    local res = on.gw:request { path = path }
    assert.equal(200, res.status)
    return res.body, res
  end

  it("replaces, drops, keeps and appends pieces; the last call has no piece of its own", async(function()
    assert.equal("ABCDEF", get "/upper")
    assert.equal("", get "/drop")
    assert.equal("abcdef", get "/keep")
    assert.matches("^abcdef%(%d pieces%)$", (get "/append"))
    assert.matches("^7+$", (get "/number"))
  end))

  it("hands one plugin's piece to the next", async(function()
    assert.matches("^ABCDEF%(%d pieces%)$", (get "/both"))
  end))

  it("makes a body of known length chunked, whose last piece is marked once", async(function()
    on.options.origin.handler = function(_, conn) conn:respond { body = "0123456789" } end
    local body, res = get "/append"
    assert.equal("0123456789(1 pieces)", body)
    assert.same({ "chunked" }, { res.headers["transfer-encoding"], res.headers["content-length"] })
    on.options.origin.handler = function(_, conn) conn:respond { body = "" } end
    assert.equal("(0 pieces)", (get "/append"))
  end))

  it("gives an HTTP/1.0 client a body that ends with the connection", async(function()
    on.options.origin.handler = function(_, conn) conn:respond { body = "0123456789" } end
    local c = on.gw:connect()
    c:send "GET /append HTTP/1.0\r\n\r\n"
    local all, why = c:read_all()
    assert.matches("\r\n\r\n0123456789%(1 pieces%)$", all)
    assert.is_nil(all:lower():find("content-length", 1, true))
    assert.equal("closed", why)
  end))
end)
