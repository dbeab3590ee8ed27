-- Names of targets: all their addresses are tried, answers are kept by their TTL, and a resolver that is down, slow or
-- wrong does not take the gateway down with it. The resolver is the specs' own.
local ffi = require "ffi"
local uv = require "luv"
local support = require "spec.support"
local async = support.async

ffi.cdef "int listen(int fd, int backlog);"

local NAME = "origin.test"

-- An origin at one address that says which, closing each connection unless `keep`.
local function origin_at(host, port, keep)
  return support.origin(function(_, conn)
    conn:respond { body = host, headers = keep and {} or { Connection = "close" } }
  end, { host = host, port = port })
end

local function gateway(dns, port, options)
  options = options or {}
  local resolver = { servers = { dns.server }, ttl_min = 0.1, ttl_max = 0.2 }
  for key, value in pairs(options.resolver or {}) do resolver[key] = value end
  return support.gateway { config = {
    resolver = resolver, timeouts = { connect = options.connect or 5 }, workers = options.workers,
    routes = { { name = "a", path = "/*", targets = { { url = ("http://%s:%d"):format(NAME, port) } } } },
  } }
end

-- Requests until one is answered by that address; the number of those that were not answered 200 before.
local function until_served_by(gw, host)
  local failed = 0
  support.wait_for(function()
    local res = gw:request {}
    if res.status ~= 200 then failed = failed + 1 end
    return res.body == host
  end, "an answer by " .. host)
  return failed
end

-- A listener that nobody accepts from and whose queue is full, so that no connection to it comes about.
local function black_hole(host, port)
  local server = uv.new_tcp()
  assert(server:bind(host, port))
  assert(ffi.C.listen(server:fileno(), 0) == 0)
  local clients = {}
  for i = 1, 4 do
    clients[i] = uv.new_tcp()
    clients[i]:connect(host, port, function() end)
  end
  support.on_end(function()
    for _, handle in ipairs(clients) do handle:close() end
    server:close()
  end)
end

describe("a target by name", function()
  it("is served by all its addresses, in turn", async(function()
    local one = origin_at("127.0.0.1")
    local two = origin_at("127.0.0.2", one.port)
    local dns = support.dns { [NAME] = { a = { "127.0.0.1", "127.0.0.2" } } }
    local gw = gateway(dns, one.port)
    for _ = 1, 10 do assert.equal(200, gw:request({}).status) end
    assert.equal(5, one.connections)
    assert.equal(5, two.connections)
  end))

  it("is served by IPv6 where there is a route, else by IPv4", async(function()
    local six = origin_at("::1")
    local four = origin_at("127.0.0.1", six.port)
    local dns = support.dns { [NAME] = { a = { "127.0.0.1" }, aaaa = { "::1" } } }
    local gw = gateway(dns, six.port)
    for _ = 1, 3 do assert.equal("::1", gw:request({}).body) end
    six:close()
    for _ = 1, 3 do assert.equal("127.0.0.1", gw:request({}).body) end
    assert.equal(3, four.connections)
  end))

  it("goes on to the next address where one refuses, and remembers", async(function()
    local good = origin_at("127.0.0.2")
    local dns = support.dns { [NAME] = { a = { "127.0.0.1", "127.0.0.2" } } }
    local gw = gateway(dns, good.port)
    for _ = 1, 4 do assert.equal("127.0.0.2", gw:request({}).body) end
    local back = origin_at("127.0.0.1", good.port) -- it is not first choice again so soon
    for _ = 1, 6 do assert.equal("127.0.0.2", gw:request({}).body) end
    assert.equal(0, back.connections)
  end))

  it("goes on to the next address where one does not answer", async(function()
    local good = origin_at("127.0.0.2")
    black_hole("127.0.0.3", good.port)
    local dns = support.dns { [NAME] = { a = { "127.0.0.3", "127.0.0.2" } } }
    local gw = gateway(dns, good.port)
    for _ = 1, 6 do assert.equal("127.0.0.2", gw:request({}).body) end
  end))

  it("is a 504 where no address answers in time, a 502 where all refuse", async(function()
    local port = support.free_port()
    black_hole("127.0.0.3", port)
    local dns = support.dns { [NAME] = { a = { "127.0.0.3" } } }
    local gw = gateway(dns, port, { connect = 0.6 })
    assert.equal(504, gw:request({}).status)
    dns.names[NAME] = { a = { "127.0.0.4", "127.0.0.5" } }
    support.wait_for(function() return gw:request({}).status == 502 end, "the new addresses")
  end))

  it("is looked up once for many requests", async(function()
    local origin = origin_at("127.0.0.1")
    local dns = support.dns { [NAME] = { a = { "127.0.0.1" }, ttl = 60 } }
    local gw = gateway(dns, origin.port, { resolver = { ttl_max = 60 } })
    local requests = {}
    for i = 1, 20 do requests[i] = function() return gw:request({}).status end end
    for _, status in ipairs(support.all(requests)) do assert.equal(200, status) end
    assert.equal(1, dns:asked(NAME, "a"))
    assert.equal(1, dns:asked(NAME, "aaaa"))
  end))
end)

describe("a name of", function()
  it("tg.http is looked up by the same resolver", async(function()
    local origin = origin_at("127.0.0.2")
    local dns = support.dns { ["inner.test"] = { a = { "127.0.0.1", "127.0.0.2" } } }
    local gw = support.gateway { config = {
      resolver = { servers = { dns.server } },
      routes = { { name = "a", path = "/", plugins = { ask = { url = "http://inner.test:" .. origin.port } } } },
    }, files = { ["plugins/ask.lua"] = [[
      local tg = require "tollgate"
      return { version = "1", schema = { url = { type = "string" } }, access = function(conf)
        local res, err = tg.http.get(conf.url)
        return 200, res and res.body or err
      end }
    ]] } }
    for _ = 1, 3 do assert.equal("127.0.0.2", gw:request({}).body) end
    assert.equal(1, dns:asked("inner.test", "a"))
  end))

  it("Redis is followed to another server", async(function()
    local one, two = support.redis(), support.redis()
    local first = support.proxy { to = one.port }
    support.proxy { to = two.port, port = first.port, host = "127.0.0.2" }
    local dns = support.dns { ["redis.test"] = { a = { "127.0.0.1" } } }
    local gw = support.gateway { config = {
      redis = ("redis://redis.test:%d"):format(first.port), resolver = { servers = { dns.server }, ttl_max = 0.1, ttl_min = 0.1 },
      routes = { { name = "a", path = "/", plugins = { ping = {} } } },
    }, files = { ["plugins/ping.lua"] = [[
      local tg = require "tollgate"
      return { version = "1", schema = {}, access = function() return 200, tostring((tg.redis.call("GET", "who"))) end }
    ]] } }
    one:must("SET", "who", "one")
    two:must("SET", "who", "two")
    support.wait_for(function() return gw:request({}).body == "one" end, "the first Redis")
    dns.names["redis.test"] = { a = { "127.0.0.2" } }
    first:close()
    support.wait_for(function() return gw:request({}).body == "two" end, "the second Redis", 10000)
  end))
end)

describe("a name that moves", function()
  it("is followed when its TTL ends, and connections to the old address are let go", async(function()
    local old = origin_at("127.0.0.1", nil, true)
    local new = origin_at("127.0.0.2", old.port, true)
    local dns = support.dns { [NAME] = { a = { "127.0.0.1" } } }
    local gw = gateway(dns, old.port)
    assert.equal("127.0.0.1", gw:request({}).body)
    assert.equal(1, old.open)
    dns.names[NAME] = { a = { "127.0.0.2" } }
    -- Nobody asks for anything: the name is looked up because of the idle connection.
    support.wait_for(function() return old.open == 0 end, "the idle connection to be let go")
    assert.equal("127.0.0.2", gw:request({}).body)
    assert.equal(1, new.connections)
    assert.equal(1, old.connections)
  end))

  it("takes a connection that is in use along when the answer is over", async(function()
    local old = origin_at("127.0.0.1", nil, true)
    origin_at("127.0.0.2", old.port, true)
    local release
    old.handler = function(req, conn)
      if req.path == "/slow" then support.wait_for(function() return release end, "the release") end
      conn:respond { body = "old" }
    end
    local dns = support.dns { [NAME] = { a = { "127.0.0.1" } } }
    local gw = gateway(dns, old.port)
    local slow = support.spawn(function() return gw:request({ path = "/slow" }).body end)
    old:wait_request(1)
    dns.names[NAME] = { a = { "127.0.0.2" } }
    assert.equal(0, until_served_by(gw, "127.0.0.2"))
    release = true
    assert.equal("old", slow:join())
    support.wait_for(function() return old.open == 0 end, "the old connection to end")
  end))

  it("that is gone is a 502, and is back as soon as DNS has it", async(function()
    local origin = origin_at("127.0.0.1")
    local dns = support.dns {}
    local gw = gateway(dns, origin.port)
    for _ = 1, 5 do assert.equal(502, gw:request({}).status) end
    assert.is_true(dns:asked(NAME, "a") <= 3, "a missing name is asked for by every request")
    dns.names[NAME] = { a = { "127.0.0.1" } }
    until_served_by(gw, "127.0.0.1")
    dns.names[NAME] = nil
    support.wait_for(function() return gw:request({}).status == 502 end, "its end")
    assert.is_truthy(gw.log():find("resolve: origin.test: ", 1, true))
  end))
end)

describe("a resolver", function()
  for _, fault in ipairs { "servfail", "silent", "refused" } do
    it("that is down (" .. fault .. ") leaves the known addresses in use", async(function()
      local origin = origin_at("127.0.0.1")
      local dns = support.dns { [NAME] = { a = { "127.0.0.1" } } }
      local gw = gateway(dns, origin.port, { resolver = { timeout = 0.1 } })
      assert.equal(200, gw:request({}).status)
      dns.fault = fault
      local asked = #dns.queries
      support.wait_for(function()
        assert.equal(200, gw:request({}).status)
        return #dns.queries > asked + 2 and gw.log():find("stay in use", 1, true)
      end, "the look-up to fail")
      for _ = 1, 5 do assert.equal(200, gw:request({}).status) end
      dns.fault = nil
      support.wait_for(function()
        assert.equal(200, gw:request({}).status)
        return gw.log():find("found again", 1, true)
      end, "the resolver to be back", 10000)
      local _, lines = gw.log():gsub("stay in use", "")
      assert.equal(1, lines)
    end))
  end

  it("that stays down lets go of addresses at last", async(function()
    local origin = origin_at("127.0.0.1")
    local dns = support.dns { [NAME] = { a = { "127.0.0.1" } } }
    local gw = gateway(dns, origin.port, { resolver = { timeout = 0.1, stale = 0.3 } })
    assert.equal(200, gw:request({}).status)
    dns.fault = "servfail"
    support.wait_for(function() return gw:request({}).status == 502 end, "the addresses to be given up")
  end))

  it("that never answers for IPv6 does not keep IPv4 back", async(function()
    local origin = origin_at("127.0.0.1")
    local dns = support.dns { [NAME] = { a = { "127.0.0.1" } } }
    dns.fault = { aaaa = "silent" }
    local gw = gateway(dns, origin.port, { connect = 1, resolver = { timeout = 5 } })
    for _ = 1, 3 do assert.equal(200, gw:request({}).status) end
  end))

  it("is replaced by a reload", async(function()
    local origin = origin_at("127.0.0.1")
    local moved = origin_at("127.0.0.2", origin.port)
    local first = support.dns { [NAME] = { a = { "127.0.0.1" } } }
    local second = support.dns { [NAME] = { a = { "127.0.0.2" } } }
    local gw = gateway(first, origin.port)
    assert.equal("127.0.0.1", gw:request({}).body)
    gw:write("gateway.lua", support.read_file(gw.dir .. "/gateway.lua"):gsub(first.server, second.server), nil)
    assert.equal(0, gw:command("reload").code)
    until_served_by(gw, "127.0.0.2")
    assert.is_true(moved.connections > 0)
  end))

  it("is refused where it is no address", async(function()
    for text, message in pairs { ["dns.test:53"] = "an IP address", ["1.2.3.4:0"] = "port", ["1.2.3"] = "host:port" } do
      local dir = support.tmpdir()
      support.write_file(dir .. "/gateway.lua",
        ('return { resolver = { servers = { %q } }, routes = { { name = "a", path = "/" } } }'):format(text))
      local res = support.tollgate { "check", "-c", dir .. "/gateway.lua" }
      assert.equal(1, res.code)
      assert.matches("resolver.servers%[1%]: .*" .. message, res.out .. res.err)
    end
  end))
end)
