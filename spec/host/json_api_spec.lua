-- tg.json as plugins use it: what a plugin reads and writes back is as it was, null and lists can be told apart, and what
-- is no JSON is refused.
local probe = require "spec.host.probe"
local support = require "spec.support"
local async = support.async

local on, up, down = probe.shared()
setup(up)
teardown(down)

it("gives back what it was given: empty lists and tables, null, large numbers, any text", async(function()
  for _, text in ipairs { "[]", "{}", "null", '{"a":[],"b":{},"c":[[],{}],"d":null}', "[1,-0.5,12345678901234567890]",
    "[0.1,100000000000000000000000000000,1e400]", [=["\\ \" \u0001 ü €"]=], '{"":{"":[null]}}', "true", "9007199254740993" } do
    assert.equal(text, (on.eval(("return tg.json.encode(tg.json.decode(%q))"):format(text))))
  end
end))

it("tells null from nothing, and a list from a table, in Lua", async(function()
  assert.same({ true, true, 3, "number" }, { on.eval [[
    local v = tg.json.decode '{"a":null,"b":[1,2,3],"c":1}'
    return v.a == tg.json.null, v.none == nil, #v.b, type(v.c) ]] })
end))

it("gives nil and a reason for what is no JSON, and raises for what cannot be encoded", async(function()
  for _, text in ipairs { "", "{", "[1,]", "{'a':1}", "NaN", "01", '"\1"', "[] []" } do
    local value, err = on.eval(("return tg.json.decode(%q)"):format(text))
    assert.is_nil(value)
    assert.is_string(err)
  end
  for _, value in ipairs { "0/0", "1/0", "print", "{ [{}] = 1 }", "coroutine.create(print)" } do
    assert.is_string(on.raised("tg.json.encode(" .. value .. ")"))
  end
  assert.is_string(on.raised "local t = {}; t.t = t; tg.json.encode(t)")
end))
