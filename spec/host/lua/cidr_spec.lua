-- Shows which texts are addresses and networks, and which network holds which address.

local root = debug.getinfo(1, "S").source:match("^@(.-)spec/host/lua/") or ""
table.insert(package.loaders, 2, function(name)
  local file = name:match("^tollgate%.([%w_]+)$")
  return file and loadfile(root .. "host/lua/" .. file .. ".lua")
end)

local cidr = require "tollgate.cidr"

local function holds(network, address)
  return cidr.holds(assert(cidr.network(network)), assert(cidr.address(address)))
end

describe("cidr", function()
  it("knows addresses from other texts", function()
    for _, text in ipairs { "1.2.3.4", "255.255.255.255", "::", "::1", "1::", "2001:db8::7", "1:2:3:4:5:6:7:8", "::ffff:1.2.3.4",
      "1:2:3:4:5:6:1.2.3.4", "FE80::A" } do
      assert.is_table(cidr.address(text), text)
    end
    for _, text in ipairs { "", "1.2.3", "1.2.3.256", "01.2.3.4", "1.2.3.4.5", ":::", "1::2::3", "1:2:3:4:5:6:7", "12345::",
      "1:2:3:4:5:6:7:8:9", "::1%eth0", "g::", "1.2.3.4::", "1:2:3:4:5:6:7:8::", "a.b.c.d", ":1:2:3:4:5:6:7" } do
      assert.is_nil(cidr.address(text), text)
    end
  end)

  it("refuses networks that say two things", function()
    for text, wrong in pairs {
      ["10.0.0.1/8"] = "has bits behind its prefix", ["10.0.0.0/33"] = "has a prefix of more than 32 bits",
      ["2001:db8::1/32"] = "has bits behind its prefix", ["::/129"] = "has a prefix of more than 128 bits",
      ["10.0.0.0/"] = "is no IP address or network", ["example.com"] = "is no IP address or network",
      ["10.0.0.0/8/8"] = "is no IP address or network",
    } do
      local network, message = cidr.network(text)
      assert.is_nil(network, text)
      assert.equal(wrong, message, text)
    end
  end)

  it("compares exactly the bits of the prefix", function()
    assert.is_true(holds("10.0.0.0/8", "10.255.0.1"))
    assert.is_false(holds("10.0.0.0/8", "11.0.0.0"))
    assert.is_true(holds("192.168.4.0/22", "192.168.7.255"))
    assert.is_false(holds("192.168.4.0/22", "192.168.8.0"))
    assert.is_true(holds("0.0.0.0/0", "203.0.113.9"))
    assert.is_false(holds("0.0.0.0/0", "2001:db8::1"))
    assert.is_true(holds("::/0", "2001:db8::1"))
    assert.is_true(holds("::/0", "1.2.3.4"))
    assert.is_true(holds("2001:db8::/33", "2001:db8:7fff::1"))
    assert.is_false(holds("2001:db8::/33", "2001:db8:8000::1"))
    assert.is_true(holds("1.2.3.4", "::ffff:1.2.3.4"))
    assert.is_false(holds("1.2.3.4", "1.2.3.5"))
    assert.is_true(holds("::1", "0:0:0:0:0:0:0:1"))
  end)

  it("agrees with arithmetic on random IPv4 networks", function()
    math.randomseed(7)
    for _ = 1, 2000 do
      local bits, base, other = math.random(0, 32), math.random(0, 2 ^ 31 - 1) * 2, math.random(0, 2 ^ 31 - 1) * 2
      local size = 2 ^ (32 - bits)
      base = base - base % size
      if math.random() < 0.5 then other = base + math.random(0, size - 1) end
      local function text(n)
        return ("%d.%d.%d.%d"):format(n / 2 ^ 24 % 256, n / 65536 % 256, n / 256 % 256, n % 256)
      end
      assert.equal(other >= base and other < base + size, holds(text(base) .. "/" .. bits, text(other)))
    end
  end)
end)
