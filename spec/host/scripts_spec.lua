-- Redis scripts are part of what a reload tries: a worker that starts later runs what was taken, whatever the
-- disk says by then.
local uv = require "luv"
local support = require "spec.support"

local async = support.async

-- A gateway whose files that ship are in a folder of its own.
local function start(redis)
  local home = support.tmpdir()
  for _, name in ipairs { "admit", "settle", "heal" } do
    local path = "/scripts/redis/" .. name .. ".lua"
    support.write_file(home .. path, support.read_file("." .. path))
  end
  assert(os.execute("cp -r plugins " .. home) == 0)
  local gw = support.gateway {
    env = { TOLLGATE_HOME = home },
    config = { redis = redis.url, reload = { watch = false },
      plugin_path = { "own" },
      routes = { { name = "a", path = "/*", plugins = { quota = { rps = 1000, burst = 1000 }, own = {} } } } },
    files = {
      ["own/own/init.lua"] = [[
        local tg = require "tollgate"
        local script = tg.redis.script "say"
        return { version = "1", schema = {}, access = function() return 200, script:run({}, {}) end } ]],
      ["own/own/say.lua"] = "return 'first'",
    },
  }
  return gw, home
end

local function restart_worker(gw)
  local before = gw:workers()[1]
  uv.kill(before, "sigkill")
  support.wait_for(function()
    local now = gw:workers()[1]
    return now and now ~= before
  end, "another worker")
end

it("a worker that restarts runs the scripts that were taken; a reload takes those of plugins anew", async(function()
  local redis = support.redis()
  local gw, home = start(redis)
  local function ask()
    local res = gw:request { path = "/" }
    return res.status, res.body
  end
  local function answers() return (select(2, ask())) end
  assert.same({ 200, "first" }, { ask() })
  support.write_file(home .. "/scripts/redis/admit.lua", "return redis.error_reply('CHANGED')")
  gw:write("own/own/say.lua", "return 'second'")
  restart_worker(gw)
  support.wait_for(function() return answers() == "first" end, "the first script")
  assert.same({ 200, "first" }, { ask() })

  local run = gw:command("reload")
  assert.equal(0, run.code, run.err)
  assert.matches("serves", run.out)
  assert.equal("second", answers())
  os.remove(home .. "/scripts/redis/heal.lua")
  run = gw:command("reload")
  assert.equal(1, run.code)
  assert.matches("scripts/redis/heal.lua: no such file", run.err)
  assert.equal("second", answers())
end))
