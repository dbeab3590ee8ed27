-- The smallest useful gateway: one key, one route to an LLM, limits on it. `scripts/run` starts it.
-- There is no provider to pay: the LLM is the plugin `standin` beside this file, on a route of this same
-- gateway. The demo key's secret is "tg-demo-key"; its limits are in keys.jsonl.
-- There is no `redis` either, so that a private redis-server is started, with its data in `data_dir`.
return {
  listen = "127.0.0.1:8080",
  admin = "127.0.0.1:8081",
  data_dir = "data",
  plugin_path = { "plugins" },
  plugins = { auth = { keys = "keys.jsonl" } },
  routes = {
    { name = "chat", path = "/v1/chat/completions", methods = { "POST" },
      targets = { { provider = "standin", model = "demo", url = "http://127.0.0.1:8080/standin" } },
      plugins = { quota = {} } },
    { name = "standin", path = "/standin/*", plugins = { standin = {}, auth = false } },
  },
}
