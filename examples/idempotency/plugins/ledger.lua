-- A stand-in for a service that must not do the same thing twice: each request is one more booking, and takes a second.
local tg = require "tollgate"

local M = { version = "1.0.0", schema = {} }

local bookings = 0

function M.access(_, ctx)
  local text = ctx.request:body()
  bookings = bookings + 1
  local number = bookings
  tg.timer.sleep(1)
  return 201, ("booking %d: %s\n"):format(number, text), { ["content-type"] = "text/plain" }
end

return M
