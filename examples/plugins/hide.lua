-- Response transform: members of JSON answers that clients are not to see are taken out. Shows the body phase: it gets
-- the answer in pieces, holds them back by returning "", and gives out the whole at the end.
local tg = require "tollgate"

local M = {
  version = "1.0.0",
  schema = {
    members = { type = "list", of = { type = "string" }, min = 1, required = true, doc = "members to take out" },
  },
}

function M.access(_, ctx)
  ctx.request.headers["accept-encoding"] = "identity" -- what is compressed could not be read
end

function M.response(_, ctx)
  local kind = ctx.response.headers["content-type"] or ""
  ctx.pieces = kind:find("json", 1, true) and {} or nil
end

function M.body(conf, ctx, piece, last)
  local pieces = ctx.pieces
  if not pieces then return end -- not JSON: each piece goes on as it came
  pieces[#pieces + 1] = piece
  if not last then return "" end
  local document = tg.json.decode(table.concat(pieces))
  if type(document) ~= "table" then return table.concat(pieces) end
  for _, name in ipairs(conf.members) do document[name] = nil end
  return tg.json.encode(document)
end

return M
