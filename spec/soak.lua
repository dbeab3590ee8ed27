-- See scripts/soak: luajit spec/soak.lua RELOADS
package.path = "./?.lua;./?/init.lua;" .. package.path
local support = require "spec.support"
local rig = require "spec.host.supervision_rig"

local reloads = tonumber(arg[1]) or 1000
local warm_up = math.max(10, math.floor(reloads / 10))
local RSS_SLACK = 2 * 1024 -- kB

local PLUGIN = [[
local tg = require "tollgate"
local M = { version = "1.0.0", priority = 1, schema = {} }
local n
function M.init(conf, state)
  n = state and state.n or 0
  tg.timer.every(0.05, function() n = n + 1 end)
end
function M.stop() return { n = n } end
function M.access() return 200, "v%d" end
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
  local status = support.read_file("/proc/" .. pid .. "/status")
  return { pid = pid, rss = tonumber(status:match("VmRSS:%s*(%d+)")), fds = descriptors(pid), master_fds = descriptors(gw.pid) }
end

local function show(name, f)
  print(("%-10s worker %d: RSS %d kB, %d descriptors; master: %d descriptors"):format(name, f.pid, f.rss, f.fds, f.master_fds))
end

local function soak()
  local gw = rig.start { config = { workers = 1, reload = { watch = false } }, plugin = PLUGIN:format(0) }
  local function reload(from, to)
    for i = from, to do
      gw:write("plugins/answer.lua", PLUGIN:format(i))
      local run = gw:command("reload")
      assert(run.code == 0, run.err)
      assert(rig.body(gw) == "v" .. i, "another generation answers")
    end
  end
  local function loaded(from, to)
    local stop = rig.load(gw, { clients = 4 })
    reload(from, to)
    local f = stop()
    print(("%d requests, %d failed, slowest %.0f ms"):format(f.sent, f.failed, f.slowest))
    assert(f.failed == 0 and f.reopened == 0, table.concat(f.errors, " "))
  end
  loaded(1, warm_up)
  local before = figures(gw)
  show("warmed up", before)
  loaded(warm_up + 1, warm_up + reloads)
  local after = figures(gw)
  show("at the end", after)
  assert(before.pid == after.pid, "the worker was replaced")
  assert(before.fds == after.fds and before.master_fds == after.master_fds, "descriptors are left open")
  assert(after.rss - before.rss <= RSS_SLACK, "memory grows")
end

local ok, err = pcall(support.run, soak, 3600 * 1000)
if not ok then io.stderr:write(tostring(type(err) == "table" and err.message or err), "\n") end
print(ok and "soak: fine" or "soak: failed")
os.exit(ok and 0 or 1)
