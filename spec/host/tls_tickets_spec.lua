-- Session tickets: taken by every worker, and by every replica with the same secrets; keys that rotate; none at all.
local uv = require "luv"
local support = require "spec.support"
local async, tls = support.async, support.tls

local on = {}
local up, down = support.shared(function()
  on.ca = tls.authority()
  on.id = on.ca:issue { names = { "a.test" } }
end)
setup(up)
teardown(down)

local function start(options)
  local own = { cert = on.id.cert, key = on.id.key, tickets = options.tickets, ticket_keys = options.ticket_keys }
  return support.gateway {
    config = { listen = { "127.0.0.1:0", tls = own }, workers = options.workers, timeouts = options.timeouts,
      redis = "redis://127.0.0.1:1", routes = { { name = "r", path = "/*", plugins = { pid = {} } } } },
    files = { ["plugins/pid.lua"] = [[
      local ffi = require "ffi"
      ffi.cdef "int getpid(void);"
      return { access = function() return 200, tostring(ffi.C.getpid()) end }
    ]], keys = options.keys },
  }
end

-- One request; the pid of the worker, whether the session was resumed, and the session for the next one.
local function visit(gw, version, session)
  local c = assert(tls.connect(gw.port, { name = "a.test", verify_ca = on.ca.cert, max = version, session = session }))
  local res = assert(c:request { path = "/" })
  local resumed, next_session = c.tls:resumed(), c.tls:session()
  c:close()
  return res.body, resumed, next_session
end

local function seconds() return uv.hrtime() / 1e9 end

local function resumptions(gw)
  return tonumber(gw:admin("/metrics").body:match("\ntollgate_tls_handshakes_resumed_total (%d+)"))
end

local function reload(gw)
  local run = gw:command("reload")
  assert.equal(0, run.code, run.err)
end

describe("a session", function()
  for _, version in ipairs { "1.2", "1.3" } do
    it("is resumed by whichever worker it comes to, and counted: TLS " .. version, async(function()
      local gw = start { workers = 2 }
      local _, _, session = visit(gw, version)
      local seen, n = {}, 0
      while not (seen[1] and seen[2]) do
        local pid, resumed, new = visit(gw, version, session)
        assert.is_true(resumed)
        session, n = new, n + 1
        for i, worker in ipairs(gw:workers()) do seen[i] = seen[i] or pid == tostring(worker) end
      end
      support.wait_for(function() return resumptions(gw) == n end, "the count")
    end))
  end

  it("is resumed behind a reload, and by a worker that came for one that died", async(function()
    local gw = start { workers = 1 }
    local pid, _, session = visit(gw, "1.3")
    gw:write("gateway.lua", support.read_file(gw.dir .. "/gateway.lua") .. "-- changed\n")
    reload(gw)
    local _, resumed
    _, resumed, session = visit(gw, "1.3", session)
    assert.is_true(resumed)
    uv.kill(tonumber(pid), "sigkill")
    support.wait_for(function()
      local worker = gw:workers()[1]
      return worker and worker ~= tonumber(pid)
    end, "another worker")
    local now
    now, resumed = visit(gw, "1.3", session)
    assert.is_true(resumed)
    assert.is_true(now ~= pid)
  end))

  it("is made anew when it is asked for where tickets are off", async(function()
    local gw = start { tickets = false }
    for _, version in ipairs { "1.2", "1.3" } do
      local _, _, session = visit(gw, version)
      assert.is_false((select(2, visit(gw, version, session))))
    end
    assert.equal(0, resumptions(gw))
  end))
end)

describe("keys of tickets", function()
  it("rotate: the one before is good still, and brings a ticket of the newest", async(function()
    local gw = start { timeouts = { ticket_keys = 1 } }
    for _, version in ipairs { "1.2", "1.3" } do
      local _, _, first = visit(gw, version)
      local session, begun, got = first, seconds(), seconds()
      while seconds() < begun + 2.5 do -- by ticket after ticket
        local in_time = seconds() < got + 0.8
        local _, resumed, new = visit(gw, version, session)
        assert.is_true(resumed or not in_time)
        session, got = new, seconds()
        support.sleep(50)
      end
      support.wait_for(function() return not select(2, visit(gw, version, first)) end, "the end of the first key")
    end
  end, 30000))

  it("of a file are shared by replicas, and rotate with it", async(function()
    local one, two, three = ("1"):rep(32), ("2"):rep(64), ("3"):rep(40)
    local a = start { ticket_keys = "keys", keys = one .. "\n" }
    local b = start { ticket_keys = "keys", keys = "# a secret a line\n\n" .. two .. "\n" .. one .. "\n" }
    local other = start { ticket_keys = "keys", keys = three }
    for _, version in ipairs { "1.2", "1.3" } do
      local _, _, session = visit(a, version)
      assert.is_true((select(2, visit(b, version, session))))
      assert.is_false((select(2, visit(other, version, session))))
    end
    local _, _, session = visit(a, "1.3")
    b:write("keys", two .. "\n")
    reload(b)
    assert.is_false((select(2, visit(b, "1.3", session))))
  end))

  it("of a file that cannot be used are refused with the path of the key", async(function()
    local run = function(text)
      local dir = support.tmpdir()
      support.write_file(dir .. "/keys", text)
      support.write_file(dir .. "/gateway.lua", ("return { listen = { '127.0.0.1:0', tls = { cert = %q, key = %q, "
        .. "ticket_keys = 'keys' } }, routes = { { name = 'r', path = '/' } } }"):format(on.id.cert, on.id.key))
      local done = support.tollgate({ "check", "-c", dir .. "/gateway.lua" })
      assert.equal(1, done.code)
      assert.is_nil(done.err:find("secret-text", 1, true))
      return done.err
    end
    assert.equal("listen.tls.ticket_keys: holds no secret: write one a line, as openssl rand -hex 32 makes it\n", run "")
    assert.equal("listen.tls.ticket_keys: a secret in it has fewer than 32 characters: openssl rand -hex 32 makes one\n",
      run "secret-text\n")
  end))
end)
