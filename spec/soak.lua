-- See scripts/soak: luajit spec/soak.lua RELOADS
package.path = "./?.lua;./?/init.lua;" .. package.path
local support = require "spec.support"
local rig = require "spec.host.soak_rig"

local reloads = tonumber(arg[1]) or 1000
local warm_up = math.max(10, math.floor(reloads / 10))
local RSS_SLACK = 2 * 1024 -- kB

local function show(name, load, f)
  print(("%-10s %d requests, %d failed, slowest %.0f ms"):format(name, load.sent, load.failed, load.slowest))
  print(("%-10s worker %d: RSS %d kB, Lua %d bytes, %d descriptors; master: %d descriptors"):format("", f.pid, f.rss, f.lua,
    f.fds, f.master_fds))
end

local function soak()
  local gw = rig.start()
  local load, before = rig.reload(gw, 1, warm_up)
  show("warmed up", load, before)
  local after
  load, after = rig.reload(gw, warm_up + 1, warm_up + reloads)
  show("at the end", load, after)
  rig.compare(gw, before, after, RSS_SLACK)
end

local ok, err = pcall(support.run, soak, 3600 * 1000)
if not ok then io.stderr:write(tostring(type(err) == "table" and err.message or err), "\n") end
print(ok and "soak: fine" or "soak: failed")
os.exit(ok and 0 or 1)
