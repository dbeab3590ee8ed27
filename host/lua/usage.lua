-- tollgate usage: what keys have spent of their budgets. Redis knows the counters and who is in flight; the budgets
-- stand in the configuration and in key records, and quota itself says which apply.
--
-- Only the ids of requests in flight tell what is reserved, and Redis keeps them only where a concurrency limit
-- applies: elsewhere what is reserved and what is spent are not known apart, which is said. A set of ids that stays
-- the same while it is read shows that all figures belong together; where it did not, it is read again.

local tg = require "tollgate"
local form = require "tollgate.usage_form"

local M = {}

local BATCH = 500        -- keys whose counters are asked for at once
local IN_FLIGHT = 1000   -- of one key, whose reservations are added up
local ATTEMPTS = 5       -- to see a key's requests in flight unchanged
local TIMEOUT = 3        -- seconds

-- Names in Redis; see scripts/README.md.

local encoded = tg.redis.encode

local function namer(hash_tags)
  local function tag(id) return hash_tags and "{" .. encoded(id) .. "}" or encoded(id) end
  return {
    tokens = function(id, month) return "q:tokens:" .. tag(id) .. ":" .. month end,
    conc = function(id) return "q:conc:" .. tag(id) end,
    rps = function(id) return "q:rps:" .. tag(id) end,
    reserved = function(id, request)
      local own = hash_tags and tag(id) or ""
      if request:sub(1, #own) ~= own then own = "" end
      return "q:reserved:" .. own .. encoded(request:sub(#own + 1))
    end,
  }
end

-- Limits, by key

local function entry_of(route, name)
  for _, entry in ipairs(route.chain) do
    if entry.name == name then return entry end
  end
end

-- The route's quota; one of somebody's own has no limits to tell.
local function quota_of(route)
  local quota = entry_of(route, "quota")
  return quota and quota.plugin.limits and quota
end

local function serves(record, route)
  if not record.routes then return true end
  for _, name in ipairs(record.routes) do
    if name == route.name then return true end
  end
  return false
end

-- Routes with equal limits are one entry.
local function add_limits(key, route, limits)
  local budget = route.api ~= "none" and limits.budget or nil
  for _, one in ipairs(key.limits) do
    if one.budget == budget and one.concurrency == limits.concurrency and one.rate == limits.rate then
      one.routes[#one.routes + 1] = route.name
      return
    end
  end
  key.limits[#key.limits + 1] = { routes = { route.name }, budget = budget, concurrency = limits.concurrency, rate = limits.rate }
end

local Book = {}
Book.__index = Book

function Book:key(id)
  local key = self.by_id[id]
  if not key then
    key = { id = id, limits = {} }
    self.by_id[id], self.list[#self.list + 1] = key, key
  end
  return key
end

function Book:add(id, record, quota, route)
  local ok, limits = pcall(quota.plugin.limits, quota.conf, record)
  if ok then return add_limits(self:key(id), route, limits) end
  self:key(id).fault = tostring(limits)
end

function Book:open(path)
  local store, err = tg.keys.open(path)
  if not store then error(err, 0) end
  self.stores[path], self.files[#self.files + 1] = store, path
  return store
end

function Book:add_records(wanted, auth, quota, route)
  local path = auth.conf.keys
  local store = self.stores[path] or self:open(path)
  if wanted then
    local record = store:by_id(wanted)
    if record and serves(record, route) then self:add(wanted, record, quota, route) end
    if record then self:key(wanted).disabled = record.disabled end
    return
  end
  for i = 1, store:count() do
    local record = store:at(i)
    if serves(record, route) then self:add(record.id, record, quota, route) end
    self:key(record.id).disabled = record.disabled
  end
end

-- All keys, or the wanted one, with their limits on each route.
local function book_of(config, wanted)
  local book = setmetatable({ by_id = {}, list = {}, stores = {}, files = {} }, Book)
  for _, route in ipairs(config.routes) do
    local auth, quota = entry_of(route, "auth"), quota_of(route)
    local of_route = "route:" .. route.name
    if quota and auth and auth.conf.keys and quota.conf.key ~= "route" then book:add_records(wanted, auth, quota, route) end
    local shared = quota and (quota.conf.key == "route" or not auth or auth.conf.anonymous)
    if shared and (not wanted or wanted == of_route) then book:add(of_route, nil, quota, route) end
  end
  return book
end

-- What Redis knows

local function ask(commands)
  local replies, err = tg.redis.pipeline(commands, { timeout = TIMEOUT })
  if not replies then error({ redis = err }, 0) end
  for _, reply in ipairs(replies) do
    if type(reply) == "table" and reply.err then error({ redis = reply.err }, 0) end
  end
  return replies
end

-- Whether the key's set has all its requests in flight, or all those that reserve tokens.
local function all_capped(key, budgets_only)
  for _, one in ipairs(key.limits) do
    if not one.concurrency and (one.budget or not budgets_only) then return false end
  end
  return #key.limits > 0
end

local function same_set(a, b)
  if #a ~= #b then return false end
  local there = {}
  for _, id in ipairs(a) do there[id] = true end
  for _, id in ipairs(b) do
    if not there[id] then return false end
  end
  return true
end

local function members(names, key)
  return { "SRANDMEMBER", names.conc(key.id), IN_FLIGHT + 1 }
end

-- Adds up what the requests in flight have reserved; leaves it unknown where they are too many or change all the time.
local function read_reserved(names, key, month)
  local ids = ask({ members(names, key) })[1]
  for _ = 1, ATTEMPTS do
    if #ids > IN_FLIGHT then return end
    local get = { "MGET", names.tokens(key.id, month) }
    for i, id in ipairs(ids) do get[i + 2] = names.reserved(key.id, id) end
    local replies = ask { get, members(names, key) }
    local values, now = replies[1], replies[2]
    if same_set(ids, now) then
      key.charged, key.in_flight, key.reserved = tonumber(values[1] or 0), #ids, 0
      for i = 2, #values do key.reserved = key.reserved + math.max(0, tonumber(values[i] or 0)) end
      return
    end
    ids = now
  end
end

local function read_batch(names, keys, month)
  local commands = {}
  for i, key in ipairs(keys) do
    commands[3 * i - 2] = { "GET", names.tokens(key.id, month) }
    commands[3 * i - 1] = { "SCARD", names.conc(key.id) }
    commands[3 * i] = { "HGET", names.rps(key.id), "tokens" }
  end
  local replies = ask(commands)
  for i, key in ipairs(keys) do
    key.charged = tonumber(replies[3 * i - 2] or 0)
    key.in_flight = replies[3 * i - 1]
    key.bucket = replies[3 * i] and tonumber(replies[3 * i]) or nil
    key.seen = key.in_flight > 0 or key.bucket ~= nil or replies[3 * i - 2] ~= false
    if key.charged == 0 then
      key.reserved = 0
    elseif all_capped(key, true) then
      read_reserved(names, key, month)
    end
    if not all_capped(key) then key.in_flight = nil end
    key.spent = key.reserved and math.max(0, key.charged - key.reserved)
  end
end

--- The month of a time in seconds as in the counters' names, as people write it, and where it ends.
local function month_of(time)
  local year, month = tonumber(os.date("!%Y", time)), tonumber(os.date("!%m", time))
  local next_year, next_month = month == 12 and year + 1 or year, month % 12 + 1
  return ("%04d%02d"):format(year, month), ("%04d-%02d"):format(year, month),
    ("%04d-%02d-01T00:00:00Z"):format(next_year, next_month)
end

local function fail(view, format, ...)
  local text = format:format(...)
  io.stderr:write(view.json and tg.json.encode { error = text } or "tollgate usage: " .. text, "\n")
  return 1
end

local function unknown_key(view, book, id)
  local where = #book.files > 0 and table.concat(book.files, ", ") .. " has none" or "no route has auth with a key file"
  return fail(view, "no key %s: %s, and Redis knows nothing of it", tg.json.encode(id), where)
end

local function report_one(book, key, when, view)
  if #key.limits == 0 and not key.seen and not book.by_id[key.id] then return unknown_key(view, book, key.id) end
  if key.fault then return fail(view, "%s", key.fault) end
  io.stdout:write(view.json and form.json(key, when) or form.page(key, when, view.terminal))
  return 0
end

local function report_all(book, names, when, view)
  local code, marked, batch = 0, false, {}
  if not view.json then io.stdout:write(form.heading(when)) end
  for i, key in ipairs(book.list) do
    if key.fault then code = fail(view, "%s", key.fault) else batch[#batch + 1] = key end
    if #batch == BATCH or i == #book.list then
      if #batch > 0 then read_batch(names, batch, when.stamp) end
      for _, one in ipairs(batch) do
        io.stdout:write(view.json and form.json(one, when) or form.lines(one, view.terminal))
        marked = marked or (#one.limits > 0 and not one.spent)
      end
      batch = {}
    end
  end
  if marked and not view.json then io.stdout:write(form.MARK) end
  return code
end

local function run(config, wanted, view)
  local book = book_of(config, wanted)
  local names = namer(config.redis ~= nil and config.redis.hash_tags)
  local time = tonumber(ask({ { "TIME" } })[1][1])
  local stamp, month, ends = month_of(time)
  local when = { stamp = stamp, month = month, ends = ends }
  if not wanted then return report_all(book, names, when, view) end
  local key = book.by_id[wanted] or { id = wanted, limits = {} }
  read_batch(names, { key }, stamp)
  return report_one(book, key, when, view)
end

--- Prints usage.
-- @tparam table config the loaded configuration
-- @tparam string|nil wanted one key's id; nil: all keys
-- @tparam boolean json one line of JSON a key; failures as { "error": … }
-- @tparam table terminal what stdout is: tty, color, utf8, width
-- @treturn integer exit code
-- @treturn string|nil why Redis did not answer
function M.run(config, wanted, json, terminal)
  local view = { json = json, terminal = terminal }
  local ok, code = pcall(run, config, wanted, view)
  if ok then return code end
  if type(code) == "table" then return 1, code.redis end
  return fail(view, "%s", tostring(code))
end

return M
