-- examples/idempotency as a reader of its README meets it: the printed command starts the gateway, the printed requests are run
-- by a shell, and what the text says is looked for. Only ports, folder and binary are others.
local support = require "spec.support"
local async = support.async

local HERE = "examples/idempotency"

local function read(name) return assert(support.read_file(HERE .. "/" .. name)) end

it("examples/idempotency does what its README says", async(function()
  local readme, port = read "README.md", support.free_port()
  local start, requests = readme:match "```sh\n(.-)\n```.-```sh\n(.-)\n```"
  assert.equal("build/release/tollgate run -c examples/idempotency/gateway.lua", start)
  local config = read("gateway.lua"):gsub("127%.0%.0%.1:8080", "127.0.0.1:" .. port):gsub("127%.0%.0%.1:8081", "127.0.0.1:0")
  local gw = support.gateway { config = config, files = { ["plugins/ledger.lua"] = read "plugins/ledger.lua" } }
  support.wait_for(function() return gw:admin("/readyz").status == 200 end, "the gateway's own Redis", 10000)
  requests = requests:gsub("127%.0%.0%.1:8080", "127.0.0.1:" .. port)
  local run = support.exec { cmd = "bash", args = { "-c", requests }, timeout = 20000 }
  assert.equal(0, run.code, run.err)
  local lines = {}
  for line in run.out:gmatch "[^\n]+" do lines[#lines + 1] = line:match("idempotency_[%w_]+") or line end
  assert.same({ "booking 1: amount=5", "booking 1: amount=5", "no answer", "booking 2: amount=5", "booking 3: amount=5",
    "booking 3: amount=5", "idempotency_key_reused", "idempotency_key_missing" }, lines)
end))
