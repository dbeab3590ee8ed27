-- Interim answers (RFC 9110, section 15.2) of an origin: as many as are sent in good faith, and not without end, whether
-- they come at once or one by one. What an HTTP/1.0 client may get of them is nothing.
local support = require "spec.support"
local rig = require "spec.host.proxy_rig"
local async = support.async

local on, up, down = rig.shared { config = { timeouts = { first_byte = 30 } } }
setup(up)
teardown(down)

local MOST = 64
local CONTINUE, HINT = "HTTP/1.1 100 Continue\r\n\r\n", "HTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\r\n"
local HELLO = "HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello"

-- Writes bytes as the answer and, with `ends`, closes; else the connection may serve what comes next.
local function answer(bytes, version, ends)
  on.origin.handler = function(_, conn)
    conn:write(bytes)
    if ends then conn:close() end
  end
  local c = on.gw:connect()
  c:send("GET / HTTP/" .. (version or "1.1") .. "\r\nHost: a\r\n\r\n")
  return c:read_response(), c
end

describe("interim answers", function()
  it("up to the limit come before the final one, and again on the same connection", async(function()
    local sent = 0
    on.origin.handler = function(_, conn)
      sent = sent + 1
      conn:write(CONTINUE:rep(MOST) .. HELLO)
    end
    local before = on.origin.connections
    for _ = 1, 3 do
      local res = on.gw:request {}
      assert.same({ 200, "hello", 0 }, { res.status, res.body, #res.interim })
    end
    assert.equal(3, sent)
    assert.is_true(on.origin.connections <= before + 1)
  end))

  for name, interim in pairs { ["that end here"] = CONTINUE, ["that go on"] = HINT } do
    it("beyond it are a 502, and the connection ends: those " .. name, async(function()
      local res, c = answer(interim:rep(MOST + 1) .. HELLO)
      assert.same({ 502, "bad_origin_answer" }, { res.status, support.json(res).error.code })
      assert.equal(interim == HINT and MOST or 0, #res.interim)
      support.wait_for(function() return on.origin.open == 0 end, "the origin's connection to end")
      on.origin.handler = rig.hello
      assert.equal("hello", c:request({}).body)
    end))
  end

  it("without end are a 502 at once, though the origin goes on to send them", async(function()
    local written = 0
    on.origin.handler = function(_, conn)
      while conn:write(CONTINUE) and not conn.closed do
        written = written + 1
        support.sleep(1)
      end
    end
    local res = on.gw:request {}
    assert.equal(502, res.status)
    support.wait_for(function() return on.origin.open == 0 end, "the origin's connection to end")
    assert.is_true(written >= MOST)
  end))

  it("do not reach a client of HTTP/1.0", async(function()
    local res = answer(HINT .. CONTINUE .. HELLO, "1.0")
    assert.same({ 200, "hello", 0 }, { res.status, res.body, #res.interim })
  end))

  it("without a final one are a 502", async(function()
    local res = answer(CONTINUE, nil, true)
    assert.equal(502, res.status)
  end))
end)
