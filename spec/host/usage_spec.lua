-- tollgate usage, the figures: which budget applies to a key (its record's, its plan's, the route's), what of it is spent and
-- what reserved while requests are in flight, one key or all, as text or JSON; and that it says "unknown" where it cannot know.
-- cli_usage_spec.lua has where Redis is and what happens where it does not answer.
local support = require "spec.support"
local async = support.async

local redis
local up, down = support.shared(function() redis = support.redis() end)

local KEYS = {
  { id = "own", secret = "own", monthly_tokens = 1000, concurrency = 4 },
  { id = "gold", secret = "gold", plan = "gold" },
  { id = "uncapped", secret = "uncapped", monthly_tokens = 500 },
  { id = "odd : {key}", secret = "odd", monthly_tokens = 100, concurrency = 1 },
  { id = "off", secret = "off", monthly_tokens = 100, concurrency = 1, disabled = true },
  { id = "elsewhere", secret = "elsewhere", routes = { "chat" }, monthly_tokens = 0, concurrency = 1 },
}

-- Streams stop before their end until the client leaves.
local function start(options)
  options = options or {}
  local origin = support.llm_origin { each = function(_, body) return body.stream and { stall_after = 2 } or {} end }
  local plans = { gold = { monthly_tokens = 5000, concurrency = 2 } }
  local targets = { { url = origin.url } }
  local gw = support.gateway {
    files = { ["keys.jsonl"] = support.keys(options.keys or KEYS) },
    config = { redis = options.redis or redis.url, plugins = { auth = { keys = "keys.jsonl" } }, routes = {
      { name = "chat", path = "/v1/chat/completions", targets = targets, plugins = { quota = { plans = plans } } },
      { name = "claude", path = "/v1/messages", targets = targets,
        plugins = { quota = { plans = { gold = { monthly_tokens = 300, concurrency = 2 } } } } },
      { name = "shared", path = "/shared/*", targets = targets, plugins = { quota = { key = "route", concurrency = 7 } } },
      { name = "free", path = "/free/*", targets = targets },
    } },
  }
  gw:wait_log "redis: usable"
  return gw, origin
end

local function run(gw, ...)
  return support.tollgate({ "usage", "-c", gw.dir .. "/gateway.lua", ... }, { cwd = gw.dir })
end

-- The lines of JSON, by key.
local function told(gw, ...)
  local res = run(gw, "--json", ...)
  assert.same({ 0, "" }, { res.code, res.err })
  local keys, n = {}, 0
  for line in res.out:gmatch("([^\n]+)\n") do
    local entry = support.decode(line)
    keys[entry.key], n = entry, n + 1
  end
  return keys, n
end

local function ask(gw, secret, more)
  local body = { model = "m", max_tokens = 50, messages = { { role = "user", content = "hi" } } } -- 2 tokens of prompt
  for name, value in pairs(more or {}) do body[name] = value end
  return { method = "POST", path = "/v1/chat/completions", headers = { authorization = "Bearer " .. secret }, body = body }
end

-- Opens a stream that stays open; returns its connection once the gateway has answered.
local function hold(gw, secret)
  local conn = gw:connect()
  conn:send_request(ask(gw, secret, { stream = true }))
  assert.equal(200, assert(conn:read_head()).status)
  return conn
end

local function budgets(entry)
  local list = {}
  for i, one in ipairs(entry.limits) do
    list[i] = table.concat(one.routes, "+") .. "=" .. tostring(one.budget) .. "/" .. tostring(one.concurrency)
  end
  return table.concat(list, " ")
end

describe("tollgate usage", function()
  setup(up)
  teardown(down)
  before_each(async(function() redis:must("FLUSHALL") end))

  it("finds each key's budget as quota does: its own, its plan's, another one on another route", async(function()
    local keys, n = told((start()))
    local found = {}
    for id, entry in pairs(keys) do found[id] = budgets(entry) end
    assert.same({ 7, {
      own = "chat+claude=1000/4", gold = "chat=5000/2 claude=300/2", uncapped = "chat+claude=500/nil",
      ["odd : {key}"] = "chat+claude=100/1", off = "chat+claude=100/1", elsewhere = "chat=0/1",
      ["route:shared"] = "shared=nil/7",
    } }, { n, found })
    assert.is_true(keys.off.disabled)
    assert.is_false(keys.own.disabled)
  end))

  it("tells spent, reserved and in flight apart, and the share, while requests are in flight and after", async(function()
    local gw, origin = start()
    assert.equal(200, gw:request(ask(gw, "own")).status) -- 13
    local conns = { hold(gw, "own"), hold(gw, "own"), hold(gw, "gold") }
    local keys = told(gw)
    local function figures(entry)
      return { entry.charged, entry.spent, entry.reserved, entry.in_flight, entry.limits[1].share }
    end
    assert.same({ 13 + 104, 13, 104, 2, 0.117 }, figures(keys.own))
    assert.same({ 52, 0, 52, 1, 0.0104 }, figures(keys.gold))
    assert.equal("0.173", ("%.3f"):format(keys.gold.limits[2].share))
    assert.same(keys.own, told(gw, "own").own)

    for _, conn in ipairs(conns) do conn:close() end
    support.wait_for(function() return origin.open <= 1 end, "the end of the streams")
    support.wait_for(function() return told(gw, "own").own.in_flight == 0 end, "the settlement")
    local after = told(gw, "own").own
    -- The prompt of 2 and, of each stream, "Hello", which is 5 bytes.
    assert.same({ 13 + 8, 13 + 8, 0, 0, 0.021 }, figures(after))
  end))

  it("says that it does not know, where no concurrency limit keeps the ids of who is in flight", async(function()
    local gw = start()
    local idle = told(gw, "uncapped").uncapped
    assert.same({ 0, 0, 0 }, { idle.charged, idle.spent, idle.reserved }) -- of nothing, nothing is reserved
    local conn = hold(gw, "uncapped")
    local entry = told(gw, "uncapped").uncapped
    assert.same({ 52, support.null, support.null, support.null },
      { entry.charged, entry.spent or support.null, entry.reserved or support.null, entry.in_flight or support.null })
    local text = run(gw, "uncapped").out
    assert.matches("spent +unknown\n", text)
    assert.matches("reserved +unknown\n", text)
    assert.matches("in flight +unknown", text)
    assert.matches("\nuncapped +52%* +unknown +unknown +500 +10%.4 %% +chat, claude\n.*\n%* with what is reserved", run(gw).out)
    conn:close()
  end))

  it("shows a page for one key, and a table for all", async(function()
    local gw = start()
    assert.equal(200, gw:request(ask(gw, "own")).status)
    local page = run(gw, "own")
    assert.same({ 0, "" }, { page.code, page.err })
    local year, month = os.date("!%Y"), os.date("!%m")
    for _, line in ipairs { "key +own", ("month +%s%%-%s, ends %%d+%%-%%d%%d%%-01T00:00:00Z"):format(year, month), "spent +13",
      "reserved +0", "in flight +0", "budget +1000, 1%.3 %% of it spent and reserved" } do
      assert.matches("%f[^\n%z]" .. line .. "\n", page.out)
    end
    assert.matches("key +off %(disabled%)\n", run(gw, "off").out)
    local all = run(gw)
    assert.same({ 0, "" }, { all.code, all.err })
    assert.matches("\nown +13 +0 +0 +1000 +1%.3 %% +chat, claude\n", all.out)
    assert.matches("\ngold +0 +0 +0 +5000 +0%.0 %% +chat\n +300 +0%.0 %% +claude\n", all.out)
    assert.matches("\nroute:shared +0 +0 +0 +none +%- +shared\n", all.out)
  end))

  it("finds keys whose ids are written in another way in Redis, with and without braces", async(function()
    for _, hash_tags in ipairs { false, true } do
      redis:must("FLUSHALL")
      local gw = start { redis = { url = redis.url, hash_tags = hash_tags } }
      local conn = hold(gw, "odd")
      local entry = told(gw, "odd : {key}")["odd : {key}"]
      assert.same({ 52, 0, 52, 1 }, { entry.charged, entry.spent, entry.reserved, entry.in_flight })
      conn:close()
      gw:stop()
    end
  end))

  it("refuses a key that nobody knows; one that only Redis knows it shows without a budget", async(function()
    local gw = start()
    local res = run(gw, "nobody")
    assert.same({ 1, "" }, { res.code, res.out })
    assert.matches('^tollgate usage: no key "nobody": .*keys%.jsonl has none, and Redis knows nothing of it\n$', res.err)
    redis:must("SET", "q:tokens:former:" .. os.date("!%Y%m"), 77, "EX", 100)
    local entry = told(gw, "former").former
    assert.same({ 77, 0 }, { entry.charged, #entry.limits })
    assert.matches("budget +unknown", run(gw, "former").out)
  end))

  it("names a key whose plan is not there, and shows the others", async(function()
    local gw = start { keys = { KEYS[1], { id = "lost", secret = "lost", plan = "silver" } } }
    local one, all = run(gw, "lost"), run(gw)
    assert.same({ 1, "", 1 }, { one.code, one.out, all.code })
    assert.matches("^tollgate usage: the key lost has the plan silver", one.err)
    assert.matches("^tollgate usage: the key lost has the plan silver", all.err)
    assert.matches("\nown ", all.out)
    assert.is_nil(all.out:find("lost", 1, true))
  end))

  it("reads more keys than it asks for at once", async(function()
    local keys = {}
    for i = 1, 1203 do keys[i] = { id = "key-" .. i, secret = "secret " .. i, monthly_tokens = i, concurrency = 1 } end
    local gw = start { keys = keys }
    redis:must("SET", "q:tokens:key-1101:" .. os.date("!%Y%m"), 55, "EX", 100)
    local entries, n = told(gw)
    assert.equal(1204, n)
    assert.same({ 55, 1101 }, { entries["key-1101"].charged, entries["key-1101"].limits[1].budget })
  end))
end)
