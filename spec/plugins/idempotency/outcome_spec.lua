-- What becomes of a claim when its request has ended, by how it ended.
local outcome = assert(loadfile("plugins/idempotency/outcome.lua"))()

local releases = outcome.statuses { 408, 409, 425, 429, "5xx" }

local function of(facts) -- with "retry", with "refuse"
  return { (outcome.of(facts, releases, false)), (outcome.of(facts, releases, true)) }
end

it("statuses are single ones and classes", function()
  assert.is_true(releases[500] and releases[599] and releases[408])
  assert.is_nil(releases[600] or releases[499] or releases[200])
  local all = outcome.statuses { "4xx" }
  assert.is_true(all[400] and all[499])
  assert.is_nil(all[500] or all[399])
end)

-- reached, source, status, whole, why, terminated, ended → with "retry", with "refuse"
local cases = {
  { "a whole answer", { true, "origin", 200, true, nil, true, "ok" }, "store", "store" },
  { "one whose client left", { true, "origin", 200, true, nil, true, "client_gone" }, "store", "store" },
  { "one that a plugin spoiled behind its head", { true, "origin", 200, true, nil, true, "plugin_error" }, "store", "store" },
  { "a failure of the origin", { true, "origin", 503, true, nil, true, "ok" }, "release", "release" },
  { "a stream without its end", { true, "origin", 200, true, nil, false, "ok" }, "release", "lose" },
  { "an answer that is too large", { true, "origin", 200, false, "too_large", nil, "ok" }, "release", "lose" },
  { "one that broke off", { true, "origin", 200, false, "incomplete", nil, "origin_cut" }, "release", "lose" },
  { "one that fell silent", { true, "origin", 200, false, "incomplete", nil, "timeout" }, "release", "lose" },
  { "the gateway's, with the origin not reached", { false, "gateway", nil, false, "none", nil, "ok" }, "release", "release" },
  { "nobody's, with the origin not reached", { false, nil, nil, false, "none", nil, "client_gone" }, "release", "release" },
  { "the gateway's, with the origin at it", { true, "gateway", nil, false, "none", nil, "ok" }, "release", "lose" },
  { "the same, and the client left", { true, "gateway", nil, false, "none", nil, "client_gone" }, "release", "lose" },
  { "none until nobody waited any more", { true, nil, nil, false, "none", nil, "client_gone" }, "lose", "lose" },
  { "half of one until nobody waited", { true, "origin", 200, false, "incomplete", nil, "client_gone" }, "lose", "lose" },
  { "half of one when the gateway ended", { true, "origin", 200, false, "incomplete", nil, "shutdown" }, "lose", "lose" },
}
for _, case in ipairs(cases) do
  it("an answer that is " .. case[1] .. ": " .. case[3] .. ", " .. case[4], function()
    local f = case[2]
    assert.same({ case[3], case[4] }, of { reached = f[1], source = f[2], status = f[3], whole = f[4], why = f[5],
      terminated = f[6], ended = f[7] })
  end)
end
