-- The access log's fields about LLM usage, row by row: for each API, streamed and not, what was estimated, reserved,
-- reported and charged; what stands there where usage is missing, where nothing is reserved, and where nothing is metered.
local support = require "spec.support"
local async = support.async

local MESSAGES = { { role = "user", content = "hello, world" } } -- 16 bytes with the role: 6 tokens
local REQUESTS = {
  { api = "openai-chat", body = { messages = MESSAGES, max_tokens = 20 }, prompt = 6, output = 20 },
  { api = "openai-responses", body = { input = "hello, world", max_output_tokens = 30 }, prompt = 4, output = 30 },
  { api = "anthropic-messages", body = { messages = MESSAGES, max_tokens = 40 }, prompt = 6, output = 40 },
  { api = "openai-embeddings", body = { input = "hello, world" }, prompt = 4, output = 0 },
}

local function start(options, limits)
  local origin = support.llm_origin(options)
  local routes = {}
  for _, api in ipairs { "openai-chat", "openai-responses", "anthropic-messages", "openai-embeddings", "none" } do
    local suffix = api == "none" and "/chat/completions" or support.llm.apis[api].suffix
    routes[#routes + 1] = { name = api, path = "/" .. api .. suffix, api = api, targets = { { url = origin.url } },
      plugins = { quota = limits } }
  end
  return support.gateway { config = { routes = routes } }
end

local function ask(gw, request, stream)
  local body = { model = "model of " .. request.api, stream = stream }
  for name, value in pairs(request.body) do body[name] = value end
  local path = "/" .. request.api .. support.llm.apis[request.like or request.api].suffix
  assert.equal(200, assert(gw:request { path = path, body = body }).status)
end

-- The fields of the newest line.
local function fields(gw, n)
  local line = gw:wait_access(n)[n]
  return { model = line.model, stream = line.stream, tokens = line.tokens }
end

describe("usage in the access log", function()
  for _, request in ipairs(REQUESTS) do
    local embeds = request.api == "openai-embeddings"
    for _, stream in ipairs(embeds and { false } or { false, true }) do
      local what = request.api .. (stream and ", streamed" or "")

      it("has estimate, reservation, report and charge: " .. what, async(function()
        local gw = start(nil, { monthly_tokens = 1000 })
        ask(gw, request, stream or nil)
        assert.same({ model = "model of " .. request.api, stream = stream, tokens = { prompt_estimate = request.prompt,
          reserved = request.prompt + request.output, input = 9, output = embeds and 0 or 4, used = embeds and 9 or 13 } },
          fields(gw, 1))
      end))

      it("says why usage is missing, and then has no report: " .. what, async(function()
        local gw = start({ usage = false }, { monthly_tokens = 1000 })
        ask(gw, request, stream or nil)
        assert.same({ model = "model of " .. request.api, stream = stream, tokens = { prompt_estimate = request.prompt,
          reserved = request.prompt + request.output, usage_missing = "no_usage",
          used = request.prompt + (embeds and 0 or 5) } }, fields(gw, 1)) -- 13 bytes of text
      end))
    end
  end

  it("has a reservation of 0 where no budget applies", async(function()
    local gw = start(nil, { concurrency = 5 })
    ask(gw, REQUESTS[1])
    assert.same({ prompt_estimate = 6, reserved = 0, input = 9, output = 4, used = 13 }, fields(gw, 1).tokens)
  end))

  it("is not there on a route whose tokens nobody counts", async(function()
    local gw = start(nil, { rps = 100 })
    ask(gw, { api = "none", like = "openai-chat", body = REQUESTS[1].body })
    assert.same({}, fields(gw, 1))
  end))
end)
