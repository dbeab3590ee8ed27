-- Child processes: started with pipes, watched, and killed by their pid when the run that started them
-- ends, whatever happened in between. Output is kept whole.
local uv = require "luv"
local loop = require "spec.support.loop"

local M = {}

local Process = {}
Process.__index = Process

local function environment(overrides)
  local list = {}
  local merged = uv.os_environ()
  for name, value in pairs(overrides or {}) do merged[name] = value end
  for name, value in pairs(merged) do
    if value then list[#list + 1] = name .. "=" .. tostring(value) end
  end
  return list
end

local function collect(pipe, parts, on_end)
  pipe:read_start(loop.callback(function(_, data)
    if data then
      parts[#parts + 1] = data
      return
    end
    loop.close(pipe)
    on_end()
  end))
end

-- A child is over when it has exited and both pipes have ended.
local function part_ended(self)
  self.open = self.open - 1
  if self.open > 0 then return end
  self.over = true
  for _, resume in ipairs(self.waiters) do resume(true) end
end

--- Starts a program: { cmd, args, env (name → value, false unsets), cwd, stdin (text), scope (of loop.scope) }.
-- @return a process: .pid, :out(), :err(), :wait(limit_ms), :kill(signal), .exited, .code, .signal
function M.start(options)
  local stdin, stdout, stderr = uv.new_pipe(false), uv.new_pipe(false), uv.new_pipe(false)
  local self = setmetatable({ out_parts = {}, err_parts = {}, waiters = {}, open = 3, over = false }, Process)
  local handle, pid = uv.spawn(options.cmd, {
    args = options.args, env = environment(options.env), cwd = options.cwd, stdio = { stdin, stdout, stderr },
  }, loop.callback(function(code, signal)
    self.exited, self.code, self.signal = true, code, signal
    loop.close(self.handle)
    part_ended(self)
  end))
  if not handle then
    for _, pipe in ipairs { stdin, stdout, stderr } do loop.close(pipe) end
    error(("start %s: %s"):format(options.cmd, pid), 2)
  end
  self.handle, self.pid = handle, pid
  collect(stdout, self.out_parts, function() part_ended(self) end)
  collect(stderr, self.err_parts, function() part_ended(self) end)
  if options.stdin then stdin:write(options.stdin) end
  stdin:shutdown(function() loop.close(stdin) end)
  loop.on_end(function()
    self:kill("sigkill")
    self:wait(5000)
    for _, pipe in ipairs { stdin, stdout, stderr } do loop.close(pipe) end
  end, options.scope)
  return self
end

function Process:out() return table.concat(self.out_parts) end

function Process:err() return table.concat(self.err_parts) end

--- Waits for the end; the exit code and the signal (0 for none), or nil, "timeout".
function Process:wait(limit_ms)
  if not self.over then
    local ok, err = loop.wait(function(resume) self.waiters[#self.waiters + 1] = resume end, limit_ms or 10000)
    if not ok and not self.exited then return nil, err end
  end
  return self.code, self.signal
end

--- Sends a signal ("sigterm", "sigstop", … or its number); nothing once it has exited.
function Process:kill(signal)
  if not self.exited then uv.kill(self.pid, signal or "sigterm") end
end

--- Runs a program to its end: the options of start and `timeout` (ms, default 10000).
-- @return { code (128 and the signal where one ended it, as shells say), signal, out, err }; raises when it takes longer
function M.exec(options)
  local process = M.start(options)
  local code, signal = process:wait(options.timeout)
  if not code then
    error(("%s did not end in time; stderr:\n%s"):format(options.cmd, process:err()), 2)
  end
  return { code = signal ~= 0 and 128 + signal or code, signal = signal, out = process:out(), err = process:err() }
end

return M
