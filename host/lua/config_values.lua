-- Single values of a configuration that are more than a string: addresses, URLs, paths of routes, header fields.
--
-- Each function takes what was written and returns its parts, or nil and a sentence. They are stricter than what the
-- host takes at run time, so that a slip is found by `tollgate check`.

local M = {}

local TOKEN = "^[%w!#$%%&'*+.^_`|~-]+$" -- RFC 9110, section 5.6.2
local SOCKET_PATH_MAX = 107 -- bytes; sun_path less its zero

-- Fields that the gateway writes itself, by name in lower case.
local OWN_FIELDS = {}
for name in ([[connection content-length expect host keep-alive proxy-connection te trailer transfer-encoding
  upgrade]]):gmatch("%S+") do
  OWN_FIELDS[name] = true
end

M.TOKEN = TOKEN

local function port_of(digits, least)
  local port = digits:find("^%d+$") and #digits <= 5 and tonumber(digits)
  if port and port >= least and port <= 65535 then return port end
  return nil, ("the port must be a number from %d to 65535"):format(least)
end

local function host_and_rest(authority)
  local host, rest = authority:match("^%[([%x:.]+)%](.*)$")
  if host then return host:lower(), rest end
  host, rest = authority:match("^([%w._~-]+)(.*)$")
  return host and host:lower(), rest
end

local function is_ipv4(host)
  local parts = { host:match("^(%d+)%.(%d+)%.(%d+)%.(%d+)$") }
  for _, part in ipairs(parts) do
    if #part > 3 or tonumber(part) > 255 then return false end
  end
  return #parts == 4
end

--- An address to listen on: "127.0.0.1:8080", "[::1]:8080", "localhost:8080"; port 0 lets the system choose.
-- Other names are refused: what they resolve to may change, and what is listened on may not.
-- @tparam string text
-- @treturn table|nil { host, port }
-- @treturn string|nil what is wrong
function M.address(text)
  if text:find("^%d+$") or text:find("^:%d+$") then
    return nil, ('must be "host:port": write "0.0.0.0:%s" for all interfaces'):format(text:match("%d+"))
  end
  local host, rest = host_and_rest(text)
  local digits = host and rest:match("^:(.*)$")
  if not digits then return nil, 'must be "host:port", IPv6 as "[::1]:8080"' end
  local port, err = port_of(digits, 0)
  if not port then return nil, err end
  if host == "localhost" then host = "127.0.0.1" end
  if not host:find(":", 1, true) and not is_ipv4(host) then
    return nil, "the host must be an IP address or localhost"
  end
  return { host = host, port = port }
end

--- An address to listen on: as `address`, or "unix:/path".
-- @tparam string text
-- @treturn table|nil { host, port } or { path }
-- @treturn string|nil what is wrong
function M.listen_address(text)
  local path = text:match("^unix:(.*)$")
  if not path then return M.address(text) end
  local ok, err = M.target_url(text)
  if not ok then return nil, err end
  return { path = path }
end

--- The URL of a target: http://host[:port][/path], the same with https://, or unix:/path.
-- @tparam string text
-- @treturn boolean|nil true
-- @treturn string|nil what is wrong
function M.target_url(text)
  local socket = text:match("^unix:(.*)$")
  if socket then
    if socket:sub(1, 1) ~= "/" then return nil, "unix: needs an absolute path" end
    if #socket > SOCKET_PATH_MAX then return nil, "the path of the socket is too long" end
    if socket:find("%c") then return nil, "the path of the socket holds a control character" end
    return true
  end
  local scheme, rest = text:match("^(%a[%w+.-]*)://(.*)$")
  scheme = scheme and scheme:lower()
  if scheme ~= "http" and scheme ~= "https" then return nil, "must begin with http://, https:// or unix:/" end
  if rest:find("[?#]") then return nil, "a query or fragment does not belong here" end
  local authority, path = rest:match("^([^/]*)(.*)$")
  if authority:find("@", 1, true) then return nil, "user information does not belong here" end
  local host, after = host_and_rest(authority)
  if not host then return nil, "the host is missing or not valid" end
  if after ~= "" then
    local digits = after:match("^:(.*)$")
    if not digits then return nil, "the host is not valid" end
    local port, err = port_of(digits, 1)
    if not port then return nil, err end
  end
  if path ~= "" then
    local _, err = M.normalise(path)
    if err then return nil, err end
  end
  return true
end

--- The URL of Redis: redis://[user[:password]@]host[:port][/db], the same with rediss:// for TLS,
-- unix://[user[:password]@]/path, redis+unix:///path?db=0.
-- @tparam string text
-- @treturn boolean|nil true
-- @treturn string|nil what is wrong; it never repeats the password
function M.redis_url(text)
  local scheme, rest = text:match("^(%a[%w+.-]*)://(.*)$")
  scheme = scheme and scheme:lower()
  if scheme == "unix" or scheme == "redis+unix" then
    local path = (rest:match("^[^/].*@(.*)$") or rest):match("^[^?]*")
    if path:sub(1, 1) ~= "/" then return nil, scheme .. ":// needs an absolute path, as in unix:///run/redis.sock" end
    if #path > SOCKET_PATH_MAX then return nil, "the path of the socket is too long" end
    return true
  end
  if scheme ~= "redis" and scheme ~= "rediss" then
    return nil, "must begin with redis://, rediss://, unix:/// or redis+unix:///"
  end
  local authority, path = rest:match("^([^/]*)(.*)$")
  local host, after = host_and_rest(authority:match("([^@]*)$"))
  if not host then return nil, "the host is missing or not valid" end
  if after ~= "" then
    local port, err = port_of(after:match("^:(.*)$") or "", 1)
    if not port then return nil, err end
  end
  if path ~= "" and path ~= "/" and not path:find("^/%d+$") then
    return nil, "the database must be a number, as in redis://127.0.0.1:6379/0"
  end
  return true
end

--- A Redis URL as it may be printed.
-- @tparam string text
-- @treturn string
function M.redis_url_masked(text)
  return (text:gsub("^(%a[%w+.-]*://).*@", "%1***@"):gsub("(pass[%w_-]*=)[^&]*", "%1***"))
end

local function decode(path)
  local bad
  local decoded = path:gsub("%%(%x?%x?)", function(hex)
    local code = #hex == 2 and tonumber(hex, 16)
    if not code or code < 0x20 or code == 0x7f or code == 0x5c then
      bad = true
      return nil
    end
    local c = string.char(code)
    return c:find("[%w._~-]") and c or "%" .. hex:upper()
  end)
  if bad then return nil end
  return decoded
end

--- Normalises a path as the host does before it matches (RFC 3986, section 6.2.2).
-- @tparam string path
-- @treturn string|nil the normalised path
-- @treturn string|nil what is wrong with it
function M.normalise(path)
  if path:sub(1, 1) ~= "/" then return nil, 'must begin with "/"' end
  if path:find("[?#]") then return nil, "must be a path without query or fragment" end
  if path:find("[^%w%%._~!$&'()*+,;=:@/-]") then return nil, "holds a character that must be percent-encoded" end
  local decoded = decode(path)
  if not decoded then return nil, "holds a percent sign that encodes nothing allowed in a path" end
  local out, slash = {}, false
  for segment in decoded:gmatch("/([^/]*)") do
    slash = segment == "" or segment == "." or segment == ".."
    if segment == ".." then
      if #out == 0 then return nil, "climbs above the root" end
      out[#out] = nil
    elseif not slash then
      out[#out + 1] = segment
    end
  end
  if #out == 0 then return "/" end
  return "/" .. table.concat(out, "/") .. (slash and "/" or "")
end

--- The path of a route: "/exact" or "/prefix/*".
-- @tparam string text
-- @treturn table|nil { path, kind = "exact"|"prefix" }; a prefix ends in "/"
-- @treturn string|nil what is wrong
function M.route_path(text)
  local prefix = text:match("^(.*/)%*$")
  local path = prefix or text
  if path:find("*", 1, true) then return nil, "a * may only stand at the end, after a slash: /v1/*" end
  local normal, err = M.normalise(path)
  if not normal then return nil, err end
  if normal ~= path then
    return nil, ('is not normalised and would never match: write "%s"'):format(normal .. (prefix and "*" or ""))
  end
  return { path = path, kind = prefix and "prefix" or "exact" }
end

--- The host of a route: exact, or "*.suffix"; a port is left out, since hosts compare without it.
-- @tparam string text
-- @treturn string|nil in lower case, without port and final dot
-- @treturn string|nil what is wrong
function M.route_host(text)
  local star, name = text:match("^(%*%.)(.*)$")
  name = name or text
  local host, rest = host_and_rest(name)
  if not host or (rest ~= "" and not rest:find("^:%d+$")) or (star and name:find("^%[")) then
    return nil, 'must be a host name, or "*.suffix"'
  end
  if name:find("^%[") then return "[" .. host .. "]" end
  host = host:gsub("%.$", "")
  if host == "" or host:find("^%.") or host:find("..", 1, true) then
    return nil, 'must be a host name, or "*.suffix"'
  end
  return (star or "") .. host
end

--- A name that a client may ask for by SNI (RFC 6066, section 3): a host name, or "*.suffix".
-- @tparam string text
-- @treturn string|nil in lower case
-- @treturn string|nil what is wrong
function M.server_name(text)
  local name = text:lower()
  local rest = name:match("^%*%.(.+)$") or name
  if not rest:find("^[%w_.-]+$") or rest:find("^%.") or rest:find("%.$") or rest:find("..", 1, true) or is_ipv4(rest) then
    return nil, 'must be a host name, or "*.suffix"'
  end
  return name
end

--- Whether a target may set or remove a header field of this name.
-- @tparam string name
-- @treturn string|nil what is wrong
function M.target_header(name)
  if OWN_FIELDS[name:lower()] then return "is written by the gateway itself" end
end

--- Whether a string may be a field's value (RFC 9110, section 5.5).
-- @tparam string value
-- @treturn string|nil what is wrong; it never repeats the value
function M.header_value(value)
  if value:find("[%z\1-\8\10-\31\127]") then return "holds a line end or another control character" end
  if value:find("^%s") or value:find("%s$") then return "begins or ends with a space" end
end

return M
