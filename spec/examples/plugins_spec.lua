-- examples/plugins as a reader of its README meets it: the gateway is started by the printed command, each printed command
-- is run by a shell as it stands there, and what the text says is looked for in what it prints. Only the port, the folder
-- and the binary are others.
local support = require "spec.support"
local gateway = require "spec.support.gateway"
local async = support.async

local HERE = "examples/plugins"
local FILES = { "gateway.lua", "keys.jsonl", "stamp.lua", "maintenance.lua", "canary.lua", "size_by_plan.lua", "redact.lua",
  "hide.lua", "echo.lua" }

local function read(name) return assert(support.read_file(HERE .. "/" .. name)) end

-- The sections of the README by the plugin that they are of: the commands.
local function sections()
  local list, readme = {}, read "README.md"
  for name, from in readme:gmatch("\n## `([%w_]+)%.lua`[^\n]*\n()") do
    list[name] = assert(readme:match("\n```sh\n(.-)\n```", from))
  end
  return list
end

describe("examples/plugins", function()
  local on = {}
  local up, down = support.shared(function()
    on.dir, on.port = support.tmpdir(), support.free_port()
    local function here(text)
      return (text:gsub("127%.0%.0%.1:8080", "127.0.0.1:" .. on.port):gsub("examples/plugins", on.dir))
    end
    for _, name in ipairs(FILES) do support.write_file(on.dir .. "/" .. name, here(read(name))) end
    on.here = here
    on.gw = support.gateway { dir = on.dir, config = here(read "gateway.lua") }
    on.sections = sections()
  end)
  setup(up)
  teardown(down)

  -- Runs the commands of a section; gives the answers that they print.
  local function run(name)
    local script = "set -e -o pipefail\n" .. on.here(on.sections[name])
    local res = support.exec { cmd = "bash", args = { "-c", script } }
    assert.equal(0, res.code, res.err)
    local answers = {}
    for answer in res.out:gsub("HTTP/1%.1 ", "\1"):gmatch("\1([^\1]+)") do
      local head, body = answer:match("^(.-\r\n)\r\n(.*)$")
      answers[#answers + 1] = { status = tonumber(head:match("^%d+")), head = head:lower(), body = body }
    end
    return answers
  end

  it("is started by the first command of its README", async(function()
    local command = read("README.md"):match("\n```sh\n(.-)\n```")
    assert.equal("build/release/tollgate run -c examples/plugins/gateway.lua", command)
    assert.equal(0, support.exec { cmd = gateway.binary(), args = { "check", "-c", HERE .. "/gateway.lua" } }.code)
  end))

  it("has six plugins of 5 to 35 lines, each opened by what it shows, with a section and a route", async(function()
    local n = 0
    for name in pairs(on.sections) do
      n = n + 1
      local text = read(name .. ".lua")
      local lines = select(2, text:gsub("\n", ""))
      assert.is_true(lines >= 5 and lines <= 35, name .. " has " .. lines .. " lines")
      assert.matches("^%-%- %u[^\n]+:[^\n]+\n%-%- [^\n]+\n", text)
      assert.matches(name .. " = {", read "gateway.lua", 1, true)
    end
    assert.equal(6, n)
  end))

  it("stamp tells the origin the id, and the client the route", async(function()
    local res = run("stamp")[1]
    assert.equal(200, res.status)
    assert.matches("x-served-by: stamp\r\n", res.head, 1, true)
    assert.matches("^%w+$", support.decode(res.body).headers["x-request-id"])
  end))

  it("maintenance answers 503 as long as the file is there", async(function()
    local res = run "maintenance"
    assert.same({ 503, 200 }, { res[1].status, res[2].status })
    assert.matches("\r\nretry-after: 60\r\n", res[1].head, 1, true)
    assert.equal("Down for maintenance.\n", res[1].body)
    assert.equal("/echo/shop/cart", support.decode(res[2].body).path)
  end))

  it("canary sends those who ask for it to the next release", async(function()
    local res = run "canary"
    assert.same({ "/echo/search", "/echo/next/search" }, { support.decode(res[1].body).path, support.decode(res[2].body).path })
    assert.is_nil(support.decode(res[2].body).headers["x-canary"])
    assert.matches("x-release: stable\r\n", res[1].head, 1, true)
    assert.matches("x-release: next\r\n", res[2].head, 1, true)
  end))

  it("size_by_plan refuses what is too large for the key's plan", async(function()
    local res = run "size_by_plan"
    assert.same({ 413, 200 }, { res[1].status, res[2].status })
    assert.matches("2000 bytes are more than your plan's 1024", res[1].body, 1, true)
    assert.equal(2000, #support.decode(res[2].body).body)
    for status, n in pairs { [413] = 1025, [200] = 1024 } do
      assert.equal(status, on.gw:request { method = "POST", path = "/upload", headers = { ["x-api-key"] = "free-demo-key" },
        chunked = { ("x"):rep(1000), ("x"):rep(n - 1000) } }.status)
    end
  end))

  it("redact takes addresses and card numbers out of the messages, and leaves the rest", async(function()
    local res = run("redact")[1]
    assert.equal(200, res.status)
    local sent = on.sections.redact:match("%-%-json '(.-)'\n") or on.sections.redact:match("%-%-json '(.-)'$")
    local expected = support.decode(sent)
    expected.messages[1].content = "Write to [mail] that [card] was declined, order 12345."
    local got = support.decode(res.body).body
    assert.same(expected, support.decode(got))
    local before = sent:match('^(.-)%[{"role')
    assert.equal(before, got:sub(1, #before)) -- byte for byte, the line's break too
    assert.equal(400, on.gw:request { method = "POST", path = "/v1/chat/completions", body = "not JSON" }.status)
  end))

  it("hide takes members out of the answer", async(function()
    local res = run("hide")[1]
    assert.same({ method = "GET", path = "/echo/profile", body = "" }, support.decode(res.body))
    assert.equal(#res.body, tonumber(res.head:match("content%-length: (%d+)")))
  end))
end)
