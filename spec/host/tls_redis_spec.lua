-- Redis over TLS: a real redis-server with a certificate of a throw-away authority.
local support = require "spec.support"

local PLUGIN = [[
local tg = require "tollgate"
local M = { version = "1.0.0", priority = 500 }
function M.init()
  tg.redis.subscribe({ "news" }, function(_, text) tg.shared.set("news", text) end)
end
function M.access()
  local borrowed = assert(tg.redis.connect())
  local id = assert(borrowed:call("CLIENT", "ID"))
  borrowed:release()
  return 200, { value = assert(tg.redis.call("INCR", "n")), borrowed = type(id), news = tg.shared.get("news") or "none" }
end
return M
]]

describe("Redis by rediss://", function()
  local ca, id

  local set_up, tear_down = support.shared(function()
    ca = support.tls.authority()
    id = ca:issue {}
  end)
  setup(set_up)
  teardown(tear_down)

  local function server(clients)
    local port = support.free_port()
    local r = support.redis { args = { "--tls-port", port, "--tls-cert-file", id.cert, "--tls-key-file", id.key,
      "--tls-ca-cert-file", ca.cert, "--tls-auth-clients", clients or "no" } }
    r.tls_url = ("rediss://localhost:%d/0"):format(port)
    return r
  end

  local function gateway(redis, env)
    return support.gateway { config = { redis = redis, routes = { { name = "r", path = "/*", plugins = { probe = {} } } } },
      files = { ["plugins/probe.lua"] = PLUGIN }, env = env }
  end

  local function works(gw)
    gw:wait_log("redis: usable", true)
    local seen = support.json(gw:request { path = "/" })
    assert.equal("number", type(seen.value))
    assert.equal("number", seen.borrowed)
  end

  it("serves commands, borrowed connections and subscriptions", support.async(function()
    local r = server()
    local gw = gateway { url = r.tls_url, tls = { ca = ca.cert } }
    works(gw)
    support.wait_for(function()
      r:must("PUBLISH", "news", "hello")
      return support.json(gw:request { path = "/" }).news == "hello"
    end, "what was published")
  end))

  it("by the system's authorities, as a URL alone", support.async(function()
    works(gateway(server().tls_url, { SSL_CERT_FILE = ca.cert }))
  end))

  it("shows the gateway's certificate where Redis asks for one", support.async(function()
    local mine, r = ca:issue { name = "gateway" }, server "yes"
    works(gateway { url = r.tls_url, tls = { ca = ca.cert, cert = mine.cert, key = mine.key } })
    local gw = gateway { url = r.tls_url, tls = { ca = ca.cert } }
    gw:wait_log("redis: not usable", true) -- its alert may be overtaken by a reset
  end))

  it("is not believed where its certificate is wrong", support.async(function()
    local r = server()
    local gw = gateway { url = r.tls_url, tls = { ca = ca.cert, server_name = "redis.example" } }
    gw:wait_log("connecting by TLS: its certificate is for localhost, 127.0.0.1, not for redis.example", true)
    local unknown = gateway { url = r.tls_url, tls = { ca = support.tls.authority("Elsewhere").cert } }
    unknown:wait_log("which is no trusted authority", true)
    works(gateway { url = r.tls_url, tls = { verify = false } })
  end))

  it("comes back when Redis has been away", support.async(function()
    local r = server()
    local gw = gateway { url = r.tls_url, tls = { ca = ca.cert } }
    works(gw)
    r:restart()
    gw:wait_log("redis: not usable", true)
    support.wait_for(function() return gw:request { path = "/" }.status == 200 end, "Redis to be used again", 10000)
  end))

  it("takes another authority with a reload", support.async(function()
    local r = server()
    local trusted = support.tmpdir() .. "/ca.pem"
    support.write_file(trusted, support.read_file(support.tls.authority("Elsewhere").cert))
    local gw = gateway { url = r.tls_url, tls = { ca = trusted } }
    gw:wait_log("which is no trusted authority", true)
    support.write_file(trusted, support.read_file(ca.cert))
    assert.equal(0, gw:command("reload").code)
    works(gw)
  end))

  it("that speaks plainly is a problem that is named", support.async(function()
    local r = support.redis()
    local gw = gateway { url = "rediss://127.0.0.1:" .. r.port, tls = { ca = ca.cert } }
    gw:wait_log("connecting by TLS: ", true)
  end))
end)
