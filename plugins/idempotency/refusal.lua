-- How a refusal by idempotency looks: status, code, message and headers, without I/O.
--
-- Clients retry a 409 after `retry-after`, unless `x-should-retry` is false: right where the first request still runs, of no
-- use where the outcome is unknown or the key is another request's.

local M = {}

local FINAL = { ["x-should-retry"] = "false" }

local function after(seconds) return { ["retry-after"] = ("%d"):format(math.ceil(seconds)) } end

function M.missing(header)
  return 400, "idempotency_key_missing", "This request needs the header " .. header
end

function M.invalid(header)
  return 400, "invalid_idempotency_key", header .. " must be there once and hold 1 to 255 visible characters"
end

function M.mismatch()
  return 422, "idempotency_key_reused",
    "This idempotency key was used for another request; a repeat must be the same in method, URL and body", FINAL
end

--- @tparam number seconds until it makes sense to try again
function M.running(seconds)
  return 409, "idempotency_key_in_use", "A request with this idempotency key is still being processed", after(seconds)
end

function M.lost()
  return 409, "idempotency_outcome_unknown", "The outcome of the request with this idempotency key is unknown; find out "
    .. "what it did before you send it again with another key", FINAL
end

function M.unavailable()
  return 503, "idempotency_unavailable", "Idempotency keys cannot be checked at the moment", after(1)
end

return M
