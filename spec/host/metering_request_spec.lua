-- What metering does to a request, end to end: which bytes it edits and that all others arrive as they were sent, what it
-- reserves, and which requests it refuses before anything is charged.
local support = require "spec.support"
local rig = require "spec.plugins.quota.rig"
local async = support.async

local redis
local up, down = support.shared(function() redis = support.redis() end)

local function post(gw, body, headers)
  local all = { { "x-api-key", rig.secret }, { "content-type", "application/json" } }
  for _, pair in ipairs(headers or {}) do all[#all + 1] = pair end
  return gw:request { method = "POST", path = rig.path, headers = all, body = body }
end

-- A gateway, and a function that gives what the origin got for a body: its text, and the tokens reserved meanwhile.
local function start(options)
  options = options or {}
  local seen
  local answer = support.chat_handler()
  local origin = support.origin(function(req, conn)
    seen = { body = req.body, reserved = rig.look(redis).reserved, headers = req.headers, req = req }
    answer(req, conn)
  end)
  local gw = rig.gateway { redis = redis, origin = origin.url, quota = options.quota,
    limits = options.limits or { monthly_tokens = 2 ^ 52 }, config = options.config }
  return gw, function(body, headers)
    seen = nil
    local res = post(gw, body, headers)
    assert.equal(200, res.status, res.body)
    return seen.body, seen.reserved, seen, res
  end, origin
end

local MESSAGES = '"messages":[{"role":"user","content":"hi"}]' -- estimated at 2 tokens

describe("a metered request", function()
  setup(up)
  teardown(down)
  before_each(async(function() redis:must("FLUSHALL") end))

  it("that needs no edit arrives byte for byte", async(function()
    local _, ask = start()
    for _, body in ipairs {
      '{"model":"m",' .. MESSAGES .. ',"max_tokens":8}',
      ' {\r\n\t"seed" : 123456789012345678901234567890 , "big":9007199254740993,"x":1.10,"e":1E+2,"stop":[],"o":{},\n'
        .. '"user":"\\u00e9\\/\\ud83d\\ude00é","z":null,"max_tokens":1,' .. MESSAGES .. ',"max_completion_tokens":2 } \n',
      '{"stream":false,"stream_options":null,"max_tokens":0,' .. MESSAGES .. ",\"model\":\"m\"}",
      '{"stream":true,"stream_options":{"include_usage":true , "y":[]},"max_tokens":3,' .. MESSAGES .. "}",
    } do
      assert.equal(body, (ask(body)))
    end
  end))

  it("asks for usage where it streams and does not, and keeps all else", async(function()
    local _, ask = start()
    local rest = '"max_tokens":8,"stream":true,"seed":123456789012345678901,"stop":[],' .. MESSAGES .. "}"
    local sent = '{"stream_options":{"include_usage":true},' .. rest
    assert.equal(sent, (ask("{" .. rest)))
    for given, expected in pairs {
      ["null"] = '{"include_usage":true}', ["{}"] = '{"include_usage":true}',
      ['{"include_obfuscation":false,"n":[1.0]}'] = '{"include_usage":true,"include_obfuscation":false,"n":[1.0]}',
      ['{ "include_usage" : false , "a":1}'] = '{ "include_usage" : true , "a":1}',
      ['{"include_usage":null}'] = '{"include_usage":true}',
    } do
      assert.equal('{"stream_options":' .. expected .. "," .. rest, (ask('{"stream_options":' .. given .. "," .. rest)))
    end
  end))

  it("reserves its prompt and the largest answer that it allows", async(function()
    local _, ask = start()
    for fields, tokens in pairs {
      ['"max_tokens":8'] = 2 + 8, ['"max_completion_tokens":9'] = 2 + 9, ['"max_tokens":8,"n":3'] = 2 + 24,
      -- Which of two counts is the origin's choice: the larger is reserved.
      ['"max_tokens":8,"max_completion_tokens":5'] = 2 + 8, ['"max_tokens":5,"max_completion_tokens":8'] = 2 + 8,
      ['"max_tokens":null,"max_completion_tokens":7'] = 2 + 7, ['"n":null,"max_tokens":1'] = 3,
    } do
      assert.equal(tokens, (select(2, ask("{" .. fields .. "," .. MESSAGES .. "}"))), fields)
    end
    -- "user", 30 bytes in UTF-8, and the text of a tool with its keys: "f", "name", "function", "type", "function".
    local _, tokens = ask('{"max_tokens":1,"messages":[{"role":"user","content":"' .. ("é"):rep(15) .. '"}]}')
    assert.equal(math.ceil(34 / 3) + 1, tokens)
    _, tokens = ask('{"max_tokens":1,"tools":[{"type":"function","function":{"name":"f"}}],' .. MESSAGES .. "}")
    assert.equal(math.ceil((6 + 1 + 4 + 8 + 4 + 8) / 3) + 1, tokens)
  end))

  it("counts images and files by a number each, not by their bytes", async(function()
    local _, ask = start { quota = { image_tokens = 700, file_tokens = 1300, bytes_per_token = 1 } }
    local data = "data:image/png;base64," .. ("A"):rep(30000)
    local parts = { { type = "text", text = "look" }, { type = "image_url", image_url = { url = data } },
      { type = "image_url", image_url = { url = "https://x.test/i.png" } },
      { type = "input_audio", input_audio = { data = ("B"):rep(5000), format = "wav" } },
      { type = "file", file = { file_data = ("C"):rep(5000), filename = "c.pdf" } } }
    local _, tokens = ask(support.encode { max_tokens = 1, messages = { { role = "user", content = parts } } })
    local attachments = 2 * 700 + 2 * 1300
    assert.is_true(tokens >= attachments + 4 + 1 and tokens < attachments + 100, tokens)
  end))

  it("that names no maximum gets the default that is reserved for it", async(function()
    local gw, ask = start { quota = { default_output = 500 } }
    local body, tokens = ask("{" .. MESSAGES .. "}")
    assert.same({ '{"max_completion_tokens":500,' .. MESSAGES .. "}", 502 }, { body, tokens })
    body, tokens = ask('{"n":2,"max_completion_tokens": null ,' .. MESSAGES .. "}")
    assert.same({ '{"n":2,"max_completion_tokens": 500 ,' .. MESSAGES .. "}", 1002 }, { body, tokens })
    body = ask('{"stream":true,' .. MESSAGES .. "}")
    assert.equal('{"max_completion_tokens":500,"stream_options":{"include_usage":true},"stream":true,' .. MESSAGES .. "}", body)
    gw:wait_metric("not_estimated_total", 3)
  end))

  it("is not capped where it is so set, or has no budget", async(function()
    local _, ask = start { quota = { cap_output = false } }
    local body, tokens = ask("{" .. MESSAGES .. "}")
    assert.same({ "{" .. MESSAGES .. "}", 2 + 4096 }, { body, tokens })
    _, ask = start { limits = { concurrency = 5 } }
    body, tokens = ask("{" .. MESSAGES .. "}")
    assert.same({ "{" .. MESSAGES .. "}", 0 }, { body, tokens })
  end))

  it("asks for an answer that can be read, in whatever framing it came", async(function()
    local gw, ask = start()
    local _, _, seen = ask('{"max_tokens":1,' .. MESSAGES .. "}", { { "accept-encoding", "gzip, deflate" } })
    assert.equal("identity", seen.headers["accept-encoding"])
    -- In chunks, with an edit: the length is the edited one's.
    local pieces = { '{"stream":true,"max_to', 'kens":8,', MESSAGES .. "}" }
    local res = gw:request { method = "POST", path = rig.path, headers = rig.bearer, chunked = pieces }
    assert.equal(200, res.status)
    assert.equal(13 + 13, rig.settled(redis))
    -- A client that waits for 100 Continue hears it once.
    local conn = gw:connect()
    local body = '{"max_tokens":8,' .. MESSAGES .. "}"
    conn:send(("POST %s HTTP/1.1\r\nhost: h\r\nx-api-key: %s\r\nexpect: 100-continue\r\ncontent-length: %d\r\n\r\n"):format(
      rig.path, rig.secret, #body))
    assert.equal("HTTP/1.1 100 Continue\r\n\r\n", conn:read_until("\r\n\r\n", true))
    conn:send(body)
    res = conn:read_response()
    assert.same({ 200, 0 }, { res.status, #res.interim })
  end))

  it("that cannot be read is refused, and nothing is asked of Redis", async(function()
    local gw, _, origin = start()
    local gzip = support.gzip('{"max_tokens":1}')
    local before = rig.script_calls(redis)
    for body, expected in pairs {
      ["{oops"] = { 400, "invalid_json" }, [""] = { 400, "invalid_json" }, ['{"a":1} x'] = { 400, "invalid_json" },
      ["[1]"] = { 400, "invalid_type" }, ['{"max_tokens":"8"}'] = { 400, "invalid_type", "max_tokens" },
      ['{"max_tokens":-1}'] = { 400, "invalid_value", "max_tokens" }, ['{"n":0}'] = { 400, "invalid_value", "n" },
      ['{"n":9007199254740993,"max_tokens":9}'] = { 400, "invalid_value", "n" },
      ['{"max_tokens":1,"max_tokens":2}'] = { 400, "duplicate_parameter", "max_tokens" },
      ['{"stream":true,"str\\u0065am":false}'] = { 400, "duplicate_parameter", "stream" },
      ['{"messages":[],"messages":[]}'] = { 400, "duplicate_parameter", "messages" },
      ['{"stream_options":{"include_usage":true,"include_usage":false}}'] = { 400, "duplicate_parameter", "include_usage" },
    } do
      local res = post(gw, body)
      local err = support.json(res).error
      assert.same(expected, { res.status, err.code, err.param ~= support.null and err.param or nil }, body)
      assert.equal("invalid_request_error", err.type)
    end
    for _, coding in ipairs { "gzip", "deflate, gzip", "br" } do
      local res = post(gw, gzip, { { "content-encoding", coding } })
      assert.same({ 415, "unsupported_content_encoding" }, { res.status, support.json(res).error.code })
    end
    assert.same({ before, 0 }, { rig.script_calls(redis), #origin.requests })
    assert.equal(200, post(gw, '{"max_tokens":1}', { { "content-encoding", "identity" } }).status)
    rig.settled(redis)
    assert.same({ before + 2, 1 }, { rig.script_calls(redis), #origin.requests })
  end))

  it("too large for its route is a 413", async(function()
    local gw, _, origin = start { config = { limits = { body = 1000 } } }
    local conn = gw:connect()
    conn:send("POST " .. rig.path .. " HTTP/1.1\r\nhost: h\r\nx-api-key: " .. rig.secret
      .. "\r\ntransfer-encoding: chunked\r\n\r\n")
    for _ = 1, 3 do conn:send("190\r\n" .. ("x"):rep(400) .. "\r\n") end
    assert.equal(413, conn:read_response().status)
    assert.same({ 0, {} }, { #origin.requests, redis:dump() })
  end))
end)

describe("a plain request", function()
  setup(up)
  teardown(down)
  before_each(async(function() redis:must("FLUSHALL") end))

  it("has a bucket and slots but no tokens, and nothing of it is read or changed", async(function()
    local origin = support.origin(function(req, conn)
      conn:respond { body = support.encode { body = req.body, coding = req.headers["content-encoding"],
        accept = req.headers["accept-encoding"], look = rig.look(redis) } }
    end)
    local gw = rig.gateway { redis = redis, origin = origin.url,
      limits = { rps = 10, burst = 10, concurrency = 2, monthly_tokens = 1 } }
    local res = gw:request(rig.plain { method = "POST", body = "{not json",
      headers = { ["x-api-key"] = rig.secret, ["content-encoding"] = "gzip", ["accept-encoding"] = "gzip" } })
    assert.same({ body = "{not json", coding = "gzip", accept = "gzip",
      look = { tokens = 0, reserved = 0, open = 1, inflight = 1 } }, support.json(res))
    assert.is_nil(res.headers["x-ratelimit-limit-tokens"])
    assert.same({}, redis:must("KEYS", "q:tokens:*"))
  end))

  it("of a key without limits costs Redis nothing", async(function()
    local gw = rig.gateway { redis = redis, origin = support.chat_origin().url }
    gw:wait_log("redis: usable", true)
    local function calls()
      local all = {}
      for name, n in redis:must("INFO", "commandstats"):gmatch("cmdstat_(%S-):calls=(%d+)") do all[name] = n end
      all.info = nil
      return all
    end
    local before = calls()
    for _ = 1, 10 do
      local res = gw:request(rig.plain())
      assert.same({ 200, nil }, { res.status, res.headers.ratelimit })
      assert.equal(200, gw:request(rig.chat()).status)
      assert.equal(200, gw:request(rig.chat { stream = true }).status)
    end
    assert.same(before, calls())
    assert.equal(13, gw:wait_access(30)[30].tokens.used)
  end))
end)
