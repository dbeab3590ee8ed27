-- What a collector's answer means to otel.
package.path = "plugins/?.lua;" .. package.path
local support = require "spec.support"
local answer = require "otel.answer"

local json = { decode = support.decode }

local function judge(status, headers, body)
  return { answer.judge({ status = status, headers = headers or {}, body = body }, nil, json, 784111777) }
end

it("a success may tell of items that were rejected, as text or as number", function()
  assert.same({ "ok", 0 }, judge(200, nil, ""))
  assert.same({ "ok", 0 }, judge(200, nil, "{}"))
  assert.same({ "ok", 0 }, judge(204))
  assert.same({ "ok", 0 }, judge(200, nil, '{"partialSuccess":{}}'))
  assert.same({ "ok", 3, "too old" }, judge(200, nil, '{"partialSuccess":{"rejectedSpans":"3","errorMessage":"too old"}}'))
  assert.same({ "ok", 4 }, judge(200, nil, '{"partialSuccess":{"rejectedDataPoints":4}}'))
end)

it("some failures pass, others do not", function()
  for _, status in ipairs { 429, 502, 503, 504 } do assert.same({ "again", nil, "status " .. status }, judge(status)) end
  for _, status in ipairs { 301, 400, 401, 404, 413, 500, 501 } do
    assert.same({ "failed", nil, "status " .. status }, judge(status))
  end
  assert.same({ "again", nil, "refused" }, { answer.judge(nil, "refused", json, 0) })
end)

it("Retry-After counts in seconds or is a date, up to a minute", function()
  local function after(text) return select(2, unpack(judge(429, { ["retry-after"] = text }), 1, 2)) end
  assert.equal(7, after "7")
  assert.equal(60, after "86400")
  assert.equal(23, after "Sun, 06 Nov 1994 08:50:00 GMT") -- RFC 9110's example is at 08:49:37, 784111777
  assert.equal(0, after "Fri, 31 Dec 1993 23:59:59 GMT")
  assert.equal(60, after "Tue, 29 Feb 2028 00:00:00 GMT")
  for _, text in ipairs { "", "soon", "-1", "1.5", "Sun, 06 Foo 1994 08:50:00 GMT", "Sun, 06 Nov 1994 08:50:00 CET" } do
    assert.is_nil(after(text))
  end
end)
