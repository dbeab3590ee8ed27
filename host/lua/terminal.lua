-- What commands draw on a terminal: bars, colours, short numbers. No I/O; what the terminal can show is handed in as
-- { tty, color, utf8, width, height }.

local M = {}

local COLORS = { red = "31", green = "32", yellow = "33", cyan = "36", dim = "2" }
local EIGHTHS = { "▏", "▎", "▍", "▌", "▋", "▊", "▉" }

--- A text in a colour, where the terminal shows colours.
-- @tparam table terminal
-- @tparam string|nil color red, green, yellow, cyan, dim; nil: none
-- @tparam string text
-- @treturn string
function M.paint(terminal, color, text)
  if not terminal.color or not color or text == "" then return text end
  return "\27[" .. COLORS[color] .. "m" .. text .. "\27[0m"
end

--- Text that may stand in a line: control characters, and bytes that are no UTF-8, become "?".
-- @tparam string text
-- @treturn string
function M.clean(text)
  text = text:gsub("%c", "?")
  if not text:find("[\128-\255]") then return text end
  local out, at = {}, 1
  while at <= #text do
    local piece = text:match("^[\1-\127]+", at) or text:match("^[\195-\223][\128-\191]", at) or text:match("^\194[\160-\191]", at)
      or text:match("^[\224-\239][\128-\191][\128-\191]", at) or text:match("^[\240-\244][\128-\191][\128-\191][\128-\191]", at)
    out[#out + 1] = piece or "?"
    at = at + (piece and #piece or 1)
  end
  return table.concat(out)
end

--- How many characters a clean text has.
function M.length(text)
  return select(2, text:gsub("[^\128-\191]", ""))
end

-- A bar's cells, full ones first.
local function cells(share, width, utf8)
  local eighths = math.floor(math.min(math.max(share, 0), 1) * width * 8 + 0.5)
  if not utf8 then return ("#"):rep(math.floor(eighths / 8 + 0.5)), math.floor(eighths / 8 + 0.5) end
  local full, rest = math.floor(eighths / 8), eighths % 8
  return ("█"):rep(full) .. (EIGHTHS[rest] or ""), full + (rest > 0 and 1 or 0)
end

--- A bar: what is used, behind it what is reserved besides, and the room that is left.
-- @tparam number used 0 to 1; more is full
-- @tparam number reserved 0 to 1, beyond used
-- @tparam integer width characters
-- @tparam table terminal
-- @treturn string
function M.bar(used, reserved, width, terminal)
  local all = used + reserved
  local color = all >= 0.95 and "red" or all >= 0.8 and "yellow" or "green"
  local text, n = cells(used, width, terminal.utf8)
  local more = math.max(math.floor(math.min(all, 1) * width + 0.5) - n, 0)
  return M.paint(terminal, color, text) .. M.paint(terminal, "cyan", (terminal.utf8 and "▒" or "+"):rep(more))
    .. M.paint(terminal, "dim", (terminal.utf8 and "·" or "."):rep(width - n - more))
end

local UNITS = { "", "k", "M", "G", "T", "P" }

--- A number in at most five characters: 0, 7.25, 950, 12.3k, 4.5M.
-- @tparam number|nil n nil is "-"
-- @treturn string
function M.short(n)
  if not n or n ~= n then return "-" end
  local unit = 1
  while math.abs(n) >= 999.5 and unit < #UNITS do n, unit = n / 1000, unit + 1 end
  local form = (n == math.floor(n) and unit == 1) and "%.0f" or n >= 99.95 and "%.0f" or n >= 9.995 and "%.1f" or "%.2f"
  return form:format(n) .. UNITS[unit]
end

--- A span of time: 45 s, 12 min, 5 h, 3 d.
function M.age(seconds)
  if seconds < 120 then return ("%.0f s"):format(seconds) end
  if seconds < 7200 then return ("%.0f min"):format(seconds / 60) end
  if seconds < 172800 then return ("%.0f h"):format(seconds / 3600) end
  return ("%.0f d"):format(seconds / 86400)
end

return M
