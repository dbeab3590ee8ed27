-- Canary by header: who asks for it with `x-canary: yes` gets the next release, which the origin serves under a prefix of
-- its own. Shows a request's path being changed on its way out, and an answer that tells what was chosen.

local M = {
  version = "1.0.0",
  schema = {
    header = { type = "string", min = 1, default = "x-canary", doc = "header that asks for the next release" },
    prefix = { type = "string", pattern = "^/.+[^/]$", required = true, doc = "where the next release is" },
  },
}

function M.access(conf, ctx)
  local request = ctx.request
  ctx.release = request.headers[conf.header] == "yes" and "next" or "stable" -- plugins may keep fields of their own in ctx
  request.headers[conf.header] = nil
  if ctx.release == "next" then request.path = conf.prefix .. request.path end
end

function M.response(conf, ctx)
  ctx.response.headers["x-release"] = ctx.release
  ctx.response.headers.vary = conf.header -- caches must keep the two apart
end

return M
