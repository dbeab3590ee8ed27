-- Clients as they come, over TLS with an authority of our own: openssl, curl, python and the npm client `openai`.
local support = require "spec.support"
local async, tls = support.async, support.tls

local on = {}
local up, down = support.shared(function()
  on.ca = tls.authority()
  local server = on.ca:issue { names = { "localhost", "127.0.0.1" } }
  on.client = on.ca:issue { name = "me" }
  on.origin = support.chat_origin()
  on.gw = support.gateway {
    files = { ["plugins/echo.lua"] = [[
      return { access = function(_, ctx)
        local certificate = ctx.client.certificate
        return 200, ctx.request.scheme .. " " .. (certificate and certificate.subject or "nobody") .. "\n"
      end } ]] },
    config = {
      listen = { { "127.0.0.1:0", tls = { cert = server.cert, key = server.key,
        client = { ca = on.ca.cert, required = false } } } },
      redis = "redis://127.0.0.1:1",
      routes = {
        { name = "chat", path = "/v1/chat/completions", targets = { { url = on.origin.url } } },
        { name = "echo", path = "/*", plugins = { echo = {} } },
      },
    },
  }
  on.url = "https://localhost:" .. on.gw.port
end)
setup(up)
teardown(down)

local function run(cmd, args, stdin)
  local done = support.exec { cmd = cmd, args = args, stdin = stdin, timeout = 20000 }
  assert(done.code == 0, done.err .. done.out)
  return done
end

describe("openssl s_client", function()
  local function s_client(...)
    return run("openssl", { "s_client", "-connect", "localhost:" .. on.gw.port, "-servername", "localhost", "-CAfile",
      on.ca.cert, "-verify_return_error", ... }, "GET / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n").out
  end

  it("verifies, resumes and names the versions", async(function()
    for flag, version in pairs { ["-tls1_2"] = "TLSv1.2", ["-tls1_3"] = "TLSv1.3" } do
      local session = support.tmpdir() .. "/session"
      local out = s_client(flag, "-ign_eof", "-sess_out", session)
      assert.is_truthy(out:find("Verify return code: 0 (ok)", 1, true), out)
      assert.is_truthy(out:find("New, " .. version, 1, true), out)
      assert.is_truthy(out:find("https nobody", 1, true), out)
      assert.is_truthy(out:find("Secure Renegotiation IS supported", 1, true) or version == "TLSv1.3")
      assert.is_truthy(out:find("Compression: NONE", 1, true))
      out = s_client(flag, "-ign_eof", "-sess_in", session)
      assert.is_truthy(out:find("Reused, " .. version, 1, true), out)
    end
  end))

  it("is told no by what is too old", async(function()
    local done = support.exec { cmd = "openssl", args = { "s_client", "-connect", "localhost:" .. on.gw.port, "-tls1_1",
      "-cipher", "ALL:@SECLEVEL=0" }, timeout = 20000 }
    assert.equal(1, done.code)
    assert.is_truthy(done.err:find("alert protocol version", 1, true), done.err)
  end))

  it("gets no renegotiation", async(function()
    local out = support.exec { cmd = "openssl", args = { "s_client", "-connect", "localhost:" .. on.gw.port, "-tls1_2" },
      stdin = "R\n", timeout = 20000 }
    assert.is_truthy(out.err:find("no renegotiation", 1, true), out.err)
  end))
end)

describe("curl", function()
  it("verifies, keeps the connection, and brings a certificate", async(function()
    local out = run("curl", { "-sS", "--cacert", on.ca.cert, "-w", "%{num_connects} %{ssl_verify_result}\n", on.url .. "/a",
      on.url .. "/b" }).out
    assert.equal("https nobody\n1 0\nhttps nobody\n0 0\n", out)
    out = run("curl", { "-sS", "--cacert", on.ca.cert, "--cert", on.client.cert, "--key", on.client.key, on.url .. "/" }).out
    assert.equal("https CN=me\n", out)
  end))

  it("may offer HTTP/2, and gets HTTP/1.1", async(function()
    local out = run("curl", { "-sS", "--http2", "--cacert", on.ca.cert, "-w", "%{http_version}", on.url .. "/" }).out
    assert.equal("https nobody\n1.1", out)
  end))

  it("is told when it comes without TLS", async(function()
    local out = run("curl", { "-sS", "-w", "%{http_code}", "http://localhost:" .. on.gw.port .. "/" }).out
    assert.equal("This port speaks TLS: write https:// instead of http://.\n400", out)
  end))
end)

describe("python", function()
  it("reads an answer that ends with the connection", async(function()
    local out = run("python3", { "-c", [[
import ssl, sys, http.client
c = http.client.HTTPSConnection("localhost", int(sys.argv[1]), context=ssl.create_default_context(cafile=sys.argv[2]))
c.request("GET", "/", headers={"Connection": "close"})
r = c.getresponse()
print(r.status, r.read().decode().strip())
]], tostring(on.gw.port), on.ca.cert }).out
    assert.equal("200 https nobody\n", out)
  end))
end)

describe("the npm client openai", function()
  it("asks and streams", async(function()
    local result = support.npm.node { env = { NODE_EXTRA_CA_CERTS = on.ca.cert, URL = on.url .. "/v1" }, source = [[
const { OpenAI } = require('openai');
const client = new OpenAI({ apiKey: 'k', baseURL: process.env.URL, maxRetries: 0 });
const hello = { model: 'gpt-test', messages: [{ role: 'user', content: 'Hello!' }], max_tokens: 20 };
(async () => {
  const whole = await client.chat.completions.create(hello);
  let text = '';
  for await (const chunk of await client.chat.completions.create({ ...hello, stream: true }))
    text += chunk.choices[0]?.delta?.content ?? '';
  return { whole: whole.choices[0].message.content, text };
})().then((v) => console.log(JSON.stringify(v)), (err) => { console.error(err); process.exit(1); });
]] }
    assert(result.code == 0, result.err)
    local seen = support.decode(result.out)
    assert.equal(seen.whole, seen.text)
    assert.is_true(#seen.text > 0)
  end))
end)
