-- idempotency with on_lost = "refuse", the gateway killed at each of its Redis commands: nothing is left that has no end, and
-- the next request runs, or is told that nobody knows.
local support = require "spec.support"
local kill = require "spec.plugins.idempotency.kill_rig"

it("a gateway that dies at any Redis command leaves nothing without an end", support.async(function()
  assert.is_true(kill.sweep "refuse" >= 8)
end, 120000))
