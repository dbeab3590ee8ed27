-- The part `log` of a configuration: where the access log goes, what its lines are, and which are kept.

local values = require "tollgate.config_values"
local text = require "tollgate.schema_text"

local M = {}

local SYSLOG = "/dev/log"
local NAME = "^[%w_.-]+$"

-- Where lines go, in the words of the log writer: "stdout", "file PATH", "unix PATH", "udp HOST PORT".
local function target(to, dir)
  local path = to:match("^file:(.+)$")
  if path then
    if path:find("%c") then return nil, "the path holds a control character" end
    return "file " .. text.resolve(dir, path)
  end
  local peer = to:match("^syslog:(.*)$")
  if not peer then
    if to == "stdout" then return to end
    return nil, 'must be "stdout", "file:PATH", "syslog:" or "syslog:HOST:PORT"'
  end
  if peer == "" or peer:sub(1, 1) == "/" then
    if #peer > 107 or peer:find("%c") then return nil, "the path of the socket is longer than 107 bytes, or no path" end
    return "unix " .. (peer == "" and SYSLOG or peer)
  end
  local address, err = values.address(peer)
  if not address then return nil, err end
  if address.port == 0 then return nil, "the port must be a number from 1 to 65535" end
  return ("udp %s %d"):format(address.host, address.port)
end

local function check_target(to)
  local _, err = target(to)
  return err
end

-- A status, or a class of them, as its bounds.
local function status_range(status)
  if type(status) == "number" then return { status, status } end
  local class = tonumber(status:match("^([1-5])xx$"))
  return { class * 100, class * 100 + 99 }
end

local status = { alternatives = {
  { type = "integer", min = 100, max = 599 },
  { type = "string", pattern = "^[1-5]xx$", hint = 'must be a status, or a class such as "2xx"' },
} }
local route = { type = "string", min = 1, pattern = NAME, hint = "must be the name of a route" }

local function one_or_more(field, doc)
  return { doc = doc, alternatives = { field, { type = "list", of = field, min = 1 } } }
end

local rule = {
  route = one_or_more(route, "names of routes; absent: any"),
  status = one_or_more({ alternatives = status.alternatives },
    'statuses, or classes such as "2xx"; absent: whatever went well (below 400, not refused, not cut off)'),
  keep = { type = "number", required = true, min = 0, max = 1, doc = "the share of lines to keep" },
}

local to = { type = "string", min = 1, check = check_target }

local access = {
  to = { type = "string", min = 1, default = "stdout", check = check_target,
    doc = 'stdout; file:PATH (opened anew on SIGUSR1); syslog: (/dev/log), syslog:/PATH or syslog:IP:PORT (UDP), RFC 5424' },
  format = { type = "string", min = 1, max = 4096, default = "json",
    doc = "json: a JSON object a line; combined: as of Apache's httpd; else text with ${field}" },
  sample = { type = "list", of = { type = "table", fields = rule }, max = 64, default = {},
    doc = "which lines are kept: the first rule that fits says; without one all are" },
}

M.fields = {
  level = { type = "string", one_of = { "debug", "info", "warn", "error" }, default = "info", doc = "of the error log" },
  access = { default = true, doc = "the access log: true (JSON lines on stdout), false, where it goes, or more in a table",
    alternatives = { { type = "boolean" }, to, { type = "table", fields = access } } },
}

local function list_of(value)
  if value == nil or type(value) == "table" then return value end
  return { value }
end

--- Faults that only the whole configuration shows: rules that name a route which is not there.
-- @tparam table config
-- @treturn {table,...} faults
function M.check(config)
  local faults, names, known = {}, {}, {}
  for i, one in ipairs(config.routes) do names[i], known[one.name] = one.name, true end
  local sample = type(config.log.access) == "table" and config.log.access.sample or {}
  for i, one in ipairs(sample) do
    for _, name in ipairs(list_of(one.route) or {}) do
      if not known[name] then
        faults[#faults + 1] = { path = ("log.access.sample[%d].route"):format(i),
          message = ("there is no route %s"):format(text.render(name)) .. text.suggest(name, names) }
      end
    end
  end
  return faults
end

--- In the shape that the host reads.
-- @tparam table log
-- @tparam string dir what paths are relative to
-- @treturn table level, and access: false, or { to, format, sample = { { routes, statuses = { { low, high } }, keep } } }
function M.normalise(log, dir)
  local given = log.access
  if given == false then return { level = log.level, access = false } end
  if type(given) ~= "table" then given = { to = given ~= true and given or "stdout", format = "json", sample = {} } end
  local out = { to = target(given.to, dir), format = given.format, sample = {} }
  for i, one in ipairs(given.sample) do
    local statuses
    for _, value in ipairs(list_of(one.status) or {}) do
      statuses = statuses or {}
      statuses[#statuses + 1] = status_range(value)
    end
    out.sample[i] = { routes = list_of(one.route), statuses = statuses, keep = one.keep }
  end
  return { level = log.level, access = out }
end

return M
