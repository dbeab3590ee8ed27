-- What people ask of plugins while the gateway runs: `tollgate plugin NAME …` and what status shows of them. It runs in one
-- worker, for the replica.
--
-- A plugin takes commands by a function `command(words)`, which returns plain data and a text for people, or nil and a
-- message. Without words it tells how things are, which status shows too, so that must change nothing.

local tg = require "tollgate"

local M = {}

-- The plugins that take commands: by name, and their names in order.
local function takers(chains)
  local by_name, names = {}, {}
  for _, route in ipairs(chains) do
    for _, entry in ipairs(route.chain) do
      if entry.plugin.command and not by_name[entry.name] then
        by_name[entry.name] = entry.plugin
        names[#names + 1] = entry.name
      end
    end
  end
  table.sort(names)
  return by_name, names
end

-- What a plugin says; its failure is the log's.
local function ask(name, plugin, words)
  local ok, value, text = xpcall(plugin.command, debug.traceback, words)
  if ok and value == nil then return nil, tostring(text) end
  local fine, encoded
  if ok then fine, encoded = pcall(tg.json.encode, value) end
  if fine then return encoded, type(text) == "string" and text or encoded .. "\n" end
  tg.log.error("plugin ", name, ", command: ", ok and encoded or value)
  return nil, "the plugin failed; see the gateway's log", name
end

local function run(request, by_name, names, stopped)
  local name = request.plugin
  local plugin = by_name[name]
  if not plugin then
    return false, ("no plugin %q takes commands here; there are: %s"):format(name,
      #names > 0 and table.concat(names, ", ") or "none")
  end
  if stopped[name] then return false, ("plugin %s is quarantined"):format(name) end
  local encoded, text, failed = ask(name, plugin, request.words)
  if not encoded then return false, text, failed end
  return true, request.json and encoded .. "\n" or text
end

--- Does what is asked.
-- @tparam table config the resolved configuration
-- @tparam string text JSON: { plugin = name, words = list, json = boolean }, or { status = true }
-- @tparam table stopped names of plugins that are quarantined, as keys
-- @treturn boolean whether it was done
-- @treturn string the answer; of status a JSON object, what each plugin says by its name
-- @treturn string|nil the plugin that raised
function M.run(config, text, stopped)
  local request = assert(tg.json.decode(text))
  local by_name, names = takers(config.chains)
  if not request.status then return run(request, by_name, names, stopped) end
  local said, raised = {}, nil
  for _, name in ipairs(names) do
    local encoded, _, failed
    if not stopped[name] then encoded, _, failed = ask(name, by_name[name], {}) end
    said[name] = encoded and tg.json.raw(encoded) or tg.json.null
    raised = raised or failed
  end
  return true, tg.json.encode(said), raised
end

return M
