-- Whose requests count together.
package.preload["tollgate.cidr"] = assert(loadfile("host/lua/cidr.lua"))
local who = assert(loadfile("plugins/ratelimit/who.lua"))()

local function id(by, consumer, fields)
  fields = fields or {}
  local ctx = { consumer = consumer, route = { name = "chat" }, client = { address = fields.address or "192.0.2.1" },
    request = { headers = fields.headers or {} } }
  return who.id(ctx, { by = by, ipv6_prefix = fields.prefix or 64 }, function(text) return "<" .. text .. ">" end)
end

describe("the key id of a request", function()
  it("is the consumer's or the tenant's, else the route's", function()
    assert.equal("k", id("consumer", { id = "k", tenant = "t" }))
    assert.equal("tenant:t", id("tenant", { id = "k", tenant = "t" }))
    assert.equal("k", id("tenant", { id = "k" }))
    for _, by in ipairs { "consumer", "tenant", "route" } do assert.equal("route:chat", id(by)) end
    assert.equal("route:chat", id("route", { id = "k" }))
  end)

  it("is the digest of a header, never what it holds", function()
    assert.equal("header:x-user:<secret>", id({ header = "X-User" }, nil, { headers = { ["X-User"] = "secret" } }))
    assert.equal("route:chat", id { header = "x-user" })
  end)

  it("is the client's address, of IPv6 the network", function()
    for address, expected in pairs {
      ["192.0.2.1"] = "192.0.2.1", ["::ffff:192.0.2.1"] = "192.0.2.1", [""] = "unix",
      ["2001:db8:1:2:3:4:5:6"] = "2001:db8:1:2:0:0:0:0/64", ["2001:db8:1:2::"] = "2001:db8:1:2:0:0:0:0/64",
      ["2001:DB8:1:3::1"] = "2001:db8:1:3:0:0:0:0/64", ["::1"] = "0:0:0:0:0:0:0:0/64",
      ["fe80::1%eth0"] = "fe80::1%eth0",
    } do
      assert.equal("address:" .. expected, id("address", { id = "k" }, { address = address }))
    end
    for prefix, expected in pairs { [1] = "8000:0:0:0:0:0:0:0/1", [48] = "ffff:db8:1:0:0:0:0:0/48",
      [56] = "ffff:db8:1:200:0:0:0:0/56", [128] = "ffff:db8:1:2ff:0:0:0:1/128" } do
      assert.equal("address:" .. expected, id("address", nil, { address = "ffff:db8:1:2ff::1", prefix = prefix }))
    end
  end)
end)
