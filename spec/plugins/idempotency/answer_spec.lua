-- An answer as it is kept: which fields, how it is played back, and which event streams have ended well.
local support = require "spec.support"
local answer = assert(loadfile("plugins/idempotency/answer.lua"))()

local function each(list)
  local i = 0
  return function()
    i = i + 1
    if list[i] then return list[i][1], list[i][2] end
  end
end

local function yes() return true end

describe("fields", function()
  local came = { { "Content-Type", "a" }, { "Set-Cookie", "1" }, { "Set-Cookie", "2" }, { "Date", "now" }, { "Via", "v" },
    { "Age", "3" }, { "X-RateLimit-Remaining", "4" }, { "X-Own", "5" } }

  it("are all but those of one message, by default; those that are named, else", function()
    assert.same({ { "content-type", "a" }, { "set-cookie", "1" }, { "set-cookie", "2" }, { "x-own", "5" } },
      answer.fields(each(came), nil, yes))
    assert.same({ { "x-ratelimit-remaining", "4" }, { "x-own", "5" } },
      answer.fields(each(came), { ["x-own"] = true, ["x-ratelimit-remaining"] = true, date = true }, yes))
    assert.is_false(answer.may_keep("content-length"))
  end)

  it("whose value no JSON can hold are left out", function()
    assert.same({ { "x-own", "5" } }, answer.fields(each(came), nil, function(value) return value == "5" end))
  end)

  it("come back as they were, repeated ones as a list", function()
    local status, headers = answer.replay("201", { { "a", "1" }, { "b", "2" }, { "a", "3" }, { "a", "4" } })
    assert.equal(201, status)
    assert.same({ a = { "1", "3", "4" }, b = "2", ["idempotency-replayed"] = "true" }, headers)
    assert.is_nil(answer.replay("x", {}))
    assert.is_nil(answer.replay("200", nil))
  end)
end)

describe("a stream", function()
  local TYPE = "text/event-stream; charset=utf-8"
  local APIS = { chat = "openai-chat", responses = "openai-responses", messages = "anthropic-messages" }

  -- Of each fixture, whether it ends as its API says.
  local ENDS = { ["chat-stream"] = true, ["chat-tools"] = true, ["chat-groq"] = true, ["chat-azure"] = true,
    ["chat-comments"] = true, ["chat-cut"] = false, ["chat-error"] = false, ["responses-stream"] = true,
    ["responses-tools"] = true, ["responses-incomplete"] = true, ["responses-cut"] = false, ["responses-error"] = false,
    ["responses-failed"] = false, ["messages-stream"] = true, ["messages-tools"] = true, ["messages-cut"] = false,
    ["messages-error"] = false }

  it("has ended with its API's last event, in any line ends", function()
    for name, ends in pairs(ENDS) do
      local body = assert(support.read_file("spec/fixtures/llm/" .. name .. ".sse"))
      local api = APIS[name:match("^%a+")]
      body = body:gsub("\r\n", "\n"):gsub("\r", "\n")
      for _, eol in ipairs { "\n", "\r\n", "\r" } do
        local text = body:gsub("\n", eol)
        assert.same({ name, ends }, { name, answer.terminated(api, TYPE, nil, text) })
      end
    end
  end)

  it("is looked at only where it is one of an API that is known, and not encoded", function()
    assert.is_false(answer.terminated("openai-chat", TYPE, nil, "data: {}\n\n"))
    assert.is_false(answer.terminated("openai-chat", "text/event-stream", "identity", ""))
    assert.is_true(answer.terminated("openai-chat", TYPE, "gzip", "data: {}\n\n"))
    assert.is_true(answer.terminated("none", TYPE, nil, "data: {}\n\n"))
    assert.is_true(answer.terminated("openai-chat", "application/json", nil, "{}"))
    assert.is_true(answer.terminated("openai-chat", "text/event-streams", nil, "{}"))
    assert.is_true(answer.terminated("openai-chat", nil, nil, "{}"))
  end)
end)
