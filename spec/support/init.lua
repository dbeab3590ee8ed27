-- What end-to-end specs use, in one table: `local support = require "spec.support"`. A test body runs in a
-- coroutine (support.async), everything that it starts is ended when it ends, and whatever waits has a limit.
--
--   it("answers", support.async(function()
--     local origin = support.origin(function(_, conn) conn:respond { body = "hello" } end)
--     local gw = support.gateway { config = { routes = { … origin.url … } } }
--     assert.equal("hello", gw:request { path = "/" }.body)
--   end))
local json = require "dkjson"
local chat = require "spec.support.chat"
local crypto = require "spec.support.crypto"
local dns = require "spec.support.dns"
local files = require "spec.support.files"
local gateway = require "spec.support.gateway"
local http = require "spec.support.http"
local literal = require "spec.support.literal"
local llm = require "spec.support.llm"
local loop = require "spec.support.loop"
local moved_redis = require "spec.support.moved_redis"
local npm = require "spec.support.npm"
local origin = require "spec.support.origin"
local process = require "spec.support.process"
local prometheus = require "spec.support.prometheus"
local proxy = require "spec.support.proxy"
local redis = require "spec.support.redis"
local redis_tap = require "spec.support.redis_tap"
local sse = require "spec.support.sse"
local tls = require "spec.support.tls"

return {
  run = loop.run, async = loop.async, shared = loop.shared, on_end = loop.on_end,
  spawn = loop.spawn, all = loop.all, sleep = loop.sleep, wait_for = loop.wait_for,
  tmpdir = files.tmpdir, write_file = files.write_file, read_file = files.read_file, free_port = files.free_port,
  dead_port = files.dead_port,
  start = process.start, exec = process.exec,
  gateway = gateway.start, tollgate = gateway.tollgate, raw = literal.raw, literal = literal.format,
  connect = http.connect, request = http.request, json = http.json,
  encode = json.encode, decode = json.decode, null = json.null,
  sse = sse.parse, events = sse.each,
  origin = origin.start, server = origin.server, chat_origin = chat.start, chat_handler = chat.handler,
  chat_events = chat.events, llm_origin = llm.start, llm_handler = llm.handler, llm = llm,
  redis = redis.start, moved_redis = moved_redis.start, redis_tap = redis_tap, proxy = proxy.start, dns = dns.start,
  sha256 = crypto.sha256, hmac_sha256 = crypto.hmac_sha256, gzip = crypto.gzip, gunzip = crypto.gunzip, keys = crypto.keys,
  npm = npm, prometheus = prometheus, tls = tls,
}
