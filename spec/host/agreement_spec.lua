-- 10,000 requests of all kinds over two workers, one of which is killed in the middle with requests in flight: what the
-- clients counted, /metrics, the access log and Redis must then agree exactly. Requests that the killed worker had are
-- counted as lost by the master, have no line, and leave their reservation standing.
--
-- TOLLGATE_SEED repeats a run, TOLLGATE_REQUESTS makes it longer.
local uv = require "luv"
local support = require "spec.support"
local quota = require "spec.plugins.quota.rig"

local REQUESTS = tonumber(os.getenv "TOLLGATE_REQUESTS" or 10000)
local SEED = tonumber(os.getenv "TOLLGATE_SEED" or os.time() % 1000000)
local PARALLEL, HELD = 16, 12

local ANSWER = [[ return { access = function(_, ctx)
  if ctx.request.path == "/plain/boom" then error("boom") end
  return 200, "ok"
end } ]]

-- How a request ends, as it is counted: route, code, ended; and the limit that refused it.
local KINDS = {
  { name = "json", weight = 20, ends = { "chat", "200", "ok" } },
  { name = "stream", weight = 20, ends = { "chat", "200", "ok" } },
  { name = "abort", weight = 5, ends = { "chat", "200", "client_gone" } },
  { name = "abort_early", weight = 3, ends = { "chat", "none", "client_gone" } },
  { name = "cut", weight = 5, ends = { "chat", "200", "origin_cut" } },
  { name = "status", weight = 6, ends = { "chat", "503", "ok" } },
  { name = "dead", weight = 5, ends = { "dead", "502", "ok" } },
  { name = "poor", weight = 8, ends = { "chat", "429", "ok" }, refusal = "budget" },
  { name = "no_key", weight = 6, ends = { "chat", "401", "ok" }, refusal = "invalid_api_key" },
  { name = "plain", weight = 12, ends = { "plain", "200", "ok" } },
  { name = "boom", weight = 3, ends = { "plain", "500", "ok" } },
  { name = "unknown", weight = 4, ends = { "", "404", "ok" } },
  { name = "malformed", weight = 3, ends = { "", "400", "ok" } },
}

local function picker(seed)
  local total, state = 0, seed
  for _, kind in ipairs(KINDS) do total = total + kind.weight end
  return function()
    state = (state * 1103515245 + 12345) % 2 ^ 31 -- of the C standard's example
    local at = math.floor(state / 65536) % total
    for _, kind in ipairs(KINDS) do
      at = at - kind.weight
      if at < 0 then return kind end
    end
  end
end

-- The origin does as a header says. Who is held waits for `on.release`, or for its connection's end.
local function origin_handler(on)
  local answer = support.chat_handler {}
  local cut = support.chat_handler { cut_after = 2 }
  local function wait(conn)
    on.held = on.held + 1
    support.wait_for(function() return on.release or conn.closed end, "the release", 60000)
  end
  local acts = {
    cut = cut,
    status = function(_, conn) conn:respond { status = 503, body = { error = { message = "no" } } } end,
    abort = function(_, conn)
      conn:start { headers = { ["content-type"] = "text/event-stream" } }
      conn:chunk('data: {"choices":[{"index":0,"delta":{"content":"some"}}]}\n\n')
      conn:wait_closed(20000)
    end,
    abort_early = function(req, conn)
      on.early[req.headers["x-number"]] = true
      conn:wait_closed(20000)
    end,
    held = function(req, conn)
      wait(conn)
      answer(req, conn)
    end,
    held_stream = function(_, conn)
      conn:start { headers = { ["content-type"] = "text/event-stream" } }
      conn:chunk('data: {"choices":[{"index":0,"delta":{"content":"some"}}]}\n\n')
      wait(conn)
      conn:chunk('data: {"choices":[],"usage":{"prompt_tokens":9,"completion_tokens":4,"total_tokens":13}}\n\n')
      conn:chunk("data: [DONE]\n\n")
      conn:finish()
    end,
  }
  return function(req, conn) return (acts[req.headers["x-kind"]] or answer)(req, conn) end
end

local function start()
  local on = { held = 0, early = {}, counts = {}, refused = {}, sent = 0, broken = 0 }
  on.redis = support.redis()
  local origin = support.origin(origin_handler(on))
  on.gw = support.gateway {
    files = { ["plugins/answer.lua"] = ANSWER, ["keys.jsonl"] = support.keys {
      { id = "rich", secret = "tg-rich", monthly_tokens = 2 ^ 50, concurrency = 1000 },
      { id = "poor", secret = "tg-poor", monthly_tokens = 5 } } },
    config = { workers = 2, redis = { url = on.redis.url, timeout = 10 }, watchdog = 30, log = { access = "file:access.log" },
      routes = {
        { name = "chat", path = "/v1/chat/completions", targets = { { provider = "origin", url = origin.url } },
          retry = { attempts = 1 }, plugins = { auth = { keys = "keys.jsonl" }, quota = {} } },
        { name = "dead", path = "/dead", targets = { { url = "http://127.0.0.1:" .. support.free_port() } } },
        { name = "plain", path = "/plain/*", plugins = { answer = {} } },
      } },
  }
  on.gw:wait_metric("worker_redis_usable", 2)
  return on
end

local function chat(kind, number)
  local secret = kind == "no_key" and "sk-none" or kind == "poor" and "tg-poor" or "tg-rich"
  return { method = "POST", path = "/v1/chat/completions",
    headers = { authorization = "Bearer " .. secret, ["x-kind"] = kind, ["x-number"] = tostring(number) },
    body = { model = "m", max_tokens = 20, stream = kind ~= "json" and kind ~= "held",
      messages = { { role = "user", content = "say something" } } } }
end

local PATHS = { dead = "/dead", plain = "/plain/x", boom = "/plain/boom", unknown = "/none" }

-- Sends one and takes its answer as its kind has it; true where the connection can be used again.
local function exchange(on, conn, kind, number)
  local name = kind.name
  if name == "malformed" then
    assert(conn:send "GET / HTTP/1.1\r\nHost : a\r\n\r\n")
  elseif PATHS[name] then
    assert(conn:send_request { path = PATHS[name] })
  else
    assert(conn:send_request(chat(name, number)))
  end
  if name == "abort_early" then
    support.wait_for(function() return on.early[tostring(number)] end, "request " .. number .. " at the origin", 20000)
    return false, "none"
  end
  local res = assert(conn:read_head { timeout = 20000 })
  if name == "abort" then
    assert(res:read(20000))
    return false, tostring(res.status)
  end
  local piece, err
  repeat piece, err = res:read(20000) until not piece
  assert.equal(name == "cut", err ~= nil, err)
  return not err and (res.headers.connection or "") ~= "close", tostring(res.status)
end

local function client(on, next_kind)
  local conn
  while true do
    local kind, number = next_kind()
    if not kind then break end
    if not conn or conn.closed then conn = on.gw:connect(20000) end
    local keep, code = exchange(on, conn, kind, number)
    assert.equal(kind.ends[2], code, kind.name)
    local key = table.concat(kind.ends, " ")
    on.counts[key] = (on.counts[key] or 0) + 1
    if kind.refusal then on.refused[kind.refusal] = (on.refused[kind.refusal] or 0) + 1 end
    if not keep then
      conn:close()
      conn = nil
    end
  end
  if conn then conn:close() end
end

local function run(on, n, pick)
  local last, clients = on.sent + n, {}
  local function next_kind()
    if on.sent == last then return nil end
    on.sent = on.sent + 1
    return pick(), on.sent
  end
  for i = 1, PARALLEL do
    clients[i] = function() client(on, next_kind) end
  end
  support.all(clients)
end

-- Requests that stay in flight in both workers; returns the clients, each with the status it has seen so far.
local function hold(on)
  local list = {}
  for i = 1, HELD do
    local one = { conn = on.gw:connect(60000), stream = i % 2 == 0 }
    assert(one.conn:send_request(chat(one.stream and "held_stream" or "held", "h" .. i)))
    if one.stream then
      one.res = assert(one.conn:read_head { timeout = 20000 })
      assert(one.res:read(20000))
    end
    list[i] = one
  end
  on.sent = on.sent + HELD
  support.wait_for(function() return on.held == HELD end, "held requests at the origin", 20000)
  on.gw:wait_metric("requests_in_flight", HELD)
  return list
end

-- Kills the worker that has the most of them; returns how many it had.
local function kill_one(on)
  local worst
  support.wait_for(function()
    local all = 0
    worst = nil
    for _, worker in ipairs(on.gw:status().workers) do
      all = all + worker.requests
      if not worst or worker.requests > worst.requests then worst = worker end
    end
    return all == HELD
  end, "all held requests in the status", 20000)
  uv.kill(worst.pid, "sigkill")
  on.gw:wait_metric("worker_restarts_total", 1, { reason = "signal" })
  support.wait_for(function() return #on.gw:workers() == 2 end, "another worker", 20000)
  return worst.requests
end

-- Lets the others end, and counts what their clients see.
local function release(on, list)
  on.release = true
  for _, one in ipairs(list) do
    local err
    if not one.res then one.res, err = one.conn:read_head { timeout = 20000 } end
    if one.res then
      local piece
      repeat piece, err = one.res:read(20000) until not piece
    end
    if err then
      on.broken = on.broken + 1
    else
      assert.equal(200, one.res.status)
      on.counts["chat 200 ok"] = on.counts["chat 200 ok"] + 1
    end
    one.conn:close()
  end
end

-- What the lines say: by route, code and end; by refusal; and the tokens.
local function read_log(path)
  local log = { counts = {}, refused = {}, used = 0, n = 0, reserved = 0, ids = {} }
  for line in support.read_file(path):gmatch "([^\n]*)\n" do
    local e = assert(support.decode(line), line)
    assert.is_nil(log.ids[e.id], "two lines of one request")
    log.ids[e.id], log.n = true, log.n + 1
    local key = ("%s %s %s"):format(e.route or "", e.status or "none", e.ended)
    log.counts[key] = (log.counts[key] or 0) + 1
    if e.refusal then log.refused[e.refusal] = (log.refused[e.refusal] or 0) + 1 end
    if e.tokens then
      log.used, log.reserved = log.used + e.tokens.used, log.reserved + e.tokens.reserved
    end
  end
  return log
end

local function read_metrics(gw)
  local samples = gw:samples()
  local m = { counts = {}, refused = {} }
  for _, sample in ipairs(samples) do
    local labels = sample.labels
    if sample.name == "tollgate_requests_ended_total" then
      m.counts[("%s %s %s"):format(labels.route, labels.code, labels.ended)] = sample.value
    elseif sample.name == "tollgate_refusals_total" then
      m.refused[labels.limit] = (m.refused[labels.limit] or 0) + sample.value
    end
  end
  function m.sum(name, labels) return support.prometheus.sum(samples, "tollgate_" .. name, labels) or 0 end
  return m
end

it("10,000 mixed requests and a killed worker: clients, metrics, access log and Redis agree", support.async(function()
  support.on_end(function(failed)
    if failed then io.stderr:write(("--- repeat with TOLLGATE_SEED=%d\n"):format(SEED)) end
  end)
  local on, pick = start(), picker(SEED)
  run(on, math.floor(REQUESTS / 2), pick)
  on.gw:wait_metric("requests_in_flight", 0)
  local held = hold(on)
  local lost = kill_one(on)
  release(on, held)
  run(on, math.ceil(REQUESTS / 2), pick)
  on.gw:wait_metric("requests_in_flight", 0)
  local ended = on.sent - lost
  on.gw:wait_metric("access_log_lines_total", ended)

  local m, log = read_metrics(on.gw), read_log(on.gw.dir .. "/access.log")
  assert.equal(lost, on.broken)
  assert.same({ on.sent, lost }, { m.sum "requests_total", m.sum "requests_lost_total" })
  assert.same({ ended, ended, ended },
    { m.sum "requests_ended_total", m.sum "request_duration_seconds_count", log.n })
  assert.same(on.counts, m.counts)
  assert.same(on.counts, log.counts)
  assert.same(on.refused, m.refused)
  assert.same(on.refused, log.refused)
  assert.equal(0, m.sum "log_dropped_total")

  -- Tokens: what the log says is what the metrics say; Redis has that, and what the lost ones had reserved.
  assert.same({ log.used, log.reserved }, { m.sum "tokens_used_total", m.sum "tokens_reserved_total" })
  local left
  support.wait_for(function()
    left = quota.look(on.redis, "rich")
    return left.open == lost and left.inflight == lost
  end, "all settlements", 20000)
  assert.equal(log.used + left.reserved, left.tokens)
  assert.is_true(lost > 0 and left.reserved > 0)
end, 120000))
