-- Keys of questions: no two different ones have one, whatever their parts hold; and which bodies never come from a cache.
local question = require "plugins.cache.question"

local function identity(text) return text end

-- The text that is hashed.
local function framed(q, headers, names)
  return question.hash(q, function(name) return headers[name] end, names or {}, identity)
end

local function base(more)
  local q = { version = "", route = "r", api = "openai-chat", method = "POST", path = "/p", body = "{}", kind = "tenant",
    owner = "a" }
  for name, value in pairs(more or {}) do q[name] = value end
  return q
end

describe("a question", function()
  it("has another key for every other part", function()
    local seen = { [framed(base(), {})] = "base" }
    local function other(what, text)
      assert.is_nil(seen[text], what)
      seen[text] = what
    end
    for _, part in ipairs { "version", "route", "api", "method", "host", "path", "query", "body", "kind", "owner" } do
      other(part, framed(base { [part] = "other" }, {}))
    end
    other("an empty query", framed(base { query = "" }, {}))
    for _, name in ipairs { "authorization", "cookie", "x-api-key", "openai-beta" } do
      other(name, framed(base(), { [name] = "x" }))
      other("empty " .. name, framed(base(), { [name] = "" }))
    end
    other("a configured header", framed(base(), { ["x-a"] = "1" }, { "x-a" }))
    other("another one", framed(base(), { ["x-b"] = "1" }, { "x-b" }))
    assert.is_truthy(seen[framed(base(), { ["user-agent"] = "x" })])
  end)

  -- Parts over what framing is written with: a framing that can be read in two ways would meet itself here.
  it("shares its key with no other one, whatever its parts hold", function()
    math.randomseed(os.time())
    local alphabet = { ":", ",", "-", "1", "2", "0", "", "a", "\0" }
    local function part()
      if math.random(4) == 1 then return nil end
      local out = {}
      for i = 1, math.random(0, 4) do out[i] = alphabet[math.random(#alphabet)] end
      return table.concat(out)
    end
    local seen, n = {}, 0
    local function known(a, b, c, d)
      local at, fresh = seen, false
      for _, value in ipairs { a or false, b or false, c or false, d or false } do
        if at[value] == nil then at[value], fresh = {}, true end
        at = at[value]
      end
      return not fresh
    end
    local texts = {}
    for _ = 1, 100000 do
      local a, b, c, d = part(), part(), part(), part()
      local text = framed({ version = a, route = b, api = "x", method = "POST", path = c, kind = "k", owner = "o" },
        { cookie = d })
      if known(a, b, c, d) then
        assert.is_true(texts[text])
      else
        n = n + 1
        assert.is_nil(texts[text])
        texts[text] = true
      end
    end
    assert.is_true(n > 10000)
  end)

  it("is a SHA-256 in which its body is one too", function()
    local crypto = require "spec.support.crypto"
    local hash = question.hash(base(), function() end, {}, crypto.sha256)
    assert.matches("^%x+$", hash)
    assert.equal(64, #hash)
    assert.not_equal(hash, question.hash(base { body = "[]" }, function() end, {}, crypto.sha256))
  end)

  it("is let pass where its body asks for what changes or may not be kept", function()
    local rules = { members = { "user" }, max_temperature = 1, max_n = 2, tools = true }
    local raw = function(text) return setmetatable({}, { __tostring = function() return text end }) end
    local function why(members, own) return question.bypass(members, own or rules, function() return {} end) end
    assert.is_nil(why {})
    assert.equal("background", why { background = true })
    assert.is_nil(why { background = false })
    assert.equal("conversation", why { conversation = "c" })
    assert.equal("temperature", why { temperature = 1.1 })
    assert.is_nil(why { temperature = 1 })
    assert.equal("temperature", why({}, { members = {}, max_temperature = 0.9 }))
    assert.is_nil(why({ temperature = 2, n = 100, tools = raw "[1]", user = "u" }, { members = {} }))
    assert.equal("n", why { n = 3 })
    assert.equal("tools", why { tools = raw "[{}]" })
    assert.is_nil(why { tools = raw "[]" })
    assert.equal("tools", why { functions = raw "[{}]" })
    assert.equal("user", why { user = "u" })
    assert.is_nil(why { user = raw "null" })
  end)
end)
