-- The command line: what check tells and prints, run's refusals, key new, version, help, and what makes no sense (exit code 2).
local support = require "spec.support"
local rig = require "spec.host.plugin_rig"
local async = support.async

local function check(options) return rig.try("check", options) end

-- The faults that check tells of a configuration's text.
local function faults(text, env)
  local res = check { plugins = {}, text = text, env = env }
  assert.same({ 1, "" }, { res.code, res.out })
  local run = rig.try("run", { plugins = {}, text = text, env = env })
  assert.same({ 1, res.err }, { run.code, run.err })
  return res.err
end

local one_route = 'routes = { { name = "r", path = "/*" } }'

describe("tollgate check", function()
  it("says so where there are no faults, and starts nothing", async(function()
    local res = check { plugins = {}, text = "return { data_dir = 'data', " .. one_route .. " }" }
    assert.same({ 0, "", "DIR/gateway.lua: 1 routes, no faults\n" }, { res.code, res.err, res.out })
    assert.is_nil(io.open(res.dir .. "/data"))
  end))

  it("tells every fault at once, each with its path", async(function()
    local err = faults [[ return { lisen = "0.0.0.0:80", admin = "nowhere", timeouts = { head = -1 }, log = { level = "inof" },
      routes = { { name = "a", path = "a" }, { name = "b", path = "/b", methods = { "get" }, targets = { { url = "ftp://x" } } },
        { path = "/c" } } } ]]
    local lines = {}
    for line in err:gmatch("[^\n]+") do lines[line:match("^([^:]*):")] = line end
    for path, text in pairs { lisen = "unknown key %(did you mean listen%?%)", admin = "host:port", ["timeouts.head"] = "above 0",
      ["log.level"] = 'did you mean "info"', ["routes[1].path"] = 'must begin with "/"', ["routes[2].methods[1]"] = "upper case",
      ["routes[2].targets[1].url"] = "must begin with http://", ["routes[3].name"] = "is required" } do
      assert.matches(text, lines[path] or path .. " is missing: " .. err)
    end
  end))

  it("tells a missing file, a syntax error, an error and a wrong name with the line", async(function()
    local res = support.tollgate { "check", "-c", "/none/gateway.lua" }
    assert.equal(1, res.code)
    assert.matches("^/none/gateway%.lua: .*No such file", res.err)
    assert.matches("^DIR/gateway%.lua:2: .*near '='\n$", faults "return {\n  = oops }")
    assert.matches("^DIR/gateway%.lua:2: boom\n$", faults "\nerror 'boom'")
    assert.matches("^DIR/gateway%.lua:1: unknown name evn %(did you mean env%?%)\n$", faults "return { admin = evn 'X' }")
    assert.equal("DIR/gateway.lua: must return a table, got nil\n", faults "local x = 1")
  end))

  it("tells all variables and files that are missing", async(function()
    local err = faults('return { a = env "TG_NONE_A",\n b = file "none.txt", c = env "TG_NONE_B" }')
    assert.matches("DIR/gateway%.lua:1: the environment variable TG_NONE_A is not set\n", err)
    assert.matches("DIR/gateway%.lua:2: the file DIR/none%.txt cannot be read", err)
    assert.matches("DIR/gateway%.lua:2: the environment variable TG_NONE_B is not set\n", err)
  end))

  it("repeats no secret in a fault, however the message has it", async(function()
    local long = "sk-" .. ("abcdefghij"):rep(9)
    for _, secret in ipairs { "sk-secret-1", long, 'sk-"quoted"\nand more' } do
      local err = faults('return { log = { level = env "TG_S" }, ' .. one_route .. " }", { TG_S = secret })
      assert.matches("^log%.level: must be one of .*%*%*%*", err)
      assert.is_nil(err:find("sk-", 1, true))
    end
  end))
end)

describe("tollgate check --print", function()
  it("shows the effective configuration, which is one again, with secrets masked", async(function()
    local plugin = [[ return { schema = { token = { type = "string", secret = true },
      n = { type = "integer", default = 5 } } } ]]
    local text = [[ return { plugin_path = { "plugins" }, redis = "redis://user:pw-redis@127.0.0.1:6379/1",
      plugins = { own = { token = "plain-token" } },
      routes = { { name = "r", path = "/v1/chat/completions", targets = { { url = "http://127.0.0.1:9",
        headers = { authorization = "Bearer " .. env "TG_KEY", ["x-file"] = file "secret.txt",
          ["x-plain"] = "written-here" } } } } } } ]]
    local res = check { plugins = { own = plugin }, text = text, files = { ["secret.txt"] = "file-secret\n" },
      env = { TG_KEY = "sk-env-secret" }, args = { "--print" } }
    assert.same({ 0, "" }, { res.code, res.err })
    for _, secret in ipairs { "pw-redis", "plain-token", "sk-env-secret", "file-secret", "written-here" } do
      assert.is_nil(res.out:find(secret, 1, true), secret)
    end
    local conf = assert(loadstring(res.out))()
    assert.equal("redis://***@127.0.0.1:6379/1", conf.redis.url)
    assert.same({ token = "***", n = 5, on_error = "fail" }, conf.plugins.own)
    assert.same({ authorization = "***", ["x-file"] = "***", ["x-plain"] = "***" }, conf.routes[1].targets[1].headers)
    assert.same({ "openai-chat", 300, 10 * 1024 * 1024 },
      { conf.routes[1].api, conf.routes[1].timeouts.first_byte, conf.routes[1].limits.body })
    assert.equal(0, check({ plugins = { own = plugin }, text = (res.out:gsub("DIR", res.dir)) }).code)
  end))
end)

describe("tollgate key new", function()
  local function key(...) return support.tollgate { "key", "new", ... } end

  it("prints the secret alone on the first line and a record that keys.jsonl takes on the second", async(function()
    local res = key("--id", 'a"b é', "--tenant", "t", "--plan", "p", "--rps", "0.1", "--burst", "5",
      "--monthly-tokens", "1000000", "--concurrency", "3", "--route", "r", "--route", "other")
    assert.equal(0, res.code)
    local secret, record = res.out:match("^([%w_-]+)\n({[^\n]*})\n$")
    assert.is_true(#secret >= 32)
    assert.is_nil(record:find(secret, 1, true))
    assert.is_nil(res.err:find(secret, 1, true))
    assert.same({ id = 'a"b é', secret_sha256 = support.sha256(secret), tenant = "t", plan = "p", rps = 0.1, burst = 5,
      monthly_tokens = 1000000, concurrency = 3, routes = { "r", "other" } }, support.decode(record))
    local gw = rig.start { plugins = { who = [[ return { access = function(_, ctx) return 200, ctx.consumer.id end } ]] },
      files = { ["keys.jsonl"] = record .. "\n" },
      routes = { { name = "r", path = "/*", plugins = { auth = { keys = "keys.jsonl" }, who = {} } } } }
    assert.equal('a"b é', gw:request({ headers = { authorization = "Bearer " .. secret } }).body)
    assert.equal(401, gw:request({ headers = { authorization = "Bearer " .. secret .. "x" } }).status)
  end))

  it("makes another secret each time", async(function()
    assert.not_equal(key("--id", "a").out:match("^[^\n]+"), key("--id", "a").out:match("^[^\n]+"))
  end))

  it("refuses what keys.jsonl would refuse, and then prints no secret", async(function()
    for _, args in ipairs { {}, { "--id", "" }, { "--id" }, { "--id", "a", "--rps", "x" }, { "--id", "a", "--rps", "-1" },
      { "--id", "a", "--rps", "0" }, { "--id", "a", "--rps", "inf" }, { "--id", "a", "--rps", "0x10" },
      { "--id", "a", "--burst", "0.5" }, { "--id", "a", "--monthly-tokens", "1.5" },
      { "--id", "a", "--concurrency", "1e30" }, { "--id", "a", "--rps", "1", "--rps", "2" }, { "--id", ("a"):rep(200) },
      { "--id", "a", "--unknown", "1" } } do
      local res = key(unpack(args))
      assert.same({ table.concat(args, " "), 2, "" }, { table.concat(args, " "), res.code, res.out })
      assert.matches("^tollgate key new: ", res.err)
    end
    assert.equal(2, support.tollgate({ "key" }).code)
    assert.equal(2, support.tollgate({ "key", "old" }).code)
  end))
end)

describe("version, help and nonsense", function()
  it("version and help are on stdout, exit code 0", async(function()
    for _, name in ipairs { "version", "--version" } do
      local res = support.tollgate { name }
      assert.same({ 0, "" }, { res.code, res.err })
      assert.matches("^tollgate %d+%.%d+%.%d+\n$", res.out)
    end
    for _, name in ipairs { "help", "--help", "-h" } do
      local res = support.tollgate { name }
      assert.same({ 0, "" }, { res.code, res.err })
      for _, command in ipairs { "run", "check", "usage", "key new", "version", "--json" } do
        assert.is_truthy(res.out:find(command, 1, true), command)
      end
    end
  end))

  it("help tells of each command that it lists, as --help behind it does", async(function()
    local list = support.tollgate({ "help" }).out
    local n = 0
    for name in list:gmatch "\n  (%l[%l ]-)  " do
      local words = {}
      for word in name:gmatch "%S+" do words[#words + 1] = word end
      local res = support.tollgate { "help", unpack(words) }
      assert.same({ 0, "" }, { res.code, res.err })
      assert.is_truthy(res.out:find("tollgate " .. name, 1, true))
      assert.equal(res.out:find("\n  --json ", 1, true) ~= nil, res.out:find("With --json:", 1, true) ~= nil, name)
      if name ~= "exec" and name ~= "test" then -- whose arguments are not ours
        words[#words + 1] = "--help"
        assert.same(res, support.tollgate(words))
      end
      n = n + 1
    end
    assert.is_true(n >= 15, n)
    assert.matches("%-%-print +shows the effective", support.tollgate({ "help", "check" }).out)
    assert.matches('\n  With %-%-json:\n  {"config", "routes": ', support.tollgate({ "help", "check" }).out)
  end))

  it("what makes no sense: exit code 2, stdout empty, the reason on stderr", async(function()
    for args, reason in pairs {
      [{}] = "a gateway that runs Lua plugins", [{ "rnu" }] = "no command 'rnu'",
      [{ "run", "--frob" }] = "unknown option %-%-frob",
      [{ "check", "extra" }] = "unexpected argument extra", [{ "check", "-c" }] = "a file is missing behind %-c",
      [{ "check", "--json", "--print" }] = "does not go with", [{ "run", "--print" }] = "unknown option",
      [{ "status", "--color", "blue" }] = "must be one of auto|always|never",
      [{ "run", "--json=x" }] = "unknown option",
      [{ "help", "nothing" }] = "no command 'nothing'", [{ "key" }] = "the command is: tollgate key new",
      [{ "key", "old" }] = "the command is: tollgate key new", [{ "completion", "tcsh" }] = "name the shell",
      [{ "usage", "a", "b" }] = "unexpected argument b", [{ "usage", "--print", "a" }] = "unknown option",
    } do
      local res = support.tollgate(args)
      assert.same({ 2, "" }, { res.code, res.out })
      assert.matches(reason, res.err)
    end
  end))
end)

describe("tollgate run", function()
  it("on an address that is taken ends with code 1 and names it", async(function()
    local server = support.server(function() end)
    local text = ("return { listen = '127.0.0.1:%d', admin = false, redis = 'redis://127.0.0.1:1', %s }")
      :format(server.port, one_route)
    local res = rig.try("run", { plugins = {}, text = text })
    assert.equal(1, res.code)
    assert.matches("cannot listen on 127%.0%.0%.1:" .. server.port .. ": address already in use", res.err)
  end))
end)
