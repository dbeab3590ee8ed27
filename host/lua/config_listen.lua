-- Where the gateway listens, and by which certificates: the keys of `listen` and `admin`, and the shape the host reads.
--
-- An address is written "host:port" or "unix:/path", or { "host:port", tls = { … } } where there is more to say. An IPv6
-- address takes IPv6 alone, "[::]" too: write both where both are wanted. Files of certificates and keys are read and checked
-- by the host.

local network = require "tollgate.config_network"
local values = require "tollgate.config_values"
local text = require "tollgate.schema_text"

local M = {}

local function is_address(value)
  local ok, message = values.address(value)
  if not ok then return message end
end

local function is_place(value)
  local ok, message = values.listen_address(value)
  if not ok then return message end
end

local function is_server_name(value)
  local name, message = values.server_name(value)
  if not name then return message end
end

local DOC = '"host:port", or "unix:/path"; port 0: any free one'
local DOC_ADMIN = '"host:port"; port 0: any free one'
local SOCKET_MODE = "0660"
local TOKEN_MIN = 16 -- bytes

local CERTIFICATE = { type = "path", doc = "file of the certificate and what leads to its issuer, PEM" }
local KEY = { type = "path", doc = "file of its private key, PEM, not encrypted" }

local function required(field)
  local out = { required = true }
  for name, value in pairs(field) do out[name] = value end
  return out
end

local function check_tls(tls, path)
  local faults = {}
  local function add(name, message) faults[#faults + 1] = { path = text.join(path, name), message = message } end
  if tls.certificates then
    for _, name in ipairs { "cert", "key" } do
      if tls[name] then add(name, "stands beside certificates: put it in there") end
    end
  else
    if not tls.cert then add("cert", "is required, or certificates, a list") end
    if tls.cert and not tls.key then add("key", "is required") end
  end
  if tls.ticket_keys and not tls.tickets then add("ticket_keys", "has no use where tickets = false") end
  return faults
end

local tls = {
  type = "table", doc = "TLS on this address", check = check_tls,
  fields = {
    cert = CERTIFICATE, key = KEY,
    certificates = { type = "list", min = 1, max = 10000, doc = "several, told apart by the name that the client asks for",
      of = { type = "table", fields = {
        cert = required(CERTIFICATE), key = required(KEY),
        names = { type = "list", min = 1, doc = "that it is used for; default: those in it",
          of = { type = "string", min = 1, max = 253, check = is_server_name } },
      } } },
    min_version = { type = "string", one_of = { "1.2", "1.3" }, default = "1.2", doc = "the oldest version of TLS" },
    ciphers = { type = "list", min = 1, doc = "cipher suites by OpenSSL's names, of TLS 1.2 and 1.3; default: modern ones",
      of = { type = "string", pattern = "^[%w_-]+$", hint = "must be the name of one cipher suite" } },
    client = { type = "table", doc = "certificates of clients", fields = {
      ca = { type = "path", required = true, doc = "file of the CAs, or single certificates, that are trusted, PEM" },
      required = { type = "boolean", default = true, doc = "false: a client may come without one" },
    } },
    tickets = { type = "boolean", default = true, doc = "let clients resume sessions by tickets" },
    ticket_keys = { type = "path", doc = "file of secrets, one a line, that replicas share; default: made and rotated here" },
  },
}

local function check_place(place, path)
  local unix = values.listen_address(place.address).path ~= nil
  local faults = {}
  if place.mode and not unix then
    faults[1] = { path = text.join(path, "mode"), message = "is for Unix sockets" }
  end
  return faults
end

local place = { type = "string", min = 1, check = is_place, doc = DOC }

local place_entry = { type = "table", first = "address", check = check_place, fields = {
  address = { type = "string", required = true, min = 1, check = is_place, doc = DOC },
  mode = { type = "string", pattern = "^0?[0-7][0-7][0-7]$", hint = 'must be an octal mode such as "0660"',
    doc = "who may connect to a Unix socket; default: " .. SOCKET_MODE },
  proxy_protocol = { alternatives = {
    { type = "boolean", doc = "true: required, from trusted_proxies" }, network.proxies "required, from these",
  }, doc = "the header of the PROXY protocol, version 1 or 2, before everything else" },
  tls = tls,
} }

local address = { type = "string", min = 1, check = is_address, doc = DOC_ADMIN }

local entry = { type = "table", first = "address", fields = {
  address = { type = "string", required = true, min = 1, check = is_address, doc = DOC_ADMIN },
  tls = tls,
  token = { type = "string", secret = true, min = TOKEN_MIN, max = 512, pattern = "^[%w._~+/=-]+$",
    hint = "must be letters, digits and ._~+/=- (RFC 6750)",
    doc = 'allows POST /reload, /upgrade and /reopen with "Authorization: Bearer"; by env or file; absent: only reading' },
} }

--- The field `listen`: an address, one with more to say, or a list of either.
M.listen = {
  alternatives = { place, place_entry, { type = "list", of = { alternatives = { place, place_entry } }, min = 1 } },
  default = "127.0.0.1:8080",
  doc = '"host:port", "unix:/path", { "host:port", tls = { … } }, or a list of these; port 0: any free one',
}

--- The field `admin`: likewise, or false.
M.admin = {
  alternatives = { address, entry, { type = "boolean", one_of = { false }, doc = "none" } },
  default = "127.0.0.1:8081", doc = "health checks and figures; false: none",
}

local function certificates(given, path)
  local list = {}
  for i, one in ipairs(given.certificates or { { cert = given.cert, key = given.key } }) do
    local at = given.certificates and text.join(text.join(path, "certificates"), i) or path
    local names = {}
    for k, name in ipairs(one.names or {}) do names[k] = values.server_name(name) end
    list[i] = { cert = one.cert, key = one.key, names = names, path = at }
  end
  return list
end

--- One address as the host reads it.
-- @param written a string, or a table { address, … }
-- @tparam string path
-- @treturn table { host, port } or { path, mode }, with tls and proxy_protocol; `tls` has the `path` of each thing that the
-- host still has to check
function M.normalise(written, path)
  if type(written) == "string" then written = { address = written } end
  local out = values.listen_address(written.address)
  if out.path then out.mode = tonumber(written.mode or SOCKET_MODE, 8) end
  local given = written.tls
  out.proxy_protocol = written.proxy_protocol or nil
  out.token = written.token
  if given then
    local at = text.join(path, "tls")
    out.tls = {
      path = at, certificates = certificates(given, at), min_version = given.min_version, ciphers = given.ciphers or {},
      client = given.client, tickets = given.tickets, ticket_keys = given.ticket_keys,
    }
  end
  return out
end

--- The addresses of `listen` as the host reads them.
-- @param listen as it was checked
-- @treturn {table,...}
function M.addresses(listen)
  if type(listen) ~= "table" or listen.address then return { M.normalise(listen, "listen") } end
  local list = {}
  for i, one in ipairs(listen) do list[i] = M.normalise(one, #listen > 1 and text.join("listen", i) or "listen") end
  return list
end

return M
