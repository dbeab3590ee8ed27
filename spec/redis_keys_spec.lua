-- The table of keys in scripts/README.md against a live Redis: while requests of every kind run, all keys are
-- read again and again. Every key found must be of a listed name, with the listed type and lifetime, and
-- every listed name must have been found. So the page can neither lag behind the code nor promise more.
local support = require "spec.support"
local async = support.async

local SECONDS = { second = 1, minute = 60, hour = 3600, h = 3600, day = 86400 }
local RATE, BURST = 20, 40
local WINDOW = 2678400 -- seconds of ratelimit's
local SLACK = 60     -- seconds that a key may be old when it is looked at

local PART = "[^:{}%z\1-\32]+"     -- what a part may hold, once it is encoded

-- What a part holds that is not like the others.
local PARTS = { yyyyMM = ("%d"):rep(6), ["cached key"] = ".+" }

-- "q:rps:{keyId}" → a Lua pattern.
local function pattern_of(name)
  local parts = name:gsub("{([%w' ]+)}", function(part) return PARTS[part] or PART end)
  return "^" .. parts .. "$"
end

-- The kind that a cell begins with, and the fields of a hash.
local function type_of(cell)
  local kind, fields = cell:match("^%a+"), {}
  for field in cell:gmatch("`([%a_]+)`") do fields[field] = true end
  return kind, (kind == "hash" or kind == "record") and fields or nil
end

-- Seconds: "40 days, …", "5 minutes, …", "2 × the window" or "2 × the bucket's window"; and whether there may be none: "none",
-- or "none for the current one; 7 days once superseded".
local function lifetime_of(cell)
  if cell == "none" then return nil, true end
  local later = cell:match "^none for the current one; (.*)$"
  if later then return (lifetime_of(later)), true end
  local number, unit = cell:match("^(%d+) (%a-)s?%f[^%a]")
  if number and SECONDS[unit] then return number * SECONDS[unit] end
  local windows, bucket = cell:match("^(%d+) × the window"), cell:match("^(%d+) × the bucket's window")
  if windows then return windows * WINDOW end
  return assert(bucket, "a lifetime that this spec cannot read: " .. cell) * BURST / RATE
end

local function listed()
  local rows = {}
  for line in assert(support.read_file("scripts/README.md")):gmatch("[^\n]+") do
    local name, kind, _, lifetime = line:match("^| `(%l+:[^`]+)` | (.-) | (.-) | (.-) |")
    if name and (name:find("{", 1, true) or kind:find "^integer") then
      local row = { name = name, pattern = pattern_of(name), found = 0 }
      row.lifetime, row.may_stay = lifetime_of(lifetime)
      row.kind, row.fields = type_of(kind)
      rows[#rows + 1] = row
    end
  end
  assert(#rows > 0, "scripts/README.md has no table of keys")
  return rows
end

local function row_of(rows, key)
  local found
  for _, row in ipairs(rows) do
    if key:match(row.pattern) then
      assert(not found, key .. " is of two listed names")
      found = row
    end
  end
  return assert(found, key .. " is not in scripts/README.md")
end

local checks = {
  integer = function(entry)
    assert.equal("string", entry.type)
    assert.matches("^%-?%d+$", entry.value)
  end,
  JSON = function(entry, row)
    assert.equal("string", entry.type)
    local policy = assert(support.decode(entry.value))
    if not row.name:find "^cfg:" then return end
    assert.same({ "string", "number", "table" }, { type(policy.sha256), type(policy.of), type(policy.policy) })
  end,
  set = function(entry) assert.equal("set", entry.type) end,
  text = function(entry)
    assert.equal("string", entry.type)
    assert.matches("^open:[^:]+:%d+$", entry.value)
  end,
  hash = function(entry, row)
    assert.equal("hash", entry.type)
    for field, value in pairs(entry.value) do
      assert(row.fields[field], "a field that is not listed: " .. field)
      assert(tonumber(value), field .. " is no number: " .. value)
    end
    for field in pairs(row.fields) do assert(entry.value[field], "the field is missing: " .. field) end
  end,
}

-- Records are hashes with different fields at different times.
function checks.record(entry, row)
  assert.equal("hash", entry.type)
  for field in pairs(entry.value) do assert(row.fields[field], "a field that is not listed: " .. field) end
  for _, field in ipairs { "state", "owner", "fingerprint" } do assert(entry.value[field], "the field is missing: " .. field) end
end

-- A closed reservation keeps its -1 as long as the settlement table says, the longest of it 24 h.
local function longest(row, entry)
  local record = row.kind == "record" and entry.value
  if record and (record.state == "done" or record.lease) then return 86400 end
  return entry.value == "-1" and 86400 or row.lifetime
end

local function check_one(row, key, entry)
  row.found = row.found + 1
  assert(checks[row.kind], "a type that this spec cannot read: " .. row.kind)(entry, row)
  if row.may_stay and entry.pttl == -1 then return end
  assert(row.lifetime, key .. " has a lifetime, and none is listed")
  local limit = longest(row, entry) * 1000
  assert(entry.expires_at > 0, key .. " has no lifetime")
  assert(entry.pttl <= limit, ("%s lives for %d ms, longer than listed"):format(key, entry.pttl))
  if entry.value == "-1" then return end
  assert(entry.pttl > limit - SLACK * 1000, ("%s lives for %d ms, shorter than listed"):format(key, entry.pttl))
end

local function check(rows, dump)
  for key, entry in pairs(dump) do
    local row = row_of(rows, key)
    -- One that was there when names were read may be gone (-2) when its value is.
    if entry.bytes and entry.expires_at ~= -2 and entry.pttl ~= -2 then check_one(row, key, entry) end
  end
end

local CHAT = "/v1/chat/completions"

local function post(gw, secret, more)
  local body = { model = "m", max_tokens = 10, messages = { { role = "user", content = "Hello!" } } }
  for name, value in pairs(more or {}) do body[name] = value end
  return { path = CHAT, headers = { authorization = "Bearer " .. secret }, body = body, port = gw.port }
end

local function start(redis)
  local origin = support.chat_origin { each = function(_, body)
    if body.model == "stall" then return { stall_after = 2 } end
    if body.model == "error" then return { error = { message = "no" } } end
    if body.model == "cut" then return { cut_after = 2 } end
    return {}
  end }
  return support.gateway {
    files = { ["keys.jsonl"] = support.keys {
      { id = "all", secret = "all", rps = RATE, burst = BURST, monthly_tokens = 100000, concurrency = 3 },
      { id = "a:b {c}", secret = "odd", rps = RATE, burst = BURST, monthly_tokens = 100000, concurrency = 1 },
      { id = "poor", secret = "poor", monthly_tokens = 1 },
    } },
    config = {
      redis = redis.url, routing = { source = "redis" },
      routes = {
        { name = "chat", path = CHAT, targets = { { url = origin.url } },
          plugins = { auth = { keys = "keys.jsonl" }, quota = {} } },
        { name = "cached", path = "/cached" .. CHAT, targets = { { url = origin.url } }, plugins = { cache = {} } },
        { name = "tenants", path = "/tenants/*", targets = { { url = origin.url } }, plugins = { cache = {
          { key = "balance:{tenantId}", path = "/tenants/{tenantId}/balance", shared = true },
          { key = "stats:{tenantId}:current_month", path = "/tenants/{tenantId}/stats", shared = true } } } },
        { name = "hook", path = "/hook", plugins = { webhook = { secret = "s",
          events = { ["balance.updated"] = { drop = { "balance:{tenantId}", "stats:{tenantId}:current_month" } },
            ["invoice.created"] = { drop = { "stats:{tenantId}:current_month" } },
            ["invoice.cancelled"] = { drop = { "stats:{tenantId}:current_month" } } } } } },
        { name = "broken", path = "/broken", targets = { { provider = "dead", model = "m:1",
          url = "http://127.0.0.1:" .. support.dead_port() } }, plugins = { breaker = { consecutive = 1 } } },
        { name = "plain", path = "/plain", targets = { { url = origin.url } },
          plugins = { quota = { rps = RATE, burst = BURST, concurrency = 2 },
            idempotency = { on_lost = "refuse" },
            ratelimit = { windows = { { limit = 100, seconds = WINDOW }, { limit = 100, seconds = WINDOW, name = "b" } } } } },
      },
    },
  }
end

-- Requests of every kind, and a stream of each key that stays open; returns the connections of those.
local function run_all(gw)
  local open = {}
  for i, secret in ipairs { "all", "odd" } do
    assert.equal(200, gw:request(post(gw, secret)).status)
    assert.equal(200, gw:request(post(gw, secret, { stream = true })).status)
    assert.equal(500, gw:request(post(gw, secret, { model = "error" })).status)
    gw:request(post(gw, secret, { model = "cut", stream = true }))
    local conn = gw:connect()
    conn:send_request(post(gw, secret, { model = "stall", stream = true }))
    assert.equal(200, conn:read_head().status)
    open[i] = conn
  end
  assert.equal(429, gw:request(post(gw, "odd")).status)     -- its only slot is taken
  assert.equal(429, gw:request(post(gw, "poor")).status)
  assert.equal(401, gw:request(post(gw, "unknown")).status)
  gw:request { path = "/plain" }
  assert.equal(502, gw:request({ path = "/broken" }).status)
  local cached = post(gw, "unknown")
  cached.path, cached.headers = "/cached" .. CHAT, {}
  assert.equal(200, gw:request(cached).status)
  gw:request { path = "/plain", method = "POST", body = "{}", headers = { ["idempotency-key"] = "key" } }
  local event = '{"id":"e:1","type":"balance.updated","tenantId":"a:b"}'
  assert.equal(200, gw:request({ path = "/hook", method = "POST", body = event,
    headers = { ["x-signature"] = support.hmac_sha256("s", event) } }).status)
  for _, name in ipairs { "balance", "stats" } do gw:request { path = "/tenants/x:y/" .. name } end
  for _ = 1, 2 do assert.equal(0, gw:command("publish").code) end
  return open
end

local function found_all(rows)
  for _, row in ipairs(rows) do assert(row.found > 0, row.name .. " is listed and was never found") end
end

local function full_run()
  local rows, redis = listed(), support.redis()
  local gw = start(redis)
  local watching, samples = true, 0
  local watcher = support.spawn(function()
    while watching do
      check(rows, redis:dump { pttl = true })
      samples = samples + 1
      support.sleep(2)
    end
  end)
  local open = run_all(gw)
  assert(next(redis:dump { pattern = "q:conc:*" }))
  -- One of the streams loses its lease, and is settled from what the gateway remembers.
  local held = support.wait_for(function()
    local keys = redis:must("KEYS", "q:reserved:*")
    return #keys == 2 and keys
  end, "the reservations of the two streams alone")
  redis:must("DEL", held[1])
  for _, conn in ipairs(open) do conn:close() end
  gw:wait_access(19)
  support.wait_for(function()
    local left = redis:must("KEYS", "q:reserved:*")
    return #left == 1 and redis:must("GET", left[1]) == "-1" and #redis:must("KEYS", "q:conc:*") == 0
  end, "the settlements")
  watching = false
  watcher:join(5000)
  check(rows, redis:dump { pttl = true })
  assert.is_true(samples > 0)
  found_all(rows)
  return redis
end

describe("the keys in Redis", function()
  it("are those that scripts/README.md lists, with their types and lifetimes", async(function()
    local redis = full_run()
    assert.equal(1, redis:must("EXISTS", "q:rps:all"))
    assert.equal(1, redis:must("EXISTS", "q:rps:a%3Ab%20%7Bc%7D"))
    assert.equal(1, redis:must("EXISTS", "q:rps:route%3Aplain"))
    local index = math.floor(redis:must("TIME")[1] / WINDOW)
    assert.equal(1, redis:must("EXISTS", ("rl:route%%3Aplain:%d"):format(index)))
    assert.equal(1, redis:must("EXISTS", ("rl:route%%3Aplain:%d-b-%d"):format(WINDOW, index)))
    assert.equal(1, #redis:must("KEYS", "cache:exact:anonymous:*"))
    assert.equal(1, redis:must("EXISTS", "idem:route%3Aplain:" .. support.sha256("key")))
    assert.equal(1, redis:must("EXISTS", "hook:hook:e%3A1"))
    assert.equal(1, redis:must("EXISTS", "cb:hint:dead:m%3A1"))
    assert.equal(1, redis:must("EXISTS", "fence:stats:a%3Ab:current_month"))
    assert.equal(0, #redis:must("KEYS", "*poor*"))
  end))
end)
