-- Certificates, keys and ciphers that cannot be used: refused with the path of their key, at the start, by `check`, and by
-- a reload, which changes nothing then; and certificates that expire while the gateway runs.
local uv = require "luv"
local support = require "spec.support"
local async, tls = support.async, support.tls

local DAY = 86400
local on = {}

local up, down = support.shared(function()
  local ca = tls.authority()
  on.ca = ca
  local function issue(options)
    options.names = { "a.test" }
    local one = ca:issue(options)
    return { cert = one.cert, key = one.key }
  end
  on.good, on.other, on.soon = issue {}, issue {}, issue { days = 3 }
  on.expired, on.early = issue { expired = true }, issue { early = true }
  on.encrypted, on.garbled, on.empty = ca.dir .. "/encrypted", ca.dir .. "/garbled", ca.dir .. "/empty"
  support.exec { cmd = "openssl", args = { "pkey", "-in", on.good.key, "-aes256", "-passout", "pass:x", "-out", on.encrypted } }
  support.write_file(on.garbled, (support.read_file(on.good.cert):gsub("\n(.)", "\n#%1", 3)))
  support.write_file(on.empty, "")
end)
setup(up)
teardown(down)

local function config(own)
  return "return { listen = { { '127.0.0.1:0', tls = " .. support.literal(own) .. " } }, admin = '127.0.0.1:0',\n"
    .. "  data_dir = 'data', workers = 1, reload = { watch = false }, redis = 'redis://127.0.0.1:1',\n"
    .. "  routes = { { name = 'r', path = '/*', plugins = { answer = {} } } }, plugin_path = { 'plugins' } }\n"
end

local ANSWER = { ["plugins/answer.lua"] = "return { access = function() return 200, 'fine' end }" }

local function check(own)
  local dir = support.tmpdir()
  support.write_file(dir .. "/plugins/answer.lua", ANSWER["plugins/answer.lua"])
  support.write_file(dir .. "/gateway.lua", config(own))
  return support.tollgate { "check", "-c", dir .. "/gateway.lua" }
end

local function refused(own, want)
  local run = check(own)
  assert.equal(1, run.code, want)
  assert.equal(want, run.err:sub(1, #want))
  return run.err
end

local function start(own)
  return support.gateway { config = config(own), files = ANSWER }
end

local function body(gw)
  local c = assert(tls.connect(gw.port, { name = "a.test", verify_ca = on.ca.cert }))
  local res = c:request { path = "/" }
  c:close()
  return res and res.body
end

describe("what cannot be used", function()
  it("is refused with the path of its key", async(function()
    local good = on.good
    for _, one in ipairs {
      { on.expired.cert, on.expired.key, "cert: the certificate expired on " },
      { on.early.cert, on.early.key, "cert: the certificate is not valid before " },
      { good.cert, on.other.key, "key: is not the key of the certificate" },
      { good.key, good.key, "cert: holds no certificate in PEM form" },
      { on.empty, good.key, "cert: holds no certificate in PEM form" },
      { on.garbled, good.key, "cert: the certificate cannot be read" },
      { good.cert, good.cert, "key: holds no private key in PEM form" },
      { good.cert, on.encrypted, "key: the key is encrypted" },
      { "/none", good.key, "cert: /none: no such file or directory" },
      { good.cert, on.ca.dir, "key: " .. on.ca.dir .. ": illegal operation on a directory" },
    } do
      refused({ cert = one[1], key = one[2] }, "listen.tls." .. one[3])
      refused({ certificates = { good, { cert = one[1], key = one[2] } } }, "listen.tls.certificates[2]." .. one[3])
    end
  end))

  it("is refused all at once", async(function()
    local err = refused({ certificates = { { cert = on.empty, key = on.good.key }, { cert = on.good.cert, key = on.other.key } },
      ciphers = { "NONE" }, client = { ca = on.empty } }, "listen.tls.certificates[1].cert: ")
    for _, want in ipairs { "listen.tls.certificates[2].key: ", "listen.tls.ciphers[1]: ", "listen.tls.client.ca: " } do
      assert.is_truthy(err:find(want, 1, true), err)
    end
  end))

  it("is no cipher that is unknown, weak, or of the wrong version", async(function()
    local own = { cert = on.good.cert, key = on.good.key }
    for _, name in ipairs { "NONE", "AECDH-AES128-SHA", "NULL-SHA256", "RC4-SHA", "HIGH", "AES128", "TLS_NONE" } do
      own.ciphers = { "ECDHE-ECDSA-AES128-GCM-SHA256", name }
      refused(own, "listen.tls.ciphers[2]: no cipher suite " .. name .. " can be used")
    end
    own.ciphers = { "TLS_AES_128_GCM_SHA256" }
    refused(own, "listen.tls.ciphers: names none of TLS 1.2, which min_version allows")
    own.min_version = "1.3"
    assert.equal(0, check(own).code)
  end))

  it("is no trust in nothing", async(function()
    local own = { cert = on.good.cert, key = on.good.key, client = { ca = on.good.key } }
    refused(own, "listen.tls.client.ca: holds no certificate in PEM form")
    own.client.ca = "/none"
    refused(own, "listen.tls.client.ca: /none: no such file or directory")
  end))

  it("keeps a gateway from starting, and never shows a key", async(function()
    local dir = support.tmpdir()
    support.write_file(dir .. "/plugins/answer.lua", ANSWER["plugins/answer.lua"])
    support.write_file(dir .. "/gateway.lua", config { cert = on.good.cert, key = on.other.key })
    local run = support.exec { cmd = require("spec.support.gateway").binary(), args = { "run", "-c", dir .. "/gateway.lua" } }
    assert.equal(1, run.code)
    assert.is_truthy(run.err:find("listen.tls.key: is not the key of the certificate", 1, true))
    local secret = support.read_file(on.other.key):match("\n(%S+)\n")
    assert.is_nil((run.err .. run.out):find(secret:sub(1, 20), 1, true))
  end))

  it("makes a reload change nothing", async(function()
    local gw = start { cert = on.good.cert, key = on.good.key }
    assert.equal("fine", body(gw))
    gw:write("gateway.lua", config { cert = on.expired.cert, key = on.expired.key })
    local run = gw:command("reload")
    assert.equal(1, run.code)
    assert.is_truthy(run.err:find("listen.tls.cert: the certificate expired on", 1, true), run.err)
    assert.equal("fine", body(gw))
    gw:write("gateway.lua", config { cert = on.other.cert, key = on.other.key })
    assert.equal(0, gw:command("reload").code)
    assert.equal("fine", body(gw))
  end))
end)

describe("a certificate that expires", function()
  it("within two weeks is warned of: at the start, by a reload, by check", async(function()
    local run = check { cert = on.soon.cert, key = on.soon.key }
    assert.equal(0, run.code)
    assert.equal("listen.tls.cert: the certificate expires on " .. os.date("!%Y-%m-%d", os.time() + 3 * DAY),
      run.err:sub(1, 54))
    local gw = start { cert = on.soon.cert, key = on.soon.key }
    local _, n = gw.log():gsub("warn  listen.tls.cert: the certificate expires on ", "")
    assert.equal(1, n, gw.log())
    gw:write("gateway.lua", config { certificates = { on.soon } })
    assert.equal(0, gw:command("reload").code)
    gw:wait_log("listen.tls.certificates[1].cert: the certificate expires on ", true)
  end))

  it("while the gateway runs keeps no worker from coming back", async(function()
    local brief = on.ca:issue { names = { "a.test" }, days = 4 / DAY }
    local gw = start { cert = brief.cert, key = brief.key }
    local worker = gw:workers()[1]
    support.wait_for(function() return check({ cert = brief.cert, key = brief.key }).code == 1 end, "its end", 10000)
    uv.kill(worker, "sigkill")
    support.wait_for(function()
      local now = gw:workers()[1]
      return now and now ~= worker
    end, "another worker")
    local c = assert(tls.connect(gw.port, { name = "a.test" })) -- who does not mind is served
    assert.equal("fine", c:request({ path = "/" }).body)
    local _, err = tls.connect(gw.port, { name = "a.test", verify_ca = on.ca.cert })
    assert.equal("certificate verify failed", err)
  end, 30000))
end)
