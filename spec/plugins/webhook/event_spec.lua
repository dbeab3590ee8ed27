-- What is read of an event: values by path, and the keys that it drops.
local event = assert(loadfile("plugins/webhook/event.lua"))()
local keys = assert(loadfile("plugins/webhook/cached_keys.lua"))()

local json = { null = newproxy() }
local redis = { encode = function(part) return "<" .. part .. ">" end, tag = function(part) return "{" .. part .. "}" end }
local tools = { keys = keys, json = json, redis = redis }

local function number(text)
  local one = newproxy(true)
  getmetatable(one).__tostring = function() return text end
  return one
end

local function templates(...)
  local list = {}
  for i, text in ipairs { ... } do list[i] = assert(keys.parse(text)) end
  return list
end

describe("a value of an event", function()
  local request = { headers = { ["x-github-event"] = "push" }, body = {
    id = "e1", n = 42, neg = -3, half = 1.5, big = number "123456789012345678901", bigger = number "1e400", none = json.null,
    yes = true, empty = "", long = ("x"):rep(513), just = ("x"):rep(512), ["0"] = "zero",
    data = { tenant = { id = "t" }, list = { { id = "first" }, { id = "second" } } },
  } }

  local function value(place) return event.value(request, place, json) end

  it("is found by path, or in a header", function()
    assert.equal("e1", value "id")
    assert.equal("t", value "data.tenant.id")
    assert.equal("second", value "data.list.2.id")
    assert.equal("zero", value "0")
    assert.equal("push", value { header = "x-github-event" })
    assert.is_nil(value { header = "x-other" })
    for _, path in ipairs { "x", "id.x", "data.tenant.x.y", "data.list.3.id", "n.1" } do assert.is_nil(value(path)) end
  end)

  it("is a text or a whole number of any size, and nothing else", function()
    assert.same({ "42", "-3", "123456789012345678901" }, { value "n", value "neg", value "big" })
    assert.equal(512, #value "just")
    for _, path in ipairs { "half", "none", "yes", "empty", "long", "data", "data.list", "bigger" } do
      assert.is_nil(value(path), path)
    end
    assert.is_nil(event.value({ headers = {}, body = "text" }, "id", json))
    assert.is_nil(event.value({ headers = {}, body = json.null }, "id", json))
  end)

  it("has a path that is well formed", function()
    for _, path in ipairs { "a", "a.b.1", "a-b.c d" } do assert.is_nil(event.check_path(path)) end
    for _, path in ipairs { "", ".", "a.", ".a", "a..b" } do assert.is_string(event.check_path(path)) end
  end)
end)

describe("the keys of an event", function()
  it("come once each, in order, with the first field as the tag", function()
    local request = { headers = {}, body = { tenantId = "t", period = "2025", a = { b = 7 } } }
    local list = templates("balance:{tenantId}", "stats:{tenantId}:{period}", "stats:{tenantId}:current_month",
      "balance:{tenant}", "count:{n}")
    assert.same({ "balance:{t}", "stats:{t}:<2025>", "stats:{t}:current_month", "count:{7}" },
      event.keys(list, request, { tenant = "tenantId", n = "a.b" }, tools))
  end)

  it("are none where a field is missing, which is named by its place", function()
    local list = templates("balance:{tenantId}", "stats:{tenantId}:{period}")
    assert.same({ nil, "period" }, { event.keys(list, { headers = {}, body = { tenantId = "t" } }, {}, tools) })
    assert.same({ nil, "data.id" }, { event.keys(list, { headers = {}, body = {} }, { tenantId = "data.id" }, tools) })
    assert.same({ nil, "the header x-tenant" },
      { event.keys(list, { headers = {}, body = {} }, { tenantId = { header = "x-tenant" } }, tools) })
  end)
end)
