-- Patterns of paths and parameters of queries, as keys of cached resources are filled from them.
local path = require "plugins.cache.path"

describe("a pattern of a path", function()
  it("gives the fields of paths that fit, decoded", function()
    local function match(pattern, text) return path.match(assert(path.parse(pattern)), text) end
    assert.same({ tenantId = "t1" }, match("/tenants/{tenantId}/balance", "/tenants/t1/balance"))
    assert.same({ tenantId = "a b:/ü" }, match("/tenants/{tenantId}/balance", "/tenants/a%20b%3A%2F%C3%BC/balance"))
    assert.same({ a = "1", b = "2" }, match("/{a}/x.y/{b}", "/1/x.y/2"))
    assert.same({}, match("/plain", "/plain"))
    for _, text in ipairs { "/tenants/t1", "/tenants/t1/balance/", "/tenants//balance", "/tenants/a/b/balance", "/x" } do
      assert.is_nil(match("/tenants/{tenantId}/balance", text))
    end
    assert.is_nil(match("/{a}/x.y/{b}", "/1/xzy/2")) -- a point is a point
  end)

  it("is refused where it is none", function()
    for text, message in pairs { ["tenants"] = "begin with /", ["/{a}/{a}"] = "twice", ["/a{b}"] = "neither",
      ["/{1}"] = "neither", ["/{}"] = "neither" } do
      local parsed, err = path.parse(text)
      assert.is_nil(parsed)
      assert.matches(message, err, 1, true)
    end
  end)
end)

describe("a query", function()
  it("gives its parameters, and false for one that is there twice", function()
    assert.same({ a = "1", ["b c"] = "x y&", d = "", e = "" }, path.query "a=1&b%20c=x+y%26&d=&e")
    assert.same({ a = false, b = "2" }, path.query "a=1&b=2&a=1")
    assert.same({}, path.query(nil))
    assert.same({}, path.query "&&")
  end)
end)
