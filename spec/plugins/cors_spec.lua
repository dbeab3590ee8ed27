-- Shows cors against the real gateway: preflights are answered before auth and past the route's methods, other answers carry the
-- fields for allowed origins only, and never two of them.

local support = require "spec.support"

local function gateway(conf, origin)
  return support.gateway {
    config = {
      plugins = { auth = { keys = "keys.jsonl" }, cors = conf },
      routes = { { name = "api", path = "/api", methods = { "POST" }, targets = origin and { { url = origin.url } } or nil },
        { name = "closed", path = "/closed", methods = { "POST" }, plugins = { cors = false } } },
    },
    files = { ["keys.jsonl"] = support.keys { { id = "a", secret = "s" } } },
  }
end

local function preflight(g, origin, path)
  return g:request { method = "OPTIONS", path = path or "/api", headers = { origin = origin,
    ["access-control-request-method"] = "POST", ["access-control-request-headers"] = "authorization, x-a" } }
end

describe("cors", function()
  it("answers preflights without a credential, for allowed origins", support.async(function()
    local g = gateway { origins = { "https://app.example.com", "https://*.example.org" }, credentials = true, max_age = 60 }
    for _, origin in ipairs { "https://app.example.com", "https://a.b.example.org" } do
      local res = preflight(g, origin)
      assert.equal(204, res.status)
      assert.equal(origin, res.headers["access-control-allow-origin"])
      assert.equal("true", res.headers["access-control-allow-credentials"])
      assert.equal("authorization, x-a", res.headers["access-control-allow-headers"])
      assert.truthy(res.headers["access-control-allow-methods"]:find("POST", 1, true))
      assert.equal("60", res.headers["access-control-max-age"])
      assert.equal("Origin", res.headers.vary)
    end
  end))

  it("gives other origins nothing that allows them", support.async(function()
    local g = gateway { origins = { "https://app.example.com", "https://*.example.org" } }
    for _, origin in ipairs { "https://evil.example", "https://example.org", "https://app.example.com.evil.example",
      "http://app.example.com", "https://xexample.org", "null" } do
      local res = preflight(g, origin)
      assert.equal(204, res.status, origin)
      assert.is_nil(res.headers["access-control-allow-origin"], origin)
      assert.is_nil(res.headers["access-control-allow-methods"], origin)
    end
  end))

  it("leaves routes without it, and OPTIONS that are no preflight, to the methods", support.async(function()
    local g = gateway { origins = { "*" } }
    assert.equal(405, preflight(g, "https://a.example", "/closed").status)
    local res = g:request { method = "OPTIONS", path = "/api", headers = { origin = "https://a.example" } }
    assert.equal(405, res.status)
    assert.equal("POST", res.headers.allow)
    assert.equal(404, preflight(g, "https://a.example", "/none").status)
  end))

  it("marks errors too, so that scripts can read them", support.async(function()
    local g = gateway { origins = { "https://app.example.com" } }
    local res = g:request { method = "POST", path = "/api", headers = { origin = "https://app.example.com" }, body = "x" }
    assert.equal(401, res.status)
    assert.equal("https://app.example.com", res.headers["access-control-allow-origin"])
  end))

  it("replaces what the target says, and keeps its Vary", support.async(function()
    local origin = support.origin(function(_, conn)
      conn:respond { headers = { ["access-control-allow-origin"] = "*", ["access-control-allow-credentials"] = "true",
        vary = "Accept" }, body = "ok" }
    end)
    local g = gateway({ origins = { "https://app.example.com" }, expose = { "x-request-id" } }, origin)
    local function post(from)
      return g:request { method = "POST", path = "/api", body = "x", headers = { origin = from, authorization = "Bearer s" } }
    end
    local res = post "https://app.example.com"
    assert.equal("https://app.example.com", res.headers["access-control-allow-origin"])
    assert.is_nil(res.headers["access-control-allow-credentials"])
    assert.equal("x-request-id", res.headers["access-control-expose-headers"])
    assert.equal("Accept, Origin", res.headers.vary)
    res = post "https://evil.example"
    assert.equal(200, res.status)
    assert.is_nil(res.headers["access-control-allow-origin"])
    assert.is_nil(post(nil).headers["access-control-allow-origin"])
  end))

  it("says * only where every origin is allowed without credentials", support.async(function()
    local g = gateway { origins = { "*" } }
    local res = preflight(g, "https://a.example")
    assert.equal("*", res.headers["access-control-allow-origin"])
  end))

  it("refuses settings that browsers would not honour", support.async(function()
    for text, fault in pairs {
      ['{ origins = { "*" }, credentials = true }'] = "plugins.cors.origins[1]: * does not go with credentials",
      ['{ origins = { "https://a.example/path" } }'] = "plugins.cors.origins[1]: must be scheme://host",
      ['{ origins = {} }'] = "plugins.cors.origins",
      ['{}'] = "plugins.cors.origins",
    } do
      local dir = support.tmpdir()
      support.write_file(dir .. "/gateway.lua",
        'return { routes = { { name = "a", path = "/" , plugins = { cors = ' .. text .. " } } } }")
      local run = support.tollgate({ "check", "-c", dir .. "/gateway.lua" })
      assert.equal(1, run.code)
      assert.truthy(run.err:find(fault, 1, true), run.err)
    end
  end))
end)
