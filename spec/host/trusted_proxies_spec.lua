-- Who the client is behind proxies: for plugins, the access log, the plugin ip, and origins. Which texts are understood
-- is shown in spec/c/forwarded_test.c.
local support = require "spec.support"
local async = support.async

local plugins = { ["plugins/who.lua"] = [[
  return { version = "1", schema = {}, access = function(_, ctx)
    ctx.request.headers["x-seen"] = ("%s %d %s"):format(ctx.client.address, ctx.client.port, ctx.client.peer)
  end }
]] }

local function start(config)
  local origin = support.origin(function(_, conn) conn:respond { body = "hello" } end)
  local routes = { { name = "a", path = "/*", plugins = { who = {} }, targets = { { url = origin.url } } } }
  config.routes = config.routes or routes
  return support.gateway { config = config, files = plugins }, origin
end

describe("trusted_proxies", function()
  it("say who the client is", async(function()
    local gw, origin = start { trusted_proxies = { "127.0.0.0/8", "10.0.0.0/8" } }
    gw:request { headers = { ["x-forwarded-for"] = "6.6.6.6, 9.9.9.9:4711, 10.0.0.5", ["x-forwarded-proto"] = "https",
      ["x-forwarded-host"] = "shop.test", ["x-real-ip"] = "9.9.9.9" } }
    local got = origin.requests[1].headers
    assert.equal("9.9.9.9 4711 127.0.0.1", got["x-seen"])
    assert.equal("6.6.6.6, 9.9.9.9:4711, 10.0.0.5, 127.0.0.1", got["x-forwarded-for"])
    assert.equal("https", got["x-forwarded-proto"])
    assert.equal("shop.test", got["x-forwarded-host"])
    assert.equal("9.9.9.9", got["x-real-ip"])
    gw:request { path = "/plain" }
    assert.matches("^127.0.0.1 %d+ 127.0.0.1$", origin.requests[2].headers["x-seen"])
    local log = gw:wait_access(2)
    assert.same({ "9.9.9.9", "127.0.0.1" }, { log[1].client, log[1].peer })
    assert.same({ "127.0.0.1", nil }, { log[2].client, log[2].peer })
  end))

  it("are the only ones who are believed", async(function()
    local gw, origin = start { trusted_proxies = { "10.0.0.0/8" } }
    gw:request { headers = { ["x-forwarded-for"] = "9.9.9.9", ["x-forwarded-proto"] = "https", ["x-real-ip"] = "9.9.9.9",
      ["x_forwarded_for"] = "9.9.9.9", ["x-forwarded-prefix"] = "/x" } }
    local got = origin.requests[1].headers
    assert.matches("^127.0.0.1 ", got["x-seen"])
    assert.same({ "127.0.0.1", "http" }, { got["x-forwarded-for"], got["x-forwarded-proto"] })
    assert.is_nil(got["x-real-ip"])
    assert.is_nil(got["x_forwarded_for"])
    assert.is_nil(got["x-forwarded-prefix"])
  end))

  it("speak Forwarded where the configuration says so, and origins get what it says", async(function()
    local gw, origin = start { trusted_proxies = { "127.0.0.1" }, forwarded = { "forwarded", "x-forwarded" } }
    gw:request { host = "shop.test",
      headers = { forwarded = 'for="[2001:db8::5]:4711";proto=https', ["x-forwarded-for"] = "6.6.6.6" } }
    local got = origin.requests[1].headers
    assert.equal("2001:db8::5 4711 127.0.0.1", got["x-seen"])
    assert.equal('for="[2001:db8::5]:4711";proto=https, for=127.0.0.1;host=shop.test;proto=http', got.forwarded)
    assert.equal("https", got["x-forwarded-proto"])
    local text = support.read_file(gw.dir .. "/gateway.lua"):gsub("forwarded = {[^}]*}", 'forwarded = "forwarded"')
    gw:write("gateway.lua", text)
    assert.equal(0, gw:command("reload").code)
    gw:request { host = "shop.test", headers = { ["x-forwarded-for"] = "6.6.6.6" } }
    got = origin.requests[2].headers
    assert.matches("^127.0.0.1 %d+ 127.0.0.1$", got["x-seen"])
    assert.equal("for=127.0.0.1;host=shop.test;proto=http", got.forwarded)
    assert.is_nil(got["x-forwarded-for"])
  end))

  it("decide whom the plugin ip refuses", async(function()
    local gw = start { trusted_proxies = { "127.0.0.1" }, plugin_path = { "plugins" },
      routes = { { name = "a", path = "/", plugins = { ip = { deny = { "9.9.9.0/24" } } } } } }
    assert.equal(403, gw:request({ headers = { ["x-forwarded-for"] = "9.9.9.9" } }).status)
    assert.equal(403, gw:request({ headers = { ["x-forwarded-for"] = "1.1.1.1, 9.9.9.9" } }).status)
    assert.equal(500, gw:request({ headers = { ["x-forwarded-for"] = "9.9.9.9, 1.1.1.1" } }).status) -- no target
  end))

  it("are checked", async(function()
    local function check(text)
      local dir = support.tmpdir()
      support.write_file(dir .. "/gateway.lua", ('return { %s, routes = { { name = "a", path = "/" } } }'):format(text))
      local res = support.tollgate { "check", "-c", dir .. "/gateway.lua" }
      return res.code, res.out .. res.err
    end
    for text, message in pairs {
      ['trusted_proxies = { "10.0.0.1/8" }'] = "trusted_proxies[1]: has bits behind its prefix",
      ['trusted_proxies = { "proxy.test" }'] = "trusted_proxies[1]: is no IP address or network",
      ['forwarded = "x"'] = "forwarded: ",
      ['forwarded = {}'] = "forwarded: ",
    } do
      local code, out = check(text)
      assert.equal(1, code)
      assert(out:find(message, 1, true), out)
    end
    assert.equal(0, (check 'trusted_proxies = { "10.0.0.0/8", "::1", "unix" }, forwarded = { "x-forwarded" }'))
  end))
end)
