-- What an idempotent request is: the key in its header, whose it is, and which requests are the same.
local support = require "spec.support"
local request = assert(loadfile("plugins/idempotency/request.lua"))()

describe("a key", function()
  it("is 1 to 255 visible characters, bare", function()
    for _, key in ipairs { "a", "8e03978e-40d5-43e8-bc93-6894a57f9324", "!~", ("x"):rep(255), "a,b", "it's", 'a"b', "a\\b" } do
      assert.equal(key, request.key(key))
      assert.equal(key, request.key(" \t" .. key .. " "))
    end
    for _, key in ipairs { "", " ", "a b", "a\tb", "a, b", ("x"):rep(256), "é", "a\1", "a\127" } do
      assert.is_nil(request.key(key))
    end
  end)

  it("is a string of structured fields, whose quotes and escapes are not part of it (RFC 8941, section 3.3.3)", function()
    for text, key in pairs {
      ['"abc"'] = "abc", ['"a b"'] = "a b", ['"a\\"b"'] = 'a"b', ['"a\\\\b"'] = "a\\b", ['"a";p=1;q'] = "a",
      ['"1[2]{~}"'] = "1[2]{~}",
      ['"' .. ("x"):rep(255) .. '"'] = ("x"):rep(255), ['"' .. ('\\"'):rep(255) .. '"'] = ('"'):rep(255),
    } do
      assert.equal(key, request.key(text))
    end
    for _, text in ipairs { '"', '""', '"a', '"a\\', '"a\\"', '"a\\x"', '"a"b', '"a" b', '"a", "b"', '"é"', '"a\1"',
        '"' .. ("x"):rep(256) .. '"' } do
      assert.is_nil(request.key(text))
    end
  end)
end)

describe("the namespace", function()
  it("is what the scope says, else the consumer, else the route", function()
    local both = { id = "k", tenant = "t" }
    for scope, cases in pairs {
      consumer = { { both, "consumer", "k" }, { { id = "k" }, "consumer", "k" }, { nil, "route", "route:r" } },
      tenant = { { both, "tenant", "t" }, { { id = "k", tenant = "" }, "consumer", "k" }, { nil, "route", "route:r" } },
      route = { { both, "route", "route:r" }, { nil, "route", "route:r" } },
    } do
      for _, case in pairs(cases) do
        local kind, ns = request.namespace(scope, case[1], "r")
        assert.same({ case[2] or "route", case[3] or "route:r" }, { kind, ns })
      end
    end
    assert.same({ "route", "route:r" }, { request.namespace("consumer", { id = "" }, "r") })
  end)
end)

describe("the fingerprint", function()
  local seen, n

  local function print_of(r) return request.fingerprint(r, support.sha256) end

  local function base(change)
    local r = { kind = "consumer", namespace = "k", host = "h", method = "POST", path = "/p", query = "q", body = "b",
      headers = { { "content-type", "text/plain" } } }
    for name, value in pairs(change or {}) do r[name] = value end
    return r
  end

  before_each(function() seen, n = {}, 0 end)

  local function new(r)
    local print = print_of(r)
    assert.is_nil(seen[print])
    seen[print], n = true, n + 1
  end

  it("differs by each part, also where one is absent or empty", function()
    new(base())
    for name, values in pairs { kind = { "tenant" }, namespace = { "o" }, host = { "g" }, method = { "PATCH" }, path = { "/p/" },
        query = { "", "r" }, body = { "", "c" },
        headers = { {}, { { "content-type" } }, { { "content-type", "" } }, { { "content-typ", "etext/plain" } },
          { { "content-type", "text/plain" }, { "x" } } } } do
      for _, value in ipairs(values) do new(base { [name] = value }) end
    end
    local without = base()
    without.query = nil
    new(without)
    assert.equal(print_of(base()), print_of(base { host = "H" }))
  end)

  it("does not collide by concatenation: parts of a few bytes that move over the borders", function()
    local alphabet = { "", "1", ":", "-", "1:", "-1", "1:1", "11", "2:1:" }
    for _, path in ipairs(alphabet) do
      for _, query in ipairs(alphabet) do
        for _, value in ipairs(alphabet) do
          new(base { path = path, query = query, headers = { { "a", value } } })
          new(base { path = path, query = query, headers = { { value, "a" } } })
        end
      end
    end
    assert.equal(2 * (#alphabet) ^ 3, n)
  end)
end)
