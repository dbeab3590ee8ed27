-- What the gateway adds, removes and rewrites on the way: hop-by-hop fields both ways, Via, X-Forwarded-*, Host, the
-- fields of a target, strip_prefix and the target's path.
local support = require "spec.support"
local rig = require "spec.host.proxy_rig"
local async = support.async

local stamp = [[
local M = { version = "1.0.0", priority = 1, schema = {} }
function M.access(conf, ctx)
  ctx.request.headers["x-tenant"] = "t1"
  if ctx.request.headers["x-probe"] then return 200, tostring(ctx.request.headers["x-named"]) end
end
return M
]]

local on, up, down = rig.shared {
  files = { ["plugins/stamp.lua"] = stamp },
  routes = function(url)
    local set = { authorization = "Bearer provider", ["x-hop"] = "set", ["x-gone"] = false, ["X-Twice"] = "one" }
    return {
      { name = "plain", path = { "/plain", "/plain/*" }, targets = { { url = url } } },
      { name = "set", path = "/set", targets = { { url = url, headers = set } }, plugins = { stamp = {} } },
      { name = "host", path = "/host", targets = { { url = url, preserve_host = true } } },
      { name = "strip", path = { "/strip/*", "/strip/deep/*" }, strip_prefix = true, targets = { { url = url } } },
      { name = "join", path = "/join/*", targets = { { url = url .. "/base/v1/" } } },
      { name = "both", path = "/both/*", strip_prefix = true, targets = { { url = url .. "/base" } } },
    }
  end,
}
setup(up)
teardown(down)

local function last() return on.origin.requests[#on.origin.requests] end

local function get(path, headers)
  local res = on.gw:request { path = path, headers = headers }
  assert.equal(200, res.status)
  return last(), res
end

describe("hop-by-hop fields", function()
  local hop = { ["keep-alive"] = "timeout=5", ["proxy-connection"] = "keep-alive", te = "trailers", trailer = "x-t",
    upgrade = "websocket", ["proxy-authorization"] = "Basic x", ["proxy-authenticate"] = "Basic", ["x-named"] = "1",
    connection = "keep-alive, X-Named, te", ["x-kept"] = "1" }

  it("of a request end at the gateway, those that Connection names too", async(function()
    local req = get("/plain", hop)
    for name in pairs(hop) do
      assert.equal(name == "x-kept" and "1" or nil, req.headers[name], name)
    end
  end))

  it("of an answer end at the gateway, those that Connection names too", async(function()
    on.origin.handler = function(_, conn) conn:respond { headers = hop } end
    local _, res = get "/plain"
    for name in pairs(hop) do
      assert.equal(name == "x-kept" and "1" or nil, res.headers[name], name)
    end
    on.origin.handler = rig.hello
  end))

  it("named by a client do not strip what the gateway, a plugin or the target adds", async(function()
    local req = get("/set", { connection = "x-tenant, x-hop, authorization, via, host, x-request-id, x-forwarded-for, "
      .. "x-forwarded-proto, x-forwarded-host, content-length", ["x-hop"] = "client", authorization = "client" })
    assert.same({ "t1", "set", "Bearer provider", "1.1 tollgate", "127.0.0.1", "http", "gateway.test" },
      { req.headers["x-tenant"], req.headers["x-hop"], req.headers.authorization, req.headers.via,
        req.headers["x-forwarded-for"], req.headers["x-forwarded-proto"], req.headers["x-forwarded-host"] })
    assert.is_string(req.headers["x-request-id"])
    on.gw:request { path = "/plain", headers = { connection = "content-length" }, body = "12" }
    assert.same({ "2", "12" }, { last().headers["content-length"], last().body })
  end))

  it("are not seen by plugins", async(function()
    local res = on.gw:request { path = "/set", headers = { connection = "x-named", ["x-named"] = "1", ["x-probe"] = "1" } }
    assert.equal("nil", res.body)
  end))
end)

describe("the way is told", function()
  it("by Via, behind what is there, in both directions", async(function()
    assert.equal("1.1 tollgate", get("/plain").headers.via)
    assert.equal("1.0 first, 1.1 tollgate", get("/plain", { via = "1.0 first" }).headers.via)
    on.origin.handler = function(_, conn) conn:respond { headers = { via = "1.1 inner" } } end
    local _, res = get "/plain"
    assert.equal("1.1 inner, 1.1 tollgate", res.headers.via)
    on.origin.handler = rig.hello
    rig.raw(on.gw, "GET /plain HTTP/1.0\r\n\r\n")
    assert.equal("1.0 tollgate", last().headers.via)
  end))

  it("by X-Forwarded-*, which a client cannot forge", async(function()
    local req = get("/plain", { { "host", "shop.test:8443" }, { "x-forwarded-for", "6.6.6.6" }, { "X-Forwarded-For", "7.7.7.7" },
      { "x-forwarded-proto", "https" }, { "x-forwarded-host", "evil.test" }, { "forwarded", "for=6.6.6.6" } })
    assert.same({ "127.0.0.1", "http", "shop.test:8443", nil }, { req.headers["x-forwarded-for"],
      req.headers["x-forwarded-proto"], req.headers["x-forwarded-host"], req.headers.forwarded })
    rig.raw(on.gw, "GET /plain HTTP/1.0\r\nX-Forwarded-Host: evil.test\r\n\r\n")
    assert.is_nil(last().headers["x-forwarded-host"])
  end))
end)

describe("Host at the origin", function()
  it("is the target's, or the client's where it is to be preserved", async(function()
    local own = on.origin.url:match("//(.*)")
    assert.equal(own, get("/plain", { host = "shop.test" }).headers.host)
    assert.equal("shop.test:81", get("/host", { host = "shop.test:81" }).headers.host)
    assert.equal("Host", last().list[1][1])
    rig.raw(on.gw, "GET /host HTTP/1.0\r\n\r\n")
    assert.equal(own, last().headers.host)
  end))

  it("comes from an absolute target where there is one", async(function()
    local _, res = rig.raw(on.gw, "GET http://shop.test/host?q HTTP/1.1\r\nHost: other.test\r\n\r\n")
    assert.equal(200, res.status)
    assert.same({ "/host?q", "shop.test", "shop.test" }, { last().target, last().headers.host,
      last().headers["x-forwarded-host"] })
  end))
end)

it("the target's fields replace the client's, all of them, and are removed where they are false", async(function()
  local req = get("/set", { { "authorization", "Bearer client" }, { "X-Gone", "1" }, { "x-gone", "2" }, { "x-twice", "a" },
    { "x-twice", "b" }, { "x-other", "c" } })
  assert.same({ "Bearer provider", nil, "one", "c" },
    { req.headers.authorization, req.headers["x-gone"], req.headers["x-twice"], req.headers["x-other"] })
end))

describe("the path", function()
  local function target(path) return get(path).target end

  it("goes up as it is, normalised, with its query untouched", async(function()
    assert.equal("/plain", target "/plain")
    assert.equal("/plain/a%2Fb?x=%2f..//&y", target "/plain/./x/../%61%2fb?x=%2f..//&y")
    assert.equal("/plain?", target "/plain?")
  end))

  it("loses the prefix that matched, the longest one", async(function()
    assert.equal("/a/b?c", target "/strip/a/b?c")
    assert.equal("/", target "/strip/")
    assert.equal("/a", target "/strip/deep/a")
  end))

  it("follows the target's own", async(function()
    assert.equal("/base/v1/join/a?b=c", target "/join/a?b=c")
    assert.equal("/base/a", target "/both/a")
    assert.equal("/base/?x", target "/both/?x")
  end))
end)

it("Via can be left out or named otherwise", async(function()
  for _, via in ipairs { false, "edge-1" } do
    local other = rig.start { config = { via = via } }
    local res = other.gw:request {}
    local expected = via and "1.1 " .. via or nil
    assert.same({ expected, expected }, { res.headers.via, other.origin.requests[1].headers.via })
  end
end))
