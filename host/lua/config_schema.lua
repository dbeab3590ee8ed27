-- What gateway.lua may hold. Times are in seconds and sizes in bytes here; `config` makes milliseconds of the former.

local listen = require "tollgate.config_listen"
local network = require "tollgate.config_network"
local values = require "tollgate.config_values"
local log = require "tollgate.config_log"
local routes = require "tollgate.config_routes"
local targets = require "tollgate.config_targets"
local tls = require "tollgate.config_tls"
local tracing = require "tollgate.config_tracing"

local DAY = 86400 -- seconds
local NAME = "^[%w_.-]+$"

-- Makes a check of a function that returns nil and a sentence.
local function by(parse)
  return function(value)
    local ok, message = parse(value)
    if not ok then return message end
  end
end

local function seconds(default, doc)
  return { type = "duration", min = 0.001, max = DAY, default = default, doc = doc }
end

local function size(default, min, max, doc)
  return { type = "size", min = min, max = max, default = default, doc = doc }
end

local function count(default, min, max, doc)
  return { type = "integer", min = min, max = max, default = default, doc = doc }
end

local function is_false(doc)
  return { type = "boolean", one_of = { false }, doc = doc }
end

local function one_or_more(field, extra)
  extra.alternatives = { field, { type = "list", of = field, min = 1 } }
  return extra
end

local path = { type = "string", min = 1, check = by(values.route_path) }
local host = { type = "string", min = 1, check = by(values.route_host) }

local function redis_url(required)
  return { type = "string", required = required, min = 1, secret = values.redis_url_masked,
    check = by(values.redis_url),
    doc = "redis://[user:password@]host[:port][/db], the same with rediss:// for TLS, or unix:///path" }
end

local redis = {
  url = redis_url(true),
  tls = tls.field,
  timeout = seconds(0.25, "the longest that a command may take"),
  connect_timeout = seconds(1, "the longest that connecting may take"),
  eviction = { type = "string", one_of = { "refuse", "warn" }, default = "refuse",
    doc = "what to do where Redis may evict keys that limits depend on" },
  hash_tags = { type = "boolean", default = false, doc = "write key parts in braces, for Redis Cluster" },
}

local function check_redis(value, at)
  if not value.tls or value.url:lower():find("^rediss:") then return nil end
  return { { path = at .. ".tls", message = "has no use: the url is not rediss://" } }
end

local plugins = {
  type = "map", keys = "^[%w_-]+$", hint = "the name of a plugin is letters, digits, _ and -", default = {},
  doc = "plugin by name: its settings, a list of settings (the plugin several times), or false (switched off)",
  values = {
    type = "any",
    check = function(value, at)
      if value == false then return nil end
      if type(value) ~= "table" then
        return "must be a table of settings ({} for the defaults), a list of such tables, or false"
      end
      local faults = {}
      for i, one in ipairs(value) do
        if type(one) ~= "table" then
          faults[#faults + 1] = { path = ("%s[%d]"):format(at, i), message = "must be a table of settings" }
        end
      end
      return faults
    end,
  },
}

local target_headers = {
  type = "map", keys = values.TOKEN, hint = "is no name of a header field", default = {},
  doc = "header fields to set, or false to remove",
  values = { secret = true, alternatives = {
    { type = "string", check = values.header_value },
    is_false("removes the field"),
  } },
  check = routes.check_headers,
}


local route = {
  name = { type = "string", required = true, min = 1, max = 128, pattern = NAME,
    hint = "must be letters, digits, _, . and -", doc = "unique; in logs, metrics and plugins" },
  hosts = { type = "list", of = host, min = 1, doc = 'exact or "*.suffix"; absent: any' },
  path = one_or_more(path, { required = true, doc = '"/exact", or "/prefix/*"; one or a list' }),
  methods = { type = "list", min = 1, doc = "absent: any",
    of = { type = "string", pattern = "^[A-Z][A-Z-]*$", hint = "must be a method in upper case, such as GET" } },
  headers = { type = "map", keys = values.TOKEN, hint = "is no name of a header field",
    doc = "fields that must be there: a value, or true for any",
    values = { alternatives = {
      { type = "string", check = values.header_value },
      { type = "boolean", one_of = { true } },
    } } },
  strip_prefix = { type = "boolean", default = false,
    doc = "remove the matched prefix before the target's path is joined" },
  api = { type = "string", doc = "the LLM API that the route speaks; default by path",
    one_of = { "openai-chat", "openai-responses", "openai-embeddings", "anthropic-messages", "none" } },
  half_close = { type = "string", one_of = { "cancel", "answer" }, default = "cancel",
    doc = "what a client's end of input means while an answer is owed" },
  upgrade = { alternatives = {
    { type = "boolean", doc = "true: any, false: none" },
    { type = "list", min = 1, max = 16, of = { type = "string", min = 1, max = 64, pattern = values.TOKEN,
      hint = 'must be the name of a protocol such as "websocket"' } },
  }, default = false, doc = 'protocols that clients may switch to, such as { "websocket" }' },
  retry_stale = { type = "boolean", default = true,
    doc = "send again on a new connection where a kept one turned out closed" },
  timeouts = { type = "table", default = {}, doc = "the route's own, else the gateway's", fields = {
    connect = seconds(), first_byte = seconds(), idle = seconds(), body = seconds(), tunnel = seconds(),
  } },
  limits = { type = "table", default = {}, doc = "the route's own, else the gateway's", fields = {
    body = size(nil, 1, nil, "bytes of a request body"),
    body_rate = count(nil, 0, 1000000000, "bytes a second that a request body has to come at; 0: any"),
  } },
  plugins = plugins,
}
for name, field in pairs(targets.route_fields(targets.target_fields(target_headers))) do route[name] = field end

return {
  listen = listen.listen, admin = listen.admin,
  redis = { alternatives = { redis_url(), { type = "table", fields = redis, check = check_redis } },
    doc = "absent: a private redis-server is started and supervised" },
  data_dir = { type = "path", default = "data", doc = "what outlives the gateway" },
  user = { type = "string", min = 1, max = 100, pattern = "^[%w_][%w_.-]*:?[%w_.-]*$",
    hint = 'must be "name" or "name:group"', doc = "whom the gateway becomes once it listens, where root starts it" },
  core_dumps = { type = "boolean", default = false, doc = "allow core dumps, which hold the secrets that are in memory" },
  run_dir = { type = "path", doc = "sockets and the like; default: data_dir" },
  plugin_path = { type = "list", of = { type = "path" }, default = {},
    doc = "folders of plugins; those that ship are always behind them" },
  log = { type = "table", default = {}, doc = "what is logged", fields = log.fields },
  timeouts = { type = "table", default = {}, doc = "seconds", fields = {
    head = seconds(30, "from a request's first byte to the end of its head"),
    body = seconds(60, "between two pieces of a request body"),
    connect = seconds(5, "to a target, its name and a wait for a free connection included"),
    first_byte = seconds(300, "from the request sent to the head of the answer"),
    idle = seconds(300, "between two pieces of an answer"),
    handshake = seconds(10, "a client's TLS handshake"),
    ticket_keys = seconds(DAY / 2, "how long a key makes session tickets; it is good for as long again to take them"),
    keepalive = seconds(75, "between two requests of one client connection"),
    tunnel = seconds(3600, "of a WebSocket or another protocol, without a byte either way"),
    write = seconds(60, "a client that takes nothing"),
    drain = seconds(30, "for requests under way at shutdown"),
  } },
  limits = { type = "table", default = {}, doc = "what a client may send", fields = {
    head = size("16k", 256, 1024 ^ 2, "bytes of a request head, else 431"),
    url = size("8k", 64, 1024 ^ 2, "bytes of the request target, else 414"),
    fields = count(100, 1, 10000, "header fields, else 431"),
    body = size("10m", 1, nil, "bytes of a request body, else 413"),
    body_rate = count(16, 0, 1000000000, "bytes a second that a request body has to come at, " ..
      "over each timeouts.body of the client's time, else 408; 0: any"),
    connections = count(10000, 1, 1000000, "client connections at once; above it those that wait longest without a request end"),
    connections_per_address = count(nil, 1, 1000000, "client connections at once of one address (IPv6: of one /64) " ..
      "in each worker; further ones are closed; trusted_proxies may have more; absent: any number"),
    buffered = size("256m", 65536, nil, "bytes that each worker keeps of bodies and answers, for plugins that read them " ..
      "whole and for another attempt; above it such requests get 503"),
    pipelined = size("64k", 1024, 64 * 1024 ^ 2, "bytes read ahead of requests that wait their turn"),
  } },
  upstream = { type = "table", default = {}, doc = "connections to targets", fields = {
    keepalive = count(64, 0, 100000, "idle ones kept for each target"),
    keepalive_timeout = seconds(60, "how long one is kept idle"),
    connections = count(1024, 0, 1000000, "for each target; 0: no limit"),
  } },
  resolver = network.resolver, trusted_proxies = network.trusted_proxies, forwarded = network.forwarded,
  tracing = tracing.field,
  workers = count(nil, 1, 128, "processes that serve; default: as many as there are cores"),
  watchdog = { type = "duration", min = 0.1, max = DAY, default = 5,
    doc = "seconds that a plugin may keep a worker from turning; it is interrupted then, and killed a second later" },
  quarantine = { type = "table", default = {}, doc = "plugins that keep a worker stuck", fields = {
    after = count(3, 1, 1000, "workers killed in a plugin before it is quarantined; a reload lifts it"),
    policy = { type = "string", one_of = { "off", "skip", "fail" }, default = "off",
      doc = "off: nothing; skip: the plugin is left out; fail: its routes answer 503" },
  } },
  reload = { type = "table", default = {}, doc = "of configuration, plugins and key files", fields = {
    watch = { type = "boolean", default = true, doc = "reload when a file has changed" },
    drain = seconds(30, "for requests on the oldest of more than 4 generations"),
    check = seconds(10, "the longest that the trial of a new configuration may take"),
    memory = size("1g", 64 * 1024 ^ 2, nil, "address space that the trial may take"),
  } },
  routing = { type = "table", default = {}, doc = "what the plugin reload and `tollgate publish` go by", fields = {
    source = { type = "string", one_of = { "files", "redis" }, default = "files",
      doc = "files: each replica's own files; redis: routes and plugins are published, and taken from Redis by all replicas" },
  } },
  shared = { type = "table", default = {}, doc = "tg.shared, the dictionary of all workers", fields = {
    size = size("16m", 1024 ^ 2, 16 * 1024 ^ 3, "bytes of memory, used as it fills; a change takes a restart"),
  } },
  via = { default = "tollgate", doc = "name in the Via field; false: none", alternatives = {
    { type = "string", min = 1, max = 64, pattern = values.TOKEN, hint = "must be a token (RFC 9110)" }, is_false(),
  } },
  plugins = plugins,
  routes = { type = "list", required = true, min = 1, of = { type = "table", fields = route }, check = routes.check,
    doc = "what is served" },
}
