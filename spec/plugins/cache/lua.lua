-- Runs Lua code that sees the plugin's own modules and the host's `tg`, without a gateway: `tollgate exec`. The code
-- returns a value that JSON can hold; `read(path)` gives a file's text, `events(text, size)` the events of a stream that
-- comes in pieces of `size` bytes, `same(a, b)` raises where two JSON texts differ in more than order and form of numbers.
local support = require "spec.support"

local M = {}

local FRAME = [[
local root = "@ROOT@"
package.path = root .. "/plugins/?.lua;" .. package.path
local tg = require "tollgate"
local function read(path)
  local file = assert(io.open(root .. "/" .. path))
  local text = file:read "*a"
  file:close()
  return text
end
local function events(text, size)
  local parser, list = tg.sse.parser(), {}
  for at = 1, #text, size or #text do
    for _, event in ipairs(assert(parser:feed(text:sub(at, at + (size or #text) - 1)))) do list[#list + 1] = event end
  end
  return list
end
local function plain(text) return tg.json.encode(assert(tg.json.decode(text))) end
local function same(a, b, what)
  a, b = plain(a), plain(b)
  if a == b then return end
  local at = 1
  while a:byte(at) == b:byte(at) do at = at + 1 end
  local from = math.max(1, at - 60)
  error(("%s differs at byte %d:\n%s\nis not\n%s"):format(what or "it", at, a:sub(from, at + 60), b:sub(from, at + 60)), 2)
end
local function run() @CODE@
end
local value = run()
io.stdout:write(tg.json.encode(value == nil and tg.json.null or value), "\n")
]]

--- Runs the code; returns what it returned.
function M.run(code)
  local root = require("luv").cwd()
  local text = FRAME:gsub("@(%u+)@", { ROOT = root, CODE = code })
  local path = support.write_file(support.tmpdir() .. "/code.lua", text)
  local result = support.tollgate { "exec", path }
  assert(result.code == 0, result.err .. result.out)
  return (support.decode(result.out))
end

return M
