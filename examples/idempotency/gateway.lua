-- Charges a card once, however often the request is sent. The ledger behind it is a route of the same gateway, so that the
-- example needs no other service. See README.md.
return {
  listen = "127.0.0.1:8080",
  admin = "127.0.0.1:8081",
  workers = 1,
  plugin_path = { "plugins" },
  routes = {
    { name = "charges", path = "/charges", methods = { "POST" },
      targets = { { url = "http://127.0.0.1:8080/ledger" } },
      plugins = { idempotency = { required = true, wait = 10, on_lost = "refuse" } } },
    { name = "ledger", path = "/ledger/*", plugins = { ledger = {} } },
  },
}
