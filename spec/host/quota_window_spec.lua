-- tg.quota.window: limits that a plugin keeps itself, as the limit headers tell them, and its misuse.
local support = require "spec.support"
local async = support.async

local PLUGIN = [[
local tg = require "tollgate"
return { version = "1", schema = {},
  access = function(_, ctx)
    local chunk = assert(loadstring(ctx.request:body()))
    setfenv(chunk, { tg = tg, ctx = ctx })
    local ok, err = pcall(chunk)
    return 200, { ok = ok, err = err, headers = tg.quota.headers(ctx) }
  end,
  response = function(_, ctx)
    tg.quota.apply_headers(ctx)
    local ok, err = pcall(tg.quota.window, ctx, "late", 1, 1, 1, 1)
    ctx.response.headers["x-late"] = ok and "taken" or err
  end }
]]

describe("tg.quota.window", function()
  local gw
  local up, down = support.shared(function()
    gw = support.gateway { files = { ["plugins/own.lua"] = PLUGIN }, config = {
      redis = "redis://127.0.0.1:1/0", routes = { { name = "a", path = "/*", plugins = { own = {} } } } } }
  end)
  setup(up)
  teardown(down)

  local function run(code)
    local res = gw:request { method = "POST", path = "/", body = code }
    assert.equal(200, res.status, res.body)
    return support.decode(res.body), res.headers
  end

  it("adds to the lists, and to what has room for one the limit of which least remains", async(function()
    local body, headers = run [[
      tg.quota.window(ctx, "day", 1000, 7, 3600000, 86400)
      tg.quota.window(ctx, "minute", 100, 5, 1500, 60)
      tg.quota.window(ctx, "second", 10, 5, 999, 1)
    ]]
    for _, h in ipairs { body.headers, headers } do
      assert.equal('"second";q=10;w=1, "minute";q=100;w=60, "day";q=1000;w=86400', h["ratelimit-policy"])
      assert.equal('"second";r=5;t=1, "minute";r=5;t=2, "day";r=7;t=3600', h.ratelimit)
      assert.same({ "100", "5", "2s" }, { h["x-ratelimit-limit-requests"], h["x-ratelimit-remaining-requests"],
        h["x-ratelimit-reset-requests"] })
    end
  end))

  it("sets nothing where nothing was told", async(function()
    local body, headers = run "return"
    assert.same({}, body.headers)
    assert.is_nil(headers.ratelimit)
  end))

  it("raises on what makes no limit, and behind the access phase", async(function()
    for code, message in pairs {
      ['tg.quota.window(ctx, "a\\"b", 1, 1, 1, 1)'] = "must be letters",
      ['tg.quota.window(ctx, "", 1, 1, 1, 1)'] = "must be letters",
      ['tg.quota.window(ctx, "a\\0", 1, 1, 1, 1)'] = "must be letters",
      ['tg.quota.window(ctx, "a", -1, 1, 1, 1)'] = "#3",
      ['tg.quota.window(ctx, "a", 1, 0/0, 1, 1)'] = "#4",
      ['tg.quota.window(ctx, "a", 1, 1, 2^53, 1)'] = "#5",
      ['tg.quota.window(ctx, "a", 1, 1, 1)'] = "#6",
      ['tg.quota.window({}, "a", 1, 1, 1, 1)'] = "must be ctx",
    } do
      local body, headers = run(code)
      assert.is_false(body.ok)
      assert.truthy(body.err:find(message, 1, true), body.err)
      assert.matches("belongs to the access phase", headers["x-late"])
    end
  end))
end)
