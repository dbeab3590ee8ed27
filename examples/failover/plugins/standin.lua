-- Providers' stand-ins: /standin/NAME/… answers as NAME, with the model that it was asked for; "busy" refuses everything.
local tg = require "tollgate"

local M = { version = "1.0.0", schema = {} }

function M.access(_, ctx)
  local name = ctx.request.path:match "^/standin/(%w+)/"
  local body = tg.json.decode(ctx.request:body()) or {}
  if name == "busy" then
    return 429, { error = { message = "Too many requests.", type = "requests", code = "rate_limit_exceeded" } },
      { ["retry-after"] = 30 }
  end
  return 200, { object = "chat.completion", model = body.model,
    choices = { { index = 0, message = { role = "assistant", content = "This is " .. tostring(name) .. "." },
      finish_reason = "stop" } },
    usage = { prompt_tokens = 9, completion_tokens = 4, total_tokens = 13 } }
end

return M
