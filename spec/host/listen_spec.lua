-- Where the gateway listens: Unix sockets with their mode, stale files, upgrades and the end; IPv6; several addresses.
local uv = require "luv"
local support = require "spec.support"
local async = support.async

local routes = { { name = "a", path = "/*", plugins = { who = {} } } }
local plugins = { ["plugins/who.lua"] = [[
  return { version = "1", schema = {}, access = function(_, ctx)
    return 200, ("%q %d %q"):format(ctx.client.address, ctx.client.port, ctx.client.peer)
  end }
]] }

local function start(listen, options)
  local config = { listen = listen, routes = routes }
  for key, value in pairs(options or {}) do config[key] = value end
  return support.gateway { config = config, files = plugins, dir = options and options.dir }
end

local function mode_of(path)
  return ("%o"):format(uv.fs_stat(path).mode % 512)
end

-- A gateway that does not come up: its exit code and what it said.
local function fails(listen)
  local dir = support.tmpdir()
  support.write_file(dir .. "/gateway.lua", ("return { listen = %s, data_dir = %q, admin = false, routes = { %s } }"):format(
    listen, dir .. "/data", '{ name = "a", path = "/" }'))
  local res = support.tollgate({ "run", "-c", dir .. "/gateway.lua" }, { timeout = 10000 })
  return res.code, res.out .. res.err
end

describe("a Unix socket", function()
  it("is listened on, beside other addresses, by all workers", async(function()
    local path = support.tmpdir() .. "/gw.sock"
    local gw = start({ "127.0.0.1:0", "unix:" .. path }, { workers = 2 })
    assert.equal("660", mode_of(path))
    for _ = 1, 8 do assert.equal('"" 0 ""', support.request({ socket = path }).body) end
    assert.matches('^"127.0.0.1" ', gw:request({}).body)
    local log = gw:wait_access(9)
    assert.equal("", log[1].client)
    local c = support.connect(path)
    for _ = 1, 3 do assert.equal(200, c:request({}).status) end
    gw:stop()
    assert.is_nil(uv.fs_stat(path))
  end))

  it("has the mode that is asked for", async(function()
    local path = support.tmpdir() .. "/gw.sock"
    local gw = start(support.raw(('{ { "unix:%s", mode = "0600" }, "127.0.0.1:0" }'):format(path)))
    assert.equal("600", mode_of(path))
    gw:stop()
  end))

  it("takes the place of a file that nobody answers on", async(function()
    local dir = support.tmpdir()
    local path = dir .. "/gw.sock"
    local gw = start({ "127.0.0.1:0", "unix:" .. path })
    local workers = gw:workers()
    gw:kill("sigkill")
    support.wait_for(function()
      for _, pid in ipairs(workers) do if uv.kill(pid, 0) == 0 then return false end end
      return true
    end, "the workers to follow their master", 15000)
    assert.is_truthy(uv.fs_stat(path))
    gw = start({ "127.0.0.1:0", "unix:" .. path })
    assert.equal(200, support.request({ socket = path }).status)
    gw:stop()
    assert.is_nil(uv.fs_stat(path))
  end))

  it("is left to whoever answers on it, and so is what is no socket", async(function()
    local dir = support.tmpdir()
    local path = dir .. "/gw.sock"
    start({ "127.0.0.1:0", "unix:" .. path })
    local code, out = fails(("%q"):format("unix:" .. path))
    assert.equal(1, code)
    assert(out:find("cannot listen on unix:" .. path .. ": address already in use", 1, true), out)
    assert.equal(200, support.request({ socket = path }).status)
    support.write_file(dir .. "/file", "precious")
    code, out = fails(("%q"):format("unix:" .. dir .. "/file"))
    assert.equal(1, code)
    assert(out:find("file already exists", 1, true), out)
    assert.equal("precious", support.read_file(dir .. "/file"))
    code, out = fails(("%q"):format("unix:" .. dir .. "/none/x"))
    assert.equal(1, code)
    assert(out:find("no such file or directory", 1, true), out)
  end))

  it("goes away where the start fails behind it", async(function()
    local path = support.tmpdir() .. "/gw.sock"
    local taken = support.server(function() end)
    assert.equal(1, (fails(('{ "unix:%s", "127.0.0.1:%d" }'):format(path, taken.port))))
    assert.is_nil(uv.fs_stat(path))
  end))

  it("is kept over an upgrade", async(function()
    local path = support.tmpdir() .. "/gw.sock"
    local gw = start({ "127.0.0.1:0", "unix:" .. path })
    local inode = uv.fs_stat(path).ino
    local before = gw:workers()[1]
    assert.equal(0, gw:command("upgrade").code)
    support.wait_for(function() return gw:workers()[1] ~= before and #gw:workers() == 1 end, "the new worker", 15000)
    assert.equal(200, support.request({ socket = path }).status)
    assert.equal(inode, uv.fs_stat(path).ino)
    gw:stop()
    assert.is_nil(uv.fs_stat(path))
  end))

  it("believes a proxy on it where that is said", async(function()
    local path = support.tmpdir() .. "/gw.sock"
    start({ "127.0.0.1:0", "unix:" .. path }, { trusted_proxies = { "unix" } })
    local res = support.request { socket = path, headers = { ["x-forwarded-for"] = "6.6.6.6, 9.9.9.9" } }
    assert.equal('"9.9.9.9" 0 ""', res.body)
  end))

  it("tells of a client that leaves while it is not read", async(function()
    local path = support.tmpdir() .. "/gw.sock"
    local held
    local origin = support.server(function(conn)
      held = conn
      conn:read_until("\r\n\r\n", true)
      conn:pause() -- takes nothing more
    end)
    local gw = support.gateway { config = { listen = { "127.0.0.1:0", "unix:" .. path }, limits = { body = "100m" },
      routes = { { name = "a", path = "/", targets = { { url = "http://127.0.0.1:" .. origin.port } } } } } }
    local c = support.connect(path)
    c:send("POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 50000000\r\n\r\n")
    support.spawn(function() c:send(("x"):rep(50000000), 20000) end)
    support.wait_for(function() return held and gw:status().workers[1].requests == 1 end, "the request")
    support.sleep(300)
    c:close()
    assert.equal("client_gone", gw:wait_access(1, 10000)[1].ended)
  end))

  it("is refused where it is none", async(function()
    for text, message in pairs {
      ['"unix:relative"'] = "absolute path", ['{ "127.0.0.1:0", mode = "0600" }'] = "listen.mode: is for Unix sockets",
      ['{ "unix:/tmp/x", mode = "999" }'] = "octal mode", ['{ "unix:/tmp/x", "unix:/tmp/x" }'] = "is the same address as",
      ['"unix:/' .. ("x"):rep(120) .. '"'] = "too long",
    } do
      local code, out = fails(text)
      assert.is_true(code ~= 0)
      assert(out:find(message, 1, true), out)
    end
  end))
end)

describe("IPv6", function()
  local function request(host, port)
    local conn = uv.new_tcp()
    local got, over = ""
    conn:connect(host, port, function(err)
      if err then got, over = err, true return end
      conn:read_start(function(_, data)
        got, over = got .. (data or ""), not data
      end)
      conn:write("GET / HTTP/1.1\r\nHost: [::1]:1\r\nConnection: close\r\n\r\n")
    end)
    support.wait_for(function() return over end, "an answer")
    conn:close()
    return got
  end

  it("is listened on, and alone: [::] takes no IPv4", async(function()
    local gw = start "[::]:0"
    local port = tonumber(gw.log():match("listening on %[::%]:(%d+)"))
    assert.matches('"::1" %d+ "::1"', (request("::1", port)))
    assert.matches("ECONNREFUSED", (request("127.0.0.1", port)))
    local both = start { "[::]:" .. support.free_port(), "127.0.0.1:0" }
    assert.equal(200, both:request({}).status)
  end))

  it("is dialed by literal, and named in Host and Forwarded", async(function()
    local origin = support.origin(function(_, conn) conn:respond { body = "six" } end, { host = "::1" })
    local gw = support.gateway { config = { listen = "[::1]:0", forwarded = { "forwarded", "x-forwarded" },
      routes = { { name = "a", path = "/*", targets = { { url = origin.url } } } } } }
    local port = tonumber(gw.log():match("listening on %[::1%]:(%d+)"))
    assert.matches("200 OK", (request("::1", port)))
    local got = origin.requests[1].headers
    assert.equal("[::1]:" .. origin.port, got.host)
    assert.equal("::1", got["x-forwarded-for"])
    assert.equal('for="[::1]";host="[::1]:1";proto=http', got.forwarded)
    assert.equal("::1", gw:wait_access(1)[1].client)
  end))
end)
