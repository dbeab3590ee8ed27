-- TLS with servers that the gateway connects to: targets and Redis. Files are read and checked by the host.

local text = require "tollgate.schema_text"
local values = require "tollgate.config_values"

local M = {}

local function is_name(value)
  local name, message = values.server_name(value)
  if not name then return message end
  if name:find("*", 1, true) then return "must be one name, without *" end
end

local function check(tls, path)
  local faults = {}
  local function add(name, message) faults[#faults + 1] = { path = text.join(path, name), message = message } end
  if tls.cert and not tls.key then add("key", "is required beside cert") end
  if tls.key and not tls.cert then add("cert", "is required beside key") end
  if tls.ca and not tls.verify then add("ca", "has no use where verify = false") end
  return faults
end

--- The field `tls` of what is connected to.
M.field = {
  type = "table", check = check, doc = "how TLS is spoken with it",
  fields = {
    ca = { type = "path", doc = "file of the authorities that are trusted, PEM; default: the system's" },
    cert = { type = "path", doc = "file of the gateway's own certificate, where one is asked for, PEM" },
    key = { type = "path", doc = "file of its private key, PEM, not encrypted" },
    server_name = { type = "string", min = 1, max = 253, check = is_name,
      doc = "whose certificate it must show; default: the URL's host" },
    verify = { type = "boolean", default = true, doc = "false: any certificate will do" },
  },
}

--- What the host reads of it.
-- @tparam table|nil tls checked
-- @tparam string path where it stands
-- @treturn table|nil
function M.normalise(tls, path)
  if not tls then return nil end
  return { path = path, ca = tls.ca, cert = tls.cert, key = tls.key, server_name = tls.server_name,
    insecure = not tls.verify }
end

return M
