-- Commands that ask a running gateway, where what answers on its Unix socket is not well.
local uv = require "luv"
local support = require "spec.support"

local async = support.async

-- A configuration in whose run_dir `serve(client)` gets every connection to admin.sock.
local function impostor(serve)
  local dir = support.tmpdir()
  local server = uv.new_pipe(false)
  uv.fs_mkdir(dir .. "/run", tonumber("700", 8))
  assert(server:bind(dir .. "/run/admin.sock"))
  server:listen(16, function()
    local client = uv.new_pipe(false)
    server:accept(client)
    serve(client)
  end)
  support.on_end(function() server:close() end)
  support.write_file(dir .. "/gateway.lua",
    ("return { run_dir = %q, routes = { { name = 'r', path = '/*' } } }"):format(dir .. "/run"))
  return dir .. "/gateway.lua"
end

describe("a command of a gateway that ends while it is asked", function()
  it("says so with exit code 1, before the question is whole", async(function()
    local config = impostor(function(client) client:close() end)
    -- More than a socket holds, so that the end comes before the last byte of it.
    local args = { "plugin", "-c", config, "any" }
    for i = 1, 5 do args[4 + i] = ("x"):rep(100000) end
    local res = support.tollgate(args)
    assert.same({ 1, 0, "" }, { res.code, res.signal, res.out })
    assert.matches("the gateway ended while it was asked", res.err)
  end))

  it("says so with exit code 1, after the question", async(function()
    local config = impostor(function(client)
      client:read_start(function() client:close() end)
    end)
    local res = support.tollgate { "status", "-c", config }
    assert.same({ 1, 0, "" }, { res.code, res.signal, res.out })
    assert.matches("the gateway ended while it was asked", res.err)
  end))
end)
