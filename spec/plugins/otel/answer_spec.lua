-- What a collector's answer means to otel.
package.path = "plugins/?.lua;" .. package.path
local support = require "spec.support"
local answer = require "otel.answer"

local json = { decode = support.decode }

local function judge(status, headers, body)
  return { answer.judge({ status = status, headers = headers or {}, body = body }, nil, json) }
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
  assert.same({ "again", nil, "refused" }, { answer.judge(nil, "refused", json) })
end)

it("Retry-After counts in seconds, up to a minute", function()
  assert.same({ "again", 7, "status 429" }, judge(429, { ["retry-after"] = "7" }))
  assert.same({ "again", 60, "status 503" }, judge(503, { ["retry-after"] = "86400" }))
  assert.same({ "again", nil, "status 503" }, judge(503, { ["retry-after"] = "Fri, 31 Dec 1999 23:59:59 GMT" }))
end)
