-- Text: paths of files and of values, the nearest known name, and Lua data as Lua source.
--
-- Everything is deterministic (keys are sorted), so that two prints of one configuration compare equal, and what is
-- printed can be loaded again.

local M = {}

local KEYWORDS = {}
for word in ([[and break do else elseif end false for function goto if in local nil not or repeat return then true
  until while]]):gmatch("%a+") do
  KEYWORDS[word] = true
end

local SUGGEST_MAX = 64 -- longer names are no typing errors, and the distance costs their product

local function is_identifier(key)
  return type(key) == "string" and key:find("^[%a_][%w_]*$") ~= nil and not KEYWORDS[key]
end

--- Quotes a string as a Lua literal on one line.
-- @tparam string text
-- @tparam[opt] number max longer text is cut to this many bytes and ends in "..."
-- @treturn string
function M.quote(text, max)
  if max and #text > max then text = text:sub(1, max) .. "..." end
  local escapes = { ['"'] = '\\"', ["\\"] = "\\\\", ["\n"] = "\\n", ["\r"] = "\\r", ["\t"] = "\\t" }
  return '"' .. text:gsub('[%c"\\\127]', function(c)
    return escapes[c] or ("\\%03d"):format(c:byte())
  end) .. '"'
end

--- Joins a path and a key: `a.b`, `a[2]`, `a["x-y"]`.
-- @tparam string path "" at the root
-- @param key string or number
-- @treturn string
function M.join(path, key)
  if is_identifier(key) then return path == "" and key or path .. "." .. key end
  if type(key) == "string" then return path .. "[" .. M.quote(key, 80) .. "]" end
  return path .. "[" .. tostring(key) .. "]"
end

--- A path relative to a directory; absolute ones stay.
-- @tparam string|nil dir
-- @tparam string path
-- @treturn string
function M.resolve(dir, path)
  if not dir or dir == "." or path:sub(1, 1) == "/" then return path end
  return (dir:gsub("/+$", "")) .. "/" .. path
end

--- The keys of a table in a fixed order: numbers, then strings, then the rest by its text.
-- @tparam table t
-- @treturn {any,...}
function M.sorted_keys(t)
  local rank = { number = 1, string = 2 }
  local keys = {}
  for key in pairs(t) do keys[#keys + 1] = key end
  table.sort(keys, function(a, b)
    local ra, rb = rank[type(a)] or 3, rank[type(b)] or 3
    if ra ~= rb then return ra < rb end
    if ra == 3 then return tostring(a) < tostring(b) end
    return a < b
  end)
  return keys
end

-- Optimal string alignment: insertions, deletions, substitutions, and neighbours swapped, each 1.
local function distance(a, b)
  local before, above = {}, {}
  for j = 0, #b do above[j] = j end
  for i = 1, #a do
    local row = { [0] = i }
    for j = 1, #b do
      local same = a:byte(i) == b:byte(j)
      row[j] = math.min(above[j] + 1, row[j - 1] + 1, above[j - 1] + (same and 0 or 1))
      if i > 1 and j > 1 and a:byte(i) == b:byte(j - 1) and a:byte(i - 1) == b:byte(j) then
        row[j] = math.min(row[j], before[j - 2] + 1)
      end
    end
    before, above = above, row
  end
  return above[#b]
end

--- The candidate nearest to a name, where one is near: at most a third of the letters differ.
-- @param name what was written
-- @tparam {string,...} candidates
-- @treturn string|nil
function M.nearest(name, candidates)
  if type(name) ~= "string" or #name > SUGGEST_MAX then return nil end
  local best, least
  for _, candidate in ipairs(candidates) do
    if type(candidate) == "string" and #candidate <= SUGGEST_MAX then
      local d = distance(name:lower(), candidate:lower())
      local bound = math.max(1, math.floor(math.max(#name, #candidate) / 3))
      if d <= bound and (not least or d < least or (d == least and candidate < best)) then
        best, least = candidate, d
      end
    end
  end
  return best
end

--- " (did you mean X?)", or "" where nothing is near.
-- @param name what was written
-- @tparam {string,...} candidates
-- @treturn string
function M.suggest(name, candidates)
  local near = M.nearest(name, candidates)
  return near and (" (did you mean %s?)"):format(near) or ""
end

--- A number as Lua source that reads back as the same number.
-- @tparam number n
-- @treturn string
function M.number(n)
  if n ~= n then return "0/0" end
  if n == math.huge then return "math.huge" end
  if n == -math.huge then return "-math.huge" end
  if n == math.floor(n) and math.abs(n) < 2 ^ 53 then return ("%d"):format(n) end
  for digits = 14, 17 do
    local text = ("%." .. digits .. "g"):format(n)
    if tonumber(text) == n then return text end
  end
end

local function is_list(t)
  local n = 0
  for _ in pairs(t) do n = n + 1 end
  for i = 1, n do
    if t[i] == nil then return false end
  end
  return true
end

--- Lua data (nil, booleans, numbers, strings, tables) as Lua source with sorted keys, two spaces a level.
-- @param value
-- @tparam[opt=""] string indent of the line the value stands on
-- @treturn string
function M.render(value, indent)
  indent = indent or ""
  if type(value) == "string" then return M.quote(value) end
  if type(value) == "number" then return M.number(value) end
  if type(value) ~= "table" then return tostring(value) end
  if next(value) == nil then return "{}" end
  local inner = indent .. "  "
  local lines, list = {}, is_list(value)
  for _, key in ipairs(M.sorted_keys(value)) do
    local name = ""
    if not list then
      name = (is_identifier(key) and key or "[" .. M.render(key) .. "]") .. " = "
    end
    lines[#lines + 1] = inner .. name .. M.render(value[key], inner) .. ",\n"
  end
  return "{\n" .. table.concat(lines) .. indent .. "}"
end

return M
