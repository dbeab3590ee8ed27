-- The chain that keeps a cached resource from going stale: which events have to drop a key, and whether a configuration has a
-- webhook that does. Plain functions, over the configuration as a plugin's check sees it.

local M = {}

-- Events that change what is under a key, by the key's first segment.
local EVENTS = {
  balance = { "balance.updated" },
  stats = { "balance.updated", "invoice.created", "invoice.cancelled" },
}

--- Whether invalidation is required for a template unless the route opts out.
-- @tparam table template of webhook.cached_keys
-- @treturn boolean
function M.is_required(template)
  return EVENTS[template.parts[1].literal] ~= nil
end

-- Calls fn(event, template text) for all that webhooks drop.
local function each_drop(config, fn)
  for _, route in ipairs(config.routes) do
    for _, entry in ipairs(route.chain or {}) do
      local events = entry.name == "webhook" and type(entry.conf) == "table" and entry.conf.events
      for event, one in pairs(type(events) == "table" and events or {}) do
        local drop = type(one) == "table" and one.drop
        for _, text in ipairs(type(drop) == "table" and drop or {}) do fn(event, text) end
      end
    end
  end
end

--- The events that should drop a key and that no webhook drops it for.
-- @tparam table config of the gateway
-- @tparam table template of the key
-- @tparam function parse webhook.cached_keys.parse
-- @treturn {string,...} names of events; where none is known for such keys and no webhook names it, { "any event" }
function M.missing(config, template, parse)
  local dropped, any = {}, false
  each_drop(config, function(event, text)
    local other = type(text) == "string" and parse(text)
    if other and other.shape == template.shape then dropped[event], any = true, true end
  end)
  local missing = {}
  for _, event in ipairs(EVENTS[template.parts[1].literal] or {}) do
    if not dropped[event] then missing[#missing + 1] = event end
  end
  if not EVENTS[template.parts[1].literal] and not any then missing[1] = "any event" end
  return missing
end

return M
