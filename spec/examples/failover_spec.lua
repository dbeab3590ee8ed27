-- examples/failover as a reader of its README meets it: the printed command starts the gateway, the printed requests are run
-- by a shell, and what the text says is looked for. Only ports, folder and binary are others.
local support = require "spec.support"
local async = support.async

local HERE = "examples/failover"

local function read(name) return assert(support.read_file(HERE .. "/" .. name)) end

it("examples/failover does what its README says", async(function()
  local readme, port = read "README.md", support.free_port()
  local more, shown = readme:match "passed over:\n\n```sh\n(.-)\n```.-```\n(.-)\n```"
  local start, requests, told = readme:match "```sh\n(.-)\n```.-```sh\n(.-)\n```.-```\n(.-)\n```"
  assert.equal("build/release/tollgate run -c examples/failover/gateway.lua", start)
  local config = read("gateway.lua"):gsub("127%.0%.0%.1:8080", "127.0.0.1:" .. port):gsub("127%.0%.0%.1:8081", "127.0.0.1:0")
  local gw = support.gateway { config = config, files = { ["plugins/standin.lua"] = read "plugins/standin.lua" } }
  requests = requests:gsub("127%.0%.0%.1:8080", "127.0.0.1:" .. port)
  local run = support.exec { cmd = "bash", args = { "-c", "set -e\n" .. requests } }
  assert.equal(0, run.code, run.err)
  local models, last = {}, nil
  for line in run.out:gmatch "[^\n]+" do
    last = support.decode(line)
    if last.model then models[last.model] = (models[last.model] or 0) + 1 end
  end
  assert.same({ ["north-small"] = 3, ["south-small"] = 1, ["spare-large"] = 2 }, models)
  assert.equal("model_not_found", last.error.code)
  support.wait_for(function() return gw.process:out():find(told, 1, true) end, "the line that the README shows")
  local second
  for _, line in ipairs(gw:access()) do
    if line.model == "troubled" then second = line end
  end
  assert.same({ 2, "spare:spare-large" }, { second.attempts, second.target })

  local asking, command = more:match "^(.*)\n(build/release/tollgate .*)$"
  assert.equal("build/release/tollgate breaker -c examples/failover/gateway.lua", command)
  local ask = requests:match "^(.-\n  [^\n]*)\n"
  run = support.exec { cmd = "bash", args = { "-c", "set -e\n" .. ask .. "\n" .. asking } }
  assert.equal(0, run.code, run.err)
  local list = gw:command "breaker"
  assert.truthy(("\n" .. list.out):find("\n" .. shown, 1, true), list.out)
end))
