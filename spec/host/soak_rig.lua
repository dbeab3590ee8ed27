-- Reloads under load, again and again, and a look at what they leave: for scripts/soak (spec/soak.lua) and, with fewer, for CI.
local support = require "spec.support"
local rig = require "spec.host.supervision_rig"

local M = {}

-- Bytes. A state whose number of strings is near a power of two has its table of strings doubled, or not; what an old
-- generation leaves would be hundreds of kB.
local LUA_SLACK = 65536

-- Each generation has a timer, state to hand over, and another answer. /bytes: the Lua heap without garbage.
local PLUGIN = [[
local tg = require "tollgate"
local M = { version = "1.0.0", priority = 1, schema = {} }
local n
function M.init(conf, state)
  n = state and state.n or 0
  tg.timer.every(0.05, function() n = n + 1 end)
  tg.redis.subscribe("soak", function() end)
end
function M.stop() return { n = n } end
function M.access(conf, ctx)
  if ctx.request.path ~= "/bytes" then return 200, "v%d" end
  collectgarbage() collectgarbage()
  return 200, tostring(collectgarbage "count" * 1024)
end
return M
]]

local function descriptors(pid)
  local n = 0
  local list = io.popen("ls /proc/" .. pid .. "/fd")
  for _ in list:lines() do n = n + 1 end
  list:close()
  return n
end

local function figures(gw)
  support.wait_for(function()
    local worker = gw:status().workers[1]
    return worker.generations == 1 and worker.connections == 0
  end, "the end of old generations and of connections", 10000)
  local pid = gw:workers()[1]
  local bytes = tonumber((rig.body(gw, "/bytes")))
  support.wait_for(function() return gw:status().workers[1].connections == 0 end, "the end of the look's connection", 10000)
  local status = support.read_file("/proc/" .. pid .. "/status")
  return { pid = pid, rss = tonumber(status:match("VmRSS:%s*(%d+)")), fds = descriptors(pid), master_fds = descriptors(gw.pid),
    lua = bytes }
end

--- Starts a gateway of one worker. A sanitizer is not to keep what is freed, which would look like a leak.
function M.start()
  local options = os.getenv "ASAN_OPTIONS"
  return rig.start { env = { ASAN_OPTIONS = (options and options .. ":" or "") .. "quarantine_size_mb=1" },
    config = { workers = 1, reload = { watch = false } }, plugin = PLUGIN:format(0) }
end

--- Reloads gw from version `from` to `to` under load; returns the load's figures, and what the processes have then.
function M.reload(gw, from, to)
  local stop = rig.load(gw, { clients = 4 })
  local ok, err = pcall(function()
    for i = from, to do
      gw:write("plugins/answer.lua", PLUGIN:format(i))
      local run = gw:command("reload")
      assert(run.code == 0, run.err)
      assert(rig.body(gw) == "v" .. i, "another generation answers")
    end
  end)
  local load = stop()
  if not ok then error(err, 0) end
  assert(load.failed == 0 and load.reopened == 0,
    ("%d requests failed, %d connections were closed: %s"):format(load.failed, load.reopened, table.concat(load.errors, " ")))
  return load, figures(gw)
end

--- Raises where `after` shows that something was left since `before`; slack is of RSS, in kB.
function M.compare(gw, before, after, slack)
  assert(before.pid == after.pid, "the worker was replaced")
  assert(before.fds == after.fds, ("the worker has %d descriptors, not %d"):format(after.fds, before.fds))
  assert(before.master_fds == after.master_fds,
    ("the master has %d descriptors, not %d"):format(after.master_fds, before.master_fds))
  assert(math.abs(after.lua - before.lua) < LUA_SLACK, ("Lua holds %d bytes, not %d"):format(after.lua, before.lua))
  assert(after.rss - before.rss <= slack, ("memory grows: %d kB, not %d"):format(after.rss, before.rss))
  assert(not gw.log():find("leak", 1, true), "the log tells of leaks")
end

return M
