-- auth: who calls. Finds the record of the caller's API key and hands it on as ctx.consumer.
--
-- The key is the first of: `Authorization: Bearer KEY` (the scheme in any case), `x-api-key`, the configured headers in
-- their order; further ones are not looked at, and of a header that is there twice the first counts. All of these
-- headers are then removed, whether one held the key or not, so that no credential of a client goes upstream; what the
-- target needs is set by its own `headers` afterwards. Secrets are compared by their SHA-256 and never logged.

local tg = require "tollgate"

local TOKEN = "^[%w!#$%%&'*+.^_`|~-]+$" -- name of a header field, RFC 9110, section 5.6.2

local header_name = { type = "string", min = 1, pattern = TOKEN, hint = "is no name of a header field" }

local M = {
  version = "1.0.0",
  priority = 900,
  schema = {
    keys = { type = "path", required = true, doc = "file of key records, one JSON object a line" },
    header = {
      alternatives = { header_name, { type = "list", of = header_name, min = 1 } },
      doc = "header, or headers, that may hold the key besides Authorization and x-api-key",
    },
    anonymous = { type = "boolean", default = false, doc = "let requests without a key pass, without a consumer" },
  },
}

local CHALLENGE = { ["www-authenticate"] = "Bearer" }

-- One generation reads a file once, however many routes name it; a new generation is a new Lua state.
local stores = setmetatable({}, { __mode = "v" })
local instances = setmetatable({}, { __mode = "k" })

local function open(path)
  local store = stores[path]
  if store then return store end
  local err
  store, err = tg.keys.open(path)
  if not store then error(err, 0) end
  stores[path] = store
  return store
end

-- Headers that hold the key as it is, in the order in which they are looked at.
local function plain_headers(header)
  local names = { "x-api-key" }
  for _, name in ipairs(type(header) == "table" and header or { header }) do
    names[#names + 1] = name:lower()
  end
  return names
end

function M.init(conf)
  instances[conf] = { store = open(conf.keys), headers = plain_headers(conf.header) }
end

local function bearer(value)
  local scheme, token = value:match("^(%a+) +(%S+)%s*$")
  if scheme and scheme:lower() == "bearer" then return token end
end

-- Of a field that is there twice, which `headers` joins by a comma, the first.
local function first_value(request, wanted)
  local value = request.headers[wanted]
  if not value or not value:find(",", 1, true) then return value end
  for name, one in request:each_header() do
    if name:lower() == wanted then return one end
  end
end

local function find_secret(request, names)
  local authorization = first_value(request, "authorization")
  local secret = authorization and bearer(authorization)
  if secret then return secret end
  for _, name in ipairs(names) do
    local value = first_value(request, name)
    if value and value ~= "" then return value end
  end
end

local function remove_credentials(headers, names)
  headers.authorization = nil
  for _, name in ipairs(names) do headers[name] = nil end
end

local function may_use(record, route)
  if not record.routes then return true end
  for _, name in ipairs(record.routes) do
    if name == route then return true end
  end
  return false
end

function M.access(conf, ctx)
  local instance, request = instances[conf], ctx.request
  local secret = find_secret(request, instance.headers)
  remove_credentials(request.headers, instance.headers)
  if not secret then
    if conf.anonymous then return end
    return ctx:refusal(401, "invalid_api_key", "No API key: send it as Authorization: Bearer KEY", CHALLENGE)
  end

  local record = instance.store:find(secret)
  if not record or record.disabled then
    -- One answer for both: it does not tell whether a key ever existed.
    return ctx:refusal(401, "invalid_api_key", "The API key is not valid", CHALLENGE)
  end
  if not may_use(record, ctx.route.name) then
    return ctx:refusal(403, "route_not_allowed", "The API key may not be used for this route")
  end
  ctx.consumer = record
end

return M
