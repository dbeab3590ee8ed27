-- For specs of plugins: a gateway whose plugins are given as Lua source, without Redis unless `config.redis` names one
-- (nothing listens on port 1). `start` serves, `try` runs a command on the same files to its end.
local support = require "spec.support"

local M = {}

local function sorted(map)
  local names = {}
  for name in pairs(map) do names[#names + 1] = name end
  table.sort(names)
  return names
end

-- One route with every plugin that was given, by default settings.
local function default_routes(options)
  local all = {}
  for _, name in ipairs(sorted(options.plugins)) do
    local plugin = name:match("^([^/]*)$") or name:match("^(.*)/init$")
    if plugin then all[plugin] = {} end
  end
  return { { name = "r", path = "/*", plugins = all, targets = options.target and { { url = options.target } } or nil } }
end

local function prepare(options)
  local files = {}
  for name, source in pairs(options.plugins) do files["plugins/" .. name .. ".lua"] = source end
  for name, text in pairs(options.files or {}) do files[name] = text end
  local config = { redis = "redis://127.0.0.1:1/0", plugin_path = { "plugins" },
    routes = options.routes or default_routes(options) }
  for key, value in pairs(options.config or {}) do config[key] = value end
  return config, files
end

--- Starts a gateway: { plugins = name → source ("a/b" for a module of plugin a), target = URL of the only route's target,
-- routes, config, files, args, env }.
function M.start(options)
  local config, files = prepare(options)
  return support.gateway { config = config, files = files, args = options.args, env = options.env }
end

--- The same for all tests of a block: `local on, up, down = M.shared(function() return {…} end)`; `on.gw` is there in tests,
-- and what the function returned in `on.options`.
function M.shared(make)
  local on = {}
  local up, down = support.shared(function()
    on.options = make()
    on.gw = M.start(on.options)
  end)
  return on, up, down
end

function M.counter(gw, name) return gw:metric(name) end
function M.wait_counter(gw, name, n) gw:wait_metric(name, n) end

--- Runs `tollgate COMMAND -c gateway.lua ARGS…` on the same options (`config` may be text) to its end.
-- @return { code, signal, out, err, dir }; in out and err the directory is written as DIR
function M.try(command, options)
  local dir = support.tmpdir()
  local config, files = prepare(options)
  files["gateway.lua"] = type(options.text) == "string" and options.text or "return " .. support.literal(config) .. "\n"
  if not options.text then
    config.listen, config.admin, config.data_dir = "127.0.0.1:0", "127.0.0.1:0", dir .. "/data"
    files["gateway.lua"] = "return " .. support.literal(config) .. "\n"
  end
  for name, text in pairs(files) do support.write_file(dir .. "/" .. name, text) end
  local args = { command, "-c", dir .. "/gateway.lua" }
  for _, arg in ipairs(options.args or {}) do args[#args + 1] = arg end
  local res = support.tollgate(args, { env = options.env, cwd = dir })
  local literal = dir:gsub("%p", "%%%0")
  res.out, res.err, res.dir = res.out:gsub(literal, "DIR"), res.err:gsub(literal, "DIR"), dir
  return res
end

return M
