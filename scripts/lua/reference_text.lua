-- What both halves of scripts/reference use.

local M = {}

--- A file of the source tree; raises where it is not there.
function M.read(root, path)
  local file = assert(io.open(root .. "/" .. path, "rb"))
  local text = file:read("*a")
  file:close()
  return text
end

--- The files that match shell patterns, by name.
function M.list(root, patterns)
  local names, pipe = {}, assert(io.popen("cd '" .. root .. "' && ls -1d " .. patterns))
  for name in pipe:lines() do names[#names + 1] = name end
  pipe:close()
  return names
end

--- The keys of a table in order.
function M.sorted(map)
  local keys = {}
  for key in pairs(map) do keys[#keys + 1] = key end
  table.sort(keys)
  return keys
end

--- Text of a comment for Markdown; what stands in code spans is kept.
function M.escape(text)
  local out, code = {}, false
  for part, tick in text:gmatch("([^`]*)(`?)") do
    out[#out + 1] = (code and part or part:gsub("[*<]", "\\%0")) .. tick
    code = code ~= (tick ~= "")
  end
  return table.concat(out)
end

--- The comment that opens a Lua file, without its dashes.
function M.opening(text)
  local lines = {}
  for line in text:gmatch("([^\n]*)\n") do
    local words = line:match("^%-%- ?(.*)$")
    if not words then break end
    lines[#lines + 1] = words
  end
  return table.concat(lines, "\n")
end

return M
