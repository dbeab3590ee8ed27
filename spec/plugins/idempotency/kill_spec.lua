-- idempotency with on_lost = "retry", the gateway killed at each of its Redis commands: nothing is left that has no end, and
-- the next request runs.
local support = require "spec.support"
local kill = require "spec.plugins.idempotency.kill_rig"

it("a gateway that dies at any Redis command leaves nothing without an end", support.async(function()
  assert.is_true(kill.sweep "retry" >= 6)
end, 120000))
