-- For specs of plugins, run by `tollgate test`: starts the real gateway with plugins on a route that answers with
-- what it got, and asks it over HTTP.
--
--   local testing = require "tollgate.testing"
--   local gateway = testing.gateway { plugins = { stamp = {} } }
--   local res = gateway:request("GET", "/")
--   gateway:stop()

local M = {}

local process = package.loaded["tollgate.process"]
local tg = require "tollgate"

local ECHO = [[
local tg = require "tollgate"
return { version = "1.0.0", priority = -1000, schema = {}, access = function(_, ctx)
  local headers = {}
  for name, value in ctx.request:each_header() do headers[name:lower()] = value end
  return 200, tg.json.encode { method = ctx.request.method, path = ctx.request.path, query = ctx.request.query,
    headers = headers, body = ctx.request:body() }, { ["content-type"] = "application/json" }
end }
]]

local function write(path, text)
  local file = assert(io.open(path, "wb"))
  file:write(text)
  file:close()
end

-- A Lua literal; tables without functions.
local function literal(value)
  if type(value) == "table" then
    local parts = {}
    for key, item in pairs(value) do
      parts[#parts + 1] = ("[%s] = %s"):format(literal(key), literal(item))
    end
    return "{ " .. table.concat(parts, ", ") .. " }"
  elseif type(value) == "string" then
    return ("%q"):format(value)
  end
  return tostring(value)
end

-- Short, since Unix sockets live in it.
local function temporary()
  local dir = ("%s/tollgate-%s"):format(os.getenv "TMPDIR" or "/tmp", tg.crypto.random(6, "hex"))
  assert(os.execute("mkdir -p '" .. dir .. "/plugins'") == 0, "cannot make a temporary folder")
  return dir
end

local function remove(dir)
  os.execute("rm -rf '" .. dir .. "'")
end

local function absolute(path)
  if path:sub(1, 1) == "/" then
    return path
  end
  local pipe = assert(io.popen("pwd"))
  local here = pipe:read("*l")
  pipe:close()
  return here .. "/" .. path
end

local Gateway = {}
Gateway.__index = Gateway

-- Where the gateway listens, once it serves; an error with its log where it ends instead.
local function wait_ready(self)
  while true do
    local log = self.process:stderr()
    if self.process:code() then
      remove(self.dir)
      error("the gateway did not start:\n" .. log, 3)
    end
    if log:find("ready%s*\n") or log:find("ready%s*$") then
      self.port = tonumber(log:match("listening on [%d.]+:(%d+)"))
      return
    end
    self.process:wait()
  end
end

local function configuration(paths, plugins)
  local chain = { testing_echo = {} }
  for name, conf in pairs(plugins) do
    chain[name] = conf
  end
  return ([[
return {
  listen = "127.0.0.1:0", admin = false, data_dir = "data", workers = 1, plugin_path = %s, log = { access = false },
  routes = { { name = "test", path = "/*", plugins = %s } },
}
]]):format(literal(paths), literal(chain))
end

--- Starts a gateway.
-- @tparam table options `plugins`: name → conf, on the route "test" at /* of a gateway with one worker; or `config`: text
-- of a whole gateway.lua with listen = "127.0.0.1:0". `plugin_path`: folders, default { "plugins" }. `files`: name →
-- text, put beside gateway.lua.
-- @treturn table gateway; raises with the gateway's log where it refuses to start
function M.gateway(options)
  local dir = temporary()
  local paths = {}
  for i, path in ipairs(options.plugin_path or { "plugins" }) do
    paths[i] = absolute(path)
  end
  paths[#paths + 1] = dir .. "/plugins"
  write(dir .. "/plugins/testing_echo.lua", ECHO)
  for name, text in pairs(options.files or {}) do
    write(dir .. "/" .. name, text)
  end
  write(dir .. "/gateway.lua", options.config or configuration(paths, options.plugins or {}))
  local self = setmetatable({ dir = dir }, Gateway)
  self.process = assert(process.start { "/proc/self/exe", "run", "-c", dir .. "/gateway.lua", stdout = false })
  wait_ready(self)
  return self
end

--- Asks the gateway. Arguments and results are those of tg.http.request, the URL being a path.
function Gateway:request(method, path, options)
  local opts = { method = method }
  for key, value in pairs(options or {}) do
    opts[key] = value
  end
  return tg.http.request(("http://127.0.0.1:%d%s"):format(self.port, path), opts)
end

--- What the gateway has logged so far. A line comes a moment after what it tells of: see wait_log.
function Gateway:log()
  return self.process:stderr()
end

--- Waits until the log has a text; raises with the log where it does not come.
-- @tparam string text plain, no pattern
-- @tparam[opt=5] number seconds
function Gateway:wait_log(text, seconds)
  local last = tg.now() + (seconds or 5)
  while not self:log():find(text, 1, true) do
    if tg.now() > last then
      error(("the log does not have %q:\n%s"):format(text, self:log()), 2)
    end
    tg.timer.sleep(0.01)
  end
end

--- Stops the gateway and raises where it left something open or failed.
function Gateway:stop()
  self.process:kill(15)
  while not self.process:code() do
    self.process:wait()
  end
  remove(self.dir)
  if self.process:code() ~= 0 then
    error(("the gateway ended with code %d:\n%s"):format(self.process:code(), self:log()), 2)
  end
end

return M
