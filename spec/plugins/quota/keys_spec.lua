-- The keys of quota as other services know them, end to end: names, types, values and lifetimes while a request runs and
-- after it, for key ids with any characters, and with hash tags.
local support = require "spec.support"
local rig = require "spec.plugins.quota.rig"
local async = support.async

local DAY = 86400000 -- ms

local function begin(redis, id, config)
  local gw = rig.gateway { redis = redis, origin = support.chat_origin { stall_after = 2 }.url, config = config,
    limits = { id = id, rps = 0.5, burst = 10, monthly_tokens = 1000, concurrency = 3 } }
  local conn = gw:connect()
  conn:send_request(rig.chat { stream = true })
  local res = assert(conn:read_head())
  assert.equal(200, res.status)
  return gw, conn, res.headers["x-request-id"]
end

-- Between the whole of a lifetime and what a slow run may have used up of it.
local function assert_left(whole, entry)
  assert.is_true(entry.pttl <= whole and entry.pttl > whole - 20000, entry.pttl)
end

-- Key ids, how they stand in names, and whether with hash tags.
local cases = {
  { "k-1_a.b", "k-1_a.b" }, { "a b:c%{d}\127\1/é", "a%20b%3Ac%25%7Bd%7D%7F%01/é" },
  { "k-1", "{k-1}", true }, { "a:{b}", "{a%3A%7Bb%7D}", true },
}

describe("quota's keys", function()
  for _, case in ipairs(cases) do
    local id, part, tags = unpack(case, 1, 3)
    it("are those of the contract: " .. part, async(function()
      local redis = support.redis()
      local _, conn, request_id = begin(redis, id, { redis = { url = redis.url, hash_tags = tags } })
      local unique = tags and part .. "." .. request_id or request_id
      local all = redis:dump { pttl = true }
      local function take(name, kind)
        local entry = all[name] or error(name .. " is not there")
        all[name] = nil
        assert.equal(kind, entry.type)
        return entry
      end
      local bucket = take("q:rps:" .. part, "hash")
      assert.equal(9, tonumber(bucket.value.tokens))
      assert.matches("^%d+$", bucket.value.last_refill)
      assert_left(2 * 20000, bucket)
      local month = os.date("!%Y%m", math.floor(bucket.value.last_refill / 1000))
      local counter = take("q:tokens:" .. part .. ":" .. month, "string")
      assert.equal("10", counter.value)
      assert_left(40 * DAY, counter)
      local reserved = take("q:reserved:" .. unique, "string")
      assert.equal("10", reserved.value)
      assert_left(300000, reserved)
      local slots = take("q:conc:" .. part, "set")
      assert.same({ unique }, slots.value)
      assert_left(300000, slots)
      assert.same({}, all)

      conn:close()
      support.wait_for(function() return redis:must("DBSIZE") == 2 end, "the settlement")
      all = redis:dump { pttl = true }
      counter = take("q:tokens:" .. part .. ":" .. month, "string")
      assert_left(40 * DAY, counter)
      take("q:rps:" .. part, "hash")
      assert.same({}, all)
    end))
  end
end)
