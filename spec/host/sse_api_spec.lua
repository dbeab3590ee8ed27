-- tg.sse as plugins use it: events of a stream that is split anywhere, and the limit of one event.
local probe = require "spec.host.probe"
local support = require "spec.support"
local async = support.async

local on, up, down = probe.shared()
setup(up)
teardown(down)

-- All events of a stream that is fed in pieces of `size` bytes, as "name=data" joined by "|".
local FEED = [[
  local text, size = %q, %d
  local parser, out = tg.sse.parser(), {}
  for at = 1, #text, size do
    for _, event in ipairs(parser:feed(text:sub(at, at + size - 1))) do out[#out + 1] = event.event .. "=" .. event.data end
  end
  return table.concat(out, "|")
]]

it("gives the events of a stream, however it is split and whatever its lines end in", async(function()
  local lines = ": hello\ndata: one\n\nevent: x\ndata: two\ndata:  three\n\nid: 7\n\ndata\n\ndata: Ünï\n\ndata: lost\n"
  for _, eol in ipairs { "\n", "\r\n", "\r" } do
    for _, size in ipairs { 1, 2, 3, 7, 1000 } do
      local text = lines:gsub("\n", eol)
      assert.equal("=one|x=two\n three|=|=Ünï", (on.eval(FEED:format(text, size))))
    end
  end
end))

it("refuses an event that is larger than allowed, from then on", async(function()
  assert.same({ 1, "too_large", "too_large" }, { on.eval [[
    local parser = tg.sse.parser(10)
    local first = #parser:feed "data: 0123456789\n\n"
    local _, err = parser:feed "data: 01234567890\n"
    local _, again = parser:feed "\n\ndata: x\n\n"
    return first, err, again
  ]] })
  assert.matches("bytes must be a number from 1", on.raised "tg.sse.parser(0)")
  assert.is_string(on.raised "tg.sse.parser():feed {}")
end))
