#!lua flags=allow-oom
-- Drops members of a set of requests in flight whose lease is gone: their gateway died, or lost
-- them. The caller names members that it sampled; the lease of each is looked at here, so that
-- nothing can change between looking and dropping. It only deletes, and so may run when memory is
-- short.
--
-- KEYS: q:conc:{keyId}, then q:reserved:{requestId} of each member
-- ARGV: the members, in the same order
-- Returns the number of members dropped, as a string.
-- Errors with TYPE where the key holds something else; nothing was changed.

local found = redis.call("TYPE", KEYS[1]).ok
if found ~= "none" and found ~= "set" then
  return redis.error_reply("TYPE " .. KEYS[1] .. " does not hold what quota keeps there")
end

local dead = {}
for i, id in ipairs(ARGV) do
  local lease = redis.pcall("GET", KEYS[1 + i])
  if not lease or lease == "-1" then dead[#dead + 1] = id end
end
if #dead == 0 then return "0" end
return tostring(redis.call("SREM", KEYS[1], unpack(dead)))
