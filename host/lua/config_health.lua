-- Active health checks of targets.

local values = require "tollgate.config_values"
local text = require "tollgate.schema_text"

local M = {}

local HOUR = 3600 -- seconds

local function one_range(value)
  local class = type(value) == "string" and value:match("^([1-5])xx$")
  if class then return { first = class * 100, last = class * 100 + 99 } end
  if type(value) == "string" then
    local first, last = value:match("^(%d%d%d)%-(%d%d%d)$")
    first, last = tonumber(first), tonumber(last)
    if not first or first < 100 or last > 599 or first > last then return nil end
    return { first = first, last = last }
  end
  return { first = value, last = value }
end

local function check_range(value)
  if not one_range(value) then return 'must be a range such as "200-299", or "2xx"' end
end

local function check_path(value)
  if not value:find("^/") then return 'must begin with "/"' end
  if value:find("[%c%s#\127-\255]") then return "holds a character that must be percent-encoded" end
end

local function check(health, path)
  local faults = {}
  local function add(name, message) faults[#faults + 1] = { path = text.join(path, name), message = message } end
  if not health.path and not health.tcp then add("path", "is required, or tcp = true to check by a connection alone") end
  if health.tcp then
    for _, name in ipairs { "path", "status", "headers" } do
      if health[name] then add(name, "has no use where tcp = true") end
    end
  end
  return faults
end

local function check_headers(map, path)
  local faults, seen = {}, {}
  for _, name in ipairs(text.sorted_keys(map)) do
    local lower = name:lower()
    local message = seen[lower] and ("is the same field as %s"):format(seen[lower])
      or lower ~= "host" and values.target_header(name)
    seen[lower] = name
    if message then faults[#faults + 1] = { path = text.join(path, name), message = message } end
  end
  return faults
end

--- The field `health` of a target.
M.field = {
  type = "table", check = check, doc = "an active check of the target, made once for all workers", fields = {
    path = { type = "string", min = 1, max = 4096, check = check_path,
      doc = "what is asked for by GET, from the root of the target's host" },
    tcp = { type = "boolean", default = false, doc = "a connection alone is enough" },
    interval = { type = "duration", min = 0.1, max = HOUR, default = 5, doc = "seconds from a check's end to the next" },
    timeout = { type = "duration", min = 0.01, max = HOUR, default = 2, doc = "seconds that a check may take" },
    healthy = { type = "integer", min = 1, max = 100, default = 2, doc = "good checks in a row that bring it up" },
    unhealthy = { type = "integer", min = 1, max = 100, default = 3, doc = "failed checks in a row that take it down" },
    status = { type = "list", min = 1, max = 20, of = { alternatives = {
      { type = "integer", min = 100, max = 599 }, { type = "string", check = check_range },
    } }, doc = 'statuses that are good, such as 204, "2xx" or "200-299"; default: 200 to 399' },
    headers = { type = "map", keys = values.TOKEN, hint = "is no name of a header field", check = check_headers,
      values = { type = "string", secret = true, check = values.header_value }, doc = "fields sent along" },
  },
}

-- Where a path of the target's host is, as a URL.
local function url_of(target_url, path)
  if target_url:find("^unix:") then return target_url .. ":" .. path end
  return target_url:match("^%a[%w+.-]*://[^/]*") .. path
end

--- What the host reads of it.
-- @tparam table|nil health checked
-- @tparam string url of the target
-- @tparam function header_list makes a list of a map of header fields
-- @treturn table|nil times in milliseconds
function M.normalise(health, url, header_list)
  if not health then return nil end
  local ranges = {}
  for i, value in ipairs(health.status or {}) do ranges[i] = one_range(value) end
  return {
    url = health.path and url_of(url, health.path), tcp = health.tcp,
    interval = math.floor(health.interval * 1000 + 0.5), timeout = math.floor(health.timeout * 1000 + 0.5),
    healthy = health.healthy, unhealthy = health.unhealthy, status = ranges, headers = header_list(health.headers),
  }
end

return M
