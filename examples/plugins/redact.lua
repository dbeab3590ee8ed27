-- Prompt redaction: mail addresses and card numbers do not leave the house. Shows one value of a JSON body being read, changed
-- and put back: ctx.request.json leaves every other byte as the client sent it.

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
  local messages, err = ctx.request.json:get(conf.member)
  if err then return ctx:refusal(400, "invalid_json", "The body must be JSON") end
  if messages ~= nil then ctx.request.json:set(conf.member, redact(messages)) end
end

return M
