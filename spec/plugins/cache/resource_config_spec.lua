-- Settings of cached resources that are refused, with the key and what to write instead.
local resources = require "spec.plugins.cache.resource_rig"
local rig = require "spec.plugins.cache.rig"
local support = require "spec.support"
local async = support.async

-- What `tollgate check` says of a configuration, or nil where it takes it.
local function check(options)
  local dir = support.tmpdir()
  local config = resources.config(rig.merged({ url = "redis://127.0.0.1:1/0", origin = "http://127.0.0.1:1" }, options))
  config.plugins = {}
  for _, route in ipairs(config.routes) do route.plugins.auth = nil end
  support.write_file(dir .. "/gateway.lua", "return " .. support.literal(rig.merged({ listen = "127.0.0.1:0" }, config)))
  local result = support.tollgate({ "check", "-c", dir .. "/gateway.lua" }, { cwd = dir })
  return result.code ~= 0 and result.err .. result.out or nil
end

local function refused(message, cache, options)
  local base = rig.merged({ key = "balance:{tenantId}", path = "/tenants/{tenantId}/balance" }, cache)
  local said = check(rig.merged({ caches = { base } }, options))
  assert(said, "it was taken: " .. message)
  assert.matches(message, said, 1, true)
end

describe("settings of cached resources", function()
  it("are taken where a webhook drops their keys, or where they opt out", async(function()
    assert.is_nil(check {})
    assert.is_nil(check { hook = false, cache = { invalidation = "none" } })
    assert.is_nil(check { hook = false, caches = { { key = "profile:{tenantId}", path = "/tenants/{tenantId}/profile" } } })
  end))

  it("are refused where the key would go stale", async(function()
    refused('no webhook drops "balance:{tenantId}" on balance.updated', {}, { hook = false })
    refused('no webhook drops "stats:{tenantId}:current_month" on invoice.created, invoice.cancelled', { key =
      "stats:{tenantId}:current_month" }, { hook = { events = { ["balance.updated"] = { drop = {
      "stats:{tenantId}:current_month" } } } } })
    refused('no webhook drops "profile:{tenantId}" on any event', { key = "profile:{tenantId}", invalidation = "required" })
    refused("are not kept in the gateway's own memory", { l1 = 1 })
  end))

  it("are refused where it is not said where a field comes from, or who may read", async(function()
    refused("where {tenantId} comes from is not said", { path = "/tenants/x" })
    refused("so that all tenants would get one answer", { key = "balance:all", path = "/tenants/x" })
    refused("the key has no {region}", { fields = { region = "query.region" } })
    refused("it is in path already", { fields = { tenantId = "query.tenant" } })
    refused('must be "query.NAME"', { fields = { tenantId = "cookie.x" } })
    refused("neither a field in braces", { path = "/tenants/a{tenantId}" })
    refused("must begin with a name and a colon", { key = "{tenantId}" })
    refused("keys that begin with cache: are not", { key = "cache:exact:{tenantId}" })
    refused("keys that begin with q: are not cached resources", { key = "q:{tenantId}" })
  end))

  it("are refused where those of the other kind are among them", async(function()
    refused("belongs to exact responses", { get = true })
    local said = check { caches = { { extract = "a" } } }
    assert.matches("needs key", said, 1, true)
  end))
end)
