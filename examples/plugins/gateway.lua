-- Six small plugins, a route for each; they are the files beside this one. Nothing else is needed: what they stand in front
-- of is the route `echo` of this same gateway, which answers with the request that arrived there, as JSON.
local origin = { { url = "http://127.0.0.1:8080/echo" } }

return {
  listen = "127.0.0.1:8080",
  admin = false,
  data_dir = "data",
  plugin_path = { "." },
  routes = {
    { name = "stamp", path = "/stamp", targets = origin, plugins = { stamp = {} } },
    { name = "shop", path = "/shop/*", targets = origin, plugins = { maintenance = { file = "maintenance.on" } } },
    { name = "search", path = "/search", targets = origin, plugins = { canary = { prefix = "/next" } } },
    { name = "upload", path = "/upload", methods = { "POST" }, targets = origin, plugins = {
      auth = { keys = "keys.jsonl" },
      size_by_plan = { plans = { free = "1k", pro = "1m" } } } },
    { name = "chat", path = "/v1/chat/completions", methods = { "POST" }, targets = origin, plugins = { redact = {} } },
    { name = "profile", path = "/profile", targets = origin, plugins = { hide = { members = { "email", "headers" } } } },
    { name = "echo", path = "/echo/*", plugins = { echo = {} } },
  },
}
