-- The gateway killed at each of its Redis commands: a scenario is run again and again, and in run n the n-th command that the
-- gateway sends is the last thing that it does. Each n comes twice, since nobody can know which of both happened: "unsent" (the
-- command never reaches Redis) and "unread" (Redis runs it, its reply is lost). It ends with the first run that has no n-th
-- command, which must go well. What has to hold behind each run is that every key has a lifetime, and what the spec adds.
--
-- A kill is kill -9 of workers and master in the moment in which the command arrives at the proxy before Redis; other
-- commands that were under way on other connections are lost, or not, as they would be.
local uv = require "luv"
local loop = require "spec.support.loop"
local proxy = require "spec.support.proxy"

local M = {}

--- Raises where a key would live for ever; `cfg:routing:*` may.
function M.assert_lifetimes(redis, what)
  for key, entry in pairs(redis:dump()) do
    if entry.expires_at < 0 and not key:match("^cfg:routing:") then
      error(("%s has no lifetime%s"):format(key, what and ", " .. what or ""), 2)
    end
  end
end

local function kill(self)
  self.killed, self.gw.given_up = true, true
  for _, pid in ipairs(self.pids) do uv.kill(pid, "sigkill") end
  self.gw.process:kill("sigkill")
end

local function on_command(self, args, link)
  if self.killed then return "drop" end -- what the dead had written already
  if not self.pids then return end
  self.commands = self.commands + 1
  self.seen[self.commands] = tostring(args[1])
  if self.commands ~= self.n then return end
  kill(self)
  if self.how == "unsent" then return "drop" end
  self.link, self.due = link, link.count.up
end

-- The command that was the last has run; or it never will, where the gateway died with replies unread: then its end is a
-- reset, which may have overtaken the command.
local function wait_run(self)
  local function ran() return not self.link or self.link.count.down >= self.due or self.link.server.closed end
  loop.wait_for(ran, "Redis's reply to the last command")
end

local function run_once(options, n, how)
  local self = { n = n, how = how, killed = false, commands = 0, seen = {} }
  local p = proxy.start { to = options.redis.socket, resp = true }
  p:on_command(function(args, link) return on_command(self, args, link) end)
  self.gw = options.start("redis://127.0.0.1:" .. p.port .. "/0")
  -- Counts once Redis is usable: what the gateway sends before that is not its requests' doing.
  loop.wait_for(function() return self.gw:admin("/readyz").status == 200 end, "a ready gateway")
  self.pids = self.gw:workers()
  local ok, err = pcall(options.run, self.gw)
  if ok and not self.killed then ok, err = pcall(self.gw.stop, self.gw) end
  if not ok and not self.killed then error(err, 0) end
  self.gw.process:wait(5000)
  wait_run(self)
  p:close()
  local what = self.killed and ("killed at command %d (%s, %s)"):format(n, self.seen[n], how) or "not killed"
  M.assert_lifetimes(options.redis, what)
  if options.check then options.check(self.killed, what) end
  return self
end

--- Runs a scenario until it has been killed at each of its Redis commands.
-- @param options redis (of support.redis; emptied before each run), start(url) starts a gateway on that Redis and returns it,
--   run(gw) is the scenario, behind which the gateway is stopped (errors count only where it was not killed), check(killed,
--   what) looks at what is left behind; these may wait
-- @return how many commands the scenario has
function M.each(options)
  local n = 0
  while true do
    n = n + 1
    for _, how in ipairs { "unsent", "unread" } do
      options.redis:must("FLUSHALL")
      local done = run_once(options, n, how)
      if not done.killed then return done.commands end
    end
  end
end

return M
