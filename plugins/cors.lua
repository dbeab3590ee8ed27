-- Cross-origin requests of browsers (the Fetch standard, section "HTTP-CORS protocol").
--
-- A preflight is answered here, before any other plugin: browsers send it without credentials, so auth must not
-- see it. It also gets past the route's methods: the host takes an OPTIONS with Access-Control-Request-Method to
-- the route of that method where this plugin stands on it. A preflight from an origin that is not allowed gets a
-- 204 without the fields that would allow it.
--
-- On other answers, the gateway's own errors too, the fields are set for an allowed origin, and what the target
-- says of them is replaced, since a browser refuses two.

local M = {
  version = "1.0.0",
  priority = 1000,
  preflight = true,
  schema = {
    origins = { type = "list", of = { type = "string", min = 1 }, min = 1, required = true,
      doc = "allowed origins: exact (https://app.example.com), with a wildcard label (https://*.example.com), or *" },
    methods = { type = "list", of = { type = "string", pattern = "^[A-Z]+$", hint = "must be a method in upper case" },
      default = { "GET", "HEAD", "POST", "PUT", "PATCH", "DELETE" }, doc = "methods that a preflight allows" },
    headers = { type = "list", of = { type = "string", min = 1 }, default = {},
      doc = "request headers that a preflight allows; empty: those that it asks for" },
    expose = { type = "list", of = { type = "string", min = 1 }, default = {},
      doc = "response headers that scripts may read" },
    credentials = { type = "boolean", default = false,
      doc = "allow cookies and other credentials; not with origins = { \"*\" }" },
    max_age = { type = "integer", min = 0, max = 86400, default = 600,
      doc = "seconds that a browser keeps a preflight's answer" },
  },
}

local instances = setmetatable({}, { __mode = "k" })

-- "https://*.example.com" as a pattern for one or more labels.
local function pattern_of(origin)
  local escaped = origin:gsub("[%^%$%(%)%%%.%[%]%+%-%?]", "%%%0")
  return "^" .. escaped:gsub("%*", "[%%w.-]+") .. "$"
end

function M.check(conf, path)
  local faults = {}
  for i, origin in ipairs(conf.origins) do
    local at = ("%s.origins[%d]"):format(path, i)
    if origin == "*" and conf.credentials then
      faults[#faults + 1] = { path = at, message = "* does not go with credentials = true; name the origins" }
    elseif origin ~= "*" and origin ~= "null" and not origin:match("^%w[%w+.-]*://[^/]+$") then
      faults[#faults + 1] = { path = at, message = "must be scheme://host[:port] without a path, or *" }
    end
  end
  return #faults > 0 and faults or nil
end

function M.init(conf)
  local self = { any = false, exact = {}, patterns = {} }
  for _, origin in ipairs(conf.origins) do
    if origin == "*" then
      self.any = true
    elseif origin:find("*", 1, true) then
      self.patterns[#self.patterns + 1] = pattern_of(origin:lower())
    else
      self.exact[origin:lower()] = true
    end
  end
  self.methods = table.concat(conf.methods, ", ")
  self.headers = #conf.headers > 0 and table.concat(conf.headers, ", ") or nil
  self.expose = #conf.expose > 0 and table.concat(conf.expose, ", ") or nil
  instances[conf] = self
end

local function allowed(self, origin)
  if self.any then return true end
  origin = origin:lower()
  if self.exact[origin] then return true end
  for _, pattern in ipairs(self.patterns) do
    if origin:match(pattern) then return true end
  end
  return false
end

-- The value of Access-Control-Allow-Origin, or nil.
local function allow_origin(self, conf, origin)
  if not origin or not allowed(self, origin) then return nil end
  return self.any and not conf.credentials and "*" or origin
end

function M.access(conf, ctx)
  local self, headers = instances[conf], ctx.request.headers
  local wanted = headers["access-control-request-method"]
  if ctx.request.method ~= "OPTIONS" or not wanted or not headers.origin then return end
  local origin = allow_origin(self, conf, headers.origin)
  if not origin then return 204, nil, { vary = "Origin" } end
  return 204, nil, {
    ["access-control-allow-methods"] = self.methods,
    ["access-control-allow-headers"] = self.headers or headers["access-control-request-headers"],
    ["access-control-max-age"] = conf.max_age,
  }
end

function M.response(conf, ctx)
  local self, headers = instances[conf], ctx.response.headers
  local origin = allow_origin(self, conf, ctx.request.headers.origin)
  headers["access-control-allow-origin"] = origin
  headers["access-control-allow-credentials"] = origin and conf.credentials and "true" or nil
  headers["access-control-expose-headers"] = origin and self.expose or nil
  if origin ~= "*" then
    local vary = headers.vary
    if not vary then
      headers.vary = "Origin"
    elseif not (", " .. vary:lower() .. ","):find("[, ]origin,") and vary ~= "*" then
      headers.vary = vary .. ", Origin"
    end
  end
end

return M
