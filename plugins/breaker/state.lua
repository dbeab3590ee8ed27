-- One breaker's state as bytes of a fixed size, as all workers of a replica share it. It is read and written by way of one
-- struct that is used again and again, so that a request makes no table.
--
-- No bytes, or bytes of another layout, are a breaker of which nothing is known: closed, and nothing counted.

local ffi = require "ffi"

local M = {}

M.CLOSED, M.OPEN, M.HALF_OPEN = 0, 1, 2             -- state
M.RATIO, M.CONSECUTIVE, M.PROBE, M.HINT = 1, 2, 3, 4 -- reason of the last opening
M.AUTO, M.FORCED_OPEN, M.FORCED_CLOSED = 0, 1, 2    -- forced: what an operator said

M.BUCKETS = 10
M.NAME = 80 -- bytes of a replica's name that are kept, with a NUL

local LAYOUT = 0x62726b31 -- changes with the struct

-- Times are in ms of a clock that is never set, but for hint_ms, which is by Redis's.
local TYPE = ffi.typeof(([[struct {
  uint32_t layout;
  uint32_t epoch;                 // how often the state has changed
  uint32_t probe;                 // number of the last probe
  uint32_t in_a_row;              // failures
  uint32_t failures, requests;    // as they were at the last opening
  uint8_t state, reason, forced;
  uint8_t found;                  // whether the last opening was by own evidence
  double since;                   // the state; 0: from the start
  double until_ms;                // open: the next probe
  double lease;                   // half-open: the probe's end; 0: no probe is under way
  double cooldown;                // of the last opening, without jitter; 0: the next one is the first
  double recovered;               // a probe succeeded last; 0: never
  double due;                     // opened then, and others have not been told; 0: nothing to tell
  double hint_ms;                 // of the last hint that was looked at
  double lowered;                 // thresholds are halved until then
  double bucket_ms, head;         // length of a bucket; number of the newest
  uint32_t good[%d], bad[%d];     // by number of the bucket
  char by[%d];                    // replica whose hint was the last one
}]]):format(M.BUCKETS, M.BUCKETS, M.NAME))

M.SIZE = ffi.sizeof(TYPE)

--- A struct to work in, closed.
function M.new()
  return TYPE()
end

--- Reads bytes into a struct.
-- @tparam cdata s
-- @tparam string|nil bytes
-- @treturn cdata s
function M.decode(s, bytes)
  if type(bytes) == "string" and #bytes == M.SIZE then
    ffi.copy(s, bytes, M.SIZE)
    if s.layout == LAYOUT then return s end
  end
  ffi.fill(s, M.SIZE)
  s.layout = LAYOUT
  return s
end

--- The bytes of a struct.
-- @treturn string
function M.encode(s)
  return ffi.string(s, M.SIZE)
end

--- Keeps a replica's name, cut where it is too long.
function M.set_by(s, name)
  ffi.fill(s.by, M.NAME)
  ffi.copy(s.by, name, math.min(#name, M.NAME - 1))
end

--- The replica whose hint was the last one; "" where there was none.
function M.by(s)
  return ffi.string(s.by)
end

return M
