-- Stands in for the services behind the gateway: answers with the request that arrived, as JSON.

local M = { version = "1.0.0", schema = {} }

function M.access(_, ctx)
  local headers = {}
  for name, value in ctx.request:each_header() do headers[name:lower()] = value end
  return 200, {
    method = ctx.request.method, path = ctx.request.path, headers = headers, body = ctx.request:body(),
    email = "someone@example.com",
  }
end

return M
