-- How tollgate usage shows what it found: one line of JSON a key, a page for one key, a table for all. No I/O.

local json = require("tollgate").json
local terminal = require "tollgate.terminal"

local M = {}

local BAR_OF_PAGE, BAR_OF_LINE, BAR_LEAST = 30, 16, 4 -- columns
local ASIDE = 17 -- columns in front of what a row of the page says

-- An id as it is, unless it would spoil the line.
local function shown(id) return id:find("^[%w%p ]+$") and id or json.encode(id) end

local function number(n) return n and ("%.0f"):format(n) end

local function share(key, limits)
  if not limits.budget or limits.budget == 0 then return nil end
  return key.charged / limits.budget
end

--- A key as a line of JSON; null is unknown, or no limit.
-- @tparam table key { id, disabled, charged, spent, reserved, in_flight, bucket, limits }, as usage.lua reads it
-- @tparam table when { month, ends }
-- @treturn string
function M.json(key, when)
  local function put(value) return value or "null" end
  local limits = {}
  for i, one in ipairs(key.limits) do
    local part = share(key, one)
    limits[i] = ('{"routes":%s,"budget":%s,"share":%s,"concurrency":%s}'):format(json.encode(one.routes),
      put(number(one.budget)), put(part and ("%.6g"):format(part)), put(number(one.concurrency)))
  end
  local form = '{"key":%s,"disabled":%s,"month":"%s","month_ends":"%s","charged":%s,"spent":%s,"reserved":%s,"in_flight":%s,'
    .. '"limits":[%s]}\n'
  return form:format(json.encode(key.id), tostring(key.disabled or false), when.month, when.ends, number(key.charged),
    put(number(key.spent)), put(number(key.reserved)), put(number(key.in_flight)), table.concat(limits, ","))
end

local function row(name, format, ...) return ("%-16s " .. format .. "\n"):format(name, ...) end

-- Spent and reserved of a budget, in at most so many columns; nil where there is no room, or nothing to show. What is reserved is
-- in what is spent where it is not known apart.
local function bar(key, limits, width, view)
  if not view.tty or width < BAR_LEAST or not limits.budget or limits.budget == 0 then return nil end
  return terminal.bar((key.spent or key.charged) / limits.budget, (key.reserved or 0) / limits.budget, width, view)
end

--- A key as a page of text.
-- @tparam table view the terminal; bars are for one
function M.page(key, when, view)
  local out = { row("key", "%s%s", shown(key.id), key.disabled and " (disabled)" or ""),
    row("month", "%s, ends %s", when.month, when.ends),
    row("tokens, month", "%.0f (spent and reserved)", key.charged),
    row("spent", "%s", number(key.spent) or "unknown"), row("reserved", "%s", number(key.reserved) or "unknown"),
    row("in flight", "%s", number(key.in_flight) or "unknown (not all of its routes limit concurrency)") }
  local rated = false
  for _, one in ipairs(key.limits) do
    local part = share(key, one)
    local where = #key.limits > 1 and " on " .. table.concat(one.routes, ", ") or ""
    out[#out + 1] = row("budget", "%s%s%s", number(one.budget) or "none", where,
      part and (", %.1f %% of it spent and reserved"):format(100 * part) or "")
    local drawn = bar(key, one, math.min(BAR_OF_PAGE, view.width - ASIDE), view)
    if drawn then out[#out + 1] = row("", "%s", drawn) end
    rated = rated or one.rate ~= nil
  end
  if rated then
    out[#out + 1] = key.bucket and row("bucket", "%.2f requests left at the last request", key.bucket) or row("bucket", "full")
  end
  if #key.limits == 0 then out[#out + 1] = row("budget", "unknown: no key file and no route has this key") end
  return table.concat(out)
end

local COLUMNS = "%-24s %14s %14s %9s %16s %8s  %s\n"

--- What stands above all keys' lines.
function M.heading(when)
  return ("month %s, ends %s\n"):format(when.month, when.ends)
    .. COLUMNS:format("key", "spent", "reserved", "in flight", "budget", "share", "routes")
end

--- A key's lines of the table. Where what is reserved is unknown, spent has it in it and is marked.
-- @tparam table view the terminal; bars are for one that is wide enough
function M.lines(key, view)
  local out = {}
  if #key.limits == 0 then return COLUMNS:format(shown(key.id), number(key.charged), "", "", "-", "-", "no route") end
  for i, one in ipairs(key.limits) do
    local part = share(key, one)
    local first = i == 1
    local line = COLUMNS:format(first and shown(key.id) or "", first and (number(key.spent) or number(key.charged) .. "*") or "",
      first and (number(key.reserved) or "unknown") or "", first and (number(key.in_flight) or "unknown") or "",
      number(one.budget) or "none", part and ("%.1f %%"):format(100 * part) or "-", table.concat(one.routes, ", "))
    local drawn = bar(key, one, math.min(BAR_OF_LINE, view.width - terminal.length(line) - 1), view)
    out[i] = drawn and line:sub(1, -2) .. "  " .. drawn .. "\n" or line
  end
  return table.concat(out)
end

M.MARK = "* with what is reserved: without a limit of concurrency on each route with a budget it is not known apart\n"

return M
