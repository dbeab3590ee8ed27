-- Server-sent events, as the HTML standard's section 9.2.6 parses them: lines end in LF, CRLF or CR, an
-- event ends at an empty line, a line that begins with ":" is a comment. An event without data is dropped,
-- and so is what follows the last empty line.
local M = {}

local function field(event, line)
  local name, value = line:match("^([^:]*):? ?(.*)$")
  if name == "data" then
    event.data = event.data and (event.data .. "\n" .. value) or value
  elseif name == "event" or name == "id" or name == "retry" then
    event[name] = value
  end
end

--- Parses a whole body into a list of { event, data, id, retry }.
function M.parse(body)
  local events, event = {}, {}
  body = body:gsub("\r\n", "\n"):gsub("\r", "\n")
  for line in body:gmatch("(.-)\n") do
    if line ~= "" then
      field(event, line)
    elseif event.data then
      events[#events + 1], event = event, {}
    else
      event = {}
    end
  end
  return events
end

--- An iterator over the events of a response that is still being read (lines in LF or CRLF). At the end
-- it returns nil; where the body was cut, nil and the reason.
function M.each(res, limit_ms)
  local buffer = ""
  return function()
    while true do
      local _, last = buffer:find("\r?\n\r?\n")
      if last then
        local event = M.parse(buffer:sub(1, last))[1]
        buffer = buffer:sub(last + 1)
        if event then return event end
      else
        local piece, err = res:read(limit_ms)
        if not piece then return nil, err end
        buffer = buffer .. piece
      end
    end
  end
end

return M
