-- What outcomes say, and the text of hints.
local lua = require "spec.plugins.breaker.lua"
local verdict, hints = lua.verdict, lua.hints

local DEFAULT = { "connect", "timeout", "closed", "bad_answer", "stream_error", "cut", "5xx", 429 }

local function judge(failures, outcome)
  return ({ "good", "bad", "none" })[verdict.of(verdict.prepare(failures, { "insufficient_quota" }), outcome)]
end

describe("an outcome", function()
  it("is bad by what is named, and says nothing where nobody is to blame", function()
    for _, name in ipairs { "connect", "timeout", "closed", "bad_answer" } do
      assert.equal("bad", judge(DEFAULT, { error = name }))
    end
    assert.equal("bad", judge(DEFAULT, { error = "cut", status = 200 }))
    assert.equal("bad", judge(DEFAULT, { error = "stream_error", status = 200 }))
    for _, name in ipairs { "client_gone", "dropped", "not_tried" } do
      assert.equal("none", judge(DEFAULT, { error = name }))
      assert.equal("none", judge(DEFAULT, { error = name, status = 500 }))
    end
    assert.equal("none", judge({ "5xx" }, { error = "cut", status = 200 }))
    assert.equal("bad", judge({ "cut" }, { error = "cut", status = 200 }))
  end)

  it("is good or bad by its status", function()
    for status, expected in pairs { [200] = "good", [301] = "good", [400] = "good", [401] = "good", [404] = "good",
      [408] = "good", [499] = "good", [500] = "bad", [503] = "bad", [529] = "bad", [599] = "bad" } do
      assert.equal(expected, judge(DEFAULT, { status = status }), status)
    end
    assert.equal("good", judge({ 503, 408 }, { status = 500 }))
    assert.equal("bad", judge({ 503, 408 }, { status = 408 }))
  end)

  it("of 429 is bad, unless a budget is spent", function()
    assert.equal("bad", judge(DEFAULT, { status = 429 }))
    assert.equal("bad", judge(DEFAULT, { status = 429, code = "rate_limit_exceeded" }))
    assert.equal("good", judge(DEFAULT, { status = 429, code = "insufficient_quota", retry_after = 3 }))
    assert.equal("bad", judge(DEFAULT, { status = 503, code = "insufficient_quota" }))
    assert.equal("good", judge({ "5xx" }, { status = 429 }))
  end)

  it("is good by its head alone where the status is", function()
    local rules = verdict.prepare(DEFAULT, {})
    assert.same({ true, true, false, false }, { verdict.good_head(rules, 200), verdict.good_head(rules, 404),
      verdict.good_head(rules, 429), verdict.good_head(rules, 500) })
  end)
end)

describe("a hint", function()
  it("has a key by provider and model, encoded", function()
    local function encode(part) return "<" .. part .. ">" end
    assert.equal("cb:hint:<openai>:<gpt:4>", hints.key(encode, "openai", "gpt:4"))
    assert.equal("cb:hint:<openai>:", hints.key(encode, "openai", nil))
  end)

  it("is read, or is none", function()
    assert.same({ "web-1", 1732012345678 }, { hints.parse "open:web-1:1732012345678" })
    for _, text in ipairs { "", "open", "open:a", "open:a:", "open::1", "open:a:x", "open:a:-1", "open:a:1:2", "shut:a:1",
      " open:a:1", "open:a:1\n" } do
      assert.is_nil((hints.parse(text)), text)
    end
  end)
end)
