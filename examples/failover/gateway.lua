-- One model's name for clients, several targets behind it: where one fails another answers. See README.md.
local here = "http://127.0.0.1:8080/standin" -- the providers' stand-ins, which are routes of this same gateway

return {
  listen = "127.0.0.1:8080",
  admin = "127.0.0.1:8081",
  workers = 1,
  plugin_path = { "plugins" },
  routes = {
    { name = "chat", path = "/v1/chat/completions", methods = { "POST" },
      models = {
        -- Two share the work, three to one; the spare is for when neither can.
        fast = {
          { provider = "north", model = "north-small", url = here .. "/north", weight = 3 },
          { provider = "south", model = "south-small", url = here .. "/south" },
          { provider = "spare", model = "spare-large", url = here .. "/spare", tier = 2 },
        },
        -- The first is gone, the second has too much to do.
        troubled = {
          { provider = "gone", model = "gone-1", url = "http://127.0.0.1:1" },
          { provider = "busy", model = "busy-1", url = here .. "/busy", tier = 2 },
          { provider = "spare", model = "spare-large", url = here .. "/spare", tier = 3 },
        },
      },
      retry = { attempts = 3 },
      plugins = { breaker = {} } },

    { name = "standin", path = "/standin/*", plugins = { standin = {} } },
  },
}
