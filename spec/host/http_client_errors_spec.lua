-- tg.http: each error constant by what causes it, redirects, misuse, and that a fetch ends with whoever waits for it.
local support = require "spec.support"
local rig = require "spec.host.http_rig"
local async, run = support.async, rig.run

local function origin(fn, options)
  return support.origin(fn or function(_, conn) conn:respond { body = "hello" } end, options)
end

-- Reads the request and never answers; done is when the gateway has closed the connection.
local function silent()
  local o
  o = origin(function(_, conn)
    conn:wait_closed(15000)
    o.left = (o.left or 0) + 1
  end)
  return o
end

-- An origin that writes these bytes for each request, whatever it is, and then closes where `close` is set.
local function literal(bytes, close)
  return origin(function(_, conn)
    conn:write(bytes)
    if close == "reset" then conn:reset() elseif close then conn:close() end
  end)
end

local GET = "return pack(tg.http.get(ORIGIN, OPTIONS))"

local function failure(o, options, code, config)
  local list = run("local OPTIONS = " .. (options or "nil") .. "\n" .. (code or GET), o, config)
  assert.equal("nil", list[1])
  assert.equal("string", type(list[3]))
  assert.is_true(#list[3] > 0)
  return list[2], list[3]
end

describe("tg.http fails with", function()
  it("timeout, by the total", async(function()
    local o = silent()
    assert.equal("timeout", failure(o, "{ timeout = 0.05 }"))
    support.wait_for(function() return o.open == 0 end, "the connection to be closed")
  end))

  it("timeout, by the first byte", async(function()
    assert.equal("timeout", failure(silent(), "{ first_byte_timeout = 0.05 }"))
  end))

  it("timeout, within the answer", async(function()
    local o = origin(function(_, conn)
      conn:start()
      conn:chunk("one")
      conn:wait_closed(15000)
    end)
    assert.equal("timeout", failure(o, "{ idle_timeout = 0.05 }"))
  end))

  it("timeout, while all connections that the pool may have are taken", async(function()
    local o = silent()
    local gw = rig.start({
      ["/hold"] = "return pack(tg.http.get(ORIGIN, { timeout = 10 }))",
      ["/x"] = "return pack(tg.http.get(ORIGIN, { connect_timeout = 0.05 }))",
    }, o, { upstream = { connections = 1 } })
    local holder = gw:connect()
    holder:send_request { path = "/hold" }
    o:wait_request(1)
    assert.equal("timeout", rig.call(gw, "/x")[2])
    holder:close()
    support.wait_for(function() return o.open == 0 end, "the first to be given up")
  end))

  it("refused", async(function()
    local port = support.free_port()
    assert.equal("refused", failure { url = "http://127.0.0.1:" .. port })
    assert.equal("refused", failure(nil, nil, "return pack(tg.http.get('unix:/nonexistent/socket'))"))
  end))

  it("resolve", async(function()
    local err = failure { url = "http://" .. ("a"):rep(64) .. ".test" }
    assert.equal("resolve", err)
  end))

  it("tls, where no TLS is spoken", async(function()
    local o = support.server(function(conn)
      if conn:wait_data(5000) then conn:send("HTTP/1.1 400 Bad Request\r\n\r\n") end
      conn:close()
    end)
    local err, detail = failure { url = "https://127.0.0.1:" .. o.port }
    assert.same({ "tls", "cannot connect: what it sent is not TLS" }, { err, detail })
  end))

  it("too_large, by the length that is told and by what comes", async(function()
    assert.equal("too_large", failure(literal "HTTP/1.1 200 OK\r\nContent-Length: 10485761\r\n\r\n"))
    assert.equal("too_large", failure(literal "HTTP/1.1 200 OK\r\nContent-Length: 6\r\n\r\n", "{ max_body = 5 }"))
    local o = origin(function(_, conn)
      conn:start()
      repeat until not conn:chunk(("x"):rep(100000)) or conn.closed
    end)
    assert.equal("too_large", failure(o, "{ max_body = 1000000 }"))
    support.wait_for(function() return o.open == 0 end, "the connection to be closed")
    assert.same({ "hello" }, run("return { tg.http.get(ORIGIN, { max_body = 5 }).body }", origin()))
  end))

  for name, bytes in pairs {
    ["no HTTP"] = "SSH-2.0-OpenSSH\r\n\r\n",
    ["a bare LF"] = "HTTP/1.1 200 OK\nContent-Length: 0\n\n",
    ["two lengths"] = "HTTP/1.1 200 OK\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\nab",
    ["length and chunks"] = "HTTP/1.1 200 OK\r\nContent-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
    ["a bad chunk"] = "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n",
    ["another protocol"] = "HTTP/1.1 101 Switching Protocols\r\nUpgrade: x\r\nConnection: upgrade\r\n\r\n",
    ["interim answers without end"] = ("HTTP/1.1 100 Continue\r\n\r\n"):rep(65),
    ["a head too large"] = "HTTP/1.1 200 OK\r\nx: " .. ("x"):rep(70000) .. "\r\n\r\n",
  } do
    it("malformed, for " .. name, async(function()
      local o = literal(bytes)
      assert.equal("malformed", failure(o))
      support.wait_for(function() return o.open == 0 end, "the connection to be closed")
    end))
  end

  for name, bytes in pairs {
    ["nothing was said"] = "",
    ["half a head"] = "HTTP/1.1 200 OK\r\nContent-Le",
    ["half a body"] = "HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nhalf",
    ["half a chunk"] = "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nab",
    ["no last chunk"] = "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nab\r\n",
    ["an interim answer"] = "HTTP/1.1 103 Early Hints\r\n\r\n",
  } do
    it("closed, where " .. name .. " came", async(function()
      assert.equal("closed", failure(literal(bytes, true)))
      assert.equal("closed", failure(literal(bytes, "reset")))
    end))
  end
end)

describe("redirects of tg.http", function()
  -- GET /STATUS/rest leads to Location: rest.
  local function redirecting()
    return origin(function(req, conn)
      local status, to = req.target:match("^/(%d%d%d)/(.*)$")
      if not status then return conn:respond { body = req.method .. " " .. req.target .. " " .. req.body } end
      conn:respond { status = tonumber(status), headers = { location = to }, body = "moved" }
    end)
  end

  it("are answers unless asked for", async(function()
    assert.same({ 302, "/there", "moved" }, run([[
      local res = assert(tg.http.get(ORIGIN .. "/302//there"))
      return { res.status, res.headers.location, res.body }
    ]], redirecting()))
  end))

  it("keep or change the method as RFC 9110 says", async(function()
    local o = redirecting()
    local r = run([[
      local out = {}
      for _, status in ipairs { 301, 302, 303, 307, 308 } do
        for _, method in ipairs { "GET", "POST", "PUT", "DELETE" } do
          local res = assert(tg.http.request(ORIGIN .. "/" .. status .. "//to?q", { method = method, redirects = 1,
            body = method:sub(1, 1) == "P" and "b" or nil, headers = { ["content-type"] = "text/x" } }))
          out[#out + 1] = status .. " " .. res.body
        end
        out[#out + 1] = status .. " " .. assert(tg.http.request(ORIGIN .. "/" .. status .. "//to",
          { method = "HEAD", redirects = 1 })).status
      end
      return out
    ]], o)
    assert.same({
      "301 GET /to?q ", "301 GET /to?q ", "301 PUT /to?q b", "301 DELETE /to?q ", "301 200",
      "302 GET /to?q ", "302 GET /to?q ", "302 PUT /to?q b", "302 DELETE /to?q ", "302 200",
      "303 GET /to?q ", "303 GET /to?q ", "303 GET /to?q ", "303 GET /to?q ", "303 200",
      "307 GET /to?q ", "307 POST /to?q b", "307 PUT /to?q b", "307 DELETE /to?q ", "307 200",
      "308 GET /to?q ", "308 POST /to?q b", "308 PUT /to?q b", "308 DELETE /to?q ", "308 200",
    }, r)
    assert.equal(1, o.connections)
    for _, req in ipairs(o.requests) do
      local changed = req.target == "/to?q" and req.method == "GET" and req.headers["content-type"] == nil
      local bare = req.headers["content-length"] == nil
      if changed then assert.is_true(bare) end
    end
    assert.equal("HEAD", o.requests[#o.requests].method)
  end))

  it("resolve what the answer names", async(function()
    local o = origin(function(req, conn)
      local to = req.headers["x-to"]
      if req.target:match("end$") then return conn:respond { body = req.target } end
      conn:respond { status = 302, headers = { location = to } }
    end)
    local r = run([[
      local out = {}
      for _, to in ipairs { "end", "./end", "../end", "/x/../end", "../../../end", "?end", "/end#part", "/%7e end",
          "//" .. ORIGIN:match("//(.*)") .. "/a/end", ORIGIN .. "/b/end", ORIGIN:upper():gsub("HTTP", "hTTp") .. "?end" } do
        local res = tg.http.get(ORIGIN .. "/a/b/c?q", { redirects = 1, headers = { ["x-to"] = to } })
        out[#out + 1] = res and res.body or "failed"
      end
      return out
    ]], o)
    assert.same({ "/a/b/end", "/a/b/end", "/a/end", "/end", "/end", "/a/b/c?end", "/end", "/%7e%20end", "/a/end", "/b/end",
      "/?end" }, r)
  end))

  it("end", async(function()
    local o = origin(function(_, conn) conn:respond { status = 302, headers = { location = "/again" } } end)
    assert.equal("too_many_redirects", failure(o, "{ redirects = 3 }"))
    assert.equal(4, #o.requests)
  end))

  it("do not take credentials to another origin", async(function()
    local other = origin()
    local o = origin(function(req, conn)
      conn:respond { status = 307, headers = { location = req.path == "/" and "/on" or other.url .. "/x" } }
    end)
    run([[assert(tg.http.request(ORIGIN, { redirects = 5, headers = { Authorization = "a", Cookie = "b",
      ["X-Api-Key"] = "c", ["Proxy-Authorization"] = "d", Host = "named.test", ["x-other"] = "e" } }))]], o)
    local same, foreign = o.requests[2].headers, other.requests[1].headers
    assert.same({ "a", "b", "c", "named.test", "e" },
      { same.authorization, same.cookie, same["x-api-key"], same.host, same["x-other"] })
    assert.same({ host = "127.0.0.1:" .. other.port, ["x-other"] = "e", ["user-agent"] = foreign["user-agent"] }, foreign)
  end))

  it("lead to http and https only", async(function()
    for to, err in pairs { ["https://127.0.0.1:1/"] = "refused", ["unix:/tmp/s"] = "malformed", ["ftp://x/"] = "malformed",
      ["http://u:p@127.0.0.1/"] = "malformed", ["http://"] = "malformed" } do
      local o = origin(function(_, conn) conn:respond { status = 302, headers = { location = to } } end)
      assert.equal(err, (failure(o, "{ redirects = 3 }")))
      assert.equal(1, #o.requests)
    end
  end))

  it("drop a body that is large or has no end", async(function()
    for _, length in ipairs { true, false } do
      local o = origin(function(req, conn)
        if req.path ~= "/" then return conn:respond { body = "there" } end
        conn:respond { status = 302, headers = { location = "/there" }, body = ("x"):rep(2 ^ 20), length = length or nil }
      end)
      assert.same({ "there" }, run("return { assert(tg.http.get(ORIGIN, { redirects = 1, max_body = 10 })).body }", o))
      assert.equal(2, o.connections)
    end
  end))

  it("count into the total time", async(function()
    local o = origin(function(req, conn)
      if req.path == "/" then return conn:respond { status = 302, headers = { location = "/there" } } end
      conn:wait_closed(15000)
    end)
    assert.equal("timeout", failure(o, "{ redirects = 3, timeout = 0.1 }"))
  end))
end)

describe("misuse of tg.http raises", function()
  it("and names function and mistake", async(function()
    local cases = {
      { "tg.http.get()", "tg%.http%.get: the URL must be a string, not n" },
      { "tg.http.get('ftp://x')", "tg%.http%.get: the URL 'ftp://x' is not valid: only http" },
      { "tg.http.post('http://')", "tg%.http%.post: the URL .* the host" },
      { "tg.http.get('http://u@h/')", "user information" },
      { "tg.http.get('http://h/a b')", "must be percent%-encoded" },
      { "tg.http.get('http://h/%2')", "'%%' must begin" },
      { "tg.http.get('http://h:99999/')", "is not valid" },
      { "tg.http.get('unix:rel')", "absolute path" },
      { "tg.http.stream('http://h\\r\\nx: y/')", "tg%.http%.stream: the URL" },
      { "tg.http.get(ORIGIN, 5)", "the options must be a table" },
      { "tg.http.get(ORIGIN, { tiemout = 1 })", "there is no option 'tiemout'; known are method," },
      { "tg.http.get(ORIGIN, { method = 'POST' })", "the method is GET" },
      { "tg.http.request(ORIGIN, { method = 'A B' })", "method: 'A B'" },
      { "tg.http.request(ORIGIN, { method = 'CONNECT' })", "method: 'CONNECT'" },
      { "tg.http.request(ORIGIN, { headers = { ['a b'] = 1 } })", "'a b' is not a valid header name" },
      { "tg.http.request(ORIGIN, { headers = { a = 'x\\ny' } })", "header 'a': the value has a control" },
      { "tg.http.request(ORIGIN, { headers = { a = {{}} } })", "header 'a': a value must be" },
      { "tg.http.request(ORIGIN, { headers = { ['Content-Length'] = 1 } })", "set by the gateway itself" },
      { "tg.http.request(ORIGIN, { headers = { ['transfer-encoding'] = 'chunked' } })", "set by the gateway itself" },
      { "tg.http.request(ORIGIN, { headers = { Host = 'a/b' } })", "host or host:port" },
      { "tg.http.request(ORIGIN, { headers = { 'a' } })", "headers must be a table of name" },
      { "tg.http.request(ORIGIN, { body = 5 })", "body must be a string, not number" },
      { "tg.http.request(ORIGIN, { body = 'a', json = 1 })", "either body or json" },
      { "tg.http.request(ORIGIN, { json = print })", "a function" },
      { "tg.http.request(ORIGIN, { query = { a = {{}} } })", "query 'a'" },
      { "tg.http.request(ORIGIN, { query = 'a=b' })", "query must be a table" },
      { "tg.http.request(ORIGIN, { timeout = 0 })", "timeout must be a number of seconds above 0" },
      { "tg.http.request(ORIGIN, { idle_timeout = 0/0 })", "idle_timeout must be" },
      { "tg.http.request(ORIGIN, { connect_timeout = '1' })", "connect_timeout must be a number, not string" },
      { "tg.http.request(ORIGIN, { max_body = 0.5 })", "max_body must be a whole number" },
      { "tg.http.request(ORIGIN, { redirects = 21 })", "from 0 to 20" },
      { "table.sort({ 1, 2, 3 }, function() tg.http.get(ORIGIN) end)", "tg%.http%.get cannot wait here" },
      { "string.gsub('a', 'a', function() tg.http.stream(ORIGIN) end)", "tg%.http%.stream cannot wait here" },
    }
    local code = { "local out = {}" }
    for _, case in ipairs(cases) do
      code[#code + 1] = ("out[#out + 1] = tostring(select(2, pcall(function() %s end)))"):format(case[1])
    end
    code[#code + 1] = "collectgarbage()\nreturn out"
    local o = origin()
    local messages = run(table.concat(code, "\n"), o)
    for i, case in ipairs(cases) do assert.matches(case[2], messages[i], case[1]) end
    assert.equal(0, #o.requests)
  end))

  it("while a file is loaded", async(function()
    local gw = rig.start({ top = "local early = { pcall(tg.http.get, 'http://127.0.0.1:1') }",
      ["/x"] = "return tostring(early[2])" })
    assert.matches("tg%.http%.get cannot wait here: it is called while a file is loaded", rig.call(gw, "/x"))
  end))
end)

describe("a fetch", function()
  it("ends with the client that it is for", async(function()
    local o = silent()
    local gw = rig.start({ ["/x"] = "return pack(tg.http.get(ORIGIN))" }, o)
    local client = gw:connect()
    client:send_request { path = "/x" }
    o:wait_request(1)
    client:close()
    support.wait_for(function() return o.open == 0 end, "the origin's connection to be closed")
    assert.equal("client_gone", gw:wait_access(1)[1].ended)
  end))

  it("ends with the client also while it connects", async(function()
    local o = silent()
    local gw = rig.start({ ["/x"] = "return pack(tg.http.get(ORIGIN))" }, o, { upstream = { connections = 1 } })
    local first, second = gw:connect(), gw:connect()
    first:send_request { path = "/x" }
    o:wait_request(1)
    second:send_request { path = "/x" }
    second:close()
    gw:wait_access(1)
    first:close()
    support.wait_for(function() return o.open == 0 end, "the origin's connection to be closed")
    assert.equal(1, o.connections)
  end))

  it("runs in a plugin's own coroutines", async(function()
    assert.same({ "hello", "hello", "done" }, run([[
      local out = {}
      local co = coroutine.wrap(function()
        for i = 1, 2 do coroutine.yield(assert(tg.http.get(ORIGIN)).body) end
        return "done"
      end)
      for i = 1, 3 do out[i] = co() end
      return out
    ]], origin()))
  end))

  it("runs within pcall and may be followed by an error", async(function()
    assert.same({ false, "x: hello" }, run([[
      local ok, err = pcall(function() error("x: " .. tg.http.get(ORIGIN).body, 0) end)
      return { ok, err }
    ]], origin()))
  end))

  it("runs in timers and in the log phase", async(function()
    local o = origin()
    local gw = rig.start({
      init = [[tg.timer.after(0, function() assert(tg.http.get(ORIGIN .. "/timer")) end)]],
      log = [[assert(tg.http.post(ORIGIN .. "/log", { json = { ended = ctx.ended } }))]],
      ["/x"] = "return 1",
    }, o)
    o:wait_request(1)
    rig.call(gw, "/x")
    local req = o:wait_request(2)
    assert.same({ "/timer", "/log", '{"ended":"ok"}' }, { o.requests[1].path, req.path, req.body })
  end))

  it("runs in tollgate exec", async(function()
    local o = origin()
    local path = support.tmpdir() .. "/x.lua"
    support.write_file(path, [[
      local tg = require "tollgate"
      local url = ...
      print(assert(tg.http.get(url)).body, assert(tg.http.stream(url)):read(), select(2, tg.http.get("http://127.0.0.1:1")))
    ]])
    local res = support.tollgate { "exec", path, o.url }
    assert.same({ 0, "hello\thello\trefused\tcannot connect: connection refused\n" }, { res.code, res.out }, res.err)
  end))

  it("that a request waits for is waited for when the gateway stops", async(function()
    local release
    local o = origin(function(_, conn)
      support.wait_for(function() return release end, "the release")
      conn:respond { body = "late" }
    end)
    local gw = rig.start({ ["/x"] = "return assert(tg.http.get(ORIGIN)).body" }, o)
    local answer = support.spawn(function() return rig.call(gw, "/x") end)
    o:wait_request(1)
    local stopped = support.spawn(function() gw:stop() return true end)
    gw:wait_log("stopping")
    release = true
    assert.equal("late", answer:join(5000))
    assert.is_true(stopped:join(5000))
  end))

  it("of a timer is cancelled when the gateway stops", async(function()
    local o = silent()
    local gw = rig.start({ init = "tg.timer.after(0, function() tg.http.get(ORIGIN) end)", ["/x"] = "" }, o)
    o:wait_request(1)
    gw:stop()
    support.wait_for(function() return o.open == 0 end, "the origin's connection to be closed")
  end))

  it("of a log phase fails when the gateway stops and cannot wait any longer", async(function()
    local o = silent()
    local gw = rig.start({ ["/x"] = "return 1", log = [[
      local _, err, why = tg.http.get(ORIGIN)
      tg.log.warn("log ended: ", err, ", ", why)
      tg.log.warn("and again: ", (select(2, tg.http.get(ORIGIN))))
    ]] }, o)
    rig.call(gw, "/x")
    o:wait_request(1)
    gw:stop()
    assert.matches("log ended: closed, the gateway stops", gw.log())
  end))
end)
