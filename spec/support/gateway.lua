-- The gateway under test: the real binary, in a directory of its own, on free ports. When the run ends it
-- is stopped by SIGTERM and must exit 0, which it only does when no handle, task or Lua reference is left.
-- TOLLGATE_BIN names another binary than build/dev/tollgate.
local json = require "dkjson"
local uv = require "luv"
local files = require "spec.support.files"
local http = require "spec.support.http"
local literal = require "spec.support.literal"
local loop = require "spec.support.loop"
local process = require "spec.support.process"
local prometheus = require "spec.support.prometheus"

local M = { start_ms = 10000, stop_ms = 10000 }

local Gateway = {}
Gateway.__index = Gateway

function M.binary()
  local path = os.getenv("TOLLGATE_BIN") or "build/dev/tollgate"
  return path:sub(1, 1) == "/" and path or uv.cwd() .. "/" .. path
end

--- Runs `tollgate ARGS…` to its end: args list; options env, cwd, stdin, timeout.
-- @return { code, signal, out, err }
function M.tollgate(args, options)
  options = options or {}
  return process.exec { cmd = M.binary(), args = args, env = options.env, cwd = options.cwd, stdin = options.stdin,
    timeout = options.timeout }
end

local function has_plugins(named_files)
  for name in pairs(named_files or {}) do
    if name:match("^plugins/") then return true end
  end
  return false
end

-- A table gets what every gateway of a spec needs, where it does not say otherwise.
local function config_text(options, dir)
  if type(options.config) == "string" then return options.config end
  local config = {}
  for key, value in pairs(options.config) do config[key] = value end
  config.listen = config.listen or "127.0.0.1:0"
  config.admin = config.admin or "127.0.0.1:0"
  config.data_dir = config.data_dir or dir .. "/data"
  config.workers = config.workers or 1
  if config.plugin_path == nil and has_plugins(options.files) then config.plugin_path = { "plugins" } end
  return "return " .. literal.format(config) .. "\n"
end

local function find_ports(self)
  local log = self.log()
  self.port = tonumber(log:match("listening on [%d%.]+:(%d+)"))
  self.admin_port = tonumber(log:match("admin on [%d%.]+:(%d+)"))
  for line in log:gmatch("[^\n]+") do
    if line:match("%f[%w]ready%s*$") and not line:match("not ready") then return true end
  end
  return false
end

local function wait_ready(self)
  local function ready() return find_ports(self) or self.process.exited end
  local ok = pcall(loop.wait_for, ready, "the gateway", M.start_ms)
  if ok and not self.process.exited then return end
  self.given_up = true
  error(("the gateway did not start (%s); stderr:\n%s"):format(
    self.process.exited and "exit code " .. self.process.code or "no line that ends in ready", self.log()), 3)
end

--- Starts a gateway and waits until it is ready.
-- @param options config: text of gateway.lua, or a table (listen, admin, data_dir, workers = 1 and, where `files` has
--   plugins/…, plugin_path are filled in; support.raw(text) puts an expression); files: name → text, written
--   beside it; env: name → value; args: further arguments; dir: an existing directory instead of a new one; bin: another binary
-- @return gw: .port, .admin_port, .pid, .dir, .log(), .access() and the methods below
function M.start(options)
  local dir = options.dir or files.tmpdir()
  for name, text in pairs(options.files or {}) do files.write_file(dir .. "/" .. name, text) end
  files.write_file(dir .. "/gateway.lua", config_text(options, dir))
  local args = { "run", "-c", dir .. "/gateway.lua" }
  for _, arg in ipairs(options.args or {}) do args[#args + 1] = arg end
  local self = setmetatable({ dir = dir }, Gateway)
  self.process = process.start { cmd = options.bin or M.binary(), args = args, env = options.env, cwd = dir }
  self.pid = self.process.pid
  self.log = function() return self.process:err() end
  self.access = function() return self:access_lines() end
  loop.on_end(function(failed)
    if failed and not self.given_up then
      io.stderr:write("--- log of the gateway in this test\n", self.log():sub(-8000), "---\n")
    end
    if self.given_up then return end
    if not failed then return self:stop() end
    self:kill("sigterm")
    self.process:wait(3000)
  end)
  wait_ready(self)
  return self
end

--- The access log so far, as a list of tables.
function Gateway:access_lines()
  local lines = {}
  for line in self.process:out():gmatch("([^\n]+)\n") do
    local entry, _, err = json.decode(line)
    if err then error("the access log has a line that is not JSON: " .. line, 2) end
    lines[#lines + 1] = entry
  end
  return lines
end

--- Waits until the access log has n lines; returns the list.
function Gateway:wait_access(n, limit_ms)
  return loop.wait_for(function()
    local lines = self:access_lines()
    return #lines >= n and lines
  end, n .. " lines of the access log", limit_ms)
end

--- Waits until stderr matches a Lua pattern (or has a plain text); returns the match.
function Gateway:wait_log(pattern, plain, limit_ms)
  return loop.wait_for(function()
    local from, to = self.log():find(pattern, 1, plain)
    return from and self.log():sub(from, to)
  end, "a log line with " .. pattern, limit_ms)
end

--- One exchange with the gateway on a connection of its own; options as for support.request.
function Gateway:request(options)
  return http.request(setmetatable({ port = self.port }, { __index = options }))
end

--- GET on the admin listener.
function Gateway:admin(path)
  return http.request { port = self.admin_port, path = path, host = "127.0.0.1" }
end

--- The samples of /metrics: see support.prometheus.
function Gateway:samples() return prometheus.parse(self:admin("/metrics").body) end

--- The sum of a metric's samples ("tollgate_" is put before its name) that have these labels; 0 where there is none.
function Gateway:metric(name, labels) return prometheus.sum(self:samples(), "tollgate_" .. name, labels) or 0 end

--- Waits until a metric has a value, since what has happened may come a moment later.
function Gateway:wait_metric(name, value, labels)
  local last
  local ok = pcall(loop.wait_for, function()
    last = self:metric(name, labels)
    return last == value
  end)
  if not ok then error(("%s is %s, not %s"):format(name, last, value), 2) end
end

--- What the gateway knows of itself, as a table.
function Gateway:status() return http.json(self:admin("/status")) end

--- The pids of its workers that serve, by place.
function Gateway:workers()
  local pids = {}
  for _, worker in ipairs(self:status().workers) do
    if worker.state == "serving" then pids[#pids + 1] = worker.pid end
  end
  return pids
end

--- Stops the processes of all workers (the master goes on) until resume(); shorter than the watchdog, or they are replaced.
function Gateway:pause()
  self.paused = self:workers()
  for _, pid in ipairs(self.paused) do uv.kill(pid, "sigstop") end
end

function Gateway:resume()
  for _, pid in ipairs(self.paused) do uv.kill(pid, "sigcont") end
end

--- Runs a command (reload, status, …) on this gateway's configuration.
function Gateway:command(name, ...)
  return M.tollgate({ name, "-c", self.dir .. "/gateway.lua", ... }, { timeout = 15000 })
end

function Gateway:connect(limit_ms) return http.connect(self.port, limit_ms) end

--- Writes a file beside gateway.lua.
function Gateway:write(name, text) return files.write_file(self.dir .. "/" .. name, text) end

--- SIGTERM, and the exit code must be 0; raises with the log otherwise.
function Gateway:stop(limit_ms)
  if self.given_up then return end
  self.given_up = true
  self.process:kill("sigterm")
  local code, signal = self.process:wait(limit_ms or M.stop_ms)
  if code == 0 and signal == 0 then return end
  error(("the gateway %s; stderr:\n%s"):format(code and ("ended with code %d, signal %d"):format(code, signal)
    or "did not stop", self.log()), 2)
end

--- Sends a signal; after "sigkill" nothing is asserted about its end.
function Gateway:kill(signal)
  if signal == "sigkill" or signal == "sigterm" then self.given_up = true end
  self.process:kill(signal)
  if signal == "sigkill" then self.process:wait(5000) end
end

return M
