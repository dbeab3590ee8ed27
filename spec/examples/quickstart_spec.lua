-- The quickstart as a newcomer meets it: scripts/run is started, what it prints is read, each printed command
-- is run by a shell exactly as it stands there, and Ctrl-C ends everything. Only the ports are others, by the
-- script's own option, and the binary under test is used instead of building one more.
local uv = require "luv"
local support = require "spec.support"
local gateway = require "spec.support.gateway"
local async = support.async

local function is_free(port)
  local probe = uv.new_tcp()
  -- libuv reports an address in use when the socket listens.
  local free = probe:bind("127.0.0.1", port) and probe:listen(1, function() end)
  probe:close()
  return free ~= nil and free ~= false
end

-- The script takes a port and the one above it.
local function free_pair()
  return support.wait_for(function()
    local port = support.free_port()
    return port < 65535 and is_free(port + 1) and port
  end, "two free ports in a row")
end

-- The printed commands: behind a line "1. …:", indented by two spaces.
local function commands_in(text)
  local list = {}
  for number, block in text:gmatch("%f[%d](%d)%. %u[^\n]*\n\n(  .-)\n\n") do
    list[tonumber(number)] = block:gsub("\n  ", "\n"):sub(3)
  end
  return list
end

local function shell(command)
  local result = support.exec { cmd = "bash", args = { "-c", command } }
  assert.equal(0, result.code)
  return result.out
end

-- Starts the script; ends it, and removes its copy of the example, when the test ends.
local function run()
  local port = free_pair()
  local dir = "build/quickstart-" .. port
  support.on_end(function() support.exec { cmd = "rm", args = { "-rf", dir } } end)
  local process = support.start { cmd = "scripts/run",
    args = { "--port", port, "--bin", gateway.binary() } }
  -- Killed, the gateway would leave its redis-server to notice by itself.
  support.on_end(function()
    process:kill("sigterm")
    process:wait(10000)
  end)
  support.wait_for(function()
    assert(not process.exited, process:out() .. process:err())
    return process:out():find("Ctrl-C ends it", 1, true)
  end, "the printed commands", 20000)
  return process, port, dir
end

local function fill_bucket(dir)
  local result = support.exec { cmd = "redis-cli", args = { "-s", dir .. "/data/redis.sock", "DEL", "q:rps:demo" } }
  assert.equal("1\n", result.out)
end

local function check_answer(out)
  local head, body = out:match("^(.-\r\n)\r\n(.*)$")
  assert.matches("^HTTP/1.1 200 OK\r\n", head)
  assert.matches("\nx%-ratelimit%-remaining%-requests: 4\r\n", head)
  assert.matches("\nx%-ratelimit%-remaining%-tokens: %d+\r\n", head)
  local answer = support.decode(body)
  assert.matches("%w", answer.choices[1].message.content)
  assert.equal(answer.usage.total_tokens, answer.usage.prompt_tokens + answer.usage.completion_tokens)
end

local function check_stream(out)
  local head, body = out:match("^(.-\r\n)\r\n(.*)$")
  assert.matches("^HTTP/1.1 200 OK\r\n", head)
  assert.matches("\ncontent%-type: text/event%-stream\r\n", head)
  local events = support.sse(body)
  assert.is_true(#events > 5)
  assert.equal("[DONE]", events[#events].data)
  local last, text = support.decode(events[#events - 1].data), ""
  assert.is_true(last.usage.total_tokens > 0)
  for i = 1, #events - 2 do text = text .. (support.decode(events[i].data).choices[1].delta.content or "") end
  assert.matches("^%w.* .*%.$", text)
end

local function check_limit(out)
  local codes = {}
  for code in out:gmatch("(%d+)\n") do codes[#codes + 1] = code end
  assert.equal(8, #codes)
  assert.same({ "200", "200", "200", "200", "200", "429" }, { unpack(codes, 1, 6) })
end

describe("the quickstart", function()
  it("prints three commands that do what it says, and ends at Ctrl-C", async(function()
    local process, port, dir = run()
    local commands = commands_in(process:out())
    assert.equal(3, #commands)
    for _, command in ipairs(commands) do
      assert.is_truthy(command:find("http://127.0.0.1:" .. port .. "/v1/chat/completions", 1, true))
    end
    check_answer(shell(commands[1]))
    check_stream(shell(commands[2]))
    fill_bucket(dir)
    check_limit(shell(commands[3]))

    process:kill("sigint")
    assert.equal(0, (process:wait(20000)))
    assert.is_nil(uv.fs_stat(dir .. "/data/redis.sock"))
  end))

  it("answers in gzip when asked", async(function()
    local _, port = run()
    local res = support.request { port = port, path = "/v1/chat/completions",
      headers = { authorization = "Bearer tg-demo-key", ["accept-encoding"] = "gzip" },
      body = { model = "demo", messages = { { role = "user", content = "Hello!" } } } }
    assert.equal(200, res.status)
    -- The gateway reads usage out of the answer, so it asks the LLM for plain text; the LLM itself compresses.
    assert.is_nil(res.headers["content-encoding"])
    assert.is_true(support.json(res).usage.total_tokens > 0)
    local direct = support.request { port = port, path = "/standin/v1/chat/completions",
      headers = { ["accept-encoding"] = "gzip" }, body = { messages = { { role = "user", content = "Hello!" } } } }
    assert.equal("gzip", direct.headers["content-encoding"])
    assert.is_true(support.decode(support.gunzip(direct.body)).usage.total_tokens > 0)
  end))

  it("refuses other keys, and says which port is taken", async(function()
    local _, port = run()
    local out = shell(("curl -s -o /dev/null -w '%%{http_code}' http://127.0.0.1:%d/v1/chat/completions " ..
      "-H 'authorization: Bearer other' --json '{}'"):format(port))
    assert.equal("401", out)
    local second = support.exec { cmd = "scripts/run", args = { "--port", port, "--bin", gateway.binary() } }
    assert.equal(1, second.code)
    assert.matches("port " .. port .. " of 127%.0%.0%.1 is in use", second.err)
  end))
end)
