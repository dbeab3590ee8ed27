-- idempotency: repeats get the answer of the first request, byte for byte; whose keys they are, what makes them the same
-- request, and which answers are kept.
local support = require "spec.support"
local rig = require "spec.plugins.idempotency.rig"
local async = support.async

local on = {}
local up, down = support.shared(function()
  on.redis, on.origin = rig.redis(), rig.origin()
  on.gw = rig.gateway { redis = on.redis, origin = on.origin.url, conf = { max_body = 1000 } }
end)
setup(up)
teardown(down)
before_each(support.async(function() on.redis:must("FLUSHALL"); on.origin.runs = 0 end))

describe("a repeat", function()
  it("gets the answer without another run, and says so", async(function()
    local first, again = rig.ask(on.gw, "key-1"), rig.ask(on.gw, "key-1")
    assert.same({ 200, nil, "run 1 amount=1" }, rig.seen(first))
    assert.same({ 200, "true", "run 1 amount=1" }, rig.seen(again))
    assert.equal(1, on.origin.runs)
    for _, name in ipairs { "content-type", "x-run", "x-twice", "content-length" } do
      assert.equal(first.headers[name], again.headers[name])
    end
    assert.equal("text/plain", again.headers["content-type"])
    assert.equal("a, b", again.headers["x-twice"])
    assert.equal("9", first.headers["x-ratelimit-remaining"])
    assert.is_nil(again.headers["x-ratelimit-remaining"])
    assert.equal("ok", on.gw:wait_access(2)[2].ended)
  end))

  it("at once behind the answer, on any connection and any number of times, is a replay", async(function()
    local c, other = on.gw:connect(), on.gw:connect()
    for i = 1, 50 do
      local body = c:request(rig.post("key-" .. i)).body
      assert.same({ 200, "true", body }, rig.seen(other:request(rig.post("key-" .. i))))
    end
    assert.equal(50, on.origin.runs)
  end))

  it("may write the key in quotes or bare", async(function()
    rig.ask(on.gw, "abc-123")
    assert.equal("true", rig.ask(on.gw, '"abc-123"').headers["idempotency-replayed"])
    assert.equal("true", rig.ask(on.gw, '  "abc-123";v=1').headers["idempotency-replayed"])
    assert.equal(1, on.origin.runs)
  end))

  it("that is another request is refused, and not retried", async(function()
    rig.ask(on.gw, "key", { path = "/charge?a=1", headers = { ["content-type"] = "text/plain" } })
    for what, options in pairs {
      body = { path = "/charge?a=1", body = "amount=2" }, path = { path = "/refund?a=1" }, query = { path = "/charge?a=2" },
      ["no query"] = {}, method = { path = "/charge?a=1", method = "PATCH" },
      header = { path = "/charge?a=1", headers = { ["content-type"] = "application/json" } },
      host = { path = "/charge?a=1", headers = { host = "other.test" } },
    } do
      options.headers = rig.merged({ ["content-type"] = "text/plain" }, options.headers)
      local res = rig.ask(on.gw, "key", options)
      assert.same({ what, 422, "idempotency_key_reused", "false" },
        { what, res.status, rig.code(res), res.headers["x-should-retry"] })
    end
    assert.equal(1, on.origin.runs)
  end))

  it("of an empty body, of a 204, and of an error that is the client's, is a replay too", async(function()
    assert.equal("run 1 ", rig.ask(on.gw, "empty", { body = "" }).body)
    assert.same({ 200, "true", "run 1 " }, rig.seen(rig.ask(on.gw, "empty", { body = "" })))
    for i, status in ipairs { 201, 204, 303, 400, 404, 422 } do
      local path = "/charge?status=" .. status
      local first = rig.ask(on.gw, "key-" .. i, { path = path })
      assert.same({ status, "true", first.body }, rig.seen(rig.ask(on.gw, "key-" .. i, { path = path })))
    end
    assert.equal(7, on.origin.runs)
  end))

  it("runs where the origin's answer was a failure, broke off or was too large", async(function()
    for i, path in ipairs { "/?status=500", "/?status=503", "/?status=429", "/?status=409", "/?status=408", "/?status=425",
        "/?large=2000" } do
      for _ = 1, 2 do assert.is_nil(rig.ask(on.gw, "key-" .. i, { path = path }).headers["idempotency-replayed"]) end
      assert.equal(2 * i, on.origin.runs)
    end
    assert.is_nil(on.gw:request(rig.post("cut", { path = "/?cut" })))
    assert.is_nil(on.gw:request(rig.post("cut", { path = "/?cut" })))
    assert.equal(16, on.origin.runs)
    rig.wait_state(on.redis, "none")
    rig.counts(on.gw, "idempotency_claims_total", "too_large", 2)
  end))

  it("has binary bytes as they were", async(function()
    local bytes = {}
    for i = 0, 255 do bytes[i + 1] = string.char(i) end
    local body = table.concat(bytes)
    rig.ask(on.gw, "key", { body = body })
    assert.same({ 200, "true", "run 1 " .. body }, rig.seen(rig.ask(on.gw, "key", { body = body })))
  end))
end)

describe("the key", function()
  it("belongs to its consumer; without one to the route and the credentials", async(function()
    assert.equal("run 1 amount=1", rig.ask(on.gw, "key").body)
    assert.equal("run 2 amount=1", rig.ask(on.gw, "key", { secret = rig.other }).body)
    assert.equal("run 3 amount=1", rig.ask(on.gw, "key", { secret = false }).body)
    assert.equal("true", rig.ask(on.gw, "key", { secret = false }).headers["idempotency-replayed"])
    local res = rig.ask(on.gw, "key", { secret = false, headers = { cookie = "session=other" } })
    assert.equal(422, res.status)
    local sha = support.sha256("key")
    for _, ns in ipairs { "k", "o", "route%3Ar" } do
      assert.equal(1, on.redis:must("EXISTS", "idem:" .. ns .. ":" .. sha))
    end
  end))

  it("may belong to a tenant or to the route", async(function()
    for scope, ns in pairs { tenant = "t", route = "route%3Ar" } do
      on.redis:must("FLUSHALL")
      local gw = rig.gateway { redis = on.redis, origin = on.origin.url, conf = { scope = scope } }
      rig.ask(gw, "key")
      assert.equal("true", rig.ask(gw, "key", { secret = rig.other }).headers["idempotency-replayed"])
      assert.equal(1, on.redis:must("EXISTS", "idem:" .. ns .. ":" .. support.sha256("key")))
    end
  end))

  it("that is none is refused; requests without one, and of other methods, pass", async(function()
    for _, key in ipairs { "", '""', '"open', "a b", ("x"):rep(256), "a, b", '"a" b', "é" } do
      local res = rig.ask(on.gw, key)
      assert.same({ key, 400, "invalid_idempotency_key" }, { key, res.status, rig.code(res) })
    end
    assert.equal(400, on.gw:request({ method = "POST", path = "/", body = "b",
      headers = { { "idempotency-key", "a" }, { "idempotency-key", "b" } } }).status)
    assert.equal(0, on.origin.runs)
    for i = 1, 2 do assert.equal("run " .. i .. " b", on.gw:request({ method = "POST", path = "/", body = "b" }).body) end
    for i = 3, 4 do assert.equal("run " .. i .. " b", rig.ask(on.gw, "key", { method = "PUT", body = "b" }).body) end
    assert.same({}, on.redis:must("KEYS", "*"))
  end))

  it("may be required, in a header of another name, for other methods", async(function()
    local gw = rig.gateway { redis = on.redis, origin = on.origin.url,
      conf = { required = true, header = "X-Request-Key", methods = { "PUT" } } }
    local res = rig.ask(gw, "ignored", { method = "PUT" })
    assert.same({ 400, "idempotency_key_missing" }, { res.status, rig.code(res) })
    assert.matches("X%-Request%-Key", res.body)
    local with = { method = "PUT", headers = { ["x-request-key"] = "1" } }
    rig.ask(gw, "a", with)
    assert.equal("true", rig.ask(gw, "b", with).headers["idempotency-replayed"])
    assert.equal(200, rig.ask(gw, "a").status)
  end))
end)

describe("what is kept", function()
  it("is the contract's hash, for a day", async(function()
    rig.ask(on.gw, "key")
    local record = rig.record(on.redis)
    assert.same({ "done", "200", "run 1 amount=1" }, { record.state, record.status, record.body })
    local fields = {}
    for name in pairs(on.redis:dump()[record.key].value) do fields[#fields + 1] = name end
    table.sort(fields)
    assert.same({ "body", "fingerprint", "headers", "owner", "state", "status" }, fields)
    assert.is_true(record.pttl > 86400000 - 60000 and record.pttl <= 86400000)
    assert.equal(64, #record.fingerprint)
    assert.same({ "x-run", "1" }, (function()
      for _, pair in ipairs(support.decode(record.headers)) do if pair[1] == "x-run" then return pair end end
    end)())
  end))

  it("is chosen by the settings: headers, statuses, time", async(function()
    local gw = rig.gateway { redis = on.redis, origin = on.origin.url,
      conf = { headers = { "X-Run" }, release = { "4xx", 503 }, ttl = 1, lease = 1 } }
    rig.ask(gw, "key")
    local again = rig.ask(gw, "key")
    assert.equal("1", again.headers["x-run"])
    assert.is_nil(again.headers["x-twice"])
    for status, replayed in pairs { [404] = false, [500] = true, [503] = false } do
      local path = "/?status=" .. status
      rig.ask(gw, "s" .. status, { path = path })
      assert.equal(replayed, rig.ask(gw, "s" .. status, { path = path }).headers["idempotency-replayed"] == "true")
    end
    support.wait_for(function() return #on.redis:must("KEYS", "*") == 0 end, "the end of the records")
    assert.is_nil(rig.ask(gw, "key").headers["idempotency-replayed"])
  end))

  it("is the origin's, before plugins' edits, which a replay goes through again", async(function()
    local edit = [[ return { priority = 1, response = function(_, ctx) ctx.response.headers["x-edit"] = "yes" end,
      body = function(_, ctx, piece) return piece:upper() end } ]]
    local gw = rig.gateway { redis = on.redis, origin = on.origin.url, plugins = { edit = {} },
      config = { plugin_path = { "plugins" } }, files = { ["plugins/edit.lua"] = edit } }
    local first, again = rig.ask(gw, "key"), rig.ask(gw, "key")
    assert.same({ 200, nil, "RUN 1 AMOUNT=1" }, rig.seen(first))
    assert.same({ 200, "true", "RUN 1 AMOUNT=1" }, rig.seen(again))
    assert.same({ "yes", "yes" }, { first.headers["x-edit"], again.headers["x-edit"] })
    assert.equal("run 1 amount=1", rig.record(on.redis).body)
  end))

  it("is nothing of what the gateway answers: the next request runs", async(function()
    local say = [[ local n = 0
      return { priority = 1, access = function(_, ctx)
        n = n + 1
        if n == 1 then return 200, "of the gateway" end
        if n == 2 then error "boom" end
      end } ]]
    local gw = rig.gateway { redis = on.redis, origin = on.origin.url, plugins = { say = {} },
      config = { plugin_path = { "plugins" } }, files = { ["plugins/say.lua"] = say } }
    assert.equal("of the gateway", rig.ask(gw, "key").body)
    assert.equal(500, rig.ask(gw, "key").status)
    assert.same({ 200, nil, "run 1 amount=1" }, rig.seen(rig.ask(gw, "key")))
    assert.same({ 200, "true", "run 1 amount=1" }, rig.seen(rig.ask(gw, "key")))
    local dead = rig.gateway { redis = on.redis, origin = "http://127.0.0.1:1" }
    assert.equal(502, rig.ask(dead, "other").status)
    assert.equal(1, #on.redis:must("KEYS", "idem:*"))
  end))
end)

describe("behind several targets", function()
  it("what is kept is the answer of the one that was right, whole and alone", async(function()
    local bad = support.origin(function(_, conn) conn:respond { status = 503, body = "of the one that failed" } end)
    local gw = rig.gateway { redis = on.redis, origin = on.origin.url, route = {
      targets = { { url = bad.url, provider = "bad", tier = 1 }, { url = on.origin.url, provider = "good", tier = 2 } },
      retry = { unsafe = true } } }
    assert.same({ 200, nil, "run 1 amount=1" }, rig.seen(rig.ask(gw, "key")))
    assert.same({ 200, "true", "run 1 amount=1" }, rig.seen(rig.ask(gw, "key")))
    assert.equal(1, #bad.requests)
    assert.equal("run 1 amount=1", rig.record(on.redis).body)
  end))

  it("what no target could do runs again", async(function()
    local bad = support.origin(function(_, conn) conn:respond { status = 503, body = "no" } end)
    local gw = rig.gateway { redis = on.redis, origin = bad.url, conf = { on_lost = "refuse" }, route = {
      targets = { { url = bad.url, provider = "a" }, { url = bad.url .. "/b", provider = "b" } }, retry = { unsafe = true } } }
    for i = 1, 2 do
      assert.same({ 503, nil, "no" }, rig.seen(rig.ask(gw, "key")))
      assert.equal(2 * i, #bad.requests)
    end
    assert.is_nil(rig.record(on.redis))
  end))
end)

describe("settings", function()
  local function refused(conf)
    local dir = support.tmpdir()
    support.write_file(dir .. "/gateway.lua", "return " .. support.literal { routes = { { name = "r", path = "/",
      plugins = { idempotency = conf } } }, listen = "127.0.0.1:0", data_dir = dir } .. "\n")
    local run = support.tollgate({ "check", "-c", dir .. "/gateway.lua" }, { cwd = dir })
    assert.equal(1, run.code, run.out .. run.err)
    return run.err .. run.out
  end

  it("that cannot be are refused with their path", async(function()
    assert.matches("plugins%.idempotency%.headers%[2%].*cannot be replayed", refused { headers = { "x-a", "Date" } })
    assert.matches("plugins%.idempotency%.lease.*longer than ttl", refused { ttl = 30 })
    assert.matches("plugins%.idempotency%.release%[1%]", refused { release = { "6xx" } })
  end))
end)
