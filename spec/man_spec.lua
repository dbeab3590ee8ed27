-- The manual pages: nothing in them that roff warns of, and all that there is to configure.
local support = require "spec.support"
local async = support.async

-- A page as text; fails on any warning.
local function rendered(path)
  local res = support.exec { cmd = "groff", args = { "-man", "-ww", "-Kutf8", "-Tascii", "-P-c", "-rLL=100n", path } }
  assert.same({ 0, "" }, { res.code, res.err })
  return (res.out:gsub(".\8", ""))
end

describe("tollgate(1)", function()
  it("is a page without a fault, in ASCII, with every command and option of help", async(function()
    local path = support.tmpdir() .. "/tollgate.1"
    support.write_file(path, support.tollgate({ "man" }).out)
    assert.is_nil(support.read_file(path):find("[\128-\255]"))
    local text, n = rendered(path), 0
    for name in support.tollgate({ "help" }).out:gmatch "\n  (%l[%l ]-) *[ \n]" do
      local words = {}
      for word in name:gmatch "%S+" do words[#words + 1] = word end
      local from = text:find("\n%s+tollgate " .. name .. "%f[^%w]")
      assert.is_truthy(from, name)
      for option in support.tollgate({ "help", unpack(words) }).out:gmatch "\n  (%-[%-%l]+)" do
        assert.is_truthy(text:find("\n%s+" .. option:gsub("%-", "%%-") .. "%f[^%w-]", from), name .. " " .. option)
        n = n + 1
      end
    end
    assert.is_true(n >= 20, n)
  end))
end)

describe("gateway.lua(5)", function()
  it("is a page without a fault, in ASCII", async(function()
    local text = rendered "host/man/gateway.lua.5"
    assert.matches("gateway.lua %- configuration of tollgate", text)
    assert.matches("\n *listen +%(string,", text)
    assert.is_nil(support.read_file("host/man/gateway.lua.5"):find("[\128-\255]"))
  end))

  it("has every key that a configuration may have, and the plugins that ship with theirs", async(function()
    local text = rendered "host/man/gateway.lua.5"
    -- check names the keys that are near a wrong one, so it knows what it tells here.
    for _, key in ipairs { "routes[].targets[].health.interval", "routes[].retry.on", "timeouts.drain", "redis.url",
      "resolver.servers", "log.access.sample[].keep", "admin.tls.certificates[].cert", "admin.token" } do
      assert.is_truthy(text:find("\n%s+" .. key:gsub("%p", "%%%0") .. "%s+%("), key)
    end
    for _, name in ipairs { "AUTH", "QUOTA", "CACHE", "CORS", "IP", "RATELIMIT", "BREAKER", "OTEL" } do
      assert.is_truthy(text:find("\nPLUGIN " .. name .. "\n", 1, true), name)
    end
    assert.is_truthy(text:find("\n%s+keys %(path"))
  end))
end)
