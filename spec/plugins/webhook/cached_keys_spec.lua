-- Templates of cached keys: what they make, what is refused, and that no two sets of fields make one key.
local keys = assert(loadfile("plugins/webhook/cached_keys.lua"))()

local function encode(part)
  return (tostring(part):gsub("[%z\1-\32\127:%%{}]", function(c) return ("%%%02X"):format(c:byte()) end))
end

local plain = { encode = encode, tag = encode }
local tagged = { encode = encode, tag = function(part) return "{" .. encode(part) .. "}" end }

describe("a template", function()
  it("names its fields and makes keys", function()
    local template = assert(keys.parse "stats:{tenantId}:{period}")
    assert.same({ "tenantId", "period" }, template.fields)
    assert.equal("stats:{}:{}", template.shape)
    local values = { tenantId = "a:b {c}%", period = "2025" }
    assert.equal("stats:a%3Ab%20%7Bc%7D%25:2025", keys.key(template, values, plain))
    assert.equal("stats:{a%3Ab%20%7Bc%7D%25}:2025", keys.key(template, values, tagged))
    assert.equal("fence:stats:{t}:2025", keys.fence(keys.key(template, { tenantId = "t", period = "2025" }, tagged)))
  end)

  it("has the shape of others that make the same keys", function()
    assert.equal(keys.parse("balance:{tenantId}").shape, keys.parse("balance:{tenant}").shape)
    assert.not_equal(keys.parse("stats:{t}:current_month").shape, keys.parse("stats:{t}:{period}").shape)
  end)

  it("may have no field at all", function()
    assert.equal("prices:all", keys.key(assert(keys.parse "prices:all"), {}, tagged))
  end)

  it("names the field that is missing or empty", function()
    local template = assert(keys.parse "stats:{tenantId}:{period}")
    assert.same({ nil, "period" }, { keys.key(template, { tenantId = "t" }, plain) })
    assert.same({ nil, "tenantId" }, { keys.key(template, { tenantId = "", period = "p" }, plain) })
  end)

  it("is refused where its keys could be mistaken, or are no cached resources", function()
    for text, message in pairs {
      ["balance:{tenantId"] = "is neither a field", ["balance:x{tenantId}"] = "is neither a field",
      ["balance:{a}{b}"] = "is neither a field", ["balance:"] = "is neither a field", [""] = "is neither a field",
      ["balance: x"] = "is neither a field", ["balance:{}"] = "is neither a field", ["balance:*"] = "is neither a field",
      ["{tenantId}:x"] = "must begin with a name", ["balance"] = "must begin with a name",
      ["q:rps:{id}"] = "not cached resources", ["cfg:routing:version"] = "not cached resources",
      ["fence:x"] = "not cached resources", ["rl:{id}:1"] = "not cached resources", ["hook:a:{id}"] = "not cached resources",
    } do
      local template, why = keys.parse(text)
      assert.is_nil(template, text)
      assert.truthy(why:find(message, 1, true), text .. ": " .. why)
    end
  end)

  it("makes no two sets of fields one key", function()
    math.randomseed(os.time())
    local template = assert(keys.parse "x:{a}:{b}:y:{c}")
    local alphabet, seen = { ":", "%", "3", "A", "{", "}", " ", "y", "\0" }, {}
    local function part()
      local out = {}
      for i = 1, math.random(4) do out[i] = alphabet[math.random(#alphabet)] end
      return table.concat(out)
    end
    for _ = 1, 20000 do
      local values = { a = part(), b = part(), c = part() }
      local set = ("%d,%d,%s%s%s"):format(#values.a, #values.b, values.a, values.b, values.c)
      for _, redis in ipairs { plain, tagged } do
        local key = keys.key(template, values, redis)
        assert.equal(set, seen[key] or set)
        seen[key] = set
      end
    end
  end)
end)
