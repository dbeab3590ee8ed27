-- The turn of the month, end to end, by Redis's clock: a request is settled in the month that admitted it, the next month
-- starts with nothing spent, and a gateway whose own clock is elsewhere follows.
local uv = require "luv"
local support = require "spec.support"
local rig = require "spec.plugins.quota.rig"
local async = support.async

-- The start of the UTC month after the one of `now` (seconds), and both months as the keys name them.
local function next_month(now)
  local t = os.date("!*t", now)
  local days = os.date("*t", os.time { year = t.year, month = t.month + 1, day = 0, hour = 12 }).day
  local start = now - ((t.day * 24 - 24 + t.hour) * 60 + t.min) * 60 - t.sec + days * 86400
  return start, os.date("!%Y%m", now), os.date("!%Y%m", start)
end

-- So many seconds before (negative) or after the turn of the month.
local function at_turn(redis, seconds)
  local s, us = uv.gettimeofday()
  local turn, before, after = next_month(s)
  redis.shift((turn + seconds) * 1000 - (s * 1000 + us / 1000))
  return before, after
end

describe("the turn of the month", function()
  it("settles a request where it was admitted, and starts anew", async(function()
    local redis = support.moved_redis()
    local origin = support.chat_origin { each = function(_, body) return { stall_after = body.user and 4 or nil } end }
    local gw = rig.gateway { redis = redis, origin = origin.url, limits = { monthly_tokens = 25, concurrency = 5 } }
    local before, after = at_turn(redis, -20)
    local function spent()
      return { redis:must("GET", "q:tokens:k:" .. before) or nil, redis:must("GET", "q:tokens:k:" .. after) or nil }
    end

    assert.equal(200, gw:request(rig.chat()).status)
    rig.settled(redis)
    assert.same({ "13" }, spent())
    local conn = gw:connect()
    conn:send_request(rig.chat { stream = true, user = "u" })
    local next_event = support.events(assert(conn:read_head()))
    for _ = 1, 4 do assert(next_event()) end
    assert.same({ "23" }, spent())
    local res = gw:request(rig.chat())
    assert.equal("insufficient_quota", support.json(res).error.code)
    local wait = tonumber(res.headers["retry-after"])
    assert.is_true(wait >= 1 and wait <= 20, wait)
    assert.equal(wait .. "s", res.headers["x-ratelimit-reset-tokens"])

    at_turn(redis, 5)
    res = gw:request(rig.chat())
    assert.same({ 200, "15" }, { res.status, res.headers["x-ratelimit-remaining-tokens"] })
    support.wait_for(function() return spent()[2] == "13" end, "the settlement in the new month")
    conn:close()
    -- The prompt and "Hello, world", where 10 had been reserved.
    support.wait_for(function() return spent()[1] == "19" end, "the settlement in the old month")
    assert.same({ "19", "13" }, spent())
    assert.equal(0, rig.look(redis).open)
  end))

  it("is Redis's, wherever the gateway's own clock stands", async(function()
    local redis = support.moved_redis()
    local s = uv.gettimeofday()
    local _, _, after = next_month(s)
    at_turn(redis, 3600)
    local gw = rig.gateway { redis = redis, origin = support.chat_origin().url, limits = { monthly_tokens = 100 } }
    for _ = 1, 3 do assert.equal(200, gw:request(rig.chat()).status) end
    assert.equal(39, rig.settled(redis))
    assert.same({ "q:tokens:k:" .. after }, redis:must("KEYS", "q:tokens:*"))
    gw:wait_metric("quota_decisions_total", 0, { verdict = "unavailable" })
  end))
end)
