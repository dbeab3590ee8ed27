-- Response transform: members of JSON answers that clients are not to see are taken out. Shows an answer's body being edited
-- where it stands: ctx.response.json leaves every other byte as the origin sent it, and the length in the head is right.

local M = {
  version = "1.0.0",
  schema = {
    members = { type = "list", of = { type = "string" }, min = 1, required = true, doc = "members to take out" },
  },
}

function M.access(_, ctx)
  ctx.request.headers["accept-encoding"] = "identity" -- what is compressed could not be read
end

function M.response(conf, ctx)
  local kind = ctx.response.headers["content-type"] or ""
  if not kind:find("json", 1, true) then return end
  for _, name in ipairs(conf.members) do ctx.response.json:remove(name) end
end

return M
