-- examples/webhook as a reader of its README meets it: the printed command starts the gateway, the printed requests are run
-- by a shell, and what the text says is looked for. Only port, folder and binary are others.
local support = require "spec.support"
local async = support.async

local HERE = "examples/webhook"

local function read(name) return assert(support.read_file(HERE .. "/" .. name)) end

it("examples/webhook does what its README says", async(function()
  local readme, port = read "README.md", support.free_port()
  local start, requests = readme:match "```sh\n(.-)\n```.-```sh\n(.-)\n```"
  local secret = assert(start:match "^WEBHOOK_SECRET=(%S+) build/release/tollgate run %-c examples/webhook/gateway.lua$")
  local config = read("gateway.lua"):gsub("127%.0%.0%.1:8080", "127.0.0.1:" .. port):gsub("127%.0%.0%.1:8081", "127.0.0.1:0")
  local gw = support.gateway { config = config, env = { WEBHOOK_SECRET = secret } }
  -- Its private Redis takes a moment.
  support.wait_for(function() return gw:admin("/readyz").status == 200 end, "the gateway's own Redis", 10000)
  requests = requests:gsub("127%.0%.0%.1:8080", "127.0.0.1:" .. port)
  local run = support.exec { cmd = "bash", args = { "-c", "set -e\n" .. requests } }
  assert.equal(0, run.code, run.err)
  local lines = {}
  for line in run.out:gmatch "[^\n]+" do lines[#lines + 1] = support.decode(line) end
  assert.same({ "done", "duplicate", "invalid_signature" }, { lines[1].status, lines[2].status, lines[3].error.code })
end))
