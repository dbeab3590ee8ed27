-- TLS with clients: two certificates told apart by the name that a client asks for, and certificates of clients, which
-- a plugin reads. `examples/tls/run` makes the files in `certificates` and starts this.
return {
  listen = {
    "127.0.0.1:8080",
    { "127.0.0.1:8443", tls = {
      certificates = {
        { cert = "certificates/localhost.crt", key = "certificates/localhost.key" }, -- the first: also for all other names
        { cert = "certificates/api.test.crt", key = "certificates/api.test.key" },
      },
      client = { ca = "certificates/ca.crt", required = false },
    } },
  },
  admin = { "127.0.0.1:8081", tls = { cert = "certificates/localhost.crt", key = "certificates/localhost.key" } },
  data_dir = "data",
  plugin_path = { "plugins" },
  routes = {
    { name = "who", path = "/*", plugins = { who = {} } },
  },
}
