-- The parts of otel's spans that need no request.
package.path = "plugins/?.lua;" .. package.path
local rig = require "spec.plugins.otel.rig"
local span = require "otel.span"

it("an authority is a host and, behind a colon, a port; a host's last digits are its own", function()
  for text, wanted in pairs {
    ["api"] = { "api", 80 }, ["api:8080"] = { "api", 8080 }, ["api:"] = { "api", 80 }, ["node1"] = { "node1", 80 },
    ["10.0.0.17"] = { "10.0.0.17", 80 }, ["10.0.0.17:443"] = { "10.0.0.17", 443 }, ["[::1]"] = { "::1", 80 },
    ["[::1]:8080"] = { "::1", 8080 }, [""] = { "", 80 } } do
    assert.same(wanted, { span.authority(text, 80) }, text)
  end
  assert.same({ "node1" }, { span.authority "node1" })
end)

local function server(more)
  local r = { id = "1", trace = { trace_id = ("a"):rep(32), span_id = ("b"):rep(16) }, started = 1, seconds = 1, method = "GET",
    scheme = "http", host = "h", path = "/", version = "1.1", route = "r", ended = "ok", status = 200 }
  for name, value in pairs(more) do r[name] = value end
  return span.server(r)
end

-- An invalid byte makes a collector refuse the whole batch: strings of protobuf are UTF-8.
it("text of a client is UTF-8, whatever it sent, and ends behind a whole character", function()
  local function path(text) return rig.plain(server({ path = text }).attributes)["url.path"] end
  assert.equal("/a?ü€𝄞", path "/a?ü€𝄞")
  assert.equal("/\239\191\189", path "/\255")
  assert.equal("/\239\191\189(", path "/\195(")
  assert.equal("/\239\191\189\239\191\189\239\191\189", path "/\237\160\128") -- half of a surrogate pair
  assert.equal("/\239\191\189\239\191\189", path "/\192\128") -- longer than it needs to be
  assert.equal("/" .. ("a"):rep(1023), path("/" .. ("a"):rep(2000)))
  assert.equal("/" .. ("ü"):rep(511), path("/" .. ("ü"):rep(1000)))
end)

it("a trace's state is told whole, or not where it is none", function()
  local function state(text) return server({ trace = { trace_id = "a", span_id = "b", state = text } }).traceState end
  assert.equal("a=1,b=2", state "a=1,b=2")
  assert.is_nil(state "a=\255")
  assert.is_nil(state(nil))
end)

it("an attempt is within its request, though two clocks tell of it", function()
  local r = { trace = { trace_id = "a", span_id = "b" }, started = 10, method = "GET" }
  local target = { name = "t", url = "http://h" }
  local function times(over, seconds)
    local one = span.attempt(r, { target = target, over = over, outcome = { attempt = 1, seconds = seconds, status = 200 } })
    return { tonumber(one.startTimeUnixNano) / 1e9, tonumber(one.endTimeUnixNano) / 1e9 }
  end
  assert.same({ 10.5, 11 }, times(11, 0.5))
  assert.same({ 10, 10.25 }, times(10.25, 0.5))
  assert.same({ 10, 10 }, times(9.75, 0.5))
end)
