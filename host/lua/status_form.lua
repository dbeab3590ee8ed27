-- How tollgate status shows what the gateway says of itself. No I/O.

local json = require("tollgate").json
local terminal = require "tollgate.terminal"

local M = {}

local BAR, BAR_LEAST = 20, 4 -- columns

local function given(value) return value ~= nil and value ~= json.null and value ~= "" end

local function head(s, view)
  local paint = terminal.paint
  local how = s.ready and paint(view, "green", "ready") or paint(view, "red", "not ready: ") .. terminal.clean(s.problem)
  local out = { ("tollgate %s, pid %d, up %s: %s%s\n"):format(s.version, s.pid, terminal.age(s.uptime_s), how,
    s.upgrading and ", upgrading" or ""),
    ("generation %s of %s, %s\n"):format(tostring(s.generation), terminal.clean(s.config), s.hash:sub(1, 12)) }
  if given(s.last_reload) then
    out[#out + 1] = ("last reload %s: %s\n"):format(terminal.age((s.now_ms - s.last_reload.at_ms) / 1000) .. " ago",
      paint(view, not s.last_reload.ok and "red" or nil, terminal.clean(s.last_reload.outcome)))
  end
  if given(s.routing) then
    out[#out + 1] = ("routing version %s%s\n"):format(tostring(s.routing.version),
      given(s.routing.problem) and "; " .. paint(view, "red", terminal.clean(s.routing.problem)) or "")
  end
  return out
end

local function plugins(out, s, view)
  local names = {}
  for name in pairs(s.quarantine) do names[#names + 1] = name end
  table.sort(names)
  for _, name in ipairs(names) do
    local one = s.quarantine[name]
    out[#out + 1] = ("plugin %s: %d workers were killed in it%s\n"):format(name, one.kills,
      one.quarantined and terminal.paint(view, "red", "; quarantined") or "")
  end
end

local function targets(out, s, view)
  for _, one in ipairs(s.targets) do
    local how = {}
    if one.healthy ~= nil then
      how[1] = one.healthy and terminal.paint(view, "green", "healthy") or terminal.paint(view, "red", "unhealthy")
    end
    if one.out_ms then how[#how + 1] = ("not asked for another %d s"):format(math.ceil(one.out_ms / 1000)) end
    out[#out + 1] = ("target %s: %s\n"):format(terminal.clean(one.target), table.concat(how, ", "))
  end
end

-- What is left of the terminal's width behind a row, as a bar.
local function bar(share, row, view)
  local width = math.min(BAR, view.width - #row - 1)
  return view.tty and width >= BAR_LEAST and " " .. terminal.bar(share, 0, width, view) or ""
end

local function workers(out, s, view)
  out[#out + 1] = "worker     pid state    generation connections in flight  memory up\n"
  local room = s.connections_limit / math.max(s.workers_configured, 1)
  local drawn = false
  for _, w in ipairs(s.workers) do
    local state = ("%-8s"):format(w.state)
    local row = ("%6d %7d %s %10s %11d %9s %7s %-6s"):format(w.worker, w.pid, state, tostring(w.generation), w.connections,
      terminal.short(w.requests), terminal.short(w.lua_bytes) .. "B", terminal.age(w.uptime_s))
    local behind = bar(w.connections / room, row, view)
    drawn = drawn or behind ~= ""
    if w.state ~= "serving" then row = row:gsub(state, terminal.paint(view, "yellow", state), 1) end
    out[#out + 1] = (row .. behind):gsub(" +$", "") .. "\n"
  end
  if drawn then out[#out + 1] = ("bars: connections of the %d that a worker may have\n"):format(math.ceil(room)) end
end

--- The page.
-- @tparam string text the status as JSON
-- @tparam table view the terminal
-- @treturn string
function M.page(text, view)
  local s = assert(json.decode(text))
  local out = head(s, view)
  plugins(out, s, view)
  targets(out, s, view)
  workers(out, s, view)
  out[#out + 1] = "files: tollgate status --json lists them with their hashes\n"
  return table.concat(out)
end

return M
