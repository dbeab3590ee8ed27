-- See scripts/slow: luajit spec/slow.lua modes CONNECTIONS SECONDS | idle N [tls]
package.path = "./?.lua;./?/init.lua;" .. package.path
local support = require "spec.support"
local rig = require "spec.host.proxy_rig"

local BIG = ("x"):rep(1024 * 1024) -- for clients that read slowly: more than the kernel takes for them
local PAUSE_MS = 20                -- between the other client's requests
local PROMPT_MS = 1000             -- what none of them may take, on a machine that the attack shares
local LATE_S = 20                  -- for slowhttptest to end

-- What slowhttptest is told besides the number of connections and the time.
local MODES = {
  { "slow heads", "-H", "-i", "2" },
  { "slow bodies", "-B", "-i", "2", "-s", "1000000" },
  { "ranges", "-R", "-a", "1", "-b", "2000" },
  { "slow reads", "-X", "-k", "3", "-w", "512", "-y", "1024", "-n", "5", "-z", "32" },
}

local function of_status(pid, name)
  return tonumber(support.read_file(("/proc/%d/status"):format(pid)):match(name .. ":%s*(%d+)"))
end

local function start(options)
  options.handler = function(req, conn)
    options.ranges = (options.ranges or 0) + (req.headers.range and 1 or 0)
    conn:respond { body = req.target:match "^/big" and BIG or "hello" }
  end
  options.files = { ["plugins/hello.lua"] = 'return { access = function() return 200, "hello" end }' }
  options.routes = function(url)
    return { { name = "hello", path = "/hello", plugins = { hello = {} } },
      { name = "all", path = "/*", targets = { { url = url } } } }
  end
  options.config = options.config or {}
  options.config.limits = { connections = 20000 }
  local on = rig.start(options)
  for _ = 1, 20 do assert(on.gw:request({}).status == 200) end
  on.pid = on.gw:workers()[1]
  on.before = of_status(on.pid, "VmRSS")
  return on
end

-- Another client's requests until stop() is called: each a process of its own, which takes the time by itself, of a route that
-- the gateway answers by itself, so that this program's own stalls (it is the origin too) are not in it.
local function other_client(gw)
  local load, over, done = { sent = 0, failed = 0, slowest = 0 }, false, false
  support.spawn(function()
    while not over do
      local res = support.exec { cmd = "curl", timeout = 30000, args = { "-s", "-w", " %{time_total}", "--max-time", "20",
        ("http://127.0.0.1:%d/hello"):format(gw.port) } }
      local seconds = tonumber(res.out:match "^hello ([%d.]+)$")
      load.sent = load.sent + 1
      if not seconds then load.failed = load.failed + 1 end
      load.slowest = math.max(load.slowest, (seconds or 0) * 1000)
      support.sleep(PAUSE_MS)
    end
    done = true
  end)
  return function()
    over = true
    support.wait_for(function() return done end, "the other client", 30000)
    return load
  end
end

-- The most connections that slowhttptest had at a time, and how many were closed to it: columns of its own file.
local function counted(path)
  local most, closed = 0, 0
  for line in support.read_file(path):gmatch("[^\n]+") do
    local c, _, open = line:match("^%d+,(%d+),(%d+),(%d+)")
    if c then most, closed = math.max(most, tonumber(open)), math.max(closed, tonumber(c)) end
  end
  return most, closed
end

local function attack(mode, connections, seconds)
  local options = {}
  local on, dir = start(options), support.tmpdir()
  local args = { unpack(mode, 2) }
  for _, arg in ipairs { "-c", connections, "-r", 200, "-l", seconds, "-g", "-o", dir .. "/out", "-v", 1,
    "-u", ("http://127.0.0.1:%d/%s"):format(on.gw.port, mode[2] == "-X" and "big" or "") } do args[#args + 1] = tostring(arg) end
  local stop = other_client(on.gw)
  local run = support.exec { cmd = "slowhttptest", args = args, timeout = (seconds + LATE_S) * 1000 }
  local load = stop()
  assert(on.gw:workers()[1] == on.pid, "the worker was replaced")
  local most, closed = counted(dir .. "/out.csv")
  assert(most > 0, "slowhttptest opened nothing: " .. run.out:sub(-500) .. run.err)
  print(("| %s | %d | %d | %d | %d | %.0f | %d | %d | %d |"):format(mode[1], most, closed, load.sent, load.failed,
    load.slowest, on.before, of_status(on.pid, "VmHWM"), of_status(on.pid, "VmRSS")))
  if options.ranges then print(("(%d requests with Range went to the origin)"):format(options.ranges)) end
  io.stdout:flush()
  assert(load.failed == 0 and load.slowest < PROMPT_MS, "the other client was not served promptly")
end

local function modes(connections, seconds)
  print("| mode | open at a time | closed | other requests | failed | slowest, ms | RSS before, kB | peak | after |")
  print("|---|---|---|---|---|---|---|---|---|")
  for _, mode in ipairs(MODES) do
    support.run(function() attack(mode, connections, seconds) end, (seconds + 90) * 1000)
  end
end

local function idle(n, tls)
  local ca = tls and support.tls.authority()
  local identity = ca and ca:issue { names = { "a.test" } }
  local on = start { config = { listen = { { address = "127.0.0.1:0" },
    identity and { "127.0.0.1:0", tls = { cert = identity.cert, key = identity.key } } or nil } } }
  local port
  for p in on.gw.log():gmatch("listening on [%d%.]+:(%d+)") do port = p end -- TLS is the last
  local client = support.start { cmd = "python3", args = { "spec/slow_idle.py", port, tostring(n), ca and ca.cert } }
  support.wait_for(function() return client.exited or client:out():match "ready" end, "the connections", 300000)
  assert(not client.exited, client:err())
  support.wait_for(function() return on.gw:metric("client_connections") >= n end, "all of them to be there")
  local load = other_client(on.gw)
  support.sleep(3000)
  load = load()
  local after = of_status(on.pid, "VmRSS")
  print(("%d idle connections%s: RSS %d kB, %d kB before: %.2f kB each"):format(n, tls and " over TLS" or "", after, on.before,
    (after - on.before) / n))
  print(("another client meanwhile: %d requests, %d failed, slowest %.0f ms"):format(load.sent, load.failed, load.slowest))
  assert(load.failed == 0, "the other client was not served")
end

local ok, err
if arg[1] == "idle" then
  ok, err = pcall(support.run, function() idle(tonumber(arg[2]), arg[3]) end, 600000)
else
  ok, err = pcall(modes, tonumber(arg[2]), tonumber(arg[3]))
end
if not ok then io.stderr:write("scripts/slow: ", tostring(type(err) == "table" and err.message or err), "\n") end
os.exit(ok and 0 or 1)
