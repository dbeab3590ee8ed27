-- tollgate publish and the plugin reload: all replicas on one Redis load what was published, and publish nothing themselves.
local support = require "spec.support"
local rig = require "spec.host.supervision_rig"

local async = support.async

local VERSION = "cfg:routing:version"

-- plugins/answer.lua answers with its own setting.
local SAYS = [[
return { version = "1.0.0", priority = 1, schema = { says = { type = "string", default = "one" } },
  access = function(conf) return 200, conf.says end }
]]

local function config(redis, more)
  local all = { redis = redis.url, reload = { watch = false }, plugins = { reload = { interval = 0.2 } } }
  for key, value in pairs(more or {}) do all[key] = value end
  return all
end

local function replica(redis, more, plugin)
  return rig.start { config = config(redis, more), plugin = plugin or rig.plugin "one" }
end

local function reload_lines(gw, text) return select(2, gw.log():gsub("reload: " .. text, "")) end

local function follows(gw, version)
  return support.wait_for(function()
    local routing = gw:status().routing
    return type(routing) == "table" and routing.version == version
  end, "version " .. version, 2000)
end

local function answers(gw, text, path)
  return support.wait_for(function() return rig.body(gw, path) == text end, "the answer " .. text, 2000)
end

local function published(gw, ...)
  local run = gw:command("publish", ...)
  assert.equal(0, run.code, run.err)
  return run.out
end

describe("a publish of files", function()
  it("is followed by all replicas, and raises the counter by one", async(function()
    local redis = support.redis()
    local a, b = replica(redis, { workers = 2 }), replica(redis)
    for _, gw in ipairs { a, b } do gw:write("plugins/answer.lua", rig.plugin "two") end
    assert.equal("published version 1\n", published(a))
    for _, gw in ipairs { a, b } do
      follows(gw, 1)
      assert.equal("two", (rig.body(gw)))
      assert.equal(2, gw:status().generation)
    end
    for _, gw in ipairs { a, b } do gw:write("plugins/answer.lua", rig.plugin "three") end
    assert.equal("published version 2\n", published(b))
    for _, gw in ipairs { a, b } do
      follows(gw, 2)
      assert.equal("three", (rig.body(gw)))
    end
    assert.equal("2", redis:must("GET", VERSION))
    assert.equal(2, reload_lines(a, "routing version"))
  end))

  it("is found by polling too, and a replica that missed ten loads once, the newest", async(function()
    local redis = support.redis()
    local gw = replica(redis)
    redis:must("SET", VERSION, "5")
    follows(gw, 5)
    assert.equal(1, gw:status().generation) -- nothing had changed
    gw:write("plugins/answer.lua", rig.plugin "two")
    redis:must("INCRBY", VERSION, 10)
    follows(gw, 15)
    assert.equal("two", (rig.body(gw)))
    assert.equal(2, gw:status().generation)
    assert.equal(2, reload_lines(gw, "routing version"))
    redis:must("DEL", VERSION) -- absent is no version
    support.wait_for(function() return gw:status().routing.published == 0 end, "the absence")
    assert.equal(15, gw:status().routing.version)
    assert.equal(2, reload_lines(gw, "routing version"))
  end))

  it("is refused where the configuration is broken, and publishes nothing", async(function()
    local redis = support.redis()
    local gw = replica(redis)
    gw:write("plugins/answer.lua", "return {")
    local run = gw:command("publish")
    assert.equal(1, run.code)
    assert.matches("answer.lua:1: ", run.err)
    assert.equal("", run.out)
    assert.is_nil(redis:must("GET", VERSION))
    gw:write("plugins/answer.lua", rig.plugin "one")
    run = gw:command("publish", "--rollback")
    assert.equal(1, run.code)
    assert.matches('for routing.source = "redis"', run.err)
    redis:must("SET", VERSION, "many")
    run = gw:command("publish")
    assert.equal(1, run.code)
    assert.matches("holds no version", run.err)
    redis:stop()
    run = gw:command("publish")
    assert.equal(1, run.code)
    assert.matches("^tollgate publish: redis: ", run.err)
  end))

  it("leaves a replica whose own files are broken on what it has, which it says", async(function()
    local redis = support.redis()
    local a, b = replica(redis), replica(redis, { plugins = { reload = { interval = 0.1, stale_after = 1 } } })
    support.wait_for(function() return b:admin("/readyz").status == 200 end, "readiness")
    b:write("plugins/answer.lua", "return {")
    published(a)
    follows(a, 1)
    support.wait_for(function() return b:admin("/readyz").status == 503 end, "staleness")
    assert.matches("routing is stale: version 0 runs", b:admin("/readyz").body)
    local routing = b:status().routing
    assert.same({ 0, 1, true }, { routing.version, routing.published, routing.stale })
    assert.matches("version 1 could not be loaded: .*answer.lua:1: ", routing.problem)
    assert.equal(1, reload_lines(b, "routing version")) -- not at every look
    assert.equal("one", (rig.body(b)))
    support.wait_for(function() return a:admin("/readyz").status == 200 end, "readiness")
    b:write("plugins/answer.lua", rig.plugin "two")
    published(a)
    follows(b, 2)
    assert.equal("two", (rig.body(b)))
    assert.equal(200, b:admin("/readyz").status)
  end))

  it("may be unknown for too long where Redis is away, which status says", async(function()
    local redis = support.redis()
    local gw = replica(redis, { plugins = { reload = { interval = 0.1, stale_after = 1 } } })
    published(gw)
    follows(gw, 1)
    assert.is_false(gw:status().routing.stale)
    redis:stop()
    support.wait_for(function() return gw:status().routing.stale end, "staleness")
    assert.equal(503, gw:admin("/readyz").status)
    assert.equal("one", (rig.body(gw)))
    redis:restart()
    support.wait_for(function() return gw:admin("/readyz").status == 200 end, "readiness", 5000)
    assert.is_false(gw:status().routing.stale)
    assert.equal(1, gw:status().routing.version)
  end))
end)

describe("a policy in Redis", function()
  local function routes(says, more)
    local list = { { name = "all", path = "/*", plugins = { answer = { says = says } } } }
    for _, route in ipairs(more or {}) do list[#list + 1] = route end
    return list
  end

  local function write_routes(gw, redis, says, more, extra)
    local all = config(redis, { routing = { source = "redis" }, routes = routes(says, more), listen = "127.0.0.1:0",
      admin = "127.0.0.1:0", data_dir = gw.dir .. "/data", workers = 1, plugin_path = { "plugins" } })
    for key, value in pairs(extra or {}) do all[key] = value end
    gw:write("gateway.lua", "return " .. support.literal(all) .. "\n")
  end

  local function start(redis, more)
    local all = { routing = { source = "redis" }, routes = routes "one" }
    for key, value in pairs(more or {}) do all[key] = value end
    return replica(redis, all, SAYS)
  end

  it("is taken by all replicas, of which only one has the files", async(function()
    local redis = support.redis()
    local a, b = start(redis), start(redis)
    write_routes(a, redis, "two", { { name = "new", path = "/new", plugins = { answer = { says = "new" } } } })
    assert.equal("published version 1\n", published(a))
    for _, gw in ipairs { a, b } do
      answers(gw, "two")
      assert.equal("new", (rig.body(gw, "/new")))
    end
    local record = redis:must("GET", "cfg:routing:policy:1")
    assert.matches('^{"sha256":"%x+","of":1,"policy":{.*"says":"two".*}}$', record)
    assert.is_nil(record:find("reload", 1, true)) -- each replica's own
    assert.equal(-1, redis:must("TTL", "cfg:routing:policy:1"))

    write_routes(a, redis, "three")
    published(a)
    for _, gw in ipairs { a, b } do answers(gw, "three") end
    assert.equal(-1, redis:must("TTL", "cfg:routing:policy:2"))
    local left = redis:must("TTL", "cfg:routing:policy:1")
    assert.truthy(left > 7 * 86400 - 60 and left <= 7 * 86400)
  end))

  it("goes back by --rollback, one version at a time", async(function()
    local redis = support.redis()
    local gw = start(redis)
    for i, says in ipairs { "a", "b", "c" } do
      write_routes(gw, redis, says)
      assert.equal(("published version %d\n"):format(i), published(gw))
    end
    answers(gw, "c")
    assert.equal("published version 4, the policy of version 2\n", published(gw, "--rollback"))
    answers(gw, "b")
    assert.equal("published version 5, the policy of version 1\n", published(gw, "--rollback"))
    answers(gw, "a")
    local run = gw:command("publish", "--rollback")
    assert.equal(1, run.code)
    assert.matches("there is no policy before", run.err)
    assert.equal("5", redis:must("GET", VERSION))
  end))

  it("outlives a restart without Redis", async(function()
    local redis = support.redis()
    local gw = start(redis)
    write_routes(gw, redis, "two")
    published(gw)
    answers(gw, "two")
    gw:stop()
    write_routes(gw, redis, "of the file")
    redis:stop()
    local again = support.gateway { dir = gw.dir, config = support.read_file(gw.dir .. "/gateway.lua") }
    assert.equal("two", (rig.body(again)))
  end))

  it("is not taken where it is damaged or is not right here", async(function()
    local redis = support.redis()
    local a, b = start(redis), start(redis)
    write_routes(a, redis, "two")
    published(a)
    for _, gw in ipairs { a, b } do answers(gw, "two") end
    local record = redis:must("GET", "cfg:routing:policy:1")
    redis:must("SET", "cfg:routing:policy:2", (record:gsub('"two"', '"bad"')))
    redis:must("SET", VERSION, "2")
    b:wait_log("cfg:routing:policy:2 does not have the checksum", true)
    redis:must("SET", VERSION, "3")
    b:wait_log("cfg:routing:policy:3 is not there", true)
    b:write("plugins/answer.lua", "return { schema = {} }") -- knows no `says`
    write_routes(a, redis, "three")
    published(a)
    answers(a, "three")
    b:wait_log("says", true)
    assert.equal("two", (rig.body(b)))
    support.wait_for(function() return b:status().routing.problem:find "says" end, "the problem in status")
  end))

  it("holds no secret, and what is no plain data is refused", async(function()
    local redis = support.redis()
    local gw = rig.start { plugin = SAYS, env = { WORD = "s3cret word" },
      config = config(redis, { routing = { source = "redis" }, routes = routes "one" }) }
    write_routes(gw, redis, support.raw 'env "WORD" .. env("NONE", "!") .. file "word"')
    gw:write("word", "from a file\n")
    local run = support.tollgate({ "publish", "-c", gw.dir .. "/gateway.lua" }, { env = { WORD = "another" } })
    assert.equal(0, run.code, run.err)
    answers(gw, "s3cret word!from a file")
    local record = redis:must("GET", "cfg:routing:policy:1")
    for _, secret in ipairs { "s3cret", "another", "from a file" } do assert.is_nil(record:find(secret, 1, true)) end

    write_routes(gw, redis, support.raw "function() end")
    run = support.tollgate({ "publish", "-c", gw.dir .. "/gateway.lua" }, { env = { WORD = "another" } })
    assert.equal(1, run.code)
    assert.matches("must be plain data", run.err)
    assert.equal("1", redis:must("GET", VERSION))
  end))
end)

describe("the plugin reload", function()
  it("stands in the gateway's plugins alone", async(function()
    for plugins, message in pairs {
      ["routes"] = "routes[1].plugins.reload: reload serves no route; it belongs into the gateway's own plugins",
      ["twice"] = "plugins.reload[2]: reload may stand only once",
    } do
      local dir = support.tmpdir()
      local conf = { routes = { { name = "a", path = "/*", targets = { { url = "http://127.0.0.1:1" } } } } }
      if plugins == "routes" then conf.routes[1].plugins = { reload = {} } else conf.plugins = { reload = { {}, {} } } end
      support.write_file(dir .. "/gateway.lua", "return " .. support.literal(conf))
      local run = support.tollgate { "check", "-c", dir .. "/gateway.lua" }
      assert.equal(1, run.code)
      assert.truthy(run.err:find(message, 1, true), run.err)
    end
  end))
end)
