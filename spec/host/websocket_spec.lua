-- WebSocket through the gateway with the npm package ws on both sides: messages of all sizes both ways, compression, pings,
-- close codes, refusals, and the same inside TLS.
local support = require "spec.support"
local async = support.async

local SERVER = [[
const { WebSocketServer } = require("ws");
const wss = new WebSocketServer({ port: 0, host: "127.0.0.1", perMessageDeflate: true }, () => console.log(wss.address().port));
wss.on("connection", (ws, req) => {
  ws.send("hello " + req.url);
  ws.on("message", (data, binary) => {
    if (data.toString() === "close me") return ws.close(4001, "as you wish");
    ws.send(data, { binary });
  });
});
]]

-- Prints one line for each thing that happened.
local CLIENT = [[
const WebSocket = require("ws"), crypto = require("crypto"), fs = require("fs");
const [url, ca] = process.argv.slice(-2);
const tls = ca === "-" ? {} : { ca: fs.readFileSync(ca), servername: "gw.test" };
const say = (...words) => console.log(words.join(" "));
const open = (path, headers) => new WebSocket(url + path, { headers, ...tls });
const next = (ws) => new Promise((resolve) => ws.once("message", (data, binary) => resolve([data, binary])));
const closed = (ws) => new Promise((resolve) => ws.once("close", (code, reason) => resolve([code, reason.toString()])));
async function echo(ws, data) {
  const reply = next(ws);
  ws.send(data);
  const [got, binary] = await reply;
  return Buffer.compare(got, Buffer.from(data)) === 0 && binary === Buffer.isBuffer(data);
}
(async () => {
  const ws = open("/one?two=3");
  say((await next(ws))[0], ws.extensions.split(";")[0]);
  const sizes = [0, 1, 125, 126, 65535, 65536, 1000000];
  for (const n of sizes) say(n, await echo(ws, crypto.randomBytes(n)), await echo(ws, "z".repeat(n)));
  const pong = new Promise((resolve) => ws.once("pong", (data) => resolve(data)));
  ws.ping("are you there");
  say("pong", await pong);
  const end = closed(ws);
  ws.send("close me");
  say("closed", ...(await end));
  const refused = open("/one", { "x-refuse": "yes" });
  refused.on("error", () => {});
  say("refused", await new Promise((resolve) => refused.once("unexpected-response", (_, res) => resolve(res.statusCode))));
  refused.terminate();
  const closing = open("/two");
  await next(closing);
  const own = closed(closing);
  closing.close(1000, "done");
  say("closed", ...(await own));
  const many = await Promise.all(Array.from({ length: 50 }, async (_, i) => {
    const one = open("/" + i);
    await next(one);
    const fine = await echo(one, "message " + i) && await echo(one, crypto.randomBytes(10000 + i));
    one.close();
    await closed(one);
    return fine;
  }));
  say("many", many.filter((fine) => fine).length);
  const plain = open("/plain");
  plain.on("error", () => {});
  say("elsewhere", await new Promise((resolve) => plain.once("unexpected-response", (_, res) =>
    resolve([res.statusCode, res.headers.upgrade].join(" ")))));
  process.exit(0);
})();
]]

local EXPECTED = [[
hello /one?two=3 permessage-deflate
0 true true
1 true true
125 true true
126 true true
65535 true true
65536 true true
1000000 true true
pong are you there
closed 4001 as you wish
refused 403
closed 1000 done
many 50
elsewhere 426 HTTP/1.1
]]

local function start(listen)
  local server = support.start { cmd = "node", args = { "-e", SERVER }, env = { NODE_PATH = support.npm.path() } }
  local port = support.wait_for(function() return server:out():match("^(%d+)\n") end, "the server", 10000)
  local url = "http://127.0.0.1:" .. port
  local gw = support.gateway { config = { listen = listen, redis = "redis://127.0.0.1:1", routes = {
    { name = "plain", path = "/plain", targets = { { url = url } } },
    { name = "ws", path = "/*", upgrade = { "websocket" }, targets = { { url = url } }, plugins = { gate = {} } },
  } }, files = { ["plugins/gate.lua"] = [[
    return { version = "1", schema = {}, access = function(_, ctx)
      if ctx.request.headers["x-refuse"] then return 403, "no" end
    end }
  ]] } }
  return gw
end

describe("WebSocket", function()
  it("passes, whatever the messages", async(function()
    local gw = start()
    local res = support.npm.node { source = CLIENT, args = { "ws://127.0.0.1:" .. gw.port, "-" } }
    assert.equal(EXPECTED, res.out, res.err)
    local tunnels = 0
    for _, line in ipairs(gw:wait_access(54)) do
      if line.upgrade == "websocket" then
        tunnels = tunnels + 1
        assert.equal("ok", line.ended)
      end
    end
    assert.equal(52, tunnels)
  end))

  it("passes inside TLS", async(function()
    local ca = support.tls.authority()
    local id = ca:issue { names = { "gw.test" } }
    local gw = start { { "127.0.0.1:0", tls = { cert = id.cert, key = id.key } } }
    local res = support.npm.node { source = CLIENT, args = { "wss://127.0.0.1:" .. gw.port, ca.cert } }
    assert.equal(EXPECTED, res.out, res.err)
  end))
end)
