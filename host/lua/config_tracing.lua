-- The part `tracing` of a configuration: W3C trace context, off where it is absent.

local M = {}

local ACCEPT = { [true] = "always", [false] = "never", trusted = "trusted" }

--- The field `tracing`.
M.field = { type = "table", doc = "W3C trace context; absent: off, and traceparent passes untouched", fields = {
  accept = { default = "trusted", alternatives = { { type = "boolean" }, { type = "string", one_of = { "trusted" } } },
    doc = "whose traceparent is taken over: everybody's, nobody's, or that of trusted_proxies" },
  sample = { type = "number", min = 0, max = 1, default = 1, doc = "the share of traces that begin here to be sampled" },
} }

--- In the shape that the host reads.
-- @tparam table|nil given checked
-- @treturn table|nil accept: "always", "never" or "trusted"; sample
function M.normalise(given)
  return given and { accept = ACCEPT[given.accept], sample = given.sample }
end

return M
