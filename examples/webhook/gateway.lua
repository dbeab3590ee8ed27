-- Takes a billing system's events and drops what they make stale from the cache; limits how many may come. See README.md.
return {
  listen = "127.0.0.1:8080",
  admin = "127.0.0.1:8081",
  workers = 1,
  routes = {
    { name = "billing", path = "/hooks/billing", methods = { "POST" },
      limits = { body = "64k" },
      plugins = {
        ratelimit = { by = "address", windows = { { limit = 600, seconds = 60, sliding = true } } },
        webhook = {
          secret = { env "WEBHOOK_SECRET" }, -- beside the old one while it is rotated
          fields = { tenantId = "data.tenantId" },
          events = {
            ["balance.updated"] = { drop = { "balance:{tenantId}", "stats:{tenantId}:current_month" } },
            ["invoice.created"] = { drop = { "stats:{tenantId}:current_month" } },
            ["invoice.cancelled"] = { drop = { "stats:{tenantId}:current_month" } },
          },
        },
      } },
  },
}
