-- The npm packages that specs use as real clients (pinned in spec/fixtures/npm, installed into build/npm by
-- `scripts/setup --tests`), and node to run scripts with them. Scripts are CommonJS: `require` honours NODE_PATH.
local uv = require "luv"
local process = require "spec.support.process"

local M = {}

function M.path() return uv.cwd() .. "/build/npm/node_modules" end

--- Runs a script: { script (path) or source (text), args, env, timeout (ms, default 20000) }.
-- @return { code, signal, out, err }
function M.node(options)
  local args = options.source and { "-e", options.source, "--" } or { options.script }
  for _, arg in ipairs(options.args or {}) do args[#args + 1] = arg end
  local env = { NODE_PATH = M.path(), NODE_NO_WARNINGS = "1" }
  for name, value in pairs(options.env or {}) do env[name] = value end
  return process.exec { cmd = "node", args = args, env = env, timeout = options.timeout or 20000 }
end

return M
