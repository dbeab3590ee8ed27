-- A hundred reloads under load: no request fails, and nothing is left of the generations before. scripts/soak does a
-- thousand, with a closer look at memory.
local support = require "spec.support"
local rig = require "spec.host.soak_rig"

local WARM_UP, RELOADS = 20, 100
local RSS_SLACK = 24 * 1024 -- kB; a sanitizer needs more

it("a hundred reloads under load fail no request and leave nothing behind", support.async(function()
  local gw = rig.start()
  local _, before = rig.reload(gw, 1, WARM_UP)
  local load, after = rig.reload(gw, WARM_UP + 1, WARM_UP + RELOADS)
  assert.truthy(load.sent > RELOADS)
  rig.compare(gw, before, after, RSS_SLACK)
end))
