-- Steps on a shared state: read, change, and write where nobody was faster, else again. So of two workers that both want to
-- be the probe one is.
--
-- Where the dictionary is not to be had for a moment (another worker holds its lock), what this worker saw last decides, and
-- then nothing is counted and nobody is the probe.

local state = require "breaker.state"

local M = {}
M.__index = M

local TRIES = 100 -- each failure but the last is another worker's success

--- A store over a dictionary.
-- @tparam table shared get(key) and swap(key, before, value), as tg.shared has them
-- @treturn table
function M.new(shared)
  return setmetatable({ shared = shared, s = state.new(), seen = {} }, M)
end

--- Makes one step.
-- @tparam string key
-- @tparam function step of machine.lua, called with the state and up to six arguments
-- @return what the step returned behind its first result; nil, err where it could not be made: "busy", "contended". What the
-- state is then, or was, is in self.s, until the next call
function M:step(key, step, a, b, c, d, e, f)
  local shared, s = self.shared, self.s
  for _ = 1, TRIES do
    local bytes, err = shared.get(key)
    if err then return nil, err end
    self.seen[key] = bytes
    state.decode(s, bytes)
    local changed, one, two, three = step(s, a, b, c, d, e, f)
    if not changed then return one, two, three end
    local after = state.encode(s)
    local ok
    ok, err = shared.swap(key, bytes, after)
    if ok then
      self.seen[key] = after
      return one, two, three
    end
    if err ~= "changed" then return nil, err end
  end
  return nil, "contended"
end

--- The state as it is, or as it was when it was last to be had.
-- @treturn cdata self.s
-- @treturn string|nil "busy" where it is the last one
function M:read(key)
  local bytes, err = self.shared.get(key)
  if err then return state.decode(self.s, self.seen[key]), err end
  self.seen[key] = bytes
  return state.decode(self.s, bytes)
end

--- As step, on what was seen last, which stays as it is.
function M:guess(key, step, ...)
  return select(2, step(state.decode(self.s, self.seen[key]), ...))
end

return M
