-- What stands around bad requests and bad answers: the answers before them, cuts anywhere, the error's shape, a body that has
-- begun. Which are bad is shown in conformance_spec.lua.
local support = require "spec.support"
local rig = require "spec.host.proxy_rig"
local async = support.async

local on, up, down = rig.shared { config = { limits = { head = 4096, url = 256, fields = 20 }, timeouts = { first_byte = 5 } } }
setup(up)
teardown(down)

local function get(fields) return "GET / HTTP/1.1\r\nHost: a\r\n" .. fields .. "\r\n" end

local function post(fields, body) return "POST / HTTP/1.1\r\nHost: a\r\n" .. fields .. "\r\n" .. (body or "") end

describe("a bad request", function()
  it("does not spoil the answers before it", async(function()
    local c = on.gw:connect()
    c:send(get "" .. "BAD\r\n\r\n")
    assert.equal("hello", c:read_response().body)
    assert.equal(400, c:read_response().status)
    assert.is_true(c:wait_closed())
  end))

  it("cut at any byte leaves nothing behind", async(function()
    local bytes = post("Content-Length: 3\r\nX-A: b\r\n")
    for at = 0, #bytes do
      local c = on.gw:connect()
      if at > 0 then c:send(bytes:sub(1, at)) end
      c:shutdown()
      assert.is_true(c:wait_closed())
      assert.equal("", (c:read_all()))
    end
  end))

  it("has an error in the shape of its API", async(function()
    local function refused(path, bytes)
      local _, res = rig.raw(on.gw, "POST " .. path .. " HTTP/1.1\r\n" .. (bytes or "Host: a\r\nContent-Length: x\r\n") .. "\r\n")
      return support.json(res), res
    end
    local body, res = refused "/v1/chat/completions"
    assert.same({ "invalid_request_error", "string" }, { body.error.type, type(body.error.message) })
    assert.matches('"code":null', res.body, 1, true)
    body, res = refused "/v1/messages"
    assert.same({ "error", "invalid_request_error" }, { body.type, body.error.type })
    assert.equal(res.headers["x-request-id"], body.request_id)
    assert.equal(res.headers["x-request-id"], res.headers["request-id"])
  end))
end)

describe("a bad answer", function()
  it("behind the head that has gone to the client is cut off, so that it shows", async(function()
    for _, framing in ipairs { "chunked", "none" } do
      on.origin.handler = function(_, conn)
        conn:start {}
        conn:chunk("abc")
        support.wait_for(function() return on.got end, "the client to have it")
        conn:write("zz\r\n")
        conn:wait_closed()
      end
      on.got = false
      local c = on.gw:connect()
      c:send(framing == "chunked" and get "" or "GET / HTTP/1.0\r\n\r\n")
      local res = c:read_head()
      assert.equal("abc", res:read())
      on.got = true
      local _, err = res:read()
      assert.equal(framing == "chunked" and "closed" or "reset", err)
      assert.is_false(res.complete)
    end
  end))

  it("with bytes behind its end passes, but the connection is not used again", async(function()
    on.origin.handler = function(_, conn) conn:write("HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nokHTTP/1.1 200 OK\r\n\r\n") end
    local c = on.gw:connect()
    assert.equal("ok", c:request({}).body)
    on.origin.handler = rig.hello
    local before = on.origin.connections
    assert.equal("hello", c:request({}).body)
    assert.equal(before + 1, on.origin.connections)
  end))
end)
