-- Random LLM requests for accountant_spec.lua: a plan is one request, all of it drawn from the seed and the request's
-- number, with its body, what is estimated and reserved for it by the rules of plugins/README.md, how the origin is to
-- answer and how the client behaves.
local M = { BYTES_PER_TOKEN = 3, DEFAULT_OUTPUT = 4096 }

local random = math.random

local APIS = { "openai-chat", "openai-responses", "anthropic-messages", "openai-embeddings" }

-- kind → how often, and whether it is about streams ("stream"), JSON ("json") or either. All have an API drawn.
local KINDS = {
  { "ok", 40 }, { "above_reservation", 3 }, { "no_usage", 8 }, { "gzip", 4 }, { "error_status", 5 }, { "no_answer", 2 },
  { "not_json", 2, "json" }, { "broken_json", 2, "json" }, { "error_body", 2, "json" }, { "cut_json", 3, "json" },
  { "cut", 6, "stream" }, { "cut_in_text", 3, "stream" }, { "reset", 5, "stream" }, { "error_event", 4, "stream" },
  { "abort", 8, "stream" }, { "abort_in_text", 2, "stream" }, { "abort_early", 3 },
  { "dead", 2 }, { "bad_json", 1 }, { "encoded", 1 }, { "no_key", 1 },
}

local WORDS = { "tide ", "Ebbe ", "nöon ", "\"quoted\" ", "a\\b ", "line\n", "\226\130\172 ", "\240\159\140\138", "x" }

local function pick(list) return list[random(#list)] end

local function draw_kind()
  local sum = 0
  for _, kind in ipairs(KINDS) do sum = sum + kind[2] end
  local at = random(sum)
  for _, kind in ipairs(KINDS) do
    at = at - kind[2]
    if at <= 0 then return kind end
  end
end

local function words(n)
  local parts = {}
  for i = 1, n do parts[i] = pick(WORDS) end
  return table.concat(parts)
end

-- The request's body, and the bytes of its text: what the estimate goes by.
local function draw_prompt(plan)
  local text, instructions = words(random(1, 12)), random(3) == 1 and words(random(1, 4)) or nil
  local body = { model = "m-" .. random(9) }
  local bytes, tokens = #text, 0
  if plan.api == "openai-embeddings" then
    local form = random(3)
    body.input = form == 1 and text or form == 2 and { text, text } or { 17, 4, 2004 }
    if form == 2 then bytes = 2 * #text end
    if form == 3 then bytes, tokens = 0, 3 end
  elseif plan.api == "openai-responses" then
    body.input, body.instructions = text, instructions
    bytes = bytes + #(instructions or "")
  else
    body.messages = { { role = "user", content = text } }
    bytes = bytes + #"user"
    if plan.api == "anthropic-messages" then
      body.system = instructions
      bytes = bytes + #(instructions or "")
    end
  end
  plan.body = body
  plan.prompt = math.ceil(bytes / M.BYTES_PER_TOKEN) + tokens
end

local MAXIMUM = { ["openai-chat"] = { "max_tokens", "max_completion_tokens" }, ["openai-responses"] = { "max_output_tokens" },
  ["anthropic-messages"] = { "max_tokens" } }

local function draw_output(plan)
  local names = MAXIMUM[plan.api]
  if not names then
    plan.output = 0
    return
  end
  local most = random(8) > 1 and random(5, 60) or nil
  plan.body[pick(names)] = most
  local n = plan.api == "openai-chat" and random(6) == 1 and 2 or nil
  plan.body.n = n
  plan.output = (most or M.DEFAULT_OUTPUT) * (n or 1)
end

local function draw_answer(plan)
  local deltas = {}
  for i = 1, random(1, 6) do deltas[i] = words(random(1, 3)) end
  local output = plan.api == "openai-embeddings" and 0 or random(0, 90)
  if plan.kind == "above_reservation" then output = plan.output + random(1000) end
  plan.answer = { deltas = deltas, usage = plan.kind ~= "no_usage" and { input = random(1, 120), output = output } }
  plan.at, plan.split = random(), random(4) == 1 and random(1, 60) or nil
  plan.delay = random(6) == 1 and random(1, 15) or 0
  plan.policy = pick { "seen", "reserved", "drain" }
end

--- The i-th request, of one of the keys.
function M.draw(seed, i, keys)
  math.randomseed(seed * 1000003 + i)
  local kind = draw_kind()
  local plan = { i = i, kind = kind[1], api = kind[3] == "stream" and APIS[random(3)] or pick(APIS), key = pick(keys) }
  local streams = plan.api ~= "openai-embeddings" and kind[3] ~= "json"
  plan.stream = kind[3] == "stream" or (streams and random(2) == 1)
  draw_prompt(plan)
  draw_output(plan)
  draw_answer(plan)
  if plan.stream then plan.body.stream = true end
  if plan.stream and plan.api == "openai-chat" and random(2) == 1 then
    plan.body.stream_options = { include_usage = random(2) == 1 }
  end
  plan.path = ("/%s/%s/%d"):format(plan.kind == "dead" and "dead" or plan.policy, plan.api, i)
  return plan
end

return M
