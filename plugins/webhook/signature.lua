-- Signatures of webhooks: whether a body comes from who knows one of the secrets. Plain functions; the time, the headers
-- and the cryptography are passed in.
--
-- | scheme | header | signed | form |
-- |---|---|---|---|
-- | `hex` | `X-Signature` | the body | hexadecimal |
-- | `base64` | `X-Signature` | the body | base64 |
-- | `github` | `X-Hub-Signature-256` | the body | `sha256=` and hexadecimal |
-- | `stripe` | `Stripe-Signature` | time, `.`, body | `t=` seconds, `v1=` hexadecimal, which may be there several times |
-- | `standard` | `Webhook-Signature` | id, `.`, time, `.`, body | `v1,` base64, several apart by spaces (standardwebhooks.com) |
--
-- All are HMAC-SHA256. Every secret is tried against every signature, and each comparison takes the same time whatever
-- differs.

local M = {}

local CANDIDATES_MAX = 16 -- signatures of one request that are looked at; more are not sent by anybody
local SECRET_PREFIX = "^whsec_"

M.HEADERS = { hex = "x-signature", base64 = "x-signature", github = "x-hub-signature-256", stripe = "stripe-signature",
  standard = "webhook-signature" }

local function one(raw, signed)
  if not raw then return nil, "malformed" end
  return { raw }, signed
end

local function seconds(text)
  return text and text:find("^%d+$") and #text <= 12 and tonumber(text) or nil
end

-- Each gives the signatures as bytes, what was signed, and when (seconds since the epoch, where the scheme tells); or nil
-- and a reason.
local readers = {}

function readers.hex(value, request, crypto)
  return one(crypto.hex_decode(value), request.body)
end

function readers.base64(value, request, crypto)
  return one(crypto.base64_decode(value), request.body)
end

function readers.github(value, request, crypto)
  local digits = value:match("^sha256=(%x+)$")
  return one(digits and crypto.hex_decode(digits), request.body)
end

function readers.stripe(value, request, crypto)
  local found, time = {}, nil
  for name, text in value:gmatch("([%w_]+)=([^,%s]*)") do
    if name == "t" then
      if time then return nil, "malformed" end
      time = text
    elseif name == "v1" and #found < CANDIDATES_MAX then
      found[#found + 1] = crypto.hex_decode(text)
    end
  end
  local at = seconds(time)
  if not at or #found == 0 then return nil, "malformed" end
  return found, time .. "." .. request.body, at
end

function readers.standard(value, request, crypto)
  local id, time, found = request.headers["webhook-id"], request.headers["webhook-timestamp"], {}
  for version, text in value:gmatch("(%w+),([^%s,]+)") do
    if version == "v1" and #found < CANDIDATES_MAX then found[#found + 1] = crypto.base64_decode(text) end
  end
  local at = seconds(time)
  if not at or not id or #found == 0 then return nil, "malformed" end
  return found, id .. "." .. time .. "." .. request.body, at
end

--- The keys of HMAC that some secrets stand for. Of `standard`, a secret that begins with whsec_ is base64; any other
-- secret is the key as it is.
-- @tparam string scheme
-- @tparam {string,...} secrets
-- @tparam table crypto with base64_decode
-- @treturn {string,...}|nil
-- @treturn integer which secret is malformed
function M.keys(scheme, secrets, crypto)
  local keys = {}
  for i, secret in ipairs(secrets) do
    local encoded = scheme == "standard" and secret:find(SECRET_PREFIX) and secret:gsub(SECRET_PREFIX, "")
    local key = secret
    if encoded then key = crypto.base64_decode(encoded) end
    if not key or key == "" then return nil, i end
    keys[i] = key
  end
  return keys
end

local function matches(keys, signatures, signed, crypto)
  local found = false
  for i = 1, #keys do
    local expected = crypto.hmac_sha256(keys[i], signed, "raw")
    for k = 1, #signatures do
      if crypto.equal(expected, signatures[k]) then found = true end
    end
  end
  return found
end

--- Verifies a request.
-- @tparam table options { scheme, header = its name in lower case, tolerance = seconds }
-- @tparam {string,...} keys of `keys`
-- @tparam table request { body, headers }; headers are read by lower-case names
-- @tparam number now seconds since the epoch
-- @tparam table crypto tg.crypto
-- @treturn boolean|nil true
-- @treturn string "missing", "malformed", "mismatch", or "stale": the signature is right and its time is not within the
-- tolerance, before or after
function M.verify(options, keys, request, now, crypto)
  local value = request.headers[options.header]
  if not value then return nil, "missing" end
  local signatures, signed, at = readers[options.scheme](value, request, crypto)
  if not signatures then return nil, signed end
  if not matches(keys, signatures, signed, crypto) then return nil, "mismatch" end
  if at and math.abs(now - at) > options.tolerance then return nil, "stale" end
  return true
end

return M
