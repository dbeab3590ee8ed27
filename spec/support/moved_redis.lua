-- A redis-server whose wall clock a spec moves, by a preloaded library that is built here from spec/fixtures.
local ffi = require "ffi"
local files = require "spec.support.files"
local process = require "spec.support.process"
local redis = require "spec.support.redis"

local M = {}

--- Starts one; options as for support.redis. r.shift(ms) sets how far its clock is from the real one.
function M.start(options)
  local dir = files.tmpdir()
  local built = process.exec { cmd = "cc", args = { "-shared", "-fPIC", "-O1", "-o", dir .. "/clock.so",
    "spec/fixtures/clock_shift.c", "-ldl" }, timeout = 30000 }
  if built.code ~= 0 then error("cc: " .. built.err, 2) end
  local path = files.write_file(dir .. "/shift", ("\0"):rep(8))
  local all = { env = { LD_PRELOAD = dir .. "/clock.so", CLOCK_SHIFT = path } }
  for name, value in pairs(options or {}) do all[name] = value end
  local r = redis.start(all)
  function r.shift(ms)
    local file = assert(io.open(path, "r+b"))
    file:write(ffi.string(ffi.new("int64_t[1]", ms), 8))
    file:close()
  end
  return r
end

return M
