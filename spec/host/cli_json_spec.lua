-- --json: one value on stdout where a command went well, { "error": … } on stderr where it did not, with the same exit code.
local support = require "spec.support"
local rig = require "spec.host.supervision_rig"
local async = support.async

local function told(run)
  assert.same({ 0, "" }, { run.code, run.err })
  assert.matches("^[^\n]*\n$", run.out)
  return support.decode(run.out)
end

local function failed(run, code)
  assert.same({ code or 1, "" }, { run.code, run.out })
  assert.matches("^[^\n]*\n$", run.err)
  local value = support.decode(run.err)
  local names = {}
  for name in pairs(value) do names[#names + 1] = name end
  assert.same({ "error" }, names)
  return value.error
end

describe("--json", function()
  it("of check: how many routes, warnings, and what a gateway that runs would not take; or the faults", async(function()
    local gw = rig.start {}
    local value = told(gw:command("check", "--json"))
    assert.same({ config = gw.dir .. "/gateway.lua", routes = 1, warnings = {}, restart = {} }, value)
    gw:write("gateway.lua", (support.read_file(gw.dir .. "/gateway.lua"):gsub("workers = 1", "workers = 2")))
    assert.same({ "workers" }, told(gw:command("check", "--json")).restart)
    gw:write("gateway.lua", "return { lisen = 1, routes = {} }")
    assert.matches("lisen: unknown key", failed(gw:command("check", "--json")))
  end))

  it("of reload and upgrade: a message; or what is wrong", async(function()
    local gw = rig.start { config = { reload = { watch = false } } }
    assert.equal("string", type(told(gw:command("reload", "--json")).message))
    assert.same({ message = "upgraded" }, told(gw:command("upgrade", "--json")))
    gw:write("plugins/answer.lua", "return {")
    assert.matches("answer.lua:1: ", failed(gw:command("reload", "--json")))
    assert.matches("answer.lua:1: ", failed(gw:command("upgrade", "--json")))
  end))

  it("of key new and version", async(function()
    local value = told(support.tollgate { "key", "new", "--json", "--id", "a", "--rps", "5" })
    assert.same({ id = "a", rps = 5, secret_sha256 = support.sha256(value.secret) }, value.record)
    assert.matches("^%d+%.%d+%.%d+$", told(support.tollgate { "version", "--json" }).version)
  end))

  it("of a command line that makes no sense, wherever --json stands in it", async(function()
    for fault, args in pairs {
      ["unknown option --frob (tollgate help status tells what there is)"] = { "status", "--frob", "--json" },
      ["unexpected argument b (tollgate help usage tells what there is)"] = { "usage", "--json", "a", "b" },
      ["--id ID is required, and not empty"] = { "key", "new", "--json" },
      ["not a number: x (tollgate help key new tells what there is)"] = { "key", "new", "--rps", "x", "--json" },
      ["the name of a plugin is missing"] = { "plugin", "--json" },
      ["the name of the plugin is missing"] = { "new", "plugin", "--json" },
      ["must be one of auto|always|never (tollgate help usage tells what there is)"] = { "usage", "--color=x", "--json" },
    } do
      assert.equal(fault, failed(support.tollgate(args), 2))
    end
    assert.matches("^no such record: ", failed(support.tollgate { "key", "new", "--id", "a", "--rps", "-1", "--json" }, 2))
  end))

  it("of publish: the version, and whose policy it is; or why not", async(function()
    local redis = support.redis()
    local dir = support.tmpdir()
    local text = 'return { redis = %q, routing = { source = "redis" }, routes = { { name = "r", path = "/*", '
      .. 'targets = { { url = "http://127.0.0.1:1" } } } } }'
    support.write_file(dir .. "/gateway.lua", text:format(redis.url))
    local function publish(...) return support.tollgate { "publish", "-c", dir .. "/gateway.lua", "--json", ... } end
    assert.same({ version = 1 }, told(publish()))
    support.write_file(dir .. "/gateway.lua", text:format(redis.url):gsub("/%*", "/x/*"))
    assert.same({ version = 2 }, told(publish()))
    assert.same({ version = 3, policy_of = 1 }, told(publish "--rollback"))
    redis:stop()
    assert.matches("^redis: ", failed(publish()))
  end))

  it("of what asks a gateway, where none runs", async(function()
    local dir = support.tmpdir()
    support.write_file(dir .. "/gateway.lua", 'return { routes = { { name = "a", path = "/*" } } }')
    for _, name in ipairs { "status", "reload", "upgrade", "breaker" } do
      assert.matches("no gateway runs", failed(support.tollgate { name, "--json", "-c", dir .. "/gateway.lua" }))
    end
    local usage = support.tollgate { "usage", "--json", "-c", dir .. "/gateway.lua" }
    assert.matches("has the gateway been started", failed(usage))
  end))
end)
