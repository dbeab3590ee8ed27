-- The settings of idempotency: their schema, what it cannot say, and small sets made of them. Without I/O.

local answer = require "idempotency.answer"

local M = {}

local TOKEN = "^[%w!#$%%&'*+.^_`|~-]+$" -- a method, or the name of a header field: RFC 9110, section 5.6.2

local header_name = { type = "string", min = 1, pattern = TOKEN, hint = "is no name of a header field" }

M.schema = {
  header = { type = "string", min = 1, pattern = TOKEN, hint = "is no name of a header field", default = "Idempotency-Key",
    doc = "header that holds the key" },
  methods = { type = "list", min = 1, default = { "POST", "PATCH" },
    of = { type = "string", min = 1, pattern = TOKEN, hint = "is no method" },
    doc = "methods whose requests may have a key; others pass" },
  required = { type = "boolean", default = false, doc = "refuse requests of these methods without a key" },
  scope = { type = "string", one_of = { "consumer", "tenant", "route" }, default = "consumer",
    doc = "who shares keys; a request without that: the consumer, else all of the route" },
  fingerprint = { type = "list", of = header_name, default = { "content-type", "content-encoding" },
    doc = "request headers that a repeat must have the same, besides method, URL and body" },
  wait = { type = "duration", max = 300, doc = "seconds that a repeat waits for the first request; absent: 409 at once" },
  max_waiting = { type = "integer", min = 1, max = 100000, default = 1000,
    doc = "requests that may wait in a worker; further ones get 409 at once" },
  retry_after = { type = "integer", min = 1, max = 120, default = 2,
    doc = "seconds of Retry-After where the first request still runs" },
  ttl = { type = "duration", min = 1, max = 86400 * 31, default = 86400, doc = "seconds that an answer is kept" },
  lease = { type = "duration", min = 0.3, max = 3600, default = 60,
    doc = "seconds that a claim lives without renewal: the longest that a dead gateway's keys stay in use" },
  on_lost = { type = "string", one_of = { "retry", "refuse" }, default = "retry",
    doc = "where the outcome of the first request is unknown: the next one runs, or gets 409 until ttl has passed" },
  max_body = { type = "size", min = 0, max = 64 * 1024 ^ 2, default = "1m",
    doc = "bytes of an answer that is stored; a larger one lets the next request run" },
  release = { type = "list", default = { 408, 409, 425, 429, "5xx" },
    of = { alternatives = { { type = "integer", min = 200, max = 599 }, { type = "string", one_of = { "4xx", "5xx" } } } },
    doc = "statuses of the origin that are not stored: the next request runs" },
  headers = { type = "list", of = header_name,
    doc = "headers of the answer that a replay has; default: all but those of a connection or cache, Date and rate limits" },
  drain_time = { type = "duration", min = 0.1, max = 3600, default = 300,
    doc = "seconds that an answer is read on when the client has left" },
  on_redis_error = { type = "string", one_of = { "deny", "allow" }, default = "deny",
    doc = "where Redis cannot decide: 503, or run without protection" },
  deadline = { type = "duration", min = 0.001, max = 60, doc = "seconds that Redis has for a call; default redis.timeout" },
}

--- What the schema cannot say.
function M.check(conf, path)
  local faults = {}
  for i, name in ipairs(conf.headers or {}) do
    if not answer.may_keep(name:lower()) then
      faults[#faults + 1] = { path = ("%s.headers[%d]"):format(path, i),
        message = "is of one message or the gateway's own, and cannot be replayed" }
    end
  end
  if conf.lease > conf.ttl then
    faults[#faults + 1] = { path = path .. ".lease", message = "must not be longer than ttl" }
  end
  return faults
end

--- A list as a set; in lower case where so wanted.
function M.set(list, lower)
  local set = {}
  for _, item in ipairs(list) do set[lower and item:lower() or item] = true end
  return set
end

--- Names of header fields, of one list or two, in lower case, each once, sorted.
function M.sorted(list, more)
  local names, seen = {}, {}
  for _, from in ipairs { list, more or {} } do
    for _, name in ipairs(from) do
      name = name:lower()
      if not seen[name] then names[#names + 1] = name end
      seen[name] = true
    end
  end
  table.sort(names)
  return names
end

return M
