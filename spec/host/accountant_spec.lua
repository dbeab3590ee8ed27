-- Thousands of random LLM requests, 32 at a time, over all APIs and all ways in which a request can end; and an
-- accountant that knows only what the origin told and what the policy says. For every request its figure must be
-- the one in the access log, for every key its sum must be the one in Redis, and nothing may be left reserved.
--
-- TOLLGATE_SEED repeats a run, TOLLGATE_REQUESTS makes it longer.
local support = require "spec.support"
local plan_of = require "spec.host.accountant_plan"
local rig = require "spec.host.accountant_rig"
local quota = require "spec.plugins.quota.rig"

local REQUESTS = tonumber(os.getenv "TOLLGATE_REQUESTS" or 5000)
local SEED = tonumber(os.getenv "TOLLGATE_SEED" or os.time() % 1000000)
local PARALLEL = 32

local PLENTY = 2 ^ 52
local KEYS = {
  { id = "plenty", monthly_tokens = PLENTY }, { id = "plenty-2", monthly_tokens = PLENTY, concurrency = 1000 },
  { id = "all limits", monthly_tokens = PLENTY, rps = 1000, burst = 1000, concurrency = 1000 },
  { id = "slow", monthly_tokens = PLENTY, rps = 5, burst = 5 }, { id = "poor", monthly_tokens = 4 * REQUESTS },
  { id = "narrow", monthly_tokens = PLENTY, concurrency = 2 }, { id = "unmetered", concurrency = 1000 },
}
-- The keys with ample limits have most of the requests.
local TURN = { "plenty", "plenty", "plenty-2", "plenty-2", "all limits", "all limits", "slow", "poor", "narrow", "unmetered" }

-- By the first part of the path. Nobody listens where "dead" leads to.
local POLICIES = { seen = { on_missing_usage = "seen" }, reserved = { on_missing_usage = "reserved" },
  drain = { on_client_gone = "drain" }, dead = {} }

local function secret_of(id) return "tg-" .. id:gsub(" ", "-") end

local function routes(origin)
  local list = {}
  for policy, settings in pairs(POLICIES) do
    for api in pairs(support.llm.apis) do
      if type(support.llm.apis[api]) == "table" then
        list[#list + 1] = { name = policy .. "-" .. api, path = ("/%s/%s/*"):format(policy, api), api = api,
          targets = { { url = policy == "dead" and "http://127.0.0.1:" .. support.dead_port() or origin.url } },
          plugins = { quota = settings } }
      end
    end
  end
  return list
end

local function start(redis, origin)
  local records = {}
  for i, key in ipairs(KEYS) do
    records[i] = { tenant = "t", secret = secret_of(key.id) }
    for name, value in pairs(key) do records[i][name] = value end
  end
  return support.gateway {
    files = { ["keys.jsonl"] = support.keys(records) },
    config = { redis = { url = redis.url, timeout = 10 }, plugins = { auth = { keys = "keys.jsonl" } }, routes = routes(origin) },
  }
end

local function request_of(plan)
  local headers = { authorization = "Bearer " .. (plan.kind == "no_key" and "sk-unknown" or secret_of(plan.key)) }
  local body = support.encode(plan.body)
  if plan.kind == "bad_json" then body = body:sub(1, -2) end
  if plan.kind == "encoded" then
    headers["content-encoding"], body = "gzip", support.gzip(body)
  end
  return { method = "POST", path = plan.path, headers = headers, body = body }
end

-- Reads to the end, or up to where the plan says that the client leaves.
local function read_body(plan, res)
  local got, leaves = 0, plan.kind:match("^abort") ~= nil
  while true do
    if plan.stops_at == got and res.status == 200 then
      plan.has_all, plan.left = true, leaves
      if leaves then return end
    end
    local piece, err = res:read(20000)
    plan.cut = err
    if not piece then return end
    got = got + #piece
  end
end

-- Sends a request and notes its status; true where the connection can be used again.
local function exchange(plan, conn)
  assert(conn:send_request(request_of(plan)))
  if plan.kind == "abort_early" then
    support.wait_for(function() return plan.stops_at or conn.size > 0 end, "request " .. plan.i .. " at the origin", 20000)
    if plan.stops_at then
      plan.left = true
      return false
    end
  end
  local res = assert(conn:read_head { timeout = 20000 })
  plan.status = res.status
  if res.status == 429 and not plan.told then
    assert(res:read(20000), "a refusal without a body")
    plan.refused = true
    return false
  end
  read_body(plan, res)
  return not plan.left and not plan.cut and (res.headers.connection or "") ~= "close"
end

local function client(gw, next_plan)
  local conn
  for plan in next_plan do
    if not conn or conn.closed then conn = gw:connect(20000) end
    if not exchange(plan, conn) then
      conn:close()
      conn = nil
    end
  end
  if conn then conn:close() end
end

local function run(gw, plans)
  local at, clients = 0, {}
  local function next_plan()
    at = at + 1
    return plans[at]
  end
  for i = 1, PARALLEL do
    clients[i] = function() client(gw, next_plan) end
  end
  support.all(clients)
end

-- The numbers of requests that have no line.
local function without_line(out, n)
  local there, list = {}, {}
  for i in out:gmatch('"path":"[^"]-(%d+)"') do there[tonumber(i)] = true end
  for i = 1, n do
    if not there[i] then list[#list + 1] = i end
  end
  return list
end

-- Whether that many lines have come. Looks at each piece of output once, for it is asked often and there is much.
local function line_counter(process, wanted)
  local at, n = 0, 0
  return function()
    for i = at + 1, #process.out_parts do n = n + select(2, process.out_parts[i]:gsub("\n", "\n")) end
    at = #process.out_parts
    return n >= wanted
  end
end

-- The access log by the number of the request.
local function log_of(gw, plans)
  local complete = line_counter(gw.process, #plans)
  if not pcall(support.wait_for, complete, "the access log", 10000) then
    local missing = without_line(gw.process:out(), #plans)
    error(("no line in the access log for %d requests: %s"):format(#missing, support.encode(plans[missing[1]])))
  end
  local lines = {}
  for _, line in ipairs(gw.access()) do
    local i = tonumber(line.path:match("(%d+)$"))
    assert(not lines[i], "two lines for request " .. i)
    lines[i] = line
  end
  return lines
end

local function story(plan, line)
  return support.encode { request = plan.i, kind = plan.kind, api = plan.api, key = plan.key, policy = plan.policy,
    status = plan.status, told = plan.told, line = line, prompt = plan.prompt, output = plan.output,
    expected = rig.charge(plan), cause = rig.cause(plan) }
end

-- The accountant's sums, by key; and every request against its line of the log.
local function compare(plans, lines)
  local sums, logged, missing, wrong = {}, {}, 0, {}
  for _, plan in ipairs(plans) do
    local line = lines[plan.i] or {}
    local tokens = line.tokens or {}
    local known = plan.kind ~= "no_key" and plan.key or nil
    if (tokens.used or 0) ~= rig.charge(plan) or tokens.usage_missing ~= rig.cause(plan) or line.consumer ~= known then
      wrong[#wrong + 1] = #wrong < 5 and story(plan, line) or "…"
    end
    if rig.cause(plan) then missing = missing + 1 end
    sums[plan.key] = (sums[plan.key] or 0) + rig.charge(plan)
    if known then logged[known] = (logged[known] or 0) + (tokens.used or 0) end
  end
  assert(#wrong == 0, ("%d requests differ: %s"):format(#wrong, table.concat(wrong, "\n", 1, math.min(5, #wrong))))
  assert.same(sums, logged)
  return sums, missing
end

-- Nothing may be in flight; then what each key was charged, in all months.
local function charged(redis)
  local found = {}
  for _, key in ipairs(KEYS) do
    quota.settled(redis, key.id:gsub(" ", "%%20"), 10000)
  end
  for _, name in ipairs(redis:must("KEYS", "q:tokens:*")) do
    local id = name:match("^q:tokens:(.*):%d+$"):gsub("%%20", " ")
    found[id] = (found[id] or 0) + redis:must("GET", name)
  end
  for _, name in ipairs(redis:must("KEYS", "q:reserved:*")) do assert.equal("-1", redis:must("GET", name)) end
  assert.same({}, redis:must("KEYS", "q:conc:*"))
  quota.assert_lifetimes(redis)
  return found
end

local function counts(plans)
  local n = { refused = {}, kinds = {} }
  for _, plan in ipairs(plans) do
    n.kinds[plan.kind] = (n.kinds[plan.kind] or 0) + 1
    if plan.refused then n.refused[plan.key] = (n.refused[plan.key] or 0) + 1 end
  end
  return n
end

describe("after thousands of mixed requests", function()
  it("every token is accounted for", support.async(function()
    local redis = support.redis()
    local plans = {}
    for i = 1, REQUESTS do plans[i] = plan_of.draw(SEED, i, TURN) end
    support.on_end(function(failed)
      if failed then io.stderr:write(("--- repeat with TOLLGATE_SEED=%d\n"):format(SEED)) end
    end)
    local gw = start(redis, rig.origin(plans))
    run(gw, plans)

    local sums, missing = compare(plans, log_of(gw, plans))
    local total = 0
    for _, tokens in pairs(sums) do total = total + tokens end
    sums.unmetered = nil -- without a budget nothing is counted in Redis
    assert.same(sums, charged(redis))
    assert.equal(missing, gw:metric("usage_missing_total"))
    assert.equal(total, gw:metric("tokens_used_total"))

    -- That the mix was one.
    local n = counts(plans)
    for _, key in ipairs { "slow", "poor", "narrow" } do
      assert.is_true((n.refused[key] or 0) > 0, key .. " was never refused")
    end
    assert.is_true(missing > REQUESTS / 10)
  end, 120000))
end)
