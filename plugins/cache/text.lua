-- What the three APIs' streams are written with: text cut into pieces, and events.
--
-- Pieces are at most PIECE bytes and end between characters: some clients read events by lines of limited length, and
-- JSON holds no half of a character.

local json = require("tollgate").json

local M = { PIECE = 4096, PAUSE = 256 }

-- The last byte of the piece that begins at `from`.
local function piece_end(text, from)
  local last = from + M.PIECE - 1
  if last >= #text then return #text end
  for at = last + 1, from + 1, -1 do -- a character begins behind the piece
    local byte = text:byte(at)
    if byte < 0x80 or byte >= 0xC0 then return at - 1 end
  end
  return last
end

--- Iterates over the pieces of a text; none where it is empty.
-- @tparam string text
-- @treturn function
function M.pieces(text)
  local from = 1
  return function()
    if from > #text then return nil end
    local last = piece_end(text, from)
    local piece = text:sub(from, last)
    from = last + 1
    return piece
  end
end

-- JSON as the lines of an event: a line end within it is white space, and is one again where the lines are joined.
local function lines(value)
  local data = json.encode(value)
  if data:find("[\r\n]") then data = data:gsub("\r\n?", "\n"):gsub("\n", "\ndata: ") end
  return "data: " .. data .. "\n\n"
end

--- An unnamed event.
-- @tparam {string,...} out bytes of the stream so far, which the event is added to
-- @tparam table value its data
function M.data(out, value)
  out[#out + 1] = lines(value)
end

--- An event that is named as its data's type is.
-- @tparam {string,...} out bytes of the stream so far, which the event is added to
-- @tparam table value its data, with `type`
function M.event(out, value)
  out[#out + 1] = "event: " .. value.type .. "\n" .. lines(value)
end

--- Calls fn for each event of a list, with a pause after every PAUSE of them: a long stream must not keep others waiting.
-- @tparam {table,...} events
-- @tparam function|nil pause
-- @tparam function fn
function M.each(events, pause, fn)
  for i, event in ipairs(events) do
    fn(event)
    if pause and i % M.PAUSE == 0 then pause() end
  end
end

--- Puts an answer together out of a stream's events. What raises a table with `why` says that the stream amounts to none.
-- @tparam {table,...} events of tg.sse
-- @tparam function|nil pause called now and then
-- @tparam function add called for each event
-- @tparam function finish called behind the last
-- @return what finish returns
-- @treturn string why there is none; then nil stands first
function M.assemble(events, pause, add, finish)
  local ok, found = pcall(function()
    M.each(events, pause, add)
    return finish()
  end)
  if ok then return found end
  if type(found) == "table" and found.why then return nil, found.why end
  error(found, 0)
end

--- A copy of a table, one level deep.
-- @tparam table t
-- @treturn table
function M.copy(t)
  local out = {}
  for name, value in pairs(t) do out[name] = value end
  return out
end

--- Whether a decoded value is an object (null and numbers that no Lua number holds are userdata).
-- @return boolean
function M.is_object(value)
  return type(value) == "table" and getmetatable(value) ~= json.array_mt
end

--- Whether a decoded value is an array.
-- @return boolean
function M.is_array(value)
  return type(value) == "table" and getmetatable(value) == json.array_mt
end

return M
