-- Another machine's clock, as far as its answers tell: which time it has while we ask. Plain functions; times in ms.
--
-- An answer that says T, asked for at `sent` and received at `received`, shows that the other clock is ahead of ours by
-- T − received at least and by T − sent at most. What is kept is the largest of the lower bounds that the last answer
-- does not contradict, so the guess is behind by about the way back of the fastest answer, and follows a clock that is set.

local M = {}
M.__index = M

--- A clock of which nothing is known yet: it is taken to go as ours does.
-- @treturn table
function M.new()
  return setmetatable({ ahead = 0, known = false }, M)
end

--- The other clock's time, or a little earlier.
-- @tparam number now_ms our time
-- @treturn number
function M:now(now_ms)
  return now_ms + self.ahead
end

--- Takes in an answer.
-- @tparam number sent_ms our time when it was asked for
-- @tparam number received_ms our time when it came
-- @tparam number told_ms the time that it says
function M:learn(sent_ms, received_ms, told_ms)
  local least, most = told_ms - received_ms, told_ms - sent_ms
  if not self.known or self.ahead < least or self.ahead > most then self.ahead = least end
  self.known = true
end

return M
