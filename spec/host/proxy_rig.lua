-- What the specs of the proxy share: one gateway in front of one scripted origin, without Redis (nothing listens on
-- port 1), since no limit is enforced here. A handler is replaced per test by `on.origin.handler = …`.
local support = require "spec.support"

local M = {}

local function over(base, fields)
  for key, value in pairs(fields or {}) do base[key] = value end
  return base
end

-- The routes of a gateway: `options.routes(url)` gives all of them, else there is one with the fields of `options.route`.
local function routes(options, url)
  if options.routes then return options.routes(url) end
  local route = over({ name = "all", path = "/*" }, options.route)
  if route.targets == nil then route.targets = { over({ url = options.target or url }, options.set) } end
  return { route }
end

-- Under the address sanitizer, freed memory stays for a while, which would be taken for growth.
local measured = { ASAN_OPTIONS = (os.getenv "ASAN_OPTIONS" or "") .. ":quarantine_size_mb=0:thread_local_quarantine_size_kb=0" }

--- Starts an origin and a gateway before it: { handler, origin (options of support.origin), route, set (fields of the
-- target), target (its URL), routes, config, files, measured (its memory will be looked at) }.
-- @return { gw, origin }
function M.start(options)
  local origin = support.origin(options.handler or M.hello, options.origin)
  local config = over({ redis = "redis://127.0.0.1:1", routes = routes(options, origin.url) }, options.config)
  return { origin = origin, gw = support.gateway {
    config = config, files = options.files, args = options.args, env = options.measured and measured,
  } }
end

--- The same for all tests of a block: `local on, up, down = rig.shared {…}; setup(up); teardown(down)`.
function M.shared(options)
  local on = {}
  local up, down = support.shared(function() over(on, M.start(options)) end)
  return on, up, down
end

function M.hello(_, conn) conn:respond { body = "hello" } end

--- Sends raw bytes on a connection of its own and reads one answer.
-- @return the connection, the answer (or nil, reason, part)
function M.raw(gw, bytes, options)
  local c = gw:connect()
  c:send(bytes)
  return c, c:read_response(options)
end

--- Answers raw bytes to whatever comes, then closes or, with `stay`, waits for the other side.
function M.raw_handler(bytes, stay)
  return function(_, conn)
    conn:write(bytes)
    if stay then conn:wait_closed() else conn:close() end
  end
end

--- kB of memory that the worker holds (of one; the master serves nothing).
function M.rss(gw)
  return tonumber(support.read_file("/proc/" .. gw:workers()[1] .. "/status"):match("VmRSS:%s*(%d+)"))
end

--- How many descriptors the worker has open.
function M.descriptors(gw)
  local n = 0
  for _ in io.popen("ls /proc/" .. gw:workers()[1] .. "/fd"):lines() do n = n + 1 end
  return n
end

return M
