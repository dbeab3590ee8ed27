-- What the specs of supervision share: gateways with a plugin that answers, and looks at their processes.
local uv = require "luv"
local support = require "spec.support"

local M = {}

--- The text of a plugin that answers every request with `says` and what `more` (Lua) does before.
function M.plugin(says, more)
  return ([[
local M = { version = "1.0.0", priority = 1, schema = {} }
function M.access(conf, ctx)
  %s
  return 200, %q
end
return M
]]):format(more or "", says)
end

--- Starts a gateway whose only route is answered by plugins/answer.lua; options: config (merged in), plugin (its text), files.
function M.start(options)
  local config = { routes = { { name = "all", path = "/*", plugins = { answer = {} } } } }
  for key, value in pairs(options.config or {}) do config[key] = value end
  local files = { ["plugins/answer.lua"] = options.plugin or M.plugin "one" }
  for name, text in pairs(options.files or {}) do files[name] = text end
  return support.gateway { config = config, files = files, env = options.env }
end

function M.body(gw, path)
  local res, err = gw:request { path = path or "/" }
  assert(res, err)
  return res.body, res.status
end

-- A process that has ended may wait for somebody to ask how.
function M.alive(pid)
  local stat = support.read_file("/proc/" .. pid .. "/stat")
  return stat ~= nil and stat:match("%) (%a)") ~= "Z"
end

--- All processes whose command line or working directory lies in the gateway's directory.
function M.processes(gw)
  local pids = {}
  for line in io.popen("ps -eo pid=,args="):lines() do
    local pid, args = line:match("^%s*(%d+)%s+(.*)$")
    if args:find(gw.dir, 1, true) then pids[#pids + 1] = tonumber(pid) end
  end
  return pids
end

--- Requests on new connections (every second client: on one that is kept) until stop() is called; returns stop, which gives
-- the figures. A kept connection that was closed between two requests is opened again, as every client does; it is counted.
function M.load(gw, options)
  options = options or {}
  local figures = { sent = 0, failed = 0, reopened = 0, slowest = 0, bodies = {}, errors = {} }
  local stopped = false
  local tasks = {}
  local function one(conn, fresh)
    local begun = uv.hrtime()
    local res, err
    if conn then
      res, err = conn:request { path = "/" }
    else
      res, err = gw:request { path = "/" }
    end
    if conn and not res and not fresh then return "closed" end
    local took = (uv.hrtime() - begun) / 1e6
    figures.sent = figures.sent + 1
    figures.slowest = math.max(figures.slowest, took)
    if res and res.status == 200 then
      figures.bodies[res.body] = (figures.bodies[res.body] or 0) + 1
    else
      figures.failed = figures.failed + 1
      figures.errors[#figures.errors + 1] = tostring(err or res.status)
    end
  end
  for i = 1, options.clients or 4 do
    tasks[i] = support.spawn(function()
      local conn = i % 2 == 0 and gw:connect() or nil
      while not stopped do
        if one(conn) == "closed" then
          figures.reopened = figures.reopened + 1
          conn:close()
          conn = gw:connect()
          one(conn, true)
        end
        support.sleep(options.pause or 2)
      end
      if conn then conn:close() end
    end)
  end
  return function()
    stopped = true
    for _, task in ipairs(tasks) do task:join() end
    return figures
  end
end

return M
