-- Request size by plan: how large a body may be hangs on the plan of the caller's key, which `auth` has found before. Shows
-- the work of another plugin in ctx, settings with a map in them, and a refusal in the shape of the route's API.

local M = {
  version = "1.0.0",
  priority = 800, -- behind auth (900)
  schema = {
    plans = { type = "map", keys = "^[%w_-]+$", values = { type = "size", min = 1 }, required = true,
      doc = "size of a body by plan" },
    other = { type = "size", min = 1, default = "1k", doc = "size for keys of any other plan" },
  },
}

function M.access(conf, ctx)
  local plan = ctx.consumer and ctx.consumer.plan
  local limit = plan and conf.plans[plan] or conf.other
  -- Without a length in its head a body has to be read to be measured: this waits, and only this request with it.
  local size = tonumber(ctx.request.headers["content-length"]) or #ctx.request:body()
  if size > limit then
    return ctx:refusal(413, "request_too_large", ("%d bytes are more than your plan's %d"):format(size, limit))
  end
end

return M
