-- Which webhooks keep a cached resource from going stale.
local chain = require "plugins.cache.chain"
local keys = require "plugins.webhook.cached_keys"

local function config(events)
  local webhook = { name = "webhook", conf = { events = events } }
  return { routes = { { chain = { { name = "auth", conf = {} } } }, { chain = { webhook } } } }
end

local function missing(key, events)
  return chain.missing(config(events), assert(keys.parse(key)), keys.parse)
end

describe("the chain of invalidation", function()
  it("is required for balances and statistics", function()
    assert.is_true(chain.is_required(keys.parse "balance:{tenantId}"))
    assert.is_true(chain.is_required(keys.parse "stats:{t}:current_month"))
    assert.is_false(chain.is_required(keys.parse "profile:{t}"))
  end)

  it("is whole where each event drops the key, whatever its fields are called", function()
    local all = { ["balance.updated"] = { drop = { "balance:{tenant}", "stats:{x}:current_month" } },
      ["invoice.created"] = { drop = { "stats:{y}:current_month" } },
      ["invoice.cancelled"] = { drop = { "stats:{y}:current_month", "stats:{y}:all" } }, other = { drop = { "profile:{a}" } } }
    assert.same({}, missing("balance:{tenantId}", all))
    assert.same({}, missing("stats:{tenantId}:current_month", all))
    assert.same({}, missing("profile:{tenantId}", all))
  end)

  it("names the events that are missing", function()
    assert.same({ "balance.updated" }, missing("balance:{t}", {}))
    assert.same({ "balance.updated" }, missing("balance:{t}", { ["invoice.created"] = { drop = { "balance:{t}" } } }))
    assert.same({ "invoice.created", "invoice.cancelled" },
      missing("stats:{t}:current_month", { ["balance.updated"] = { drop = { "stats:{t}:current_month" } } }))
    assert.same({ "balance.updated", "invoice.created", "invoice.cancelled" },
      missing("stats:{t}:{period}", { ["balance.updated"] = { drop = { "stats:{t}:current_month" } } }))
    assert.same({ "any event" }, missing("profile:{t}", {}))
  end)

  it("sees a configuration that is wrong elsewhere without stumbling", function()
    for _, events in ipairs { 7, { x = 7 }, { x = { drop = 7 } }, { x = { drop = { 7, "{" } } } } do
      assert.same({ "balance.updated" }, missing("balance:{t}", events))
    end
    assert.same({ "balance.updated" }, chain.missing({ routes = { {}, { chain = { { name = "webhook" } } } } },
      keys.parse "balance:{t}", keys.parse))
  end)
end)
