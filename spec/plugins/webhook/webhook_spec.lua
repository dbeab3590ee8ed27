-- webhook end to end: signed events drop and fence what they make stale, and everything else gets the answer by which a
-- sender knows whether to try again.
local support = require "spec.support"
local rig = require "spec.plugins.webhook.rig"
local async = support.async

local redis
local up, down = support.shared(function() redis = support.redis() end)

-- A webhook's counter by outcome.
local function outcomes(gw)
  local counts = {}
  for outcome, n in gw:admin("/metrics").body:gmatch('webhook_events_total{route="billing",outcome="(%w+)"} (%d+)') do
    counts[outcome] = tonumber(n)
  end
  return counts
end

local function wait_outcomes(gw, expected)
  support.wait_for(function()
    local counts = outcomes(gw)
    for name, n in pairs(expected) do
      if counts[name] ~= n then return false end
    end
    return true
  end, "the counters")
end

describe("an event", function()
  setup(up)
  teardown(down)
  before_each(async(function() redis:must("FLUSHALL") end))

  it("drops and fences its keys before it is answered, tells the replicas, and is noted last", async(function()
    local gw = rig.gateway { redis = redis }
    local told = redis:listen "cache:invalidate"
    rig.fill(redis, "t")
    rig.fill(redis, "other")
    assert.same({ 200, "done" }, { rig.send(gw) })
    assert.same({ 0, 2 }, { rig.left(redis, "t"), rig.left(redis, "other") })
    for _, key in ipairs(rig.keys "t") do
      assert.is_true(rig.fence(redis, key) > 1e15)
      assert.equal(key, told())
    end
    assert.equal("1", redis:must("GET", "hook:billing:evt_1"))
    local ttl = redis:must("TTL", "hook:billing:evt_1")
    assert.is_true(ttl > 86390 and ttl <= 86400)
    assert.equal(0, redis:must("EXISTS", "fence:balance:other"))
  end))

  it("that is repeated drops and fences again", async(function()
    local gw = rig.gateway { redis = redis, conf = { source = "billing:eu" } }
    assert.same({ 200, "done" }, { rig.send(gw, { id = "a:b" }) })
    assert.equal(1, redis:must("EXISTS", "hook:billing%3Aeu:a%3Ab"))
    local before = rig.fence(redis, "balance:t")
    rig.fill(redis, "t")
    assert.same({ 200, "duplicate" }, { rig.send(gw, { id = "a:b" }) })
    assert.equal(0, rig.left(redis, "t"))
    assert.is_true(rig.fence(redis, "balance:t") > before)
    wait_outcomes(gw, { done = 1, duplicate = 1 })
  end))

  it("of each type drops what is said for it", async(function()
    local gw = rig.gateway { redis = redis }
    for i, kind in ipairs { "invoice.created", "invoice.cancelled" } do
      rig.fill(redis, "t")
      assert.same({ 200, "done" }, { rig.send(gw, { id = "i" .. i, type = kind }) })
      assert.same({ 1, 0 }, { redis:must("EXISTS", "balance:t"), redis:must("EXISTS", "stats:t:current_month") })
    end
  end))

  it("of another type is taken and ignored", async(function()
    local gw = rig.gateway { redis = redis }
    rig.fill(redis, "t")
    assert.same({ 200, "ignored" }, { rig.send(gw, { type = "customer.created" }) })
    assert.same({ 200, "ignored" }, { rig.send(gw, '{"type":"ping"}') })
    assert.equal(2, redis:must("DBSIZE"))
    wait_outcomes(gw, { ignored = 2 })
  end))

  it("names tenants as they are, encoded in keys", async(function()
    local gw = rig.gateway { redis = redis }
    for i, tenant in ipairs { { "a:b {c}", "a%3Ab%20%7Bc%7D" }, { 42, "42" }, { "é", "é" } } do
      assert.same({ 200, "done" }, { rig.send(gw, { id = i, data = { tenantId = tenant[1] } }) })
      assert.equal(1, redis:must("EXISTS", "fence:balance:" .. tenant[2]))
    end
    local body = '{"id":9007199254740993,"type":"balance.updated","data":{"tenantId":123456789012345678901}}'
    assert.same({ 200, "done" }, { rig.send(gw, body) })
    assert.equal(1, redis:must("EXISTS", "fence:balance:123456789012345678901"))
    assert.equal(1, redis:must("EXISTS", "hook:billing:9007199254740993"))
  end))

  it("writes tags where they are configured, in key and fence alike", async(function()
    local gw = rig.gateway { redis = redis, settings = { hash_tags = true } }
    redis:must("SET", "balance:{t}", "{}", "EX", 60)
    assert.same({ 200, "done" }, { rig.send(gw) })
    assert.same({ 0, 1, 1 }, { redis:must("EXISTS", "balance:{t}"), redis:must("EXISTS", "fence:balance:{t}"),
      redis:must("EXISTS", "fence:stats:{t}:current_month") })
  end))

  it("without a field is refused with its name, and changes nothing", async(function()
    local gw = rig.gateway { redis = redis }
    for _, case in ipairs {
      { { data = {} }, "data.tenantId" }, { { data = { tenantId = "" } }, "data.tenantId" },
      { { data = { tenantId = true } }, "data.tenantId" }, { { id = support.null }, "id" }, { { type = 1.5 }, "type" },
      { "[]", "type" }, { "null", "type" },
    } do
      local res, code = rig.ask(gw, case[1])
      assert.same({ 422, "missing_field" }, { res.status, code })
      assert.truthy(support.json(res).error.message:find("no usable value at " .. case[2], 1, true))
      assert.truthy(gw:wait_log("no usable value at " .. case[2], true))
    end
    assert.equal(0, redis:must("DBSIZE"))
    wait_outcomes(gw, { malformed = 7 })
  end))

  it("that is no JSON, or in which a member is there twice, is refused", async(function()
    local gw = rig.gateway { redis = redis }
    for _, body in ipairs { "", "{", "hello", '{"type":"a"} x', "{'a':1}", '{"a":01}', "NaN",
      '{"id":"1","type":"balance.updated","type":"x","data":{"tenantId":"t"}}' } do
      assert.same({ 400, "invalid_json" }, { rig.send(gw, body) })
    end
    assert.equal(0, redis:must("DBSIZE"))
  end))

  it("with a wrong signature, or none, is refused; secrets and bodies are not logged", async(function()
    local gw = rig.gateway { redis = redis, conf = { secret = { rig.secret, "another-secret" } } }
    rig.fill(redis, "t")
    for _, value in ipairs { "00", "x", "", support.hmac_sha256("no", "{}"), rig.secret } do
      assert.same({ 401, "invalid_signature" }, { rig.send(gw, nil, { ["x-signature"] = value }) })
    end
    local unsigned = rig.event { id = "secret-body" }
    unsigned.headers["x-signature"] = nil
    assert.equal(401, gw:request(unsigned).status)
    assert.equal(2, rig.left(redis, "t"))
    wait_outcomes(gw, { unauthorized = 6 })
    local all = gw.log() .. gw:command("check", "--print").out
    for _, text in ipairs { rig.secret, "another-secret", "secret-body" } do assert.is_nil(all:find(text, 1, true)) end
    assert.equal(1, select(2, gw.log():gsub("refuses a signature", "")))
  end))

  it("comes by POST, within the limit of a body", async(function()
    local gw = rig.gateway { redis = redis, config = { limits = { body = 1000 } } }
    local res = gw:request { path = rig.path }
    assert.same({ 405, "POST" }, { res.status, res.headers.allow })
    assert.equal(413, gw:request(rig.event { more = ("x"):rep(1000) }).status)
    assert.equal(200, gw:request(rig.event()).status)
  end))

  it("may tell type and id in headers, as GitHub does", async(function()
    local gw = rig.gateway { redis = redis, conf = { scheme = "github", events = {
      push = { drop = { "repo:{repository}" } } }, fields = { repository = "repository.full_name" } } }
    local body = '{"repository":{"full_name":"octo/hello"}}'
    local headers = { ["x-hub-signature-256"] = "sha256=" .. support.hmac_sha256(rig.secret, body),
      ["x-github-event"] = "push", ["x-github-delivery"] = "d-1" }
    assert.same({ 200, "done" }, { rig.send(gw, body, headers) })
    assert.same({ 1, 1 }, { redis:must("EXISTS", "fence:repo:octo/hello"), redis:must("EXISTS", "hook:billing:d-1") })
    headers["x-github-event"] = "ping"
    assert.same({ 200, "ignored" }, { rig.send(gw, body, headers) })
    headers["x-github-event"] = nil
    assert.same({ 422, "missing_field" }, { rig.send(gw, body, headers) })
  end))

  it("may have no id at all", async(function()
    local gw = rig.gateway { redis = redis, conf = { id = false } }
    for _ = 1, 2 do assert.same({ 200, "done" }, { rig.send(gw, '{"type":"balance.updated","data":{"tenantId":"t"}}') }) end
    assert.equal(0, #redis:must("KEYS", "hook:*"))
  end))

  it("signed by node as Stripe does is taken within the tolerance", async(function()
    local gw = rig.gateway { redis = redis, conf = { scheme = "stripe", secret = { "new", rig.secret }, tolerance = 100 } }
    local run = support.npm.node { args = { tostring(gw.port), rig.secret, rig.path }, source = [==[
      const crypto = require("crypto"), [port, secret, path] = process.argv.slice(-3);
      const event = { id: "evt_n", type: "balance.updated", data: { tenantId: "t" }, text: "h\u00e9 \ud83d\ude00" };
      const body = JSON.stringify(event, null, 2);
      async function send(age, tail) {
        const t = Math.floor(Date.now() / 1000) - age;
        const v1 = crypto.createHmac("sha256", secret).update(t + "." + body, "utf8").digest("hex");
        const res = await fetch(`http://127.0.0.1:${port}${path}`, { method: "POST", body: body + tail,
          headers: { "stripe-signature": `t=${t},v1=${"0".repeat(64)},v1=${v1},v0=x` } });
        return res.status;
      }
      (async () => {
        const all = [[0, ""], [90, ""], [200, ""], [-200, ""], [0, " "]];
        for (const one of all) console.log(await send(...one));
      })();
    ]==] }
    assert.equal("200\n200\n401\n401\n401\n", run.out, run.err)
    assert.equal(0, rig.left(redis, "t"))
  end))

  it("is taken with an old secret and a new one while they are rotated by reloads", async(function()
    local env = { FIRST = "first-secret", SECOND = "second-secret" }
    local function text(...)
      local config = rig.config(redis.url, { secret = { ... } }, nil, { listen = "127.0.0.1:0", workers = 1,
        admin = "127.0.0.1:0", data_dir = "data", reload = { watch = false } })
      return "return " .. support.literal(config)
    end
    local first, second = support.raw 'env "FIRST"', support.raw 'env "SECOND"'
    local gw = support.gateway { config = text(first), env = env }
    local function status(secret)
      local event = rig.event()
      event.headers["x-signature"] = support.hmac_sha256(secret, event.body)
      return gw:request(event).status
    end
    local function reload(...)
      gw:write("gateway.lua", text(...))
      local run = gw:command "reload"
      assert.equal(0, run.code, run.err)
    end
    assert.same({ 200, 401 }, { status(env.FIRST), status(env.SECOND) })
    reload(first, second)
    assert.same({ 200, 200 }, { status(env.FIRST), status(env.SECOND) })
    reload(second)
    assert.same({ 401, 200 }, { status(env.FIRST), status(env.SECOND) })
  end))
end)

describe("a webhook's settings", function()
  local function check(conf, route)
    local dir = support.tmpdir()
    local config = rig.config("redis://127.0.0.1:1/0", conf)
    for key, value in pairs(route or {}) do config.routes[1][key] = value end
    support.write_file(dir .. "/gateway.lua", "return " .. support.literal(config))
    local run = support.tollgate { "check", "-c", dir .. "/gateway.lua" }
    return run.code, run.err
  end

  it("are refused where they cannot work, with the path of the key", async(function()
    local none = {}
    for message, case in pairs {
      ["webhook.events: must name an event"] = { { events = none, fields = none } },
      ["webhook.events.a.drop: is required"] = { { events = { a = {} }, fields = none } },
      ["webhook.events.a.drop[1]: \"{tenantId\""] = { { events = { a = { drop = { "balance:{tenantId" } } }, fields = none } },
      ["webhook.events.a.drop[1]: keys that begin with q: are not cached"] =
        { { events = { a = { drop = { "q:rps:{id}" } } }, fields = none } },
      ["webhook.fields.tenant: no key in events has {tenant}"] = { { fields = { tenant = "x" } } },
      ["webhook.fields.tenantId: must be names with dots"] = { { fields = { tenantId = "a..b" } } },
      ["webhook.secret: must not be empty"] = { { secret = "" } },
      ["webhook.secret[2]: behind whsec_ must be base64"] = { { scheme = "standard", secret = { "plain", "whsec_?" } } },
      ["webhook.scheme: "] = { { scheme = "md5" } },
      ["webhook.header: is no name of a header field"] = { { header = "x y" } },
      ["webhook.type.header: is required"] = { { type = none } },
      ["webhook: a webhook answers its route by itself"] = { {}, { targets = { { url = "http://127.0.0.1:1" } } } },
      ["webhook: events come by POST"] = { {}, { methods = { "GET" } } },
    } do
      local code, err = check(case[1], case[2])
      assert.equal(1, code, message)
      assert.truthy(err:find(message, 1, true), message .. "\n" .. err)
    end
    assert.equal(0, (check {}))
    assert.equal(0, (check({}, { methods = { "GET", "POST" } })))
  end))
end)
