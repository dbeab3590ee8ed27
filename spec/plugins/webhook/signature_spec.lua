-- Signatures of webhooks: senders' own examples, rotation, tolerance, and everything that is no signature.
local support = require "spec.support"
local llm_apis = require "spec.support.llm_apis"
local signature = assert(loadfile("plugins/webhook/signature.lua"))()

local DIGITS = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/"

local function base64_decode(text)
  if #text % 4 ~= 0 or text:find("[^%w+/=]") then return nil, "invalid" end
  local bits = text:gsub("=", ""):gsub(".", function(c)
    local n, out = DIGITS:find(c, 1, true) - 1, {}
    for i = 5, 0, -1 do out[#out + 1] = math.floor(n / 2 ^ i) % 2 end
    return table.concat(out)
  end)
  return (bits:gsub("%d%d?%d?%d?%d?%d?%d?%d?", function(byte) return #byte == 8 and string.char(tonumber(byte, 2)) or "" end))
end

-- As tg.crypto; counts comparisons, which must not stop at the first that fits.
local crypto = { compared = 0, base64_decode = base64_decode }

function crypto.hmac_sha256(key, data, encoding)
  assert.equal("raw", encoding)
  return support.hmac_sha256(key, data, true)
end

function crypto.hex_decode(text)
  if #text % 2 ~= 0 or text:find("%X") then return nil, "invalid" end
  return (text:gsub("%x%x", function(pair) return string.char(tonumber(pair, 16)) end))
end

function crypto.equal(a, b)
  crypto.compared = crypto.compared + 1
  return a == b
end

local NOW = 1700000000

local function verify(scheme, secrets, headers, body, now)
  local keys = assert(signature.keys(scheme, secrets, crypto))
  local options = { scheme = scheme, header = signature.HEADERS[scheme], tolerance = 300 }
  return signature.verify(options, keys, { headers = headers, body = body }, now or NOW, crypto)
end

describe("a GitHub signature", function()
  it("is right in GitHub's own example", function()
    local secret, body = "It's a Secret to Everybody", "Hello, World!"
    local value = "sha256=757107ea0eb2509fc211221cce984b8a37570b6d7586c22c46f4379c8b043e17"
    assert.is_true(verify("github", { secret }, { ["x-hub-signature-256"] = value }, body))
    assert.same({ nil, "mismatch" }, { verify("github", { secret }, { ["x-hub-signature-256"] = value }, body .. "\n") })
    assert.same({ nil, "mismatch" }, { verify("github", { "other" }, { ["x-hub-signature-256"] = value }, body) })
    assert.same({ nil, "missing" }, { verify("github", { secret }, {}, body) })
  end)

  it("has its prefix, and is one", function()
    local digest = support.hmac_sha256("s", "x")
    for _, value in ipairs { digest, "sha1=" .. digest, "sha256=", "sha256=zz", "sha256=" .. digest .. ", sha256=" .. digest,
      "sha256=" .. digest .. "0" } do
      assert.same({ nil, "malformed" }, { verify("github", { "s" }, { ["x-hub-signature-256"] = value }, "x") })
    end
    assert.same({ nil, "mismatch" }, { verify("github", { "s" }, { ["x-hub-signature-256"] = "sha256=" .. digest:sub(3) }, "x") })
  end)
end)

describe("a plain signature", function()
  it("is hexadecimal in either case, or base64", function()
    local raw = support.hmac_sha256("s", "x", true)
    for scheme, value in pairs { hex = support.hmac_sha256("s", "x"), base64 = llm_apis.base64(raw) } do
      assert.is_true(verify(scheme, { "s" }, { ["x-signature"] = value }, "x"))
      assert.is_nil(verify(scheme, { "s" }, { ["x-signature"] = value }, "y"))
      assert.same({ nil, "malformed" }, { verify(scheme, { "s" }, { ["x-signature"] = "?" .. value }, "x") })
    end
    assert.is_true(verify("hex", { "s" }, { ["x-signature"] = support.hmac_sha256("s", "x"):upper() }, "x"))
  end)

  it("may be made with any of several secrets, all of which are tried", function()
    local headers = { ["x-signature"] = support.hmac_sha256("old", "x") }
    crypto.compared = 0
    assert.is_true(verify("hex", { "old", "new", "newer" }, headers, "x"))
    assert.equal(3, crypto.compared)
    assert.is_true(verify("hex", { "new", "old" }, headers, "x"))
    assert.is_nil(verify("hex", { "new" }, headers, "x"))
  end)
end)

describe("a Stripe signature", function()
  local function header(t, ...)
    local parts = { "t=" .. t }
    for _, secret in ipairs { ... } do parts[#parts + 1] = "v1=" .. support.hmac_sha256(secret, t .. ".body") end
    return { ["stripe-signature"] = table.concat(parts, ",") }
  end

  it("covers time and body, with one or more v1", function()
    assert.is_true(verify("stripe", { "s" }, header(NOW, "s"), "body"))
    assert.is_true(verify("stripe", { "s" }, header(NOW, "other", "s"), "body"))
    assert.is_true(verify("stripe", { "x", "s" }, header(NOW, "s"), "body"))
    assert.same({ nil, "mismatch" }, { verify("stripe", { "s" }, header(NOW, "other"), "body") })
    local moved = header(NOW, "s")["stripe-signature"]:gsub("t=%d+", "t=" .. NOW + 1)
    assert.same({ nil, "mismatch" }, { verify("stripe", { "s" }, { ["stripe-signature"] = moved }, "body") })
  end)

  it("is not older or newer than the tolerance, edges included", function()
    for offset, expected in pairs { [-300] = true, [300] = true, [-301] = "stale", [301] = "stale" } do
      local ok, why = verify("stripe", { "s" }, header(NOW, "s"), "body", NOW + offset)
      assert.equal(expected, ok or why)
    end
    -- A wrong one is not told to be merely late.
    assert.same({ nil, "mismatch" }, { verify("stripe", { "s" }, header(NOW, "x"), "body", NOW + 1000) })
  end)

  it("is malformed without a time, without v1, or with two times", function()
    local v1 = "v1=" .. support.hmac_sha256("s", NOW .. ".body")
    for _, value in ipairs { "", v1, "t=" .. NOW, "t=," .. v1, "t=abc," .. v1, "t=-5," .. v1, "t=1e9," .. v1,
      "t=1234567890123," .. v1, "t=" .. NOW .. ",v0=" .. v1:sub(4), ("t=%d,t=%d,%s"):format(NOW, NOW, v1),
      "t=" .. NOW .. ",v1=xyz" } do
      assert.same({ nil, "malformed" }, { verify("stripe", { "s" }, { ["stripe-signature"] = value }, "body") }, value)
    end
  end)

  it("is looked for among sixteen at most", function()
    local parts = { "t=" .. NOW }
    for i = 1, 16 do parts[i + 1] = "v1=" .. support.hmac_sha256("w", tostring(i)) end
    parts[18] = "v1=" .. support.hmac_sha256("s", NOW .. ".body")
    assert.same({ nil, "mismatch" }, { verify("stripe", { "s" }, { ["stripe-signature"] = table.concat(parts, ",") }, "body") })
    table.remove(parts, 2)
    assert.is_true(verify("stripe", { "s" }, { ["stripe-signature"] = table.concat(parts, ",") }, "body"))
  end)
end)

describe("a standard webhook's signature", function()
  -- The example of the specification's reference libraries.
  local SECRET = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"
  local BODY = '{"test": 2432232314}'
  local headers = { ["webhook-id"] = "msg_p5jXN8AQM9LWM0D4loKWxJek", ["webhook-timestamp"] = "1614265330",
    ["webhook-signature"] = "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE=" }

  it("covers id, time and body under a base64 secret", function()
    assert.is_true(verify("standard", { SECRET }, headers, BODY, 1614265330))
    assert.same({ nil, "stale" }, { verify("standard", { SECRET }, headers, BODY, 1614265330 + 301) })
    local more = setmetatable({ ["webhook-signature"] = "v1,AAAA v2,x " .. headers["webhook-signature"] }, { __index = headers })
    assert.is_true(verify("standard", { SECRET }, more, BODY, 1614265330))
    local other = setmetatable({ ["webhook-id"] = "msg_other" }, { __index = headers })
    assert.same({ nil, "mismatch" }, { verify("standard", { SECRET }, other, BODY, 1614265330) })
    for _, name in ipairs { "webhook-id", "webhook-timestamp" } do
      local without = {}
      for key, value in pairs(headers) do without[key] = key ~= name and value or nil end
      assert.same({ nil, "malformed" }, { verify("standard", { SECRET }, without, BODY, 1614265330) })
    end
  end)

  it("says which secret is no base64", function()
    assert.same({ nil, 2 }, { signature.keys("standard", { SECRET, "whsec_?" }, crypto) })
    assert.same({ nil, 1 }, { signature.keys("standard", { "whsec_" }, crypto) })
    assert.same({ "whsec_?" }, signature.keys("hex", { "whsec_?" }, crypto))
  end)
end)
