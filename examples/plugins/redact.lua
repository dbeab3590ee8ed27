-- Prompt redaction: mail addresses and card numbers do not leave the house. Shows a JSON body that is read, changed and sent
-- on: tg.json keeps what it does not touch, integers of any size and empty arrays too.
local tg = require "tollgate"

local M = {
  version = "1.0.0",
  schema = {
    member = { type = "string", default = "messages", doc = "member of the body whose strings are looked at" },
  },
}

local function redact(value)
  if type(value) == "string" then
    value = value:gsub("[%w._+-]+@[%w-]+%.[%w.-]*%w", "[mail]")
    return (value:gsub("%d[%d -]+%d", function(digits)
      local _, n = digits:gsub("%d", "")
      return n >= 13 and n <= 19 and "[card]" or nil
    end))
  elseif type(value) == "table" then
    for key, item in pairs(value) do value[key] = redact(item) end
  end
  return value
end

function M.access(conf, ctx)
  local document = tg.json.decode(ctx.request:body())
  if type(document) ~= "table" then return ctx:refusal(400, "invalid_json", "The body must be a JSON object") end
  document[conf.member] = redact(document[conf.member])
  ctx.request:set_body(tg.json.encode(document))
end

return M
