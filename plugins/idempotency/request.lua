-- What an idempotent request is, without I/O: the client's key, whose it is, and what makes two requests the same one.

local M = {}

local KEY_MAX = 255 -- characters

-- A string of structured fields (RFC 8941, section 3.3.3): what is between the quotes, without its escapes; nil where it is
-- malformed. Parameters behind it are left out: none is defined, and section 4.2 wants what is unknown to be passed over.
local function quoted(value)
  local out, at = {}, 2
  repeat
    local plain, stop = value:match('^([^"\\%c\127-\255]*)(["\\])', at)
    if not plain then return nil end
    out[#out + 1] = plain
    at = at + #plain + 1
    if stop == "\\" then
      local escaped = value:match('^["\\]', at)
      if not escaped then return nil end
      out[#out + 1] = escaped
      at = at + 1
    end
  until stop == '"'
  return (at > #value or value:find("^;", at)) and table.concat(out) or nil
end

--- The client's key out of its header field: a string of structured fields, or, as most clients send it, the bare key.
-- @tparam string value of the field; several lines joined by ", ", which is no key
-- @treturn string|nil 1 to 255 characters: visible ones, in quotes also spaces
function M.key(value)
  value = value:match("^[ \t]*(.-)[ \t]*$")
  local key = value:match("^[!-~]+$")
  if value:sub(1, 1) == '"' then key = quoted(value) end
  return key and #key >= 1 and #key <= KEY_MAX and key or nil
end

--- Who shares keys: the namespace of a request's key.
-- @tparam string scope "consumer", "tenant" or "route"; what the request does not have is looked for further right
-- @tparam table|nil consumer { id, tenant }
-- @tparam string route its name
-- @treturn string kind that was found
-- @treturn string namespace, not encoded: a consumer's id, a tenant, or "route:NAME"
function M.namespace(scope, consumer, route)
  if consumer and scope == "tenant" and consumer.tenant and consumer.tenant ~= "" then return "tenant", consumer.tenant end
  if consumer and scope ~= "route" and consumer.id and consumer.id ~= "" then return "consumer", consumer.id end
  return "route", "route:" .. route
end

-- By length, so that no two lists of values frame to the same bytes; an absent value is not an empty one.
local function frame(out, value)
  out[#out + 1] = value and #value .. ":" .. value or "-"
end

--- What makes two requests with one key the same.
-- @tparam table r { kind, namespace, host, method, path, query (or nil), headers = list of { name, value or nil }, body }
-- @tparam function sha256 text → hexadecimal
-- @treturn string hexadecimal
function M.fingerprint(r, sha256)
  local out = {}
  for _, value in ipairs { "1", r.kind, r.namespace, (r.host or ""):lower(), r.method, r.path } do frame(out, value) end
  frame(out, r.query)
  frame(out, tostring(#r.headers))
  for _, header in ipairs(r.headers) do
    frame(out, header[1])
    frame(out, header[2])
  end
  frame(out, sha256(r.body))
  return sha256(table.concat(out))
end

return M
