-- What each of the requests of accountant_plan.lua must cost, for accountant_spec.lua: the origin acts by the plan and
-- notes what it told; the charge is computed from that note and the policy alone, by the rules of plugins/README.md.
--
-- Where a charge depends on how much was relayed, the request stops at a point that both sides know: the origin says
-- how many bytes it sends and then waits, and the client leaves, or the origin resets, only once the client has all.
local support = require "spec.support"
local plans = require "spec.host.accountant_plan"
local llm = support.llm

local M = {}

-- The origin

local JSON = { ["content-type"] = "application/json" }

-- Notes what an event of the stream tells.
local function tell(plan, event)
  local told = plan.told
  told.text = told.text + #event.text
  told.input = event.input or told.input
  told.usage = event.usage or told.usage
end

-- The bytes of the first events, and of the next one up to some byte of its text where `in_text`.
local function stream_bytes(plan, body, count, in_text)
  local parts, events = {}, llm.events(plan.api, plan.answer, body)
  for i = 1, math.min(count, #events) do
    tell(plan, events[i])
    parts[i] = llm.event_bytes(events[i])
  end
  local cut = in_text and events[count + 1]
  if cut then
    local bytes = llm.event_bytes(cut)
    local _, last = bytes:find(cut.text, 1, true)
    plan.told.text = plan.told.text + #cut.text
    parts[#parts + 1] = bytes:sub(1, last)
  end
  return table.concat(parts)
end

local function send(plan, conn, bytes)
  for at = 1, #bytes, plan.split or #bytes do
    if not conn:chunk(bytes:sub(at, at + (plan.split or #bytes) - 1)) then return end
  end
end

local function client_has_all(plan)
  support.wait_for(function() return plan.has_all end, "the client of request " .. plan.i, 20000)
end

local function answer(plan, conn, body)
  if not plan.stream then
    local text = table.concat(plan.answer.deltas)
    plan.told.usage = plan.answer.usage or nil
    plan.told.text = plan.api == "openai-embeddings" and 0 or #text
    return conn:respond { headers = JSON, body = llm.answer(plan.api, plan.answer, body) }
  end
  local bytes = stream_bytes(plan, body, 1000)
  conn:start { headers = { ["content-type"] = "text/event-stream" } }
  send(plan, conn, bytes)
  conn:finish()
end

local STATUSES = { 400, 404, 429, 500, 503, 529 }

local acts = {}

-- A stream that ends before its end; the last two events are those that report usage or follow it.
local function stop_early(plan, conn, body, in_text)
  local count = math.floor(plan.at * (#llm.events(plan.api, plan.answer, body) - 2))
  if in_text then
    plan.answer.deltas = { "alpha ", "beta ", "gamma " }
    local first = 0
    for i, event in ipairs(llm.events(plan.api, plan.answer, body)) do
      if first == 0 and #event.text > 0 then first = i end
    end
    count = first - 1 + math.floor(plan.at * 3)
  end
  local bytes = stream_bytes(plan, body, count, in_text)
  plan.stops_at = #bytes
  conn:start { headers = { ["content-type"] = "text/event-stream" } }
  send(plan, conn, bytes)
end

function acts.cut(plan, conn, body)
  plan.told.cut = true
  stop_early(plan, conn, body, plan.kind == "cut_in_text")
  conn:close()
end
acts.cut_in_text = acts.cut

function acts.reset(plan, conn, body)
  plan.told.cut = true
  stop_early(plan, conn, body)
  client_has_all(plan)
  conn:reset()
end

local function client_has_left(plan)
  support.wait_for(function() return plan.left end, "the leaving of the client of request " .. plan.i, 20000)
end

-- What the gateway reads on for, once the client has left: all that is behind the bytes that it got.
local function drain(plan, conn, body)
  client_has_left(plan)
  plan.told = { status = 200, text = 0 }
  local bytes = stream_bytes(plan, body, 1000)
  send(plan, conn, bytes:sub(plan.stops_at + 1))
  conn:finish()
end

function acts.abort(plan, conn, body)
  stop_early(plan, conn, body, plan.kind == "abort_in_text")
  if plan.policy == "drain" then return drain(plan, conn, body) end
  conn:wait_closed(20000)
end
acts.abort_in_text = acts.abort

function acts.abort_early(plan, conn, body)
  plan.stops_at = -1
  if plan.policy ~= "drain" then return conn:wait_closed(20000) end
  client_has_left(plan)
  answer(plan, conn, body)
end

function acts.error_event(plan, conn, body)
  plan.told.error = true
  local count = math.floor(plan.at * (#llm.events(plan.api, plan.answer, body) - 2))
  local bytes = stream_bytes(plan, body, count) .. llm.event_bytes(llm.apis[plan.api].failure "overloaded")
  conn:start { headers = { ["content-type"] = "text/event-stream" } }
  send(plan, conn, bytes)
  conn:finish()
end

-- An error costs nothing, unless the origin says that it does.
function acts.error_status(plan, conn, body)
  local usage = plan.at < 0.3 and plan.answer.usage or nil
  plan.told.status, plan.told.usage = STATUSES[1 + math.floor(plan.at * 20) % #STATUSES], usage
  conn:respond { status = plan.told.status, body = { error = { message = "no", type = "x" },
    usage = usage and support.decode(llm.answer(plan.api, plan.answer, body)).usage } }
end

function acts.error_body(plan, conn)
  plan.told.error = true
  conn:respond { headers = JSON, body = '{"error":{"message":"no"}}' }
end

function acts.no_answer(plan, conn)
  plan.told.status = 0
  plan.told.cut = true
  if plan.at < 0.5 then return conn:close() end
  conn:reset()
end

function acts.gzip(plan, conn, body)
  local bytes = plan.stream and stream_bytes(plan, body, 1000) or llm.answer(plan.api, plan.answer, body)
  plan.told = { status = 200, text = 0, encoded = true } -- for whom cannot read it
  conn:respond { headers = { ["content-encoding"] = "gzip",
    ["content-type"] = plan.stream and "text/event-stream" or "application/json" }, body = support.gzip(bytes) }
end

function acts.not_json(plan, conn)
  local text = "Service is fine. " .. table.concat(plan.answer.deltas)
  plan.told.text, plan.told.unreadable = #text, true
  conn:respond { headers = { ["content-type"] = "text/plain" }, body = text }
end

function acts.broken_json(plan, conn)
  local text = "<html>" .. table.concat(plan.answer.deltas)
  plan.told.text, plan.told.unreadable = #text, true
  conn:respond { headers = JSON, body = text }
end

function acts.cut_json(plan, conn, body)
  plan.told.cut = true
  plan.answer.deltas = { "alpha beta gamma" }
  local bytes = llm.answer(plan.api, plan.answer, body)
  local _, last = bytes:find("alpha beta", 1, true)
  if last then plan.told.text = #"alpha beta" end
  conn:write(("HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n"):format(#bytes))
  conn:write(bytes:sub(1, last or 5))
  conn:close()
end

--- An origin that acts by list[i], i being the last part of the path; plan.told is what it told.
function M.origin(list)
  return support.origin(function(req, conn)
    local plan = list[tonumber(req.path:match("(%d+)$"))]
    assert(not plan.told, "a request came twice")
    plan.told = { status = 200, text = 0 }
    if plan.delay > 0 then support.sleep(plan.delay) end
    local act = acts[plan.kind] or answer
    act(plan, conn, support.decode(req.body))
  end)
end

-- The charge

--- Why no usage was known, as the access log names it; nil where it was, or where nothing is charged.
function M.cause(plan)
  local told = plan.told
  if not told or told.status > 299 or told.usage then return nil end
  if plan.left then return "client_gone" end
  if told.error then return "error_event" end
  if told.cut then return "cut_off" end
  return (told.encoded or told.unreadable) and "unreadable" or "no_usage"
end

--- What a request that has ended costs.
function M.charge(plan)
  local told = plan.told
  if not told then return 0 end
  if told.usage then
    return told.usage.input + (plan.api == "openai-embeddings" and 0 or told.usage.output)
  end
  if told.status > 299 then return 0 end
  local text = math.min(math.ceil(told.text / plans.BYTES_PER_TOKEN), plan.output)
  local seen = (told.input or plan.prompt) + text
  if plan.policy ~= "reserved" and not told.encoded then return seen end
  return math.max(seen, plan.prompt + plan.output)
end

return M
