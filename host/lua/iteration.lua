-- The first thing in a Lua state: `pairs` and `next` that LuaJIT does not specialise.
--
-- LuaJIT turns a loop over its own pairs or next into an instruction of its own. When it gives such a loop up for compilation
-- while that runs, the loop goes on by a position that is taken for a key, and ends early without a word, or leaves an element
-- out: https://github.com/LuaJIT/LuaJIT/issues/827, in what Debian 12 has, and issues/1510, of the same kind, after it. Nor is a
-- call of next right where that version compiles it: lists lose elements. So what is made here is never compiled, and a loop
-- over it is interpreted, as it was before LuaJIT could compile any of this; what such a loop calls is compiled all the same.
--
-- It behaves as the built-in ones do, but that pairs gives another function than the built-in next.

local raw_next, type, error = next, type, error

local function following(t, key) return raw_next(t, key) end

require("jit").off(following)

next = following

function pairs(t)
  if type(t) ~= "table" then
    error(("bad argument #1 to 'pairs' (table expected, got %s)"):format(t == nil and "nil" or type(t)), 2)
  end
  return following, t, nil
end
