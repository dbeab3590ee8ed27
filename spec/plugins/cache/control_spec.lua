-- Header fields: Cache-Control as requests and answers have it, Cache-Status, Age.
local control = require "plugins.cache.control"

describe("header fields of caches", function()
  it("say what a request wants", function()
    for value, wanted in pairs {
      [""] = {}, ["no-cache"] = { no_cache = true }, ["No-Store"] = { no_store = true },
      ["max-age=0"] = { max_age = 0 }, [' max-age = "10" , only-if-cached'] = { max_age = 10, only_if_cached = true },
      ["max-age=x"] = { max_age = 0 }, ["max-age"] = { max_age = 0 }, ["max-stale=5, min-fresh=1, foo=bar"] = {},
      ["no-cache, no-store,max-age=31536000"] = { no_cache = true, no_store = true, max_age = 31536000 },
    } do assert.same(wanted, control.request(value, nil), value) end
    assert.same({ no_cache = true }, control.request(nil, "No-Cache"))
    assert.same({}, control.request("max-stale", "no-cache")) -- RFC 9111, section 5.4
    assert.same({}, control.request(nil, nil))
  end)

  it("say whether an answer may be kept", function()
    for value, forbidden in pairs { ["no-store"] = true, ["max-age=1, Private"] = true, ['private="x"'] = true,
      ["no-cache"] = false, ["public, max-age=5"] = false, [""] = false } do
      assert.equal(forbidden, control.forbids(value), value)
    end
    assert.is_false(control.forbids(nil))
  end)

  it("tell what the cache did", function()
    assert.equal("tollgate; hit; ttl=12", control.status { hit = true, ttl = 12 })
    assert.equal("tollgate; fwd=miss; ttl=300; stored", control.status { fwd = "miss", stored = true, ttl = 300 })
    assert.equal("tollgate; fwd=miss; collapsed", control.status { fwd = "miss", collapsed = true })
    assert.equal("tollgate; fwd=miss; collapsed=?0", control.status { fwd = "miss", collapsed = false })
    assert.equal("a; hit, tollgate; fwd=bypass; detail=x", control.status({ fwd = "bypass", detail = "x" }, "a; hit"))
  end)

  it("tell how long an answer has been kept", function()
    assert.equal(0, control.age(60, 60000))
    assert.equal(39, control.age(100, 60500))
    assert.equal(0, control.age(10, 60000)) -- the route's lifetime was shortened
  end)
end)
