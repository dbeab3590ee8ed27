-- config: the sandbox of gateway.lua, the keys it may hold, the shape the host reads, plugins, and masking.

local root = debug.getinfo(1, "S").source:match("^@(.-)spec/host/lua/") or ""
table.insert(package.loaders, 2, function(name)
  local file = name:match("^tollgate%.([%w_]+)$")
  return file and loadfile(root .. "host/lua/" .. file .. ".lua")
end)

local schema = require "tollgate.schema"
local config = require "tollgate.config"

local PATH = "/etc/tg/gateway.lua"
local FILES = { ["/etc/tg/key.txt"] = "file-secret\n", ["/etc/tg/two"] = "a\n\n", ["/abs"] = "absolute\r\n" }
local ENV = { OPENAI_API_KEY = "sk-secret", EMPTY = "", SHORT = "80" }

local function load_source(source, path)
  path = path or PATH
  return config.load(path, {
    env = function(name) return ENV[name] end,
    read = function(name)
      if name == path then return source end
      if FILES[name] then return FILES[name] end
      return nil, "no such file or directory"
    end,
  })
end

local function lines_of(faults)
  local lines = {}
  for i, fault in ipairs(faults) do lines[i] = config.format(fault) end
  return lines
end

-- The faults of a file, as lines.
local function faults(source)
  local loaded, found = load_source(source)
  assert.equal(#found > 0, loaded == nil)
  return lines_of(found)
end

local function loaded(source, path)
  local out, found = load_source(source, path)
  return assert(out, found[1] and config.format(found[1]))
end

-- A configuration whose only route has these keys beside name and path.
local function with_route(keys)
  return ('return { routes = { { name = "r", path = "/x", %s } } }'):format(keys)
end
local function with_top(keys)
  return ('return { routes = { { name = "r", path = "/x" } }, %s }'):format(keys)
end
local function route_faults(keys) return faults(with_route(keys)) end
local function top_faults(keys) return faults(with_top(keys)) end
local function with_path(path) return ('return { routes = { { name = "r", path = %s } } }'):format(path) end

describe("the sandbox", function()
  it("gives pure Lua, env and file", function()
    local out = loaded([[
      local names = {}
      for i, name in ipairs { "a", "b" } do names[i] = name:upper() end
      table.sort(names)
      assert(type(names) == "table" and select("#", unpack(names)) == 2 and next({}) == nil and math.floor(1.5) == 1)
      return { via = table.concat(names) .. tostring(tonumber "7"), routes = { { name = "r", path = "/x" } } }
    ]])
    assert.equal("AB7", out.via)
  end)

  it("keeps the rest of the system away", function()
    for _, name in ipairs { "os", "io", "require", "package", "debug", "load", "loadstring", "dofile", "getfenv",
      "setfenv", "getmetatable", "setmetatable", "rawset", "rawget", "_G", "jit", "pcall", "print" } do
      assert.same({ PATH .. ":2: " .. name .. " is not available in a configuration file" },
        faults("\nreturn " .. name .. ".x"), name)
    end
    for _, name in ipairs { "math.random", "string.dump" } do
      assert.truthy(faults("return " .. name .. "()")[1]:find(PATH .. ":1: attempt to call", 1, true), name)
    end
  end)

  it("does not let a file change the libraries that others see", function()
    local upper = string.upper
    loaded('string.upper = nil; math.floor = nil\n' .. with_top(""))
    assert.equal(upper, string.upper)
    assert.truthy(math.floor)
  end)

  it("refuses globals, with their line", function()
    assert.same({ PATH .. ":2: assignment to the global x: write local x" }, faults("\nx = 1\nreturn {}"))
    assert.same({ PATH .. ":1: assignment to the global env: write local env" }, faults("env = 1"))
    assert.same({ PATH .. ":3: unknown name evn (did you mean env?)" }, faults("\n\nlocal key = evn 'A'"))
    assert.same({ PATH .. ":1: assignment to the global f: write local f" }, faults("function f() end"))
  end)

  it("tells syntax and runtime errors with file and line", function()
    assert.truthy(faults("return {\n  listen = = 1 }")[1]:find(PATH .. ":2: ", 1, true))
    assert.same({ PATH .. ":2: boom" }, faults("\nerror 'boom'"))
    assert.truthy(faults("local t = {}\nreturn t.a.b")[1]:find(PATH .. ":2: attempt to index", 1, true))
    assert.same({ PATH .. ": raised table, not a message" }, faults("error {}"))
    assert.same({ PATH .. ": must return a table, got nil" }, faults(""))
    assert.same({ PATH .. ": must return a table, got string" }, faults("return 'x'"))
    local long = "/" .. ("d/"):rep(100) .. "gateway.lua"
    local _, found = load_source("\nerror 'boom'", long)
    assert.equal(long .. ":2: boom", config.format(found[1]))
  end)

  it("refuses bytecode", function()
    assert.equal(1, #faults(string.dump(loadstring "return {}")))
  end)

  it("says why the file itself cannot be read", function()
    local out, found = config.load("none.lua", { env = ENV, read = function() return nil, "no such file" end })
    assert.is_nil(out)
    assert.same({ "none.lua: no such file" }, lines_of(found))
  end)

  it("reads variables, with a default where one is given", function()
    assert.equal("sk-secret", loaded(with_top 'via = env "OPENAI_API_KEY"').via)
    assert.equal("other", loaded(with_top 'via = env("NONE", "other")').via)
    assert.equal("tollgate", loaded(with_top 'via = env("NONE", nil)').via)
    assert.same({ "via: must not be empty" }, top_faults 'via = env "EMPTY"')
    assert.same({ PATH .. ":1: env needs the name of a variable, a string" }, faults "local x = env(1)")
  end)

  it("reports every missing variable and file, with their lines", function()
    assert.same({
      PATH .. ":2: the environment variable A is not set",
      PATH .. ":3: the environment variable B is not set",
      PATH .. ":4: the file /etc/tg/none cannot be read: no such file or directory",
    }, faults([[
return { listen = 5,
  x = env "A",
  y = tonumber(env "B"),
  z = file "none" .. nil }]]))
    assert.same({ PATH .. ":1: the environment variable A is not set" },
      faults "local function key(name) return env(name) end local k = key 'A' return { k }")
  end)

  it("reads files beside it, without the final line end", function()
    assert.equal("file-secret", loaded(with_top 'via = file "key.txt"').via)
    assert.equal("absolute", loaded(with_top 'via = file "/abs"').via)
    assert.same({ "via: must be a token (RFC 9110)" }, top_faults 'via = file "two"')
  end)
end)

describe("keys of the gateway", function()
  it("have defaults", function()
    local out = loaded 'return { routes = { { name = "r", path = "/x" } } }'
    assert.same({ { host = "127.0.0.1", port = 8080 } }, out.listen)
    assert.same({ host = "127.0.0.1", port = 8081 }, out.admin)
    assert.is_nil(out.redis)
    assert.equal("/etc/tg/data", out.data_dir)
    assert.equal("/etc/tg/data", out.run_dir)
    assert.equal("/etc/tg", out.dir)
    assert.equal(PATH, out.file)
    assert.same({}, out.plugin_path)
    assert.same({ level = "info", access = { to = "stdout", format = "json", sample = {} } }, out.log)
    assert.same({ head = 30000, body = 60000, connect = 5000, first_byte = 300000, idle = 300000, keepalive = 75000,
      handshake = 10000, ticket_keys = 43200000, tunnel = 3600000, write = 60000, drain = 30000 }, out.timeouts)
    assert.same({ head = 16384, url = 8192, fields = 100, body = 10485760, connections = 10000, pipelined = 65536,
      body_rate = 16, buffered = 268435456 },
      out.limits)
    assert.same({ keepalive = 64, keepalive_timeout = 60000, connections = 1024 }, out.upstream)
    assert.same({ size = 16777216 }, out.shared)
    assert.equal("tollgate", out.via)
  end)

  it("take addresses", function()
    local out = loaded(with_top 'listen = { "0.0.0.0:0", "[::1]:8080", "localhost:1" }, admin = false')
    assert.same({ { host = "0.0.0.0", port = 0 }, { host = "::1", port = 8080 }, { host = "127.0.0.1", port = 1 } },
      out.listen)
    assert.is_false(out.admin)
    assert.same({ { host = "1.2.3.4", port = 5 } }, loaded(with_top 'listen = "1.2.3.4:5"').listen)
    for written, fault in pairs {
      ['"8080"'] = 'listen: must be "host:port": write "0.0.0.0:8080" for all interfaces',
      ['":8080"'] = 'listen: must be "host:port": write "0.0.0.0:8080" for all interfaces',
      ['"::1:8080"'] = 'listen: must be "host:port", IPv6 as "[::1]:8080"',
      ['"127.0.0.1"'] = 'listen: must be "host:port", IPv6 as "[::1]:8080"',
      ['"127.0.0.1:65536"'] = "listen: the port must be a number from 0 to 65535",
      ['"127.0.0.1:x"'] = "listen: the port must be a number from 0 to 65535",
      ['"256.0.0.1:80"'] = "listen: the host must be an IP address or localhost",
      ['"example.com:80"'] = "listen: the host must be an IP address or localhost",
      ['{ "127.0.0.1:80", "x" }'] = 'listen[2]: must be "host:port", IPv6 as "[::1]:8080"',
      ["{}"] = "listen: must have at least 1 item",
      ["8080"] = "listen: must be a string or a table or a list, got a number",
    } do
      assert.same({ fault }, top_faults("listen = " .. written))
    end
    assert.same({ "admin: must be false" }, top_faults "admin = true")
  end)

  it("take TLS beside an address", function()
    local out = loaded(with_top [[admin = { "127.0.0.1:1", tls = { cert = "a.crt", key = "/abs" } },
      listen = { "0.0.0.0:8080", { "0.0.0.0:8443", tls = {
        certificates = { { cert = "b.crt", key = "b.key" }, { cert = "c.crt", key = "c.key", names = { "*.C.test", "c.test" } } },
        min_version = "1.3", ciphers = { "TLS_AES_128_GCM_SHA256" }, client = { ca = "ca.crt" }, ticket_keys = "tickets",
      } } }
    ]])
    assert.same({ host = "0.0.0.0", port = 8080 }, out.listen[1])
    assert.same({
      path = "listen[2].tls", min_version = "1.3", ciphers = { "TLS_AES_128_GCM_SHA256" }, tickets = true,
      ticket_keys = "/etc/tg/tickets", client = { ca = "/etc/tg/ca.crt", required = true },
      certificates = {
        { cert = "/etc/tg/b.crt", key = "/etc/tg/b.key", names = {}, path = "listen[2].tls.certificates[1]" },
        { cert = "/etc/tg/c.crt", key = "/etc/tg/c.key", names = { "*.c.test", "c.test" },
          path = "listen[2].tls.certificates[2]" },
      },
    }, out.listen[2].tls)
    assert.same({ host = "127.0.0.1", port = 1, tls = {
      path = "admin.tls", min_version = "1.2", ciphers = {}, tickets = true,
      certificates = { { cert = "/etc/tg/a.crt", key = "/abs", names = {}, path = "admin.tls" } },
    } }, out.admin)
    local one = loaded(with_top [[listen = { "1.2.3.4:5", tls = { cert = "a", key = "b",
      client = { ca = "c", required = false } } }]])
    assert.equal("listen.tls", one.listen[1].tls.path)
    assert.is_false(one.listen[1].tls.client.required)
  end)

  it("refuse TLS that is not whole, with the path of the key", function()
    for written, fault in pairs {
      ['{ "1.1.1.1:1", tls = {} }'] = "listen.tls.cert: is required, or certificates, a list",
      ['{ "1.1.1.1:1", tls = { cert = "a" } }'] = "listen.tls.key: is required",
      ['{ { "1.1.1.1:1", tls = { cert = "a", key = "b", certificates = { { cert = "a", key = "b" } } } } }'] =
        { "listen[1].tls.cert: stands beside certificates: put it in there",
          "listen[1].tls.key: stands beside certificates: put it in there" },
      ['{ "1.1.1.1:1", tls = { certificates = { { cert = "a" } } } }'] = "listen.tls.certificates[1].key: is required",
      ['{ "1.1.1.1:1", tls = { certificates = { { cert = "a", key = "b", names = { "1.2.3.4" } } } } }'] =
        'listen.tls.certificates[1].names[1]: must be a host name, or "*.suffix"',
      ['{ "1.1.1.1:1", tls = { cert = "a", key = "b", min_version = "1.1" } }'] =
        'listen.tls.min_version: must be one of "1.2", "1.3", got "1.1" (did you mean "1.2"?)',
      ['{ "1.1.1.1:1", tls = { cert = "a", key = "b", ciphers = { "HIGH:!aNULL" } } }'] =
        "listen.tls.ciphers[1]: must be the name of one cipher suite",
      ['{ "1.1.1.1:1", tls = { cert = "a", key = "b", tickets = false, ticket_keys = "t" } }'] =
        "listen.tls.ticket_keys: has no use where tickets = false",
      ['{ "1.1.1.1:1", tls = { cert = "a", key = "b", client = {} } }'] = "listen.tls.client.ca: is required",
      ['{ "1.1.1.1:1", tsl = {} }'] = "listen.tsl: unknown key (did you mean tls?)",
      ['{ "1.1.1.1:1", "1.1.1.1:2", tls = {} }'] = "listen: must be a list, but has the key \"tls\"",
      ['{ { "x", tls = { cert = "a", key = "b" } } }'] = 'listen[1].address: must be "host:port", IPv6 as "[::1]:8080"',
      ['{ "1.1.1.1:1", address = "1.1.1.1:1" }'] = "listen.address: is there twice: by name, and as the item without a name",
    } do
      assert.same(type(fault) == "table" and fault or { fault }, top_faults("listen = " .. written))
    end
  end)

  it("refuse one address twice, port 0 excepted", function()
    assert.same({ "admin: is the same address as listen" },
      top_faults 'listen = "127.0.0.1:80", admin = "127.0.0.1:80"')
    assert.same({ "listen[2]: is the same address as listen[1]" }, top_faults 'listen = { "1.1.1.1:1", "1.1.1.1:1" }')
    assert.same({}, top_faults 'listen = "127.0.0.1:0", admin = "127.0.0.1:0"')
  end)

  it("take the size of the shared dictionary", function()
    assert.equal(2 ^ 20, loaded(with_top 'shared = { size = "1m" }').shared.size)
    assert.equal(2 ^ 34, loaded(with_top 'shared = { size = "16g" }').shared.size)
    assert.same({ "shared.size: must be at least 1048576 bytes" }, top_faults 'shared = { size = 1048575 }')
    assert.same({ "shared.size: must be at most 17179869184 bytes" }, top_faults 'shared = { size = "17g" }')
  end)

  it("take Redis as a URL or a table", function()
    local defaults = { timeout = 250, connect_timeout = 1000, eviction = "refuse", hash_tags = false }
    for _, url in ipairs { "redis://127.0.0.1:6379/0", "redis://u:p@redis.local", "unix:///run/redis.sock",
      "redis://[::1]:6379", "rediss://h:6380/1", "redis+unix:///run/redis.sock?db=1", "redis://:pw@h/" } do
      defaults.url = url
      assert.same(defaults, loaded(with_top(("redis = %q"):format(url))).redis)
    end
    assert.same({ url = "redis://h", timeout = 100, connect_timeout = 2000, eviction = "warn", hash_tags = true },
      loaded(with_top [[redis = { url = "redis://h", timeout = 0.1, connect_timeout = 2, eviction = "warn",
        hash_tags = true }]]).redis)
    for written, fault in pairs {
      ['"127.0.0.1:6379"'] = "redis: must begin with redis://, rediss://, unix:/// or redis+unix:///",
      ['{ url = "redis://h", tls = {} }'] = "redis.tls: has no use: the url is not rediss://",
      ['{ url = "rediss://h", tls = { cert = "c" } }'] = "redis.tls.key: is required beside cert",
      ['"redis://"'] = "redis: the host is missing or not valid",
      ['"redis://h:0"'] = "redis: the port must be a number from 1 to 65535",
      ['"redis://h/x"'] = "redis: the database must be a number, as in redis://127.0.0.1:6379/0",
      ['"unix://sock"'] = "redis: unix:// needs an absolute path, as in unix:///run/redis.sock",
      ["{}"] = "redis.url: is required",
      ['{ url = "redis://h", timeout = 0 }'] = "redis.timeout: must be a number of seconds above 0",
      ['{ url = "redis://h", eviction = "refuze" }'] =
        'redis.eviction: must be one of "refuse", "warn", got "refuze" (did you mean "refuse"?)',
    } do
      assert.same({ fault }, top_faults("redis = " .. written))
    end
  end)

  it("take folders relative to the file", function()
    local source = with_top 'data_dir = "d", run_dir = "/run/tg", plugin_path = { "plugins", "/opt/p" }'
    local out = loaded(source)
    assert.equal("/etc/tg/d", out.data_dir)
    assert.equal("/run/tg", out.run_dir)
    assert.same({ "/etc/tg/plugins", "/opt/p" }, out.plugin_path)
    out = loaded(source, "gateway.lua")
    assert.equal("d", out.data_dir)
    assert.equal(".", out.dir)
    assert.equal("conf/d", loaded(source, "conf/gateway.lua").data_dir)
    assert.equal("/d", loaded(source, "/gateway.lua").data_dir)
  end)

  it("take via, or none", function()
    assert.is_false(loaded(with_top "via = false").via)
    assert.same({ "via: must be a token (RFC 9110)" }, top_faults 'via = "a b"')
  end)

  it("report all faults at once, with the nearest name of an unknown key", function()
    assert.same({
      "lisen: unknown key (did you mean listen?)",
      'limits.body: must be a size in bytes: an integer, or one with k, m or g such as "64k"',
      "limits.fields: must be at least 1",
      'log.level: must be one of "debug", "info", "warn", "error", got "inof" (did you mean "info"?)',
      "routes[1].nmae: unknown key (did you mean name?)",
      "routes[1].name: is required",
      "routes[1].path: is required",
      "timeouts.first: unknown key",
      "timeouts.idle: must be at most 86400 seconds",
      "upstream.keepalive: must be at least 0",
    }, faults [[return {
      lisen = "x", log = { level = "inof" }, limits = { body = "10q", fields = 0 }, upstream = { keepalive = -1 },
      timeouts = { first = 1, idle = 100000 }, routes = { { nmae = "r" } },
    }]])
    assert.same({ "routes: is required" }, faults "return {}")
    assert.same({ "routes: must have at least 1 item" }, faults "return { routes = {} }")
  end)
end)

describe("keys of a route", function()
  it("have defaults, and the gateway's timeouts and limits", function()
    local route = loaded(with_top 'timeouts = { idle = 7 }, limits = { body = "1k" }').routes[1]
    route.models, route.balance, route.retry = nil, nil, nil -- config_targets_spec.lua
    assert.same({
      name = "r", paths = { { path = "/x", kind = "exact" } }, hosts = {}, methods = {}, headers = {}, targets = {},
      strip_prefix = false, api = "none", half_close = "cancel", retry_stale = true, chain = {},
      upgrade_any = false, upgrades = {},
      timeouts = { head = 30000, body = 60000, connect = 5000, first_byte = 300000, idle = 7000, keepalive = 75000,
        handshake = 10000, ticket_keys = 43200000, tunnel = 3600000, write = 60000, drain = 30000 },
      limits = { head = 16384, url = 8192, fields = 100, body = 1024, connections = 10000, pipelined = 65536, body_rate = 16,
        buffered = 268435456 },
    }, route)
  end)

  it("override timeouts and limits", function()
    local route = loaded(with_route 'timeouts = { idle = 0.0015, body = 1 }, limits = { body = "2k" }').routes[1]
    assert.equal(2, route.timeouts.idle)
    assert.equal(1000, route.timeouts.body)
    assert.equal(5000, route.timeouts.connect)
    assert.equal(2048, route.limits.body)
    assert.same({ "routes[1].limits.head: unknown key", "routes[1].timeouts.drain: unknown key" },
      route_faults 'timeouts = { drain = 1 }, limits = { head = 1 }')
  end)

  it("take exact paths and prefixes, normalised ones only", function()
    local function paths(written) return loaded(with_path(written)).routes[1].paths end
    assert.same({ { path = "/v1/", kind = "prefix" } }, paths '"/v1/*"')
    assert.same({ { path = "/", kind = "prefix" } }, paths '"/*"')
    assert.same({ { path = "/", kind = "exact" }, { path = "/a%2Fb;c=d/", kind = "exact" } },
      paths '{ "/", "/a%2Fb;c=d/" }')
    for written, fault in pairs {
      ["v1"] = 'must begin with "/"',
      ["/v1*"] = "a * may only stand at the end, after a slash: /v1/*",
      ["/*/x"] = "a * may only stand at the end, after a slash: /v1/*",
      ["/a//b"] = 'is not normalised and would never match: write "/a/b"',
      ["/a/./b/*"] = 'is not normalised and would never match: write "/a/b/*"',
      ["/a/../b"] = 'is not normalised and would never match: write "/b"',
      ["/a/b/.."] = 'is not normalised and would never match: write "/a/"',
      ["/%7euser/%2f"] = 'is not normalised and would never match: write "/~user/%2F"',
      ["/%2e%2e/x"] = "climbs above the root",
      ["/../x"] = "climbs above the root",
      ["/a?b"] = "must be a path without query or fragment",
      ["/a b"] = "holds a character that must be percent-encoded",
      ["/é"] = "holds a character that must be percent-encoded",
      ["/a\\\\b"] = "holds a character that must be percent-encoded",
      ["/%zz"] = "holds a percent sign that encodes nothing allowed in a path",
      ["/%4"] = "holds a percent sign that encodes nothing allowed in a path",
      ["/%00"] = "holds a percent sign that encodes nothing allowed in a path",
      ["/%5c"] = "holds a percent sign that encodes nothing allowed in a path",
      [""] = "must not be empty",
    } do
      assert.same({ "routes[1].path: " .. fault }, faults(with_path('"' .. written .. '"')))
    end
    assert.same({ 'routes[1].path[2]: must begin with "/"' }, faults(with_path '{ "/a", "b" }'))
  end)

  it("take hosts, without their port", function()
    assert.same({ "api.example.com", "*.example.com", "[::1]", "localhost" },
      loaded(with_route 'hosts = { "API.example.com:80", "*.Example.com.", "[::1]:80", "localhost" }').routes[1].hosts)
    for _, bad in ipairs { "*", "a.*.b", "http://x", ".x", "a..b", "*.[::1]", "x:y", "a/b" } do
      assert.same({ 'routes[1].hosts[1]: must be a host name, or "*.suffix"' },
        route_faults(('hosts = { "%s" }'):format(bad)), bad)
    end
  end)

  it("take methods and required headers", function()
    local route = loaded(with_route 'methods = { "GET", "M-SEARCH" }, headers = { ["X-B"] = "v", ["x-a"] = true }')
    assert.same({ "GET", "M-SEARCH" }, route.routes[1].methods)
    assert.same({ { name = "x-a", value = true }, { name = "x-b", value = "v" } }, route.routes[1].headers)
    assert.same({ "routes[1].methods[1]: must be a method in upper case, such as GET" },
      route_faults 'methods = { "get" }')
    assert.same({ "routes[1].headers.x: must be true" }, route_faults 'headers = { x = false }')
    assert.same({ 'routes[1].headers["a b"]: is no name of a header field' },
      route_faults 'headers = { ["a b"] = "x" }')
  end)

  it("know the API by the path", function()
    for path, api in pairs {
      ["/v1/chat/completions"] = "openai-chat", ["/openai/v1/chat/completions"] = "openai-chat",
      ["/v1/responses"] = "openai-responses", ["/v1/embeddings"] = "openai-embeddings",
      ["/v1/messages"] = "anthropic-messages", ["/v1/*"] = "none", ["/v1/chat/completions/x"] = "none",
    } do
      assert.equal(api, loaded(with_path('"' .. path .. '"')).routes[1].api)
    end
    local mixed = 'return { routes = { { name = "r", path = { "/v1/messages", "/v1/embeddings" }, %s } } }'
    assert.same({ "routes[1].path: its paths belong to different APIs: split the route, or name its api" },
      faults(mixed:format ""))
    assert.equal("none", loaded(mixed:format 'api = "none"').routes[1].api)
    assert.truthy(route_faults('api = "openai"')[1]:find("routes[1].api: must be one of", 1, true))
  end)

  it("refuse URLs of targets that cannot work", function()
    for url, fault in pairs {
      ["ftp://x"] = "must begin with http://, https:// or unix:/",
      ["localhost:80"] = "must begin with http://, https:// or unix:/",
      ["http://"] = "the host is missing or not valid",
      ["http://a b"] = "the host is not valid",
      ["http://u:p@h"] = "user information does not belong here",
      ["http://h/x?y"] = "a query or fragment does not belong here",
      ["http://h:0"] = "the port must be a number from 1 to 65535",
      ["http://h:99999"] = "the port must be a number from 1 to 65535",
      ["http://h/../x"] = "climbs above the root",
      ["unix:run"] = "unix: needs an absolute path",
      ["unix:/" .. ("x"):rep(107)] = "the path of the socket is too long",
    } do
      assert.same({ "routes[1].targets[1].url: " .. fault }, route_faults(('targets = { { url = %q } }'):format(url)))
    end
    for _, url in ipairs { "http://h", "http://[::1]:80/", "http://h:80/a/b", "HTTP://h", "https://api.openai.com",
      "HTTPS://[::1]/v1" } do
      assert.same({}, route_faults(('targets = { { url = %q } }'):format(url)))
    end
  end)

  it("refuse headers of targets that are not theirs to set", function()
    local function header_faults(written)
      return route_faults(('targets = { { url = "http://h", headers = { %s } } }'):format(written))
    end
    local at = "routes[1].targets[1].headers"
    assert.same({ at .. ".Host: is written by the gateway itself" }, header_faults 'Host = "x"')
    assert.same({ at .. '["transfer-encoding"]: is written by the gateway itself' },
      header_faults '["transfer-encoding"] = false')
    assert.same({ at .. ".a: is the same field as A" }, header_faults 'a = "1", A = "2"')
    assert.same({ at .. ".a: holds a line end or another control character" }, header_faults [[a = "x\r\ny"]])
    assert.same({ at .. ".a: begins or ends with a space" }, header_faults 'a = "x "')
    assert.same({ at .. ".a: must be a string or false, got a number" }, header_faults "a = 1")
  end)

  it("refuse strip_prefix without a prefix", function()
    assert.same({ "routes[1].strip_prefix: needs a path that ends in /*" }, route_faults "strip_prefix = true")
  end)

  it("refuse a name twice", function()
    assert.same({ 'routes[3].name: "a" is the name of routes[1] already' }, faults [[return { routes = {
      { name = "a", path = "/1" }, { name = "b", path = "/2" }, { name = "a", path = "/3" } } }]])
    assert.same({ "routes[1].name: must be letters, digits, _, . and -" },
      faults 'return { routes = { { name = "a b", path = "/" } } }')
  end)

  it("refuse routes of which one is never reached, naming both", function()
    local function two(a, b)
      return faults(('return { routes = { { name = "a", %s }, { name = "b", %s } } }'):format(a, b))
    end
    local same = '"b" is never reached by %s: route "a" (routes[1]) has the same path, hosts and methods'
    assert.same({ "routes[2]: " .. same:format "/x" }, two('path = "/x"', 'path = "/x"'))
    assert.same({ "routes[2]: " .. same:format "POST /x" },
      two('path = "/x", methods = { "GET", "POST" }', 'path = { "/y", "/x" }, methods = { "POST" }'))
    assert.same({ "routes[2]: " .. same:format "GET /x" }, two('path = "/x"', 'path = "/x", methods = { "GET" }'))
    assert.same({ "routes[2]: " .. same:format "/x/*" },
      two('path = "/x/*", hosts = { "A.com:80" }', 'path = "/x/*", hosts = { "b.com", "a.com" }'))
    for _, pair in ipairs {
      { 'path = "/x"', 'path = "/x/*"' },
      { 'path = "/x", methods = { "GET" }', 'path = "/x", methods = { "POST" }' },
      { 'path = "/x", methods = { "GET" }', 'path = "/x"' },
      { 'path = "/x", hosts = { "a.com" }', 'path = "/x"' },
      { 'path = "/x", headers = { a = "1" }', 'path = "/x", headers = { a = "2" }' },
      { 'path = "/x", headers = { a = true }', 'path = "/x"' },
    } do
      assert.same({}, two(pair[1], pair[2]))
    end
  end)
end)

describe("plugins of a route", function()
  local PLUGINS = {
    auth = { version = "1", priority = 900, schema = {
      keys = { type = "path", required = true }, token = { type = "string", secret = true } } },
    quota = { version = "1", priority = 600, once = true, schema = { rps = { type = "number", exclusive_min = 0 } },
      check = function(conf, path, context)
        if conf.rps == 13 then return { { path = path .. ".rps", message = "13 on " .. context.route.name } } end
        if conf.rps == 14 then return "not 14" end
      end },
    stamp = { schema = { name = { type = "string", default = "x-stamp" } } },
    alpha = { schema = {} },
    odd = { schema = { a = { typ = "string" } } },
    wrong = { priority = "high" },
    greedy = { schema = { on_error = { type = "string" } } },
  }
  local function load_plugin(name)
    if name == "broken" then return nil, "plugins/broken.lua:3: unexpected symbol" end
    if PLUGINS[name] then return PLUGINS[name] end
    return nil, nil, { "auth", "quota", "stamp" }
  end

  local function resolved(source)
    local out = loaded(source)
    local ok, found = config.resolve_plugins(out, load_plugin)
    assert.equal(#found == 0, ok ~= nil)
    return out, lines_of(found)
  end
  local function names(chain)
    local list = {}
    for i, one in ipairs(chain) do list[i] = one.name end
    return list
  end
  local function chain(source)
    local out, found = resolved(source)
    assert.same({}, found)
    return out.routes[1].chain, out
  end
  local function plugin_faults(keys) return select(2, resolved(with_route("plugins = " .. keys))) end

  it("are the global ones and its own, whose settings take the place of the global ones", function()
    local out = loaded [[return {
      plugins = { auth = { keys = "k" }, stamp = { name = "global" }, alpha = {} },
      routes = {
        { name = "a", path = "/a", plugins = { stamp = { name = "own" }, alpha = false, quota = {} } },
        { name = "b", path = "/b" },
      } }]]
    assert.same({
      { name = "auth", index = 1, conf = { keys = "k" }, path = "plugins.auth" },
      { name = "quota", index = 1, conf = {}, path = "routes[1].plugins.quota" },
      { name = "stamp", index = 1, conf = { name = "own" }, path = "routes[1].plugins.stamp" },
    }, out.routes[1].chain)
    assert.same({ "alpha", "auth", "stamp" }, names(out.routes[2].chain))
  end)

  it("may stand several times", function()
    local list = chain(with_route 'plugins = { stamp = { { name = "1" }, {}, { name = "3" } } }')
    assert.same({ "1", "x-stamp", "3" }, { list[1].conf.name, list[2].conf.name, list[3].conf.name })
    assert.equal("routes[1].plugins.stamp[2]", list[2].path)
  end)

  it("stand in the order of priority, then name, then as written", function()
    local list = chain(with_route [[plugins = {
      stamp = { { name = "1" }, { name = "2" } }, alpha = {}, quota = { rps = 1 }, auth = { keys = "k" } }]])
    assert.same({ "auth", "quota", "alpha", "stamp", "stamp" }, names(list))
    assert.equal("1", list[4].conf.name)
    assert.equal(100, list[3].priority)
    assert.equal(PLUGINS.auth, list[1].plugin)
  end)

  it("have settings of their own on each route, with defaults and paths resolved", function()
    local list, out = chain [[return { plugins = { auth = { keys = "k" } }, routes = {
      { name = "a", path = "/a" }, { name = "b", path = "/b" } } }]]
    assert.same({ keys = "/etc/tg/k" }, list[1].conf)
    assert.same(list[1].conf, out.routes[2].chain[1].conf)
    assert.are_not.equal(list[1].conf, out.routes[2].chain[1].conf)
    assert.same({ keys = "k" }, out.plugins.auth)
  end)

  it("take on_error beside their own settings", function()
    local list = chain(with_route 'plugins = { stamp = { on_error = "skip" }, alpha = {} }')
    assert.is_false(list[1].skip_on_error)
    assert.is_true(list[2].skip_on_error)
    assert.is_nil(list[2].conf.on_error)
    assert.same({ 'routes[1].plugins.stamp.on_error: must be one of "fail", "skip", got "skp" (did you mean "skip"?)' },
      plugin_faults '{ stamp = { on_error = "skp" } }')
  end)

  it("report every fault of their settings once, with its path", function()
    assert.same({
      "plugins.auth.keys: is required",
      "plugins.auth.kyes: unknown key (did you mean keys?)",
      "plugins.quta: unknown plugin (did you mean quota?)",
      "routes[2].plugins.quota.rps: must be more than 0",
    }, (function()
      local _, found = resolved [[return { plugins = { auth = { kyes = "k" }, quta = {} }, routes = {
        { name = "a", path = "/a" }, { name = "b", path = "/b", plugins = { quota = { rps = 0 } } } } }]]
      table.sort(found)
      return found
    end)())
  end)

  it("check global settings that no route uses", function()
    local _, found = resolved [[return { plugins = { quota = { rps = 0 } }, routes = {
      { name = "a", path = "/a", plugins = { quota = false } } } }]]
    assert.same({ "plugins.quota.rps: must be more than 0" }, found)
  end)

  it("are refused where the plugin does not load or is malformed", function()
    assert.same({ "routes[1].plugins.broken: plugins/broken.lua:3: unexpected symbol" },
      plugin_faults "{ broken = {} }")
    assert.same({ "routes[1].plugins.zzz: unknown plugin" }, plugin_faults "{ zzz = {} }")
    assert.same({ "plugin odd: schema.a: has no type" }, plugin_faults "{ odd = { { a = 1 }, {} } }")
    assert.same({ "plugin wrong: priority must be a number" }, plugin_faults "{ wrong = {} }")
    assert.same({ "plugin greedy: schema.on_error: every plugin has on_error; choose another name" },
      plugin_faults "{ greedy = {} }")
  end)

  it("are refused twice where once is all", function()
    assert.same({ "routes[1].plugins.quota[2]: quota may stand only once on a route" },
      plugin_faults "{ quota = { { rps = 1 }, { rps = 2 } } }")
    assert.same({}, plugin_faults "{ quota = { { rps = 1 } } }")
  end)

  it("are asked by their own check, told where", function()
    assert.same({ "routes[1].plugins.quota.rps: 13 on r" }, plugin_faults "{ quota = { rps = 13 } }")
    assert.same({ "routes[1].plugins.quota: not 14" }, plugin_faults "{ quota = { rps = 14 } }")
  end)

  it("are refused where their settings are none", function()
    local wrong = "must be a table of settings ({} for the defaults), a list of such tables, or false"
    assert.same({ "routes[1].plugins.quota: " .. wrong }, route_faults "plugins = { quota = true }")
    assert.same({ "plugins.quota: " .. wrong }, top_faults 'plugins = { quota = "x" }')
    assert.same({ "routes[1].plugins.quota[2]: must be a table of settings" },
      route_faults "plugins = { quota = { {}, 5 } }")
    assert.same({ "plugins.f.x: must be plain data, got a function" },
      top_faults "plugins = { f = { x = function() end } }")
  end)

  describe("and print", function()
    local source = [[return {
      redis = "redis://user:hunter2@h:6379", plugins = { auth = { keys = "k", token = "plain-token" }, stamp = {} },
      routes = {
        { name = "a", path = "/a", targets = { { model = "x" .. env "OPENAI_API_KEY", url = "http://h",
          headers = { authorization = "Bearer " .. env "OPENAI_API_KEY", ["x-lit"] = "literal", ["x-no"] = false } } },
          plugins = { stamp = { { name = file "key.txt" }, { name = "x" .. env "SHORT" } }, quota = { rps = 2 } } },
        { name = "b", path = "/b", plugins = { auth = false, stamp = { name = env "SHORT" } } },
      } }]]

    it("shows what is in effect", function()
      local out = resolved(source)
      local shown = assert(loadstring(config.print(out)))()
      assert.equal("127.0.0.1:8080", shown.listen)
      assert.equal(16384, shown.limits.head)
      assert.equal(30, shown.timeouts.head)
      assert.same({ connect = 5, first_byte = 300, idle = 300, body = 60, tunnel = 3600 }, shown.routes[1].timeouts)
      assert.equal("none", shown.routes[1].api)
      assert.same({ rps = 2, on_error = "fail" }, shown.routes[1].plugins.quota)
      assert.is_false(shown.routes[2].plugins.auth)
      assert.same({ name = "x-stamp", on_error = "fail" }, shown.plugins.stamp)
      assert.equal("/etc/tg/k", shown.plugins.auth.keys)
    end)

    it("masks what is secret and what came from env and file", function()
      local out = resolved(source)
      local text = config.print(out)
      for _, secret in ipairs { "sk-secret", "file-secret", "hunter2", "literal", "plain-token" } do
        assert.is_nil(text:find(secret, 1, true), secret)
      end
      local shown = loadstring(text)()
      assert.equal("redis://***@h:6379", shown.redis.url)
      assert.same({ authorization = "***", ["x-lit"] = "***", ["x-no"] = false }, shown.routes[1].targets[1].headers)
      assert.equal("***", shown.routes[1].targets[1].model)
      assert.equal("***", shown.routes[1].plugins.stamp[1].name)
      -- A short value is masked only where it is the whole string, else half of all would be.
      assert.equal("x80", shown.routes[1].plugins.stamp[2].name)
      assert.equal("***", shown.routes[2].plugins.stamp.name)
      assert.equal("127.0.0.1:8080", shown.listen)
    end)

    it("is loaded again to the same effect", function()
      local plain = [[return { routes = { { name = "a", path = { "/a", "/b/*" }, hosts = { "H:1" },
        plugins = { stamp = { {}, { name = "y" } } }, targets = { { url = "http://h" } } } }, via = false }]]
      local text = config.print((resolved(plain)))
      assert.equal(text, config.print((resolved(text))))
    end)

    it("leaves secrets out of faults", function()
      local found = faults 'return { [env "OPENAI_API_KEY"] = 1, routes = { { name = "r", path = "/x" } } }'
      assert.equal(1, #found)
      assert.is_nil(found[1]:find("sk-secret", 1, true))
      found = faults "error('no ' .. env 'OPENAI_API_KEY')"
      assert.same({ PATH .. ":1: no ***" }, found)
    end)
  end)
end)

describe("the schema of the configuration", function()
  it("is well formed, and every key has a line of doc", function()
    local fields = require "tollgate.config_schema"
    local _, found = schema.check(fields)
    assert.same({}, lines_of(found))
    for name, field in pairs(fields) do assert.is_string(field.doc, name) end
  end)
end)
