-- who: says whom the gateway sees, by the certificate that the client brought, if any.
local M = { version = "1.0.0", priority = 100, schema = {} }

function M.access(_, ctx)
  local certificate = ctx.client.certificate
  return 200, {
    scheme = ctx.request.scheme, host = ctx.request.host,
    subject = certificate and certificate.subject, names = certificate and certificate.names,
  }
end

return M
