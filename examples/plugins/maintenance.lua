-- Maintenance mode: 503 to everybody as long as a file is there, so that `touch` begins it and `rm` ends it, with no
-- reload. Shows a plugin that answers by itself, and a timer that looks at the disk so that no request has to.
local tg = require "tollgate"

local M = {
  version = "1.0.0",
  priority = 980,
  schema = {
    file = { type = "path", required = true, doc = "maintenance lasts as long as this file" },
    retry_after = { type = "integer", min = 1, default = 60, doc = "seconds that clients are told to wait" },
  },
}

local on = setmetatable({}, { __mode = "k" }) -- by conf: each place where the plugin stands has its own

local function look(conf)
  local file = io.open(conf.file)
  on[conf] = file ~= nil
  if file then file:close() end
end

function M.init(conf)
  look(conf)
  tg.timer.every(0.2, function() look(conf) end)
end

function M.access(conf)
  if on[conf] then return 503, "Down for maintenance.\n", { ["retry-after"] = conf.retry_after } end
end

return M
