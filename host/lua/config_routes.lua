-- What several routes, or several keys of one route, say together, and routes as the host reads them.
--
-- Two routes that match the same path, host, method and headers are refused: only the first would ever be reached.

local values = require "tollgate.config_values"
local targets = require "tollgate.config_targets"
local text = require "tollgate.schema_text"

local M = {}

local API_BY_ENDING = {
  { "/v1/chat/completions", "openai-chat" },
  { "/v1/responses", "openai-responses" },
  { "/v1/embeddings", "openai-embeddings" },
  { "/v1/messages", "anthropic-messages" },
}
local ANY = "any" -- in lower case, so it is no method and, without a dot, collides with no host but "any" itself

local function as_list(value)
  return type(value) == "table" and value or { value }
end

local function add(faults, path, message)
  faults[#faults + 1] = { path = path, message = message }
end

local function api_of_path(path)
  for _, one in ipairs(API_BY_ENDING) do
    if path:sub(-#one[1]) == one[1] then return one[2] end
  end
  return "none"
end

--- The API that a route speaks: the one it names, else the one of its paths.
-- @tparam table route
-- @treturn string|nil nil where its paths belong to different ones
function M.api(route)
  if route.api then return route.api end
  local api
  for _, path in ipairs(as_list(route.path)) do
    local one = api_of_path(path)
    if api and one ~= api then return nil end
    api = one
  end
  return api
end

--- A header map as a list sorted by name, names in lower case.
-- @tparam table|nil map
-- @treturn {table,...} each { name, value }
function M.header_list(map)
  local list = {}
  for _, name in ipairs(text.sorted_keys(map or {})) do
    list[#list + 1] = { name = name:lower(), value = map[name] }
  end
  table.sort(list, function(a, b) return a.name < b.name end)
  return list
end

--- Check of a target's headers: names that differ only in case, and fields that are not a target's to set.
-- @tparam table map
-- @tparam string path
-- @treturn {table,...} faults
function M.check_headers(map, path)
  local faults, seen = {}, {}
  for _, name in ipairs(text.sorted_keys(map)) do
    local at, lower = text.join(path, name), name:lower()
    if seen[lower] then add(faults, at, ("is the same field as %s"):format(seen[lower])) end
    seen[lower] = name
    local message = values.target_header(name)
    if message then add(faults, at, message) end
  end
  return faults
end

local function headers_key(route)
  local parts = {}
  for i, one in ipairs(M.header_list(route.headers)) do
    parts[i] = one.name .. "=" .. text.render(one.value)
  end
  return table.concat(parts, "\n")
end

local function hosts_of(route)
  local hosts = {}
  for i, host in ipairs(route.hosts or {}) do hosts[i] = values.route_host(host) end
  return hosts
end

-- The method by which an earlier route takes a request of this one: the same, or any.
local function taken(methods, method)
  return methods[method] or methods[ANY]
end

local function check_overlap(faults, seen, route, index, at)
  local headers = headers_key(route)
  local told = {}
  for _, path in ipairs(as_list(route.path)) do
    for _, host in ipairs(route.hosts and hosts_of(route) or { ANY .. "/" }) do
      local key = table.concat({ path, host, headers }, "\n")
      local methods = seen[key] or {}
      seen[key] = methods
      for _, method in ipairs(route.methods or { ANY }) do
        local earlier = taken(methods, method)
        if earlier and earlier.index ~= index and not told[earlier.index] then
          told[earlier.index] = true
          add(faults, at, ("%s is never reached by %s%s: route %s (routes[%d]) has the same path, hosts and methods")
            :format(text.quote(route.name), method == ANY and "" or method .. " ", path,
              text.quote(earlier.name), earlier.index))
        end
        methods[method] = methods[method] or { index = index, name = route.name }
      end
    end
  end
end

local function check_one(faults, route, at)
  local prefix = false
  for _, path in ipairs(as_list(route.path)) do
    prefix = prefix or values.route_path(path).kind == "prefix"
  end
  if route.strip_prefix and not prefix then
    add(faults, at .. ".strip_prefix", "needs a path that ends in /*")
  end
  local api = M.api(route)
  if not api then
    add(faults, at .. ".path", "its paths belong to different APIs: split the route, or name its api")
  end
  targets.check(faults, route, at, api)
end

--- Check of the list of routes, each of which is well formed by itself.
-- @tparam {table,...} routes
-- @tparam string path
-- @treturn {table,...} faults
function M.check(routes, path)
  local faults, names, seen = {}, {}, {}
  for i, route in ipairs(routes) do
    local at = text.join(path, i)
    local first = names[route.name]
    if first then
      add(faults, at .. ".name", ("%s is the name of %s[%d] already"):format(text.quote(route.name), path, first))
    end
    names[route.name] = first or i
    check_one(faults, route, at)
    check_overlap(faults, seen, route, i, at)
  end
  return faults
end

local function milliseconds(seconds)
  return math.max(1, math.floor(seconds * 1000 + 0.5))
end

--- Seconds as whole milliseconds, at least 1, for each member.
-- @tparam table times
-- @treturn table
function M.milliseconds(times)
  local out = {}
  for name, value in pairs(times) do out[name] = milliseconds(value) end
  return out
end

--- One route as the host reads it.
-- @tparam table route checked
-- @tparam string at its path
-- @tparam table config the checked configuration it stands in
-- @treturn table
function M.normalise(route, at, config)
  local paths = {}
  for i, path in ipairs(as_list(route.path)) do paths[i] = values.route_path(path) end
  local timeouts, limits = {}, {}
  for name, value in pairs(config.timeouts) do timeouts[name] = route.timeouts[name] or value end
  for name, value in pairs(config.limits) do limits[name] = route.limits[name] or value end
  local to = targets.normalise(route, at, M.api(route), timeouts, M.header_list)
  return {
    name = route.name, paths = paths, hosts = hosts_of(route), methods = route.methods or {},
    headers = M.header_list(route.headers), strip_prefix = route.strip_prefix, api = M.api(route),
    targets = to.targets, models = to.models, balance = to.balance, retry = to.retry,
    upgrade_any = route.upgrade == true, upgrades = type(route.upgrade) == "table" and route.upgrade or {},
    half_close = route.half_close, retry_stale = route.retry_stale,
    timeouts = M.milliseconds(timeouts), limits = limits,
  }
end

return M
