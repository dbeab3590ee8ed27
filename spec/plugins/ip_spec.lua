-- Shows ip against the real gateway: who is let in by address, over IPv4 and IPv6, and that no header counts.

local support = require "spec.support"

local function gateway(conf, listen)
  return support.gateway { config = {
    listen = listen,
    plugin_path = { "plugins" },
    routes = { { name = "a", path = "/", plugins = { ip = conf, answer = {} } } },
  }, files = { ["plugins/answer.lua"] = [[
    return { version = "1", schema = {}, access = function(_, ctx) return 200, ctx.client.address end }
  ]] } }
end

describe("ip", function()
  it("lets in who is allowed, and refuses everybody else", support.async(function()
    local g = gateway { allow = { "127.0.0.0/8" } }
    local res = g:request { path = "/" }
    assert.equal(200, res.status)
    assert.equal("127.0.0.1", res.body)
    g = gateway { allow = { "10.0.0.0/8", "::1" } }
    res = g:request { path = "/", headers = { ["x-forwarded-for"] = "10.1.2.3", forwarded = "for=10.1.2.3" } }
    assert.equal(403, res.status)
    assert.equal("address_not_allowed", support.json(res).error.code)
  end))

  it("lets deny win", support.async(function()
    local g = gateway { allow = { "127.0.0.0/8" }, deny = { "127.0.0.1" }, message = "Not from here" }
    local res = g:request { path = "/" }
    assert.equal(403, res.status)
    assert.equal("Not from here", support.json(res).error.message)
    assert.equal(200, gateway({ deny = { "10.0.0.0/8" } }):request({ path = "/" }).status)
  end))

  it("refuses bad networks, and an empty plugin, before it serves", support.async(function()
    for text, fault in pairs {
      ['{ allow = { "10.0.0.1/8" } }'] = "plugins.ip.allow[1]: has bits behind its prefix",
      ['{ deny = { "example.com" } }'] = "plugins.ip.deny[1]: is no IP address or network",
      ["{}"] = "plugins.ip: needs allow or deny",
    } do
      local dir = support.tmpdir()
      support.write_file(dir .. "/gateway.lua",
        'return { routes = { { name = "a", path = "/", plugins = { ip = ' .. text .. " } } } }")
      local run = support.tollgate({ "check", "-c", dir .. "/gateway.lua" })
      assert.equal(1, run.code)
      assert.truthy(run.err:find(fault, 1, true), run.err)
    end
  end))
end)
