-- Redis's protocol (RESP2, and the frames of RESP3 to measure them): commands to bytes, bytes to values,
-- and where a frame ends, which the proxy cuts at.
--
-- Values: strings, integers as numbers, errors as { err = "…" }, statuses as strings, a nil as false
-- within an array and nil at the top.
local M = {}

--- The bytes of a command.
function M.command(...)
  local parts = { "*" .. select("#", ...) .. "\r\n" }
  for i = 1, select("#", ...) do
    local arg = tostring((select(i, ...)))
    parts[#parts + 1] = "$" .. #arg .. "\r\n" .. arg .. "\r\n"
  end
  return table.concat(parts)
end

local function decode_list(bytes, at, count)
  local list = {}
  for i = 1, count do
    local value, after = M.decode(bytes, at)
    if not after then return nil end
    if value == nil then value = false end
    list[i] = value
    at = after
  end
  return list, at
end

--- Decodes the frame at `at`.
-- @return the value and the position after the frame; nil and nil when it is not whole
function M.decode(bytes, at)
  at = at or 1
  local _, eol, kind, text = bytes:find("^(.)([^\r\n]*)\r\n", at)
  if not eol then return nil, nil end
  local after = eol + 1
  if kind == "+" then return text, after end
  if kind == "-" then return { err = text }, after end
  if kind == ":" then return tonumber(text), after end
  if kind == "$" or kind == "=" or kind == "!" then
    local size = tonumber(text)
    if size < 0 then return nil, after end
    if #bytes < after + size + 1 then return nil, nil end
    return bytes:sub(after, after + size - 1), after + size + 2
  end
  if kind == "*" or kind == "~" or kind == ">" or kind == "%" then
    local count = tonumber(text) * (kind == "%" and 2 or 1)
    if count < 0 then return nil, after end
    return decode_list(bytes, after, count)
  end
  return text, after
end

return M
