-- tg.redis.encode and tg.redis.tag: parts of keys that cannot be taken for one another, with hash tags and without.
local support = require "spec.support"
local probe = require "spec.host.probe"
local async = support.async

-- Joins pairs of random parts over the alphabet that names are made of; counts the names, the pairs, and parts that do not
-- come back when they are decoded.
local FUZZ = [[
  math.randomseed(%d)
  local alphabet = { ":", "%%", "{", "}", "a", "A", "3", "2", "5", "\0", " ", "\127", "\195\169", "-" }
  local function part()
    local out = {}
    for i = 1, math.random(1, 5) do out[i] = alphabet[math.random(#alphabet)] end
    return table.concat(out)
  end
  local function back(text) return (text:gsub("%%%%(%%x%%x)", function(hex) return string.char(tonumber(hex, 16)) end)) end
  local names, pairs_seen, n, m, wrong = {}, {}, 0, 0, 0
  for _ = 1, 20000 do
    local a, b = part(), part()
    local name = "x:" .. tg.redis.tag(a) .. ":" .. tg.redis.encode(b)
    local pair = #a .. " " .. a .. b
    if not names[name] then names[name], n = pair, n + 1 end
    if not pairs_seen[pair] then pairs_seen[pair], m = true, m + 1 end
    if names[name] ~= pair or back(tg.redis.encode(a)) ~= a then wrong = wrong + 1 end
  end
  return n == m and wrong
]]

for _, hash_tags in ipairs { false, true } do
  describe(hash_tags and "with hash tags" or "without hash tags", function()
    local on, up, down = probe.shared { redis = { url = "redis://127.0.0.1:1/0", hash_tags = hash_tags } }
    setup(up)
    teardown(down)

    it("encodes what a name's own punctuation is, and nothing else", async(function()
      local every = on.eval [[
        local out = {}
        for byte = 0, 255 do
          local text = tg.redis.encode(string.char(byte))
          out[#out + 1] = text == string.char(byte) and "" or text
        end
        return table.concat(out)
      ]]
      local expected = {}
      for byte = 0, 0x20 do expected[#expected + 1] = ("%%%02X"):format(byte) end
      assert.equal(table.concat(expected) .. "%25%3A%7B%7D%7F", every)
      assert.same({ "", "plain-é.x", "12", "a%3Ab" }, { on.eval [[
        return tg.redis.encode "", tg.redis.encode "plain-é.x", tg.redis.encode(12), tg.redis.encode "a:b"
      ]] })
    end))

    it("writes the tag as configured", async(function()
      local expected = hash_tags and { "{acme}", "{a%3Ab%7Bc%7D}", "{7}" } or { "acme", "a%3Ab%7Bc%7D", "7" }
      assert.same(expected, { on.eval [[ return tg.redis.tag "acme", tg.redis.tag "a:b{c}", tg.redis.tag(7) ]] })
    end))

    it("makes no two parts one key", async(function()
      assert.equal(0, on.eval(FUZZ:format(os.time())))
    end))

    it("raises where a part is none", async(function()
      assert.matches("tg.redis.tag: the part must not be empty", on.raised [[ tg.redis.tag "" ]])
      assert.matches("tg.redis.encode: a part of a key must be a string or a number, not table",
        on.raised [[ tg.redis.encode {} ]])
      assert.matches("tg.redis.tag: a part of a key must be a string or a number, not nil", on.raised [[ tg.redis.tag(nil) ]])
    end))
  end)
end
