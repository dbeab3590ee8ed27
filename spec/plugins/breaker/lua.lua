-- The breaker's modules, for specs without a gateway, and a dictionary in their own memory.
local M = {}

for _, name in ipairs { "state", "machine", "store", "verdict", "hints" } do
  package.preload["breaker." .. name] = package.preload["breaker." .. name]
    or assert(loadfile("plugins/breaker/" .. name .. ".lua"))
  M[name] = require("breaker." .. name)
end

--- A dictionary with get and swap, as tg.shared has them; `between` is called before each step on it. `busy` = true makes
-- it one that is not to be had.
function M.dictionary(between)
  local self = { values = {} }
  function self.get(key)
    if between then between() end
    if self.busy then return nil, "busy" end
    return self.values[key]
  end
  function self.swap(key, before, value)
    if between then between() end
    if self.busy then return nil, "busy" end
    if self.values[key] ~= before then return nil, "changed" end
    self.values[key] = value
    return true
  end
  return self
end

--- Rules of a breaker, times in ms.
function M.rules(more)
  local rules = { bucket_ms = 1000, min_requests = 10, ratio = 0.5, consecutive = 5, cooldown = 1000, cooldown_max = 8000,
    factor = 2, jitter = 0, probe_lease = 3000, hint = "open" }
  for key, value in pairs(more or {}) do rules[key] = value or nil end
  return rules
end

return M
