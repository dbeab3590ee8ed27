-- Hints in Redis: cb:hint:{provider}:{model}, the text `open:{replica}:{ms}`, ms by Redis's clock. Plain functions.

local M = {}

M.CHANNEL = "cb:nudge" -- a message here, the hint's key, says that there is one
M.LIFETIME = 30        -- seconds

--- A hint's key. The part of a target without a model is empty.
-- @tparam function encode tg.redis.encode
function M.key(encode, provider, model)
  return "cb:hint:" .. encode(provider) .. ":" .. (model and encode(model) or "")
end

--- Reads a hint.
-- @tparam string text
-- @treturn string|nil the replica, encoded as it stands; nil where it is no hint
-- @treturn number ms
function M.parse(text)
  local replica, ms = text:match "^open:([^:]+):(%d+)$"
  return replica, tonumber(ms)
end

return M
