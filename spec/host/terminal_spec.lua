-- What commands draw: bars, colours and short numbers (host/lua/terminal.lua).
local terminal = assert(loadfile "host/lua/terminal.lua")()

local ascii, utf8 = { utf8 = false, color = false }, { utf8 = true, color = false }

it("bars are as long as they are told, whatever they show", function()
  for _, view in ipairs { ascii, utf8 } do
    for _, case in ipairs { { 0, 0 }, { 0.001, 0 }, { 0.33, 0.2 }, { 0.5, 0.5 }, { 1, 0 }, { 1.7, 0 }, { 0.4, 3 }, { -1, 0 } } do
      for width = 1, 30 do
        local bar = terminal.bar(case[1], case[2], width, view)
        assert.equal(width, terminal.length(bar), ("%g %g %d %s"):format(case[1], case[2], width, bar))
      end
    end
  end
  assert.equal("#####.....", terminal.bar(0.5, 0, 10, ascii))
  assert.equal("#####+++..", terminal.bar(0.5, 0.3, 10, ascii))
  assert.equal("████▌·····", terminal.bar(0.45, 0, 10, utf8))
end)

it("colours are only there where the terminal shows them", function()
  assert.equal("x", terminal.paint({ color = false }, "red", "x"))
  assert.equal("\27[31mx\27[0m", terminal.paint({ color = true }, "red", "x"))
  assert.equal("x", terminal.paint({ color = true }, nil, "x"))
  assert.matches("\27%[31m#", terminal.bar(0.99, 0, 10, { color = true }))
  assert.matches("\27%[33m#", terminal.bar(0.85, 0, 10, { color = true }))
  assert.matches("\27%[32m#", terminal.bar(0.1, 0, 10, { color = true }))
end)

it("text cannot steer the terminal", function()
  assert.equal("a?[31mb?", terminal.clean "a\27[31mb\n")
  assert.equal("ü€𝄞", terminal.clean "ü€𝄞")
  assert.equal("?(a", terminal.clean "\195(a") -- half a character is none
  assert.equal("?", terminal.clean "\155") -- CSI in one byte
  assert.equal("?", (terminal.clean "\194\155"):sub(1, 1)) -- the same as U+009B
end)

it("numbers have five characters at most", function()
  for n, text in pairs {
    [0] = "0", [7] = "7", [7.25] = "7.25", [42.5] = "42.5", [950] = "950", [999.4] = "999", [999.6] = "1.00k",
    [12345] = "12.3k", [4.5e6] = "4.50M", [1e15] = "1.00P" } do
    assert.equal(text, terminal.short(n))
    assert.is_true(#terminal.short(n) <= 5)
  end
  assert.equal("-", terminal.short(nil))
end)
