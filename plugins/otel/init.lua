-- otel: sends spans and metrics to an OpenTelemetry collector, by OTLP over HTTP in JSON.
--
-- Spans are those of requests whose trace is sampled (see `tracing`): one for the request, and below it one for each attempt
-- on a target, with the attributes of OpenTelemetry's semantic conventions for HTTP and generative AI. Of what a client sent
-- they have the path, the host and the model's name, and nothing else. Metrics are all that /metrics shows, of the whole
-- replica, under the same names, cumulative; one worker sends them, and each one at its end.
--
-- Nothing here holds a request up. A batch is sent when it is full, or `interval` has passed; it is sent again, with growing
-- pauses, where the collector cannot be reached or answers with 429, 502, 503 or 504, whose Retry-After is kept to, up to a
-- minute. What waits is bounded: what finds the queue full is dropped, and a batch is given up that the collector refuses, or
-- does not take for `retry`. It is all counted in `otel_items_total`. A reload and the gateway's end send what is left, for
-- `timeout`, at the end three seconds at most; a worker that is killed takes with it the spans that it had not sent.
--
-- It stands in the gateway's own `plugins`, or on the routes whose requests are of interest.

local tg = require "tollgate"
local answer = require "otel.answer"
local attributes = require "otel.attributes"
local exporter = require "otel.exporter"
local figures = require "otel.figures"
local span = require "otel.span"
local prometheus = require "tollgate.prometheus"
local values = require "tollgate.config_values"

local TOKEN = "^[%w!#$%%&'*+.^_`|~-]+$" -- name of a header field, RFC 9110, section 5.6.2
local LOG_EVERY = 60                    -- seconds between two log lines about one signal
local PIECE = 16384                     -- bytes of metrics' text that are read in one turn of the loop

local function endpoint_fault(text)
  if not text:find "^https?://" then return "must be http://host[:port][/path] or https://…" end
  local _, why = values.target_url(text)
  return why
end

-- What tg.http sets by itself, and content-type.
local OWN = {}
for name in ("connection content-length content-type expect keep-alive proxy-connection te trailer transfer-encoding upgrade")
  :gmatch "%S+" do OWN[name] = true end

local file = { type = "string", min = 1 }

local M = {
  version = "1.0.0",
  priority = 50,
  once = true,
  schema = {
    endpoint = { type = "string", required = true, check = endpoint_fault,
      doc = "the collector; /v1/traces and /v1/metrics are added" },
    headers = { type = "map", keys = TOKEN, hint = "is no name of a header field", default = {},
      values = { type = "string", pattern = "^[^%c]*$", hint = "must have no control character, such as a line's end",
        secret = true }, doc = 'header fields of each export; secrets by env "NAME"' },
    tls = { type = "table", doc = "how https is spoken with the collector", fields = {
      ca = { type = "string", min = 1, doc = "file of the authorities that are trusted (PEM); absent: the system's" },
      cert = file, key = file,
      server_name = { type = "string", min = 1, doc = "whose certificate it must show; absent: the endpoint's host" },
      verify = { type = "boolean", default = true, doc = "whether the certificate is verified" },
    } },
    traces = { type = "boolean", default = true, doc = "send spans; needs `tracing`" },
    metrics = { type = "boolean", default = true, doc = "send metrics" },
    client_address = { type = "boolean", default = true, doc = "tell the client's address in spans" },
    service = { type = "string", min = 1, max = 255, default = "tollgate", doc = "service.name" },
    resource = { type = "map", keys = "^[%w_.]+$", hint = "must be letters, digits, _ and .", default = {},
      values = { alternatives = { { type = "string" }, { type = "number" }, { type = "boolean" } } },
      doc = 'further attributes of the resource, such as ["deployment.environment.name"]' },
    interval = { type = "duration", min = 0.05, max = 300, default = 5,
      doc = "seconds that spans wait for a batch to be full" },
    batch = { type = "integer", min = 1, max = 10000, default = 512, doc = "spans of one request" },
    queue = { type = "integer", min = 1, max = 1000000, default = 4096, doc = "spans of one worker that wait at most" },
    metrics_interval = { type = "duration", min = 0.05, max = 3600, default = 60,
      doc = "seconds between two exports of metrics" },
    timeout = { type = "duration", min = 0.05, max = 300, default = 10, doc = "seconds that the collector has for a request" },
    retry = { type = "duration", min = 0.05, max = 3600, default = 60, doc = "seconds for which a batch is tried again" },
  },
}

local items_total = tg.metrics.counter("otel_items_total",
  "Spans and exports of metrics by what became of them: exported, rejected, failed (given up), dropped (the queue was full)",
  { "signal", "outcome" })

local senders = {}                                -- by settings: places with equal ones share a sender
local instances = setmetatable({}, { __mode = "k" }) -- conf → { sender, route_path }
local paths = setmetatable({}, { __mode = "k" })  -- conf → the route's path
local attempts = setmetatable({}, { __mode = "k" }) -- ctx → list

function M.check(conf, path, about)
  local faults = {}
  local only = about.route and #about.route.paths == 1 and about.route.paths[1]
  if only then paths[conf] = only.kind == "prefix" and only.path .. "*" or only.path end
  if conf.traces and not about.config.tracing then
    faults[1] = { path = path .. ".traces",
      message = "there are no traces to send: set tracing = {} in the configuration, or traces = false here" }
  end
  if not conf.traces and not conf.metrics then
    faults[#faults + 1] = { path = path, message = "sends nothing: traces and metrics are both false" }
  end
  for name in pairs(conf.headers) do
    if OWN[name:lower()] then
      faults[#faults + 1] = { path = ("%s.headers[%q]"):format(path, name), message = "is set by the gateway itself" }
    end
  end
  if conf.tls and (conf.tls.cert == nil) ~= (conf.tls.key == nil) then
    faults[#faults + 1] = { path = path .. ".tls", message = "cert and key go together" }
  end
  if conf.queue < conf.batch then
    faults[#faults + 1] = { path = path .. ".queue", message = "must hold at least one batch" }
  end
  return faults
end

-- The sender: what places with equal settings share.

local function resource_of(conf)
  local map = { ["service.name"] = conf.service, ["service.instance.id"] = tg.replica(), ["service.version"] = tg.version }
  for name, value in pairs(conf.resource) do map[name] = value end
  return { attributes = attributes.list(map) }
end

-- Says that something is wrong, once a minute, and that it is not any more.
local function teller(signal, endpoint)
  local wrong, told = false, -math.huge
  return function(message)
    local now = tg.monotonic()
    if message and now - told >= LOG_EVERY then
      wrong, told = true, now
      tg.log.warn("otel: ", signal, " cannot be sent to ", endpoint, ": ", message)
    elseif not message and wrong then
      wrong, told = false, -math.huge
      tg.log.info("otel: ", signal, " are taken again by ", endpoint)
    end
  end
end

local Sender = {}
Sender.__index = Sender

local function new_exporter(self, signal, options, body_of)
  local conf = self.conf
  local url = conf.endpoint:gsub("/+$", "") .. "/v1/" .. (signal == "spans" and "traces" or "metrics")
  local headers = { ["content-type"] = "application/json" }
  for name, value in pairs(conf.headers) do headers[name] = value end
  return exporter.new(options, {
    now = tg.monotonic, random = math.random, tell = teller(signal, conf.endpoint),
    sleep = function(seconds) self.hurry:wait(seconds) end,
    count = function(outcome, n) if n > 0 then items_total:inc(n, signal, outcome) end end,
    send = function(items)
      local res, err = tg.http.post(url, { headers = headers, body = body_of(items), timeout = conf.timeout, tls = conf.tls,
        max_body = 65536 })
      return answer.judge(res, err, tg.json, tg.now())
    end,
  })
end

local function new_sender(conf)
  local self = setmetatable({ conf = conf, hurry = tg.condition(), running = false }, Sender)
  local resource = tg.json.encode(resource_of(conf))
  local scope = tg.json.encode { name = "tollgate", version = tg.version }
  local function around(kind, scoped, list)
    return function(items)
      return ('{"resource%s":[{"resource":%s,"scope%s":[{"scope":%s,"%s":[%s]}]}]}'):format(kind, resource, scoped, scope, list,
        table.concat(items, ","))
    end
  end
  self.spans = new_exporter(self, "spans", conf, around("Spans", "Spans", "spans"))
  self.figures = new_exporter(self, "metrics", { batch = 1, queue = 1, retry = math.min(conf.retry, conf.metrics_interval) },
    around("Metrics", "Metrics", "metrics"))
  return self
end

-- Sends full batches, or all that waits, in a run that neither a request nor the end of this generation cuts off.
function Sender:send(what, all)
  if all then what:flush() end
  if what.busy or what.scheduled then return end
  what.scheduled = true
  tg.timer.after(0, function()
    what.scheduled = false
    what:run()
  end, { lingers = true })
end

local function read_figures(self)
  local text, err = tg.metrics.read()
  if not text then return tg.log.warn("otel: the metrics cannot be read: ", err) end
  local now, started, parts = tg.now(), figures.started(text), {}
  for piece in figures.pieces(text, PIECE) do
    local list = figures.metrics(prometheus.parse(piece), now, started, tg.json.array)
    for _, metric in ipairs(list) do parts[#parts + 1] = tg.json.encode(metric) end
    tg.timer.sleep(0)
  end
  self.figures:add(table.concat(parts, ","))
end

function Sender:send_figures()
  if self.figures.busy or self.figures.scheduled then return end
  self.figures.scheduled = true
  tg.timer.after(0, function()
    local fine, err = pcall(read_figures, self)
    self.figures.scheduled = false
    if not fine then tg.log.error("otel: the metrics cannot be read: ", err) end
    self.figures:run()
  end, { lingers = true })
end

function Sender:start()
  if self.running then return end
  self.running = true
  self.spans:until_time(nil)
  self.figures:until_time(nil)
  if self.conf.traces then
    tg.timer.every(self.conf.interval, function() if self.spans:waiting() > 0 then self:send(self.spans, true) end end)
  end
  if self.conf.metrics then
    tg.timer.every(self.conf.metrics_interval, function() self:send_figures() end, { once = true })
  end
end

function Sender:stop()
  if not self.running then return end
  self.running = false
  local limit = tg.monotonic() + self.conf.timeout
  self.spans:until_time(limit)
  self.figures:until_time(limit)
  self.hurry:notify()
  if self.spans:waiting() > 0 then self:send(self.spans, true) end
  -- Each worker: who ends last has all figures, and cumulative ones may come twice.
  if self.conf.metrics then self:send_figures() end
end

function Sender:add(one)
  if not self.spans:add(tg.json.encode(one)) then return end
  if self.spans:full() or not self.running then self:send(self.spans, not self.running) end
end

-- Phases

function M.init(conf)
  local key = tg.json.encode(conf)
  senders[key] = senders[key] or new_sender(conf)
  instances[conf] = { sender = senders[key], path = paths[conf] }
  senders[key]:start()
end

function M.stop(conf)
  instances[conf].sender:stop()
end

local function sampled(conf, ctx)
  return conf.traces and ctx.trace ~= nil and ctx.trace.sampled
end

function M.attempt(conf, ctx, target, outcome)
  if outcome.error == "not_tried" or not sampled(conf, ctx) then return end
  local list = attempts[ctx]
  if not list then
    list = {}
    attempts[ctx] = list
  end
  list[#list + 1] = { target = target, outcome = outcome, over = tg.now() }
end

local function request_of(self, conf, ctx)
  local consumer, target, request = ctx.consumer or {}, ctx.target or {}, ctx.request
  return {
    id = ctx.id, trace = ctx.trace, started = ctx.started, seconds = ctx.seconds, method = request.method,
    scheme = request.scheme, host = request.host, path = request.path, version = request.version,
    client = conf.client_address and ctx.client.address or nil, route = ctx.route.name, route_path = self.path,
    api = ctx.route.api, status = ctx.response and ctx.response.status or nil, ended = ctx.ended,
    provider = target.provider, model = ctx.model, usage = ctx.usage, consumer = consumer.id, tenant = consumer.tenant,
  }
end

function M.log(conf, ctx)
  if not sampled(conf, ctx) then return end
  local self = instances[conf]
  local r = request_of(self, conf, ctx)
  for _, one in ipairs(attempts[ctx] or {}) do self.sender:add(span.attempt(r, one)) end
  attempts[ctx] = nil
  self.sender:add(span.server(r))
end

return M
