-- Which route serves a request: hosts, exact paths before prefixes, the longest prefix, methods and required fields;
-- 404, and 405 with Allow. Each route's target has a path of its own, which the origin answers with.
local support = require "spec.support"
local rig = require "spec.host.proxy_rig"
local async = support.async

local on, up, down = rig.shared {
  handler = function(req, conn) conn:respond { body = req.path:match("^/([^/]*)") } end,
  routes = function(url)
    local routes = {}
    local function add(name, fields)
      fields.name = name
      fields.targets = { { url = url .. "/" .. name } }
      routes[#routes + 1] = fields
    end
    add("any", { path = "/a/*" })
    add("deep", { path = "/a/b/*" })
    add("exact", { path = "/a/b/c" })
    add("read", { path = "/m", methods = { "GET", "HEAD" } })
    add("write", { path = "/m", methods = { "POST" } })
    add("remove", { path = "/m/*", methods = { "DELETE" } })
    add("header", { path = "/h", headers = { ["x-v"] = "2" } })
    add("headers", { path = "/h", headers = { ["x-v"] = "2", ["x-any"] = true } })
    add("noheader", { path = "/h" })
    add("host", { path = "/a/*", hosts = { "one.site", "ONE.example" } })
    add("suffix", { path = "/a/*", hosts = { "*.site" } })
    add("longer", { path = "/a/*", hosts = { "*.sub.site" } })
    add("only", { path = "/only", hosts = { "one.site" }, methods = { "GET" } })
    add("fallback", { path = "/f/*" })
    add("post", { path = "/f/x", methods = { "POST" } })
    add("same", { path = "/m", methods = { "POST", "GET" }, headers = { ["x-v"] = "1" } })
    add("v6", { path = "/a/*", hosts = { "[::1]" } })
    return routes
  end,
}
setup(up)
teardown(down)

local function allowed(res)
  local methods = {}
  for method in res.headers.allow:gmatch("[^, ]+") do methods[#methods + 1] = method end
  table.sort(methods)
  return table.concat(methods, " ")
end

local function route(path, options)
  options = options or {}
  options.path = path
  local res = on.gw:request(options)
  return res.status == 200 and res.body or res.status, res
end

describe("a path", function()
  it("that is exact comes first, then the longest prefix", async(function()
    assert.equal("exact", (route "/a/b/c"))
    assert.equal("deep", (route "/a/b/cd"))
    assert.equal("deep", (route "/a/b/"))
    assert.equal("any", (route "/a/b"))
    assert.equal("any", (route "/a/"))
    assert.equal("any", (route "/a/x/b/c"))
  end))

  it("matches as it is normalised, so that no spelling gets around a route", async(function()
    assert.equal("exact", (route "/a/./b//c"))
    assert.equal("exact", (route "/a/x/../b/%63"))
    assert.equal("any", (route "/a/b%2Fc"))
    assert.equal("exact", (route "/a/b/c?a=/x"))
  end))

  it("that no route has is a 404", async(function()
    for _, path in ipairs { "/", "/a", "/A/b/c", "/ab", "/x/a/b" } do
      local got, res = route(path)
      assert.equal(404, got, path)
      assert.equal("not_found", support.json(res).error.code)
    end
    local _, res = rig.raw(on.gw, "OPTIONS * HTTP/1.1\r\nHost: x\r\n\r\n")
    assert.equal(404, res.status)
  end))
end)

describe("a host", function()
  local function at(host) return (route("/a/b/c", { host = host })) end

  it("that is exact comes before the longest suffix, and both before any; before the path", async(function()
    assert.equal("host", at "one.site")
    assert.equal("host", at "ONE.site:8080")
    assert.equal("host", at "one.EXAMPLE")
    assert.equal("suffix", at "two.site")
    assert.equal("suffix", at "a.two.site")
    assert.equal("longer", at "a.sub.site")
    assert.equal("suffix", at "sub.site")
    assert.equal("exact", at "site")
    assert.equal("exact", at "onesite")
    assert.equal("v6", at "[::1]:80")
  end))

  it("that a path belongs to alone hides it from others", async(function()
    assert.equal("only", (route("/only", { host = "one.site" })))
    assert.equal(404, (route("/only", { host = "two.site" })))
  end))

  it("is not there in HTTP/1.0, where routes of any host serve", async(function()
    local _, res = rig.raw(on.gw, "GET /a/x HTTP/1.0\r\n\r\n")
    assert.equal("any", res.body)
  end))
end)

describe("a method", function()
  it("decides between routes of one path", async(function()
    assert.equal("read", (route "/m"))
    assert.equal("write", (route("/m", { method = "POST" })))
  end))

  it("that no route takes is a 405 with all that are taken, each once", async(function()
    local got, res = route("/m", { method = "PUT", body = "x" })
    assert.same({ 405, "GET HEAD POST" }, { got, allowed(res) })
    assert.equal("method_not_allowed", support.json(res).error.code)
    got, res = route("/m", { method = "get", headers = { ["x-v"] = "1" } })
    assert.same({ 405, "GET HEAD POST" }, { got, allowed(res) })
    got, res = route("/m/x", { method = "HEAD" })
    assert.same({ 405, "DELETE", "" }, { got, res.headers.allow, res.body })
    got, res = route("/only", { method = "POST", host = "one.site" })
    assert.same({ 405, "GET" }, { got, res.headers.allow })
    assert.equal(404, (route("/only", { method = "POST", host = "two.site" })))
  end))

  it("that the best route does not take leaves the request to the next one", async(function()
    assert.equal("post", (route("/f/x", { method = "POST" })))
    assert.equal("fallback", (route "/f/x"))
  end))
end)

it("required fields decide by value or presence, the route with more of them first", async(function()
  assert.equal("noheader", (route "/h"))
  assert.equal("noheader", (route("/h", { headers = { ["x-v"] = "3" } })))
  assert.equal("header", (route("/h", { headers = { ["X-V"] = "2" } })))
  assert.equal("headers", (route("/h", { headers = { ["x-v"] = "2", ["x-any"] = "" } })))
  assert.equal("noheader", (route("/h", { headers = { ["x-any"] = "1" } })))
end))

it("many routes are told apart", async(function()
  local big = rig.start {
    handler = function(req, conn) conn:respond { body = req.path } end,
    routes = function(url)
      local routes = {}
      for i = 1, 500 do routes[i] = { name = "r" .. i, path = "/p" .. i .. "/*", strip_prefix = true,
        targets = { { url = url .. "/t" .. i } } } end
      return routes
    end,
  }
  for i = 1, 500, 7 do
    assert.equal("/t" .. i .. "/x", big.gw:request({ path = "/p" .. i .. "/x" }).body)
  end
end))
