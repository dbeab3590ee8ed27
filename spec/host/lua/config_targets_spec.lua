-- config_targets: what a route says of targets, models, balance and retry, and what becomes of it.

local root = debug.getinfo(1, "S").source:match("^@(.-)spec/host/lua/") or ""
table.insert(package.loaders, 2, function(name)
  local file = name:match("^tollgate%.([%w_]+)$")
  return file and loadfile(root .. "host/lua/" .. file .. ".lua")
end)

local config = require "tollgate.config"

local function load_route(keys)
  return config.load("gateway.lua", {
    env = function() end,
    read = function() return ('return { routes = { { name = "r", path = "/x", %s } } }'):format(keys) end,
  })
end

local function route_of(keys)
  local out, faults = load_route(keys)
  return assert(out, faults[1] and config.format(faults[1])).routes[1]
end

local function faults_of(keys)
  local _, faults = load_route(keys)
  local lines = {}
  for i, fault in ipairs(faults) do lines[i] = config.format(fault) end
  return lines
end

local CHAT = 'api = "openai-chat", '

describe("targets", function()
  it("are read with their defaults", function()
    local target = route_of([[timeouts = { idle = 7 }, targets = { { provider = "openai", model = "m", url = "http://h:9/base",
      headers = { Authorization = "Bearer x", ["X-Drop"] = false }, preserve_host = true,
      weight = 3, tier = 2, timeouts = { connect = 0.5 } } }]]).targets[1]
    assert.same({ name = "openai:m", provider = "openai", model = "m", url = "http://h:9/base", preserve_host = true,
      headers = { { name = "authorization", value = "Bearer x" }, { name = "x-drop", value = false } },
      weight = 3, tier = 2, timeouts = { connect = 500, first_byte = 300000, idle = 7000 } }, target)
    assert.same({ "routes[1].targets[1].url: is required" }, faults_of "targets = { {} }")
  end)

  it("are named by their URL where nothing else names them", function()
    for url, name in pairs { ["http://H:9/base"] = "h:9", ["HTTP://h"] = "h", ["unix:/run/x"] = "/run/x",
      ["http://[::1]:80/"] = "[::1]:80" } do
      local target = route_of(('targets = { { url = %q } }'):format(url)).targets[1]
      assert.same({ name, name, 1, 1 }, { target.name, target.provider, target.weight, target.tier })
    end
  end)

  it("are refused where two have one name, or none would be asked", function()
    local two = 'targets = { { url = "http://a", provider = "p"%s }, { url = "http://b", provider = "p"%s } }'
    assert.same({ 'routes[1].targets[2]: is "p" as routes[1].targets[1] is: give it a provider of its own' },
      faults_of(two:format("", "")))
    assert.same({ 'routes[1].targets[2]: is "p:m" as routes[1].targets[1] is: give it a provider of its own' },
      faults_of(two:format(', model = "m"', ', model = "m"')))
    assert.same({}, faults_of(two:format(', model = "m"', ', model = "n"')))
    assert.same({ "routes[1].targets: no target has a weight above 0" },
      faults_of 'targets = { { url = "http://a", weight = 0 }, { url = "http://b", weight = 0 } }')
    assert.same({}, faults_of 'targets = { { url = "http://a", weight = 0 }, { url = "http://b", tier = 7 } }')
    assert.same({ "routes[1].targets[1].weight: must be at least 0" },
      faults_of 'targets = { { url = "http://a", weight = -1 } }')
    assert.same({ "routes[1].targets[1].model: holds a control character" },
      faults_of 'targets = { { url = "http://a", model = "a\\n" } }')
    local many = {}
    for i = 1, 65 do many[i] = ('{ url = "http://h%d" }'):format(i) end
    assert.same({ "routes[1].targets: must have at most 64 items, has 65" },
      faults_of("targets = { " .. table.concat(many, ", ") .. " }"))
  end)
end)

describe("TLS of a target", function()
  it("is read with its place", function()
    local tls = route_of([[targets = { { provider = "a", url = "https://h", tls = { ca = "ca.pem", cert = "c.pem", key = "/k.pem",
      server_name = "api.example" } }, { url = "https://h", tls = { verify = false } } }]]).targets
    assert.same({ path = "routes[1].targets[1].tls", ca = "ca.pem", cert = "c.pem", key = "/k.pem", server_name = "api.example",
      insecure = false }, tls[1].tls)
    assert.same({ path = "routes[1].targets[2].tls", insecure = true }, tls[2].tls)
    assert.is_nil(route_of('targets = { { url = "https://h" } }').targets[1].tls)
  end)

  it("is refused where it cannot work", function()
    for written, fault in pairs {
      ['cert = "c"'] = ".key: is required beside cert",
      ['key = "c"'] = ".cert: is required beside key",
      ['ca = "c", verify = false'] = ".ca: has no use where verify = false",
      ['server_name = "*.x"'] = ".server_name: must be one name, without *",
      ['server_name = "a b"'] = '.server_name: must be a host name, or "*.suffix"',
      ['Verify = false'] = ".Verify: unknown key (did you mean verify?)",
    } do
      assert.same({ "routes[1].targets[1].tls" .. fault },
        faults_of(('targets = { { url = "https://h", tls = { %s } } }'):format(written)))
    end
    assert.same({ "routes[1].targets[1].tls: has no use: the url is not https://" },
      faults_of 'targets = { { url = "http://h", tls = {} } }')
  end)
end)

describe("models", function()
  it("are lists of targets by alias", function()
    local route = route_of(CHAT .. [[models = { ["z"] = { { url = "http://z" } },
      ["a/b c"] = { { url = "http://a", model = "m", provider = "p" } } }]])
    assert.same({}, route.targets)
    assert.same({ "a/b c", "z" }, { route.models[1].alias, route.models[2].alias })
    assert.equal("p:m", route.models[1].targets[1].name)
  end)

  it("need an API that names models, and targets", function()
    assert.same({ "routes[1].models: needs an LLM API, whose requests name a model: set the route's api" },
      faults_of 'models = { a = { { url = "http://z" } } }')
    assert.same({ "routes[1].models.a: must have at least 1 item" }, faults_of(CHAT .. "models = { a = {} }"))
    assert.same({ 'routes[1].models["a-b"]: no target has a weight above 0' },
      faults_of(CHAT .. 'models = { ["a-b"] = { { url = "http://z", weight = 0 } } }'))
  end)
end)

describe("retry", function()
  local DEFAULTS = { attempts = 2, budget = 0.2, buffer = 1048576, timeout = 305000,
    on = { "connect", "timeout", "closed", "bad_answer", 429, 500, 502, 503, 504, 529 } }

  local function with(more)
    local out = {}
    for key, value in pairs(DEFAULTS) do out[key] = value end
    for key, value in pairs(more) do out[key] = value end
    return out
  end

  it("has defaults that depend on the route", function()
    local two = 'targets = { { url = "http://a" }, { url = "http://b", timeouts = { connect = 1, first_byte = 400 } } }'
    assert.same(with { peek = false, unsafe = false, retry_after = 0 }, route_of('half_close = "cancel"').retry)
    assert.same(with { peek = false, unsafe = false, retry_after = 0, timeout = 401000 }, route_of(two).retry)
    assert.same(with { peek = true, unsafe = true, retry_after = 60000, timeout = 401000 }, route_of(CHAT .. two).retry)
    assert.same(with { peek = false, unsafe = true, retry_after = 60000 },
      route_of(CHAT .. 'targets = { { url = "http://a" } }').retry)
    assert.is_false(route_of('api = "openai-embeddings", ' .. two).retry.peek)
  end)

  it("is as it says", function()
    assert.same({ attempts = 3, budget = 0, buffer = 4096, timeout = 1500, on = { "connect", 418 }, peek = false,
      unsafe = false, retry_after = 0 },
      route_of(CHAT .. [[retry = { attempts = 3, budget = 0, buffer = "4k", timeout = 1.5, on = { "connect", 418 }, peek = false,
        unsafe = false, retry_after = false }]]).retry)
  end)

  it("is refused where it cannot work", function()
    for keys, fault in pairs {
      ["attempts = 0"] = "attempts: must be at least 1",
      ["attempts = 11"] = "attempts: must be at most 10",
      ["on = { 200 }"] = "on[1]: must be at least 400",
      ["budget = -1"] = "budget: must be at least 0",
      ["peek = true"] = "peek: needs an LLM API that streams",
      ["tries = 2"] = "tries: unknown key",
    } do
      local found = faults_of(("retry = { %s }"):format(keys))
      assert.same({ "routes[1].retry." .. fault }, found)
    end
    assert.truthy(faults_of('retry = { on = { "clsoed" } }')[1]:find("routes[1].retry.on[1]", 1, true))
    assert.truthy(faults_of('balance = "random"')[1]:find("routes[1].balance: must be one of", 1, true))
  end)

  it("is printed as it is in effect", function()
    local out = assert((load_route 'retry = { attempts = 1 }'))
    assert.same({ 1, false, 305 }, { out.effective.routes[1].retry.attempts, out.effective.routes[1].retry.unsafe,
      out.effective.routes[1].retry.timeout })
  end)
end)
