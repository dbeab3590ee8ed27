-- Header stamp: the origin learns the request's id, and the client which route has served it. The smallest plugin that
-- does something to both halves of an exchange: `access` sees the request, `response` the answer's head.

local M = {
  version = "1.0.0",
  schema = { header = { type = "string", min = 1, default = "x-served-by", doc = "header of answers" } },
}

function M.access(_, ctx)
  ctx.request.headers["x-request-id"] = ctx.id
end

function M.response(conf, ctx)
  ctx.response.headers[conf.header] = ctx.route.name
end

return M
