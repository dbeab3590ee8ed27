-- What makes a defect of memory hard to use: how the binary is linked, and that no page of a gateway that serves is written
-- and run at the same time, LuaJIT's machine code included.
local support = require "spec.support"
local rig = require "spec.host.proxy_rig"
local gateway = require "spec.support.gateway"
local async = support.async

it("the binary can be loaded anywhere, and its tables of addresses are read-only", function()
  local pipe = io.popen(("readelf -hdlW '%s'"):format(gateway.binary()))
  local text = pipe:read("*a")
  pipe:close()
  assert.matches("Type:%s+DYN", text)
  assert.matches("Flags:[%w ]* PIE", text)
  assert.matches("BIND_NOW", text)
  assert.matches("GNU_RELRO", text)
  assert.matches("GNU_STACK%s+%S+%s+%S+%s+%S+%s+%S+%s+%S+%s+RW ", text)
  assert.not_matches("TEXTREL", text)
end)

it("no memory of a worker is writable and executable, when plugins have been compiled too", async(function()
  local on = rig.start {
    route = { plugins = { hot = {} } },
    files = { ["plugins/hot.lua"] = [[
      local M = { version = "1.0.0", priority = 1, schema = {} }
      function M.access(_, ctx)
        local n = 0
        for i = 1, 100000 do n = (n + i) % 1000003 end
        ctx.request.headers["x-sum"] = tostring(n)
      end
      return M]] },
  }
  for _ = 1, 20 do assert.equal(200, on.gw:request({}).status) end
  local code = 0
  for line in support.read_file("/proc/" .. on.gw:workers()[1] .. "/maps"):gmatch("[^\n]+") do
    local rights = line:match("^%S+ (%S+)")
    assert.is_false(rights:sub(2, 3) == "wx", line)
    if rights:sub(3, 3) == "x" and line:match("00:00 0%s*$") then code = code + 1 end
  end
  assert.is_true(code > 0, "LuaJIT has compiled nothing")
end))
