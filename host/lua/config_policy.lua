-- The routing policy: the part of a configuration that may be kept in Redis and be the same on all replicas, `routes` and
-- `plugins`, as plain data. What a file takes from `env` and `file` is no part of it: it holds a mark in its place, which
-- each replica replaces by what it has itself, so that no secret is published.
--
-- `plugins.reload` stays each replica's own: a policy cannot switch off what follows it.

local sandbox = require "tollgate.config_sandbox"
local text = require "tollgate.schema_text"

local M = {}

local OWN = "reload"
local FILE = "routing.json" -- in data_dir: the policy that was taken last, so that a start needs no Redis

local DEPTH_MAX = 100

-- Marks: \1env:NAME\1, \1env:NAME\2DEFAULT\1 and \1file:PATH\1.

local function marking(path, host)
  local home = sandbox.dir(path) .. "/"
  return {
    env = function(name, ...)
      if select("#", ...) == 0 then return "\1env:" .. name .. "\1" end
      local default = ...
      if type(default) ~= "string" then
        error("env \"" .. name .. "\" has a default that is no string, which cannot be published", 0)
      end
      return "\1env:" .. name .. "\2" .. default .. "\1"
    end,
    read = function(full)
      if not host.read(full) then return host.read(full) end
      return "\1file:" .. (full:sub(1, #home) == home and full:sub(#home + 1) or full) .. "\1"
    end,
  }
end

--- Makes the policy of a configuration file.
-- @tparam string path of gateway.lua
-- @tparam string source its text
-- @tparam table host `read(path)`
-- @treturn table|nil { routes, plugins }; plain data if the file is right, marks in it
-- @treturn string what is wrong
function M.make(path, source, host)
  local raw, faults = sandbox.run(path, source, marking(path, host))
  if not raw then return nil, faults[1].path .. ": " .. faults[1].message end
  local plugins
  for name, conf in pairs(type(raw.plugins) == "table" and raw.plugins or {}) do
    plugins = plugins or {}
    if name ~= OWN then plugins[name] = conf end
  end
  return { routes = raw.routes, plugins = plugins and next(plugins) and plugins or nil }
end

-- A copy without what JSON's reader adds, marks replaced.
local function plain(value, replace, depth)
  if type(value) == "string" then return replace(value) end
  if type(value) ~= "table" then
    return (type(value) == "number" or type(value) == "boolean") and value or error("it holds what is no plain data", 0)
  end
  if depth > DEPTH_MAX then error("it is too deep", 0) end
  local out = {}
  for key, item in pairs(value) do
    out[type(key) == "string" and replace(key) or key] = plain(item, replace, depth + 1)
  end
  return out
end

local function replacer(dir, host, secrets)
  local function secret(value)
    if value ~= "" then secrets[#secrets + 1] = value end
    return value
  end
  local function one(kind, what)
    local name, default = what:match("^([^\2]*)\2?(.*)$")
    if kind == "env" then
      local value = host.env(name)
      if value ~= nil then return secret(value) end
      if what:find("\2", 1, true) then return default end
      error("the environment variable " .. name .. " is not set", 0)
    end
    local content, err = host.read(text.resolve(dir, name))
    if not content then error(("the file %s cannot be read: %s"):format(name, err or "unknown error"), 0) end
    return secret((content:gsub("\r?\n$", "")))
  end
  return function(value) return (value:gsub("\1(%a+):([^\1]*)\1", one)) end
end

--- Puts the policy in the place of what the file says, where the configuration takes it from Redis and has one already.
-- @tparam table raw what the file returned; it is changed
-- @tparam string path of gateway.lua
-- @tparam table host `policy(path)` gives the text of the policy or nil, `json.decode`, `env`, `read`
-- @tparam {string,...} secrets what came from `env` and `file`, which is added to
-- @treturn table|nil a fault { path, message }
function M.apply(raw, path, host, secrets)
  if type(raw.routing) ~= "table" or raw.routing.source ~= "redis" or not host.policy then return nil end
  local dir, data = sandbox.dir(path), raw.data_dir or "data"
  if type(data) ~= "string" then return nil end -- will be told
  local content = host.policy(text.resolve(dir, data) .. "/" .. FILE)
  if not content then return nil end
  local policy, err = host.json.decode(content)
  if type(policy) ~= "table" then return { path = "routing policy", message = tostring(err or "is no object") } end
  local ok, copy = pcall(plain, policy, replacer(dir, host, secrets), 1)
  if not ok then return { path = "routing policy", message = tostring(copy) } end
  local own = type(raw.plugins) == "table" and raw.plugins[OWN] or nil
  raw.routes, raw.plugins = copy.routes, copy.plugins or {}
  if type(raw.plugins) == "table" then raw.plugins[OWN] = own end
  return nil
end

return M
