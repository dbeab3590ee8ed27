-- tollgate status, and the admin listener, which the master serves.
local rig = require "spec.host.supervision_rig"
local support = require "spec.support"

local async = support.async

describe("status", function()
  it("is JSON with workers, generation, files and their hashes", async(function()
    local gw = rig.start { config = { workers = 2 } }
    local conn = gw:connect()
    conn:request { path = "/" }
    local status
    support.wait_for(function() -- a worker tells its figures once a turn
      local run = gw:command("status", "--json")
      assert.equal(0, run.code, run.err)
      status = support.decode(run.out)
      return status.ready and status.workers[1].connections + status.workers[2].connections == 1
    end, "readiness, and the connection to be shown")
    assert.equal(gw.pid, status.pid)
    assert.equal(1, status.generation)
    assert.equal(2, #status.workers)
    for _, name in ipairs { "/plugins/answer.lua", "/gateway.lua" } do
      assert.equal(support.sha256(support.read_file(gw.dir .. name)), status.files[gw.dir .. name])
    end
    assert.equal(support.null, status.last_reload or support.null)
  end))

  it("is text for people", async(function()
    local gw = rig.start {}
    support.wait_for(function() return gw:admin("/readyz").status == 200 end, "readiness")
    local run = gw:command("status")
    assert.equal(0, run.code)
    assert.matches("pid " .. gw.pid .. ", up %d+ s: ready", run.out)
    assert.matches("generation 1 of ", run.out)
  end))

  it("fails where no gateway runs, and says so", async(function()
    local dir = support.tmpdir()
    support.write_file(dir .. "/gateway.lua", 'return { routes = { { name = "a", path = "/*" } } }')
    local run = support.tollgate { "status", "-c", dir .. "/gateway.lua" }
    assert.equal(1, run.code)
    assert.matches("no gateway runs", run.err)
  end))
end)

describe("the admin listener", function()
  it("serves health, readiness, metrics and status, and nothing else", async(function()
    local gw = rig.start {}
    assert.equal("ok\n", gw:admin("/healthz").body)
    support.wait_for(function() return gw:admin("/readyz").body == "ready\n" end, "readiness")
    assert.matches("\ntollgate_generation 1\n", gw:admin("/metrics").body)
    assert.equal(gw.pid, gw:status().pid)
    assert.equal(404, gw:admin("/other").status)
  end))

  it("is read-only, and answers only to an address or localhost", async(function()
    local gw = rig.start {}
    local function ask(options)
      options.port = gw.admin_port
      options.host = options.host or "127.0.0.1"
      return support.request(options)
    end
    assert.equal(405, ask({ path = "/status", method = "POST", body = "x" }).status)
    assert.equal(421, ask({ path = "/status", host = "evil.example" }).status)
    assert.equal(200, ask({ path = "/status", host = "localhost:1" }).status)
    local head = ask { path = "/healthz", method = "HEAD" }
    assert.equal(200, head.status)
    assert.equal("", head.body)
    assert.is_nil(head.headers["access-control-allow-origin"])
  end))

  it("survives bytes that are no request", async(function()
    local gw = rig.start {}
    local conn = support.connect(gw.admin_port)
    conn:send("nonsense\r\n\r\n")
    assert.equal(400, conn:read_response().status)
    assert.equal("ok\n", gw:admin("/healthz").body)
  end))
end)
