-- Secrets of the configuration and of clients are in nothing that the gateway says: logs of every level, the access log,
-- status, metrics, answers, errors of commands, what check prints, and Redis's environment, whatever fails.
local support = require "spec.support"
local async = support.async

local ALPHABET = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/"

-- Base64 of the whole groups of three.
local function base64(text)
  return (text:gsub("...", function(three)
    local a, b, c = three:byte(1, 3)
    local n, out = a * 65536 + b * 256 + c, {}
    for i = 4, 1, -1 do
      out[i] = ALPHABET:sub(n % 64 + 1, n % 64 + 1)
      n = math.floor(n / 64)
    end
    return table.concat(out)
  end):gsub("^(.*[%w+/]).?.?$", "%1"))
end

-- Each would be found in any text by itself.
local planted = {
  provider = "PLANTED-provider-8c1f", path = "PLANTEDpath5d2a", redis = "PLANTED-redis-77e0", client = "sk-PLANTED-client-31ab",
  unknown = "sk-PLANTED-unknown-09ff", cookie = "PLANTED-cookie-4410", token = "PLANTED-token-0123456789abcdef",
  query = "PLANTED-query-aa", inline = "PLANTED-inline-b7b7",
}

local function look(what, text)
  for name, secret in pairs(planted) do
    local encoded = base64(secret):sub(1, math.floor(#secret / 3) * 4)
    for form, written in pairs { plain = secret, base64 = encoded, url = secret:gsub("%-", "%%2D") } do
      local at = text:find(written, 1, true)
      if at then
        error(("%s shows the secret %s (%s): …%s…"):format(what, name, form, text:sub(math.max(1, at - 80), at + 80)))
      end
    end
  end
end

local CONFIG = [[
local function redis() return "redis://gate:" .. env "REDIS_PASSWORD" .. "@127.0.0.1:%d/0" end
return {
  listen = { "127.0.0.1:0", { "127.0.0.1:0", tls = { cert = %q, key = %q } } },
  admin = { "127.0.0.1:0", token = env "ADMIN_TOKEN" },
  workers = 1, data_dir = "data", redis = redis(), log = { level = "debug" },
  plugin_path = { "plugins" },
  routes = {
    { name = "good", path = "/good", targets = { { url = "http://127.0.0.1:%d/" .. env "PATH_KEY",
      headers = { authorization = "Bearer " .. env "PROVIDER_KEY", ["x-inline"] = "PLANTED-inline-b7b7" } } },
      plugins = { auth = { keys = "keys.jsonl" }, quota = { rps = 1000, burst = 1000 } } },
    { name = "down", path = "/down", targets = {
      { url = "http://127.0.0.1:1/" .. env "PATH_KEY", headers = { authorization = "Bearer " .. env "PROVIDER_KEY" } },
      { provider = "other", url = "http://127.0.0.1:%d/status/" .. env "PATH_KEY" } } },
    { name = "raises", path = "/raises", plugins = { raises = { key = env "PROVIDER_KEY" } } },
    { name = "fetch", path = "/fetch", plugins = { fetch = { url = "http://127.0.0.1:1/" .. env "PATH_KEY" } } },
  },
}
]]

local plugins = {
  ["plugins/raises.lua"] = [[return { version = "1", schema = { key = { type = "string", secret = true } },
    access = function(conf) error("broken on purpose") end }]],
  ["plugins/fetch.lua"] = [[
    local tg = require "tollgate"
    return { version = "1", schema = { url = { type = "string" } }, access = function(conf)
      local res, err = tg.http.get(conf.url, { headers = { authorization = "Bearer PLANTED-inline-b7b7" } })
      return 200, tostring(err)
    end }
  ]],
}

local function origin()
  return support.origin(function(req, conn)
    if req.path:find("/status/", 1, true) then return conn:respond { status = 503, body = "no" } end
    if req.headers["x-mode"] == "bad" then return conn:write("HTTP/1.1 200 OK\r\nbad header\r\n\r\n") and conn:close() end
    conn:respond { body = "fine" }
  end)
end

local function all_processes(pid)
  local list = { pid }
  for child in support.read_file(("/proc/%d/task/%d/children"):format(pid, pid)):gmatch("%d+") do
    list[#list + 1] = tonumber(child)
  end
  return list
end

local function start(redis)
  local on = { origin = origin(), ca = support.tls.authority() }
  local id = on.ca:issue { names = { "gw.test" } }
  planted.key = support.read_file(id.key):match("\n(%S+)\n")
  local files = { ["keys.jsonl"] = support.keys { { id = "known", secret = planted.client } } }
  for name, text in pairs(plugins) do files[name] = text end
  on.text = CONFIG:format(redis.port, id.cert, id.key, on.origin.port, on.origin.port)
  on.env = { REDIS_PASSWORD = planted.redis, PROVIDER_KEY = planted.provider, PATH_KEY = planted.path,
    ADMIN_TOKEN = planted.token }
  on.gw = support.gateway { config = on.text, files = files, env = on.env }
  return on
end

local function requests(on)
  local seen = {}
  local function keep(res) seen[#seen + 1] = res and (res.raw or "") .. (res.body or "") or "" end
  for _, path in ipairs { "/good", "/down", "/raises", "/fetch", "/none" } do
    for _, headers in ipairs {
      { authorization = "Bearer " .. planted.client }, { authorization = "Bearer " .. planted.unknown },
      { authorization = planted.unknown }, { ["x-api-key"] = planted.unknown }, { cookie = "a=" .. planted.cookie },
      { authorization = "Bearer " .. planted.client, ["x-mode"] = "bad" },
    } do
      keep(on.gw:request { path = path .. "?key=" .. planted.query, headers = headers })
    end
  end
  local c = on.gw:connect() -- a head that is refused
  c:send("GET /good HTTP/1.1\r\nHost: x\r\nAuthorization : Bearer " .. planted.client .. "\r\n\r\n")
  keep(c:read_response {})
  c = on.gw:connect()
  c:send("GET /good HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer " .. planted.client)
  c:close()
  keep(on.gw:admin("/status"))
  keep(on.gw:admin("/metrics"))
  keep(support.request { port = on.gw.admin_port, path = "/reload", method = "POST", host = "127.0.0.1",
    headers = { authorization = "Bearer " .. planted.unknown } })
  return table.concat(seen, "\n")
end

local function commands(on)
  local out = {}
  local function keep(args)
    local res = support.tollgate(args, { env = on.env, timeout = 20000 })
    out[#out + 1] = res.out .. res.err
  end
  local config = on.gw.dir .. "/gateway.lua"
  keep { "check", "-c", config }
  keep { "check", "-c", config, "--print" }
  for _, name in ipairs { "status", "reload", "usage" } do keep { name, "-c", config } end
  keep { "status", "-c", config, "--json" }
  keep { "exec", "--redis", "redis://x:" .. planted.redis .. "@127.0.0.1:1:2:3/x/y", config }
  keep { "exec", "--redis", "http://x:" .. planted.redis .. "@h", config }
  -- Configurations that are refused where a secret stands.
  for from, to in pairs {
    ['url = "http://127.0.0.1:1/" .. env "PATH_KEY"'] = 'url = "http//" .. env "PATH_KEY"',
    ['redis = redis%(%)'] = 'redis = "mysql://" .. env "REDIS_PASSWORD"',
    ['authorization = "Bearer " .. env "PROVIDER_KEY" } },\n'] = 'authorization = "Bearer\\n" .. env "PROVIDER_KEY" } },\n',
    ['key = env "PROVIDER_KEY"'] = 'key = { env "PROVIDER_KEY" }, [env "PROVIDER_KEY"] = 1',
    ['token = env "ADMIN_TOKEN"'] = 'token = env "ADMIN_TOKEN" .. " "',
    ['workers = 1'] = 'workers = env "PROVIDER_KEY"',
    ['plugin_path = { "plugins" }'] = 'plugin_path = { "plugins" }, [env "PROVIDER_KEY"] = true',
  } do
    local text, n = on.text:gsub(from:gsub("[%.%(%)%[%]]", "%%%0"):gsub("%%%%", "%%"), (to:gsub("%%", "%%%%")))
    if n == 0 then text = on.text:gsub("return {", "return { " .. to .. ",") end
    on.gw:write("bad.lua", text)
    keep { "check", "-c", on.gw.dir .. "/bad.lua" }
  end
  return table.concat(out, "\n")
end

describe("secrets", function()
  it("are shown nowhere", async(function()
    local redis = support.redis()
    redis:must("ACL", "SETUSER", "gate", "on", ">" .. planted.redis, "~*", "&*", "+@all")
    local on = start(redis)
    on.gw:wait_log("redis: usable")
    look("an answer", requests(on))
    local said = commands(on)
    look("a command", said)
    assert(said:find("***", 1, true)) -- they were there to be shown
    redis:must("ACL", "SETUSER", "gate", "resetpass", ">other")
    redis:must("CLIENT", "KILL", "TYPE", "normal")
    on.gw:wait_log("WRONGPASS")
    look("an answer", requests(on))
    redis:stop()
    on.gw:wait_log("not usable")
    look("an answer", requests(on))
    look("a command", commands(on))
    look("the log", on.gw.log())
    look("the access log", on.gw.process:out())
    for _, pid in ipairs(all_processes(on.gw.pid)) do look("a command line", support.read_file("/proc/" .. pid .. "/cmdline")) end
  end, 60000))

  it("are not repeated from a Redis that does not know AUTH", async(function()
    local redis = support.redis { args = { "--rename-command", "AUTH", "" } }
    local on = start(redis)
    on.gw:wait_log("AUTH: ERR unknown command")
    look("the log", on.gw.log())
    on.gw:wait_log("AUTH: ERR unknown command.-AUTH: ERR unknown command")
    look("the log", on.gw.log())
  end))

  it("are not in the environment of the private Redis", async(function()
    local gw = support.gateway { config = { routes = { { name = "a", path = "/" } } },
      env = { PROVIDER_KEY = planted.provider } }
    local found
    for _, pid in ipairs(all_processes(gw.pid)) do
      if support.read_file("/proc/" .. pid .. "/comm"):find("redis", 1, true) then
        found = support.read_file("/proc/" .. pid .. "/environ")
      end
    end
    assert.is_string(found)
    look("Redis's environment", found)
  end))
end)
