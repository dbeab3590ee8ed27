-- Reservation and usage follow the attempt that answers; what a failed one reports is charged too, once, and never over the
-- budget.
local support = require "spec.support"
local rig = require "spec.plugins.quota.rig"
local targets = require "spec.host.target_rig"
local async = support.async
local target = targets.target

local redis
local up, down = support.shared(function() redis = support.redis() end)

-- What is reserved for the chat request of the rig: 2 + 8. The answer costs 13; this failure 7.
local FAILURE = { error = { message = "down", code = "server_error" },
  usage = { prompt_tokens = 5, completion_tokens = 2, total_tokens = 7 } }

local function failing(answer)
  return support.origin(answer or function(_, conn) conn:respond { status = 503, body = FAILURE } end)
end

local function gateway(a, options)
  local b = support.chat_origin {}
  options = options or {}
  options.redis, options.origin = redis, b.url
  options.limits = options.limits or { monthly_tokens = 1000, concurrency = 1, rps = 0.001, burst = 100 }
  options.route = options.route or {}
  options.route.targets = { target("a", a, options.first), target("b", b, { tier = 2 }) }
  return rig.gateway(options), b
end

local function bucket() return math.floor(tonumber(redis:must("HGET", "q:rps:k", "tokens"))) end

describe("a failed attempt's usage", function()
  setup(up)
  teardown(down)
  before_each(async(function() redis:must("FLUSHALL") end))

  it("is charged beside that of the answer, for one token of the bucket and one slot", async(function()
    local gw = gateway(failing())
    for n = 1, 3 do
      local res = gw:request(rig.chat())
      assert.equal(200, res.status)
      assert.equal(n * 20, rig.settled(redis))
      assert.equal(100 - n, bucket())
    end
    local line = gw:wait_access(3)[3]
    assert.same({ 20, 13 }, { line.tokens.used, line.tokens.input + line.tokens.output })
    assert.equal("b", line.target)
    -- Nothing but the month's counter and the bucket is left.
    for key in pairs(redis:dump()) do assert.truthy(key:match "^q:tokens:k:%d+$" or key == "q:rps:k", key) end
  end))

  it("is nothing where it reports none, and the reservation goes on", async(function()
    local gw = gateway(failing(function(_, conn) conn:respond { status = 503, body = { error = { code = "x" } } } end))
    local before = rig.script_calls(redis)
    assert.equal(200, gw:request(rig.chat()).status)
    assert.equal(13, rig.settled(redis))
    assert.equal(2, rig.script_calls(redis) - before)
  end))

  it("has to leave room for the next attempt: at the very budget, and one token below", async(function()
    local gw = gateway(failing(), { limits = { monthly_tokens = 17, concurrency = 5 } })
    assert.equal(200, gw:request(rig.chat()).status)
    assert.equal(20, rig.settled(redis)) -- 13 is more than was reserved
    gw:stop()
    redis:must "FLUSHALL"
    local b
    gw, b = gateway(failing(), { limits = { monthly_tokens = 16, concurrency = 5 } })
    local res = gw:request(rig.chat())
    assert.same({ 503, "server_error" }, { res.status, support.json(res).error.code })
    assert.equal(7, rig.settled(redis))
    assert.equal(0, #b.requests)
    local line = gw:wait_access(1)[1]
    assert.same({ 7, "a", 1 }, { line.tokens.used, line.target, line.attempts })
  end))

  it("leaves a target that was asked for and not tried to be told of", async(function()
    local gw = gateway(failing(), { limits = { monthly_tokens = 16 }, plugins = { note = {} },
      files = { ["plugins/note.lua"] = targets.NOTE }, config = { plugin_path = { "plugins" } } })
    local res = gw:request(rig.chat())
    assert.equal("?a ?b !b,nil,not_tried,nil", res.headers["x-notes"])
    gw:wait_log("notes ?a ?b !b,nil,not_tried,nil !a,503,nil,1", true)
  end))

  it("is charged where all fail, and where a stream begins with an error", async(function()
    local gw, b = gateway(failing())
    b.handler = function(_, conn) conn:respond { status = 500, body = { error = { code = "y" } } } end
    assert.equal(500, gw:request(rig.chat()).status)
    assert.equal(7, rig.settled(redis))
    gw:stop()
    redis:must "FLUSHALL"
    gw = gateway(failing(function(_, conn)
      conn:start { headers = { ["content-type"] = "text/event-stream" } }
      conn:chunk('data: {"error":{"code":"z"},"usage":{"prompt_tokens":5,"completion_tokens":2,"total_tokens":7}}\n\n')
      conn:wait_closed()
    end))
    local res = gw:request(rig.chat { stream = true })
    assert.truthy(res.body:find("Hello", 1, true))
    assert.equal(20, rig.settled(redis))
  end))

  it("is not guessed: an attempt that timed out or was refused costs nothing beside the answer", async(function()
    local gw = gateway(failing(function(_, conn) conn:wait_closed() end), { first = { timeouts = { first_byte = 0.1 } } })
    assert.equal(200, gw:request(rig.chat()).status)
    assert.equal(13, rig.settled(redis))
    gw:stop()
    redis:must "FLUSHALL"
    local b
    gw, b = gateway(targets.dead())
    assert.equal(200, gw:request(rig.chat()).status)
    assert.equal(13, rig.settled(redis))
    -- Nobody was reached: nothing is charged.
    b:close()
    assert.equal(502, gw:request(rig.chat()).status)
    assert.equal(13, rig.settled(redis))
  end))

  it("is settled once where Redis hangs, and its answer goes out", async(function()
    local gw, b = gateway(failing(function(_, conn)
      redis:pause()
      conn:respond { status = 503, body = FAILURE }
    end))
    local res = gw:request(rig.chat())
    redis:resume()
    assert.same({ 503, "server_error" }, { res.status, support.json(res).error.code })
    assert.equal(7, rig.settled(redis, "k", 20000))
    assert.equal(0, #b.requests)
    assert.equal(7, gw:wait_access(1)[1].tokens.used)
  end))

  it("is settled once where the client leaves meanwhile", async(function()
    for _, quota in ipairs { {}, { on_client_gone = "drain" } } do
      redis:must "FLUSHALL"
      local client
      local gw, b = gateway(failing(function(_, conn)
        redis:pause()
        conn:respond { status = 503, body = FAILURE }
        support.sleep(50)
        client:close()
      end), { quota = quota })
      client = gw:connect()
      client:send_request(rig.chat())
      assert.equal("client_gone", gw:wait_access(1)[1].ended)
      redis:resume()
      assert.equal(7, rig.settled(redis, "k", 20000))
      assert.equal(0, #b.requests)
      gw:stop()
    end
  end))

  it("is settled once Redis is back where requests are let pass without it", async(function()
    local gw = gateway(failing(), { quota = { on_redis_error = "allow" } })
    redis:pause()
    local res = gw:request(rig.chat())
    redis:resume()
    assert.equal(200, res.status)
    support.wait_for(function() return rig.look(redis).tokens == 20 end, "both settlements", 20000)
    assert.equal(20, rig.settled(redis))
  end))

  it("of many at once never takes the budget over its end before answers come", async(function()
    local gw = gateway(failing(), { limits = { monthly_tokens = 400, concurrency = 100 }, route = { retry = { budget = 1 } } })
    local stop = rig.watch(redis)
    local counts = rig.in_one_turn(gw, 40, rig.chat { max_tokens = 20 })
    for _, seen in ipairs(stop()) do assert.is_true(seen.tokens <= 400, seen.tokens) end
    local good, failed, refused = counts[200] or 0, counts[503] or 0, counts[429] or 0
    assert.equal(40, good + failed + refused)
    assert.is_true(good > 0 and refused > 0)
    assert.equal(good * 20 + failed * 7, rig.settled(redis))
  end))
end)
