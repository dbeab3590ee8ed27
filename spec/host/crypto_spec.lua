-- tg.crypto against the vectors of the standards, and tg.uuid.
local support = require "spec.support"
local probe = require "spec.host.probe"
local async = support.async

local on, up, down = probe.shared()
setup(up)
teardown(down)

local function eval(code, ...) return on.eval("return " .. code:format(...)) end

it("makes SHA-256", async(function()
  -- FIPS 180-2, appendix B; the empty string and the million from NIST's test vectors.
  for data, digest in pairs {
    ["''"] = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855",
    ["'abc'"] = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad",
    ["'abcdbcdecdefdefgefghfghighijhijkijkljklmklmnlmnomnopnopq'"] =
      "248d6a61d20638b8e5c026930c3e6039a33ce45964ff2167f6ecedd419db06c1",
    ["('a'):rep(1e6)"] = "cdc76e5c9914fb9281a1c7e284d73e67f1809a48a497200e046d39ccc7112cd0",
  } do
    assert.equal(digest, eval("tg.crypto.sha256(%s)", data))
    assert.equal(digest, eval("tg.crypto.sha256(%s, 'hex')", data))
  end
  assert.equal("ungWv48Bz+pBQUDeXa4iI7ADYaOWF3qctBD/YfIAFa0=", eval "tg.crypto.sha256('abc', 'base64')")
  assert.equal("ungWv48Bz-pBQUDeXa4iI7ADYaOWF3qctBD_YfIAFa0", eval "tg.crypto.sha256('abc', 'base64url')")
  assert.is_true(eval "tg.crypto.hex_encode(tg.crypto.sha256('abc', 'raw')) == tg.crypto.sha256('abc')")
end))

it("makes HMAC-SHA-256", async(function()
  -- RFC 4231, sections 4.2 to 4.8 without 4.6, whose digest is cut off.
  for _, case in ipairs {
    { "('\\11'):rep(20)", "'Hi There'", "b0344c61d8db38535ca8afceaf0bf12b881dc200c9833da726e9376c2e32cff7" },
    { "'Jefe'", "'what do ya want for nothing?'", "5bdcc146bf60754e6a042426089575c75a003f089d2739839dec58b964ec3843" },
    { "('\\170'):rep(20)", "('\\221'):rep(50)", "773ea91e36800e46854db8ebd09181a72959098b3ef8c122d9635514ced565fe" },
    { "tg.crypto.hex_decode '0102030405060708090a0b0c0d0e0f10111213141516171819'", "('\\205'):rep(50)",
      "82558a389a443c0ea4cc819899f2083a85f0faa3e578f8077a2e3ff46729665b" },
    { "('\\170'):rep(131)", "'Test Using Larger Than Block-Size Key - Hash Key First'",
      "60e431591ee0b67f0d8a26aacbf5b77f8e0bc6213728c5140546040f0ee37f54" },
    { "('\\170'):rep(131)", "'This is a test using a larger than block-size key and a larger than block-size data. "
      .. "The key needs to be hashed before being used by the HMAC algorithm.'",
      "9b09ffa71b942fcb27635fbcd5b0e944bfdc63644f0713938a7f51535c3a35e2" },
    { "''", "''", "b613679a0814d9ec772f95d778c35fc5ff1697c493715653c6c712144292c5ad" },
  } do
    assert.equal(case[3], eval("tg.crypto.hmac_sha256(%s, %s)", case[1], case[2]))
  end
  assert.is_true(on.eval [[
    local hmac = tg.crypto.hmac_sha256
    return hmac("k", "d", "raw") == tg.crypto.base64_decode(hmac("k", "d", "base64"))
  ]])
end))

it("encodes and decodes", async(function()
  -- RFC 4648, section 10.
  for data, text in pairs { [""] = "", f = "Zg==", fo = "Zm8=", foo = "Zm9v", foob = "Zm9vYg==", fooba = "Zm9vYmE=",
    foobar = "Zm9vYmFy" } do
    assert.equal(text, eval("tg.crypto.base64_encode %q", data))
    assert.equal(data, eval("tg.crypto.base64_decode %q", text))
    local url = text:gsub("=", "")
    assert.equal(url, eval("tg.crypto.base64url_encode %q", data))
    assert.equal(data, eval("tg.crypto.base64url_decode %q", url))
    assert.equal(data, eval("tg.crypto.base64url_decode %q", text))
  end
  assert.same({ "+/+/", "-_-_", "666f6f00ff" }, { eval [[ tg.crypto.base64_encode "\251\255\191",
    tg.crypto.base64url_encode "\251\255\191", tg.crypto.hex_encode "foo\0\255" ]] })
  assert.is_true(eval [[ tg.crypto.hex_decode "00fFAa" == "\0\255\170" and tg.crypto.hex_decode "" == "" ]])
  assert.is_true(on.eval [[
    for n = 0, 300 do
      local bytes = n == 0 and "" or tg.crypto.random(n, "raw")
      assert(#bytes == n)
      for _, name in ipairs { "hex", "base64", "base64url" } do
        assert(tg.crypto[name .. "_decode"](tg.crypto[name .. "_encode"](bytes)) == bytes, name)
      end
    end
    return true
  ]])
end))

it("decodes nothing that is malformed", async(function()
  for name, texts in pairs {
    hex = { "0", "0g", " 00", "0x00", "00 ", "\0\0" },
    base64 = { "Z", "Zg", "Zg=", "Zg===", "=", "==", "====", "Zm8", "Zm9vYg", "Zg==Zg==", "Z===", "Zh==", "Zm9=", "Zm9v\n",
      " Zm9v", "-_-_", "Zm\0v", "Zm9\255", "Z=m9", "Zg=a" },
    base64url = { "Z", "+/+/", "Zg=", "Zg===", "Zh", "Zm9", "Zm9v ", "Zm9vY", "=" },
  } do
    for _, text in ipairs(texts) do
      local hex = text:gsub(".", function(c) return ("\\%03d"):format(c:byte()) end)
      assert.same({ nil, "invalid" }, { eval('tg.crypto.%s_decode "%s"', name, hex) }, name .. ": " .. text)
    end
  end
end))

it("compares", async(function()
  assert.same({ true, true, false, false, false, false }, { eval [[ tg.crypto.equal("", ""), tg.crypto.equal("a\0b", "a\0b"),
    tg.crypto.equal("a\0b", "a\0c"), tg.crypto.equal("abc", "abd"), tg.crypto.equal("abc", "abcd"), tg.crypto.equal("", "a") ]] })
end))

it("gives random bytes", async(function()
  assert.equal(32, #eval "tg.crypto.random(16)")
  assert.truthy((eval "tg.crypto.random(16)"):find "^%x+$")
  assert.equal(22, #eval "tg.crypto.random(16, 'base64url')")
  assert.equal(65536, eval "#tg.crypto.random(65536, 'raw')")
  assert.is_true(on.eval [[
    local seen, bits = {}, 0
    for _ = 1, 1000 do
      local one = tg.crypto.random(16, "raw")
      assert(not seen[one])
      seen[one] = true
      for i = 1, 16 do
        for b = 0, 7 do bits = bits + bit.band(bit.rshift(one:byte(i), b), 1) end
      end
    end
    return bits > 62000 and bits < 66000 -- of 128,000; eleven standard deviations
  ]])
end))

it("makes UUIDs of version 4", async(function()
  -- RFC 9562, section 5.4.
  assert.is_true(on.eval [[
    local seen = {}
    for _ = 1, 1000 do
      local id = tg.uuid()
      assert(id:find "^%x%x%x%x%x%x%x%x%-%x%x%x%x%-4%x%x%x%-[89ab]%x%x%x%-%x%x%x%x%x%x%x%x%x%x%x%x$" and #id == 36, id)
      assert(not id:find "%u" and not seen[id])
      seen[id] = true
    end
    return true
  ]])
end))

it("names the function and says what to do where it is misused", async(function()
  for code, message in pairs {
    ["tg.crypto.sha256()"] = "tg.crypto.sha256: data must be a string, not no value",
    ["tg.crypto.sha256(1)"] = "tg.crypto.sha256: data must be a string, not number",
    ["tg.crypto.sha256('a', 'HEX')"] = 'tg.crypto.sha256: the encoding must be "hex", "raw", "base64" or "base64url"',
    ["tg.crypto.hmac_sha256('k')"] = "tg.crypto.hmac_sha256: data must be a string",
    ["tg.crypto.hmac_sha256('k', 'd', 1)"] = "tg.crypto.hmac_sha256: the encoding must be",
    ["tg.crypto.equal('a')"] = "tg.crypto.equal: b must be a string",
    ["tg.crypto.random()"] = "tg.crypto.random: n must be an integer from 1 to 65536 (bytes)",
    ["tg.crypto.random(0)"] = "tg.crypto.random: n must be",
    ["tg.crypto.random(1.5)"] = "tg.crypto.random: n must be",
    ["tg.crypto.random(65537)"] = "tg.crypto.random: n must be",
    ["tg.crypto.random(0/0)"] = "tg.crypto.random: n must be",
    ["tg.crypto.hex_decode(nil)"] = "tg.crypto.hex_decode: text must be a string",
    ["tg.crypto.base64_encode(nil)"] = "tg.crypto.base64_encode: data must be a string",
  } do
    assert.truthy(on.raised(code):find(message, 1, true), code .. ": " .. on.raised(code))
  end
end))
