-- The example examples/tls as a reader meets it: `run` is started on a copy, and each command that it prints is run by a shell
-- as it stands there. Only the ports are others.
local gateway = require "spec.support.gateway"
local support = require "spec.support"
local async = support.async

-- The printed commands, each with its output.
local function try(text, dir)
  local outputs = {}
  for command in text:gmatch("\n  (curl [^\n]+)") do
    local done = support.exec { cmd = "sh", args = { "-c", command .. " -sS" }, cwd = dir }
    assert(done.code == 0, command .. "\n" .. done.err)
    outputs[#outputs + 1] = done.out
  end
  return outputs
end

describe("examples/tls", function()
  it("does what it prints", async(function()
    local dir = support.tmpdir()
    assert.equal(0, support.exec({ cmd = "cp", args = { "-r", "examples/tls/.", dir } }).code)
    support.exec { cmd = "rm", args = { "-rf", dir .. "/certificates", dir .. "/data" } }
    local ports = {}
    for _, port in ipairs { "8080", "8443", "8081" } do ports[port] = tostring(support.free_port()) end
    for _, name in ipairs { "run", "gateway.lua" } do
      support.write_file(dir .. "/" .. name, (support.read_file(dir .. "/" .. name):gsub("%f[%d]%d%d%d%d%f[%D]", ports)))
    end
    local process = support.start { cmd = dir .. "/run", args = { gateway.binary() } }
    support.wait_for(function()
      assert(not process.exited, process:err())
      return process:err():find("is ready", 1, true)
    end, "the gateway", 20000)
    local out = try(process:out(), dir)
    assert.equal(5, #out)
    assert.equal("https", support.decode(out[1]).scheme)
    assert.equal("api.test:" .. ports["8443"], support.decode(out[2]).host)
    local alice = support.decode(out[3])
    assert.same({ "CN=alice", { "URI:spiffe://example/alice" } }, { alice.subject, alice.names })
    assert.equal("This port speaks TLS: write https:// instead of http://.\n", out[4])
    assert.is_truthy(out[5]:find('tollgate_tls_handshakes_total{version="1.3"} 3', 1, true), out[5])
    process:kill("sigterm")
    assert.same({ 0, 0 }, { process:wait(10000) })
  end))
end)
