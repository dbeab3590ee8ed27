-- The reference of ctx in host/lua/README.md, row by row: each field is there in the phases that the table names and nowhere
-- else, has the type that it names, may be set where it says, and has the value that is checked here. A row without a check
-- fails, and so does a tg.* function without a row.
local support = require "spec.support"
local rig = require "spec.host.plugin_rig"
local async = support.async

local PHASES = { "access", "response", "body", "finish", "log" }
local readme = support.read_file("host/lua/README.md")

local function words(text)
  local set = {}
  for word in text:gmatch("%S+") do set[word] = true end
  return set
end

local function rows()
  local list = {}
  for field, kind, there, set in readme:gmatch("\n| `(ctx[^`]+)` | ([^|]+) | ([^|]*) |([^|]*)|") do
    list[#list + 1] = { field = field, kind = kind, there = words(there), set = words(set) }
  end
  return list
end

-- By field: `get` (default: the field itself), `value`: what it is for the request below, or a function that asserts it;
-- `set`: an assignment, and `becomes`: the value behind it.
local checks = {
  ["ctx.id"] = { value = function(v, seen) assert.equal(seen.res.headers["x-request-id"], v) end },
  ["ctx.route.name"] = { value = "r", set = "ctx.route.name = 'x'" },
  ["ctx.route.api"] = { value = "none", set = "ctx.route.api = 'openai-chat'" },
  ["ctx.client.address"] = { value = "127.0.0.1" },
  ["ctx.client.peer"] = { value = "127.0.0.1" },
  ["ctx.client.port"] = { value = function(v, seen) assert.equal(seen.client_port, v) end },
  ["ctx.client.certificate"] = { value = nil },
  ["ctx.started"] = { value = function(v) assert.is_true(math.abs(v - os.time()) < 60) end },
  ["ctx.trace"] = { value = nil }, -- trace_spec.lua
  ["ctx.model"] = { value = nil }, -- models_spec.lua
  ["ctx.target.name"] = { value = "prov:mod" },
  ["ctx.target.url"] = { value = function(v, seen) assert.equal(seen.origin.url, v) end },
  ["ctx.target.provider"] = { value = "prov" },
  ["ctx.target.model"] = { value = "mod" },
  ["ctx.consumer"] = { value = nil, set = "ctx.consumer = { id = 'me' }", get_set = "ctx.consumer.id", becomes = "me" },
  ["ctx.request.method"] = { value = "POST", set = "ctx.request.method = 'GET'" },
  ["ctx.request.scheme"] = { value = "http", set = "ctx.request.scheme = 'https'" },
  ["ctx.request.host"] = { value = "gateway.test:80", set = "ctx.request.host = 'x'" },
  ["ctx.request.path"] = { value = "/v1/b", set = "ctx.request.path = '/x/../y%7e'", becomes = "/y~" },
  ["ctx.request.query"] = { value = "q=%20", set = "ctx.request.query = 'a=b'", becomes = "a=b" },
  ["ctx.request.version"] = { value = "1.1", set = "ctx.request.version = '1.0'" },
  ["ctx.request.headers[name]"] = { get = "ctx.request.headers['x-twice']", value = "a, b",
    set = "ctx.request.headers['X-Twice'] = 'c'", becomes = "c" },
  ["ctx.request:each_header()"] = { value = "function" },
  ["ctx.request:body()"] = { value = "the body" },
  ["ctx.request:set_body(text)"] = { value = nil,
    get = "(function() ctx.request:body(); return ctx.request:set_body('other') end)()" },
  ["ctx.response.status"] = { value = 201, set = "ctx.response.status = 202", becomes = 202 },
  ["ctx.response.source"] = { value = "origin", set = "ctx.response.source = 'gateway'" },
  ["ctx.response.headers[name]"] = { get = "ctx.response.headers['X-ORIGIN']", value = "c, d",
    set = "ctx.response.headers['x-origin'] = nil", becomes = nil },
  ["ctx.response:each_header()"] = { value = "function" },
  ["ctx.upgrade"] = { value = nil },
  ["ctx.reached_origin"] = { value = function(v, _, phase) assert.equal(phase ~= "access", v) end },
  ["ctx:keep_origin(seconds, bytes)"] = { value = nil, get = "ctx:keep_origin(1, 1)" },
  ["ctx:record(bytes, condition)"] = { value = nil, get = "ctx:record(1)" },
  ["ctx:recorded()"] = { value = nil },
  ["ctx:recorded_from(offset)"] = { value = nil, get = "ctx:recorded_from(0)" },
  ["ctx.ended"] = { value = "ok" },
  ["ctx.seconds"] = { value = function(v) assert.is_true(v >= 0 and v < 60) end },
  ["ctx.usage"] = { value = nil },
  ["ctx:refusal(status, code, message, headers, param)"] = { get = "ctx:refusal(403, 'c', 'm')", value = 403 },
}

-- The only plugin: in the phase that x-phase names it runs the code in x-set, then that in x-get; what came of it goes to the
-- log as one line of JSON. The body is read in access where the header x-read is there.
local plugin = [[
  local tg = require "tollgate"
  local function note(ctx, phase)
    if ctx.request.headers["x-phase"] ~= phase then return end
    ctx.notes = {}
    for _, name in ipairs { "set", "get" } do
      local text = ctx.request.headers["x-" .. name] or ""
      local code = assert(loadstring("local ctx = ...; " .. (name == "get" and "return " or "") .. text))
      local ok, value = pcall(function() return (code(ctx)) end)
      local kind = type(value)
      ctx.notes[name] = { ok = ok, kind = kind, value = kind == "function" and kind or value }
    end
  end
  return {
    access = function(_, ctx)
      if ctx.request.headers["x-read"] then ctx.request:body() end
      note(ctx, "access")
    end,
    response = function(_, ctx) note(ctx, "response") end,
    body = function(_, ctx, _, last) if last then note(ctx, "body") end end,
    finish = function(_, ctx) note(ctx, "finish") end,
    log = function(_, ctx) note(ctx, "log"); tg.log.info("notes ", ctx.id, " ", tg.json.encode(ctx.notes)) end,
  }
]]

local on, up, down = rig.shared(function()
  local origin = support.origin(function(_, conn)
    conn:respond { status = 201, headers = { { "X-Origin", "c" }, { "x-origin", "d" } }, body = "answer" }
  end)
  return { plugins = { note = plugin }, origin = origin, routes = {
    { name = "r", path = "/v1/*", plugins = { note = {} },
      targets = { { url = origin.url, provider = "prov", model = "mod" } } },
  } }
end)
setup(up)
teardown(down)

-- What the code gave in a phase: { get = { ok, kind, value }, set = … }, and what belongs to the request.
local function run(phase, get, set, read)
  local c = on.gw:connect()
  local headers = { { "x-twice", "a" }, { "X-Twice", "b" } }
  for name, text in pairs { phase = phase, get = get, set = set, read = read } do
    headers[#headers + 1] = { "x-" .. name, text }
  end
  local res = c:request { method = "POST", path = "/v1/./a/../b?q=%20", headers = headers, body = "the body",
    host = "gateway.test:80" }
  assert.is_truthy(res)
  local id = res.headers["x-request-id"]
  local line = on.gw:wait_log("notes " .. id .. " {[^\n]*}\n")
  return support.decode(line:match("{.*}")), { res = res, origin = on.options.origin,
    client_port = c.handle:getsockname().port }
end

local function expect(check, value, seen, phase)
  if type(check.value) == "function" then return check.value(value, seen, phase) end
  assert.equal(check.value, value)
end

local function assert_kind(row, kind)
  local wanted = words((row.kind:gsub(" or ", " ")))
  if not wanted[kind] then error(("%s is a %s, and a %s in the table"):format(row.field, kind, row.kind), 2) end
end

for _, row in ipairs(rows()) do
  local check = checks[row.field]
  it(row.field .. " is where and what the reference says", async(function()
    assert.is_table(check, "the row has no check")
    local get = check.get or row.field
    for _, phase in ipairs(PHASES) do
      local notes, seen = run(phase, get)
      local got = notes.get
      if row.there[phase] then
        assert.same({ phase, true, got.value }, { phase, got.ok, got.value })
        assert_kind(row, got.kind)
        expect(check, got.value, seen, phase)
      else -- nil, or it cannot be reached or called
        assert.is_true(not got.ok or got.kind == "nil", row.field .. " is there in " .. phase)
      end
    end
  end))

  if check and check.set then
    it(row.field .. " can be set where the reference says", async(function()
      local get = check.get_set or check.get or row.field
      for _, phase in ipairs(PHASES) do
        local notes = run(phase, get, check.set)
        assert.same({ phase, row.set[phase] or false }, { phase, notes.set.ok })
        if row.set[phase] then assert.equal(check.becomes, notes.get.value) end
      end
    end))
  else
    it(row.field .. " has no phase to be set in", function() assert.is_nil(next(row.set)) end)
  end
end

it("each check has a row", function()
  local there = {}
  for _, row in ipairs(rows()) do there[row.field] = true end
  for field in pairs(checks) do assert.is_true(there[field], field .. " has no row") end
end)

it("ctx.request:body() is there in later phases where access has read it", async(function()
  for _, phase in ipairs(PHASES) do assert.equal("the body", run(phase, "ctx.request:body()", nil, "yes").get.value) end
end))

it("each tg.* has a row, and each row is there", async(function()
  local named = {}
  for name in readme:match("\n## tg\n.*"):gmatch("`(tg%.[%w_.]+)[^`]*`") do named[#named + 1] = name end
  local gw = rig.start { plugins = { walk = [[
    local tg = require "tollgate"
    local names = {}
    for name, value in pairs(tg) do
      if type(value) ~= "table" then names[#names + 1] = "tg." .. name end
      for inner in pairs(type(value) == "table" and value or {}) do names[#names + 1] = "tg." .. name .. "." .. inner end
    end
    return { access = function() return 200, names end } ]] } }
  local there = support.json(gw:request {})
  table.sort(named)
  table.sort(there)
  assert.same(there, named)
end))
