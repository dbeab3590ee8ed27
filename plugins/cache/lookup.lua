-- The way of a request through a cache: look, and where nothing is there lead a flight or follow one; and what becomes of
-- the origin's answer. What is looked up, answered and kept is said by `ask`, which exact.lua and resource.lua make:
--
--   key            in Redis
--   look()         text, ms left, error: reads it
--   flight_key()   which requests are the same
--   answer(text, of)  status, body, headers of a hit; nil where the text is none
--   storable(response)  whether the origin's answer, by its head, is one to keep
--   text(ctx)      what is to be kept of it, once it is complete; or nil
--   put(text)      keeps it: "stored", or why not
--   ttl, refresh (do not look), only_if_cached, max_age

local tg = require "tollgate"
local control = require "cache.control"
local store = require "cache.store"

local M = {}

local LABELS = { "route", "outcome" }
local requests_total = tg.metrics.counter("cache_requests_total", "Requests by what the cache did for them", LABELS)
local fills_total = tg.metrics.counter("cache_fills_total", "Answers of origins by what became of them", LABELS)

local follows_total = tg.metrics.counter("cache_follows_total", "Requests that waited for another one's answer", { "route" })

local function count(ctx, outcome)
  requests_total:inc(1, ctx.route.name, outcome)
end

local function add_status(ctx, of)
  local headers = ctx.response.headers
  headers["cache-status"] = control.status(of, headers["cache-status"])
end

--- Lets a request pass, unseen by the cache. Its answer says so.
-- @tparam table self
-- @tparam table ctx
-- @tparam string fwd why, as RFC 9211 has it: "bypass", "request", "method"
-- @tparam string|nil detail
function M.bypass(self, ctx, fwd, detail)
  count(ctx, "bypass")
  ctx.cache = { owner = self, status = { fwd = fwd, detail = detail } }
end

--- Refuses a request that may not have what it asks for.
function M.deny(self, ctx, ...)
  count(ctx, "denied")
  ctx.cache = { owner = self, status = { fwd = "request" } }
  return ctx:refusal(403, ...)
end

local function hit(ctx, ask, state, text, left)
  local ttl = left >= 0 and left / 1000 or ask.ttl
  local status, body, headers = ask:answer(text)
  if not status then return nil end
  count(ctx, "hit")
  headers.age = ("%d"):format(control.age(ask.ttl, ttl * 1000))
  ctx.cache = { owner = state.owner, status = { hit = true, ttl = math.floor(ttl) } }
  return status, body, headers
end

local function collapsed(ctx, ask, state, text)
  local status, body, headers = ask:answer(text)
  if not status then return nil end
  count(ctx, "collapsed")
  ctx.cache = { owner = state.owner, status = { fwd = "miss", collapsed = true } }
  return status, body, headers
end

-- Looks once. True where the request is answered.
local function look(ctx, ask, state)
  if ask.refresh or state.blind then return false end
  local text, left, err = ask:look()
  if err then
    state.blind, state.err = true, err
    return false
  end
  if not text then return false end
  if ask.max_age and control.age(ask.ttl, left >= 0 and left or ask.ttl * 1000) > ask.max_age then
    ask.refresh = true
    return false
  end
  state.answer = { hit(ctx, ask, state, text, left) }
  if state.answer[1] then return true, text end
  ask.refresh = true -- what is there is no answer: it is replaced
  return false
end

-- The request goes to the origin.
local function forward(self, ctx, ask, state)
  count(ctx, state.err and "error" or "miss")
  state.ask = ask
  state.status = { fwd = "miss", detail = state.err and "redis" or nil }
  if state.waited then state.status.collapsed = false end
  if ask.refresh and not state.waited then state.status.fwd = "request" end
  ctx.cache = state
  ctx.request.headers["accept-encoding"] = "identity" -- what is kept is not encoded
  ask:forward()
  local flight = state.flight
  if flight then
    flight.ctx = ctx
    flight.grown = self.conf.follow == "read_along" and ask.form and tg.condition() or nil
  end
  ctx:record(self.max_record, flight and flight.grown)
end

-- A body that is read along with a flight's answer. What cannot be had whole cuts it off.
local function along(flight)
  local offset = 0
  return function()
    while true do
      local piece
      if flight.whole then
        piece = flight.whole:sub(offset + 1)
        if piece == "" then return nil end
      else
        piece = not flight.broken and flight.ctx:recorded_from(offset)
        if not piece then error("the answer that this request read along with broke off", 0) end
      end
      offset = offset + #piece
      if piece ~= "" then return piece end
      flight.grown:wait(1)
    end
  end
end

local function read_along(ctx, ask, state, flight)
  count(ctx, "collapsed")
  ctx.cache = { owner = state.owner, status = { fwd = "miss", collapsed = true } }
  return 200, along(flight), ask:stream_headers()
end

-- The leader's request has ended: those who read along get the rest.
local function end_along(ctx, flight)
  if not flight or not flight.grown then return end
  flight.whole = ctx:recorded()
  flight.broken = not flight.whole
  flight.grown:notify()
end

-- Whoever follows keeps the leader's origin, also where its client leaves.
local function keep_leader(self, flight)
  if not flight.ctx or flight.kept then return end
  flight.kept = pcall(flight.ctx.keep_origin, flight.ctx, self.conf.read_on, self.max_record)
end

-- Follows a flight. True where the request is answered; "alone" where it goes on without one.
local function follow(self, ctx, ask, state, flight)
  keep_leader(self, flight)
  if not state.waited then follows_total:inc(1, ctx.route.name) end
  state.waited = true
  state.until_ = state.until_ or tg.now() + self.conf.follow_timeout
  local form = self.conf.follow == "read_along" and ask.form or nil
  local outcome, text = self.flights:wait(flight, state.until_ - tg.now(), form)
  if outcome == "begun" then
    state.answer = { read_along(ctx, ask, state, flight) }
    return true
  end
  if outcome == "value" then
    state.answer = { collapsed(ctx, ask, state, text) }
    if state.answer[1] then return true end
    return "alone"
  end
  return outcome ~= "again" and "alone"
end

local function only_if_cached(self, ctx)
  count(ctx, "only_if_cached")
  ctx.cache = { owner = self, status = { fwd = "request" } }
  return ctx:refusal(504, "only_if_cached", "There is no stored answer, and the request asked for no other")
end

-- Whoever led before may have brought it between the look and the lead.
local function lead(self, ctx, ask, state, flight)
  state.flight, ctx.cache = flight, state -- now: the client may leave while this waits
  local found, text = look(ctx, ask, state)
  if not found then return forward(self, ctx, ask, state) end
  self.flights:finish(flight, "value", text)
  return unpack(state.answer, 1, 3)
end

--- Answers a request from the cache, or lets it go on to its origin.
-- @tparam table self conf, flights, max_record
-- @tparam table ctx
-- @tparam table ask
-- @return what access returns
function M.access(self, ctx, ask)
  local state = { owner = self }
  while true do
    if look(ctx, ask, state) then return unpack(state.answer, 1, 3) end
    if ask.only_if_cached then return only_if_cached(self, ctx) end
    if ask.refresh or self.conf.follow == "off" then return forward(self, ctx, ask, state) end
    local role, flight = self.flights:join(ask:flight_key(), ctx.id)
    if role == "pass" then return forward(self, ctx, ask, state) end
    if role == "lead" then return lead(self, ctx, ask, state, flight) end
    local done = follow(self, ctx, ask, state, flight)
    if done == "alone" then return forward(self, ctx, ask, state) end
    if done then return unpack(state.answer, 1, 3) end
  end
end

-- Why an answer is not to be kept, by its head; nil where it is. `passes`: nor will the next one be.
local function unfit(ctx, state)
  local response = ctx.response
  if response.source ~= "origin" then return "none", false end
  if response.status >= 500 then return "status", false end
  if response.status ~= 200 then return "status", true end
  if response.headers["content-encoding"] and response.headers["content-encoding"]:lower() ~= "identity" then
    return "encoded", true
  end
  if not state.ask:storable(response) then return "forbidden", true end
  return nil
end

--- The head of the answer is there.
function M.response(self, ctx)
  local state = ctx.cache
  if not state or not state.status then return end
  if state.ask then
    local why, passes = unfit(ctx, state)
    state.why = why
    if why then
      if why ~= "none" then fills_total:inc(1, ctx.route.name, why) end
      if state.flight then self.flights:finish(state.flight, passes and "pass" or "again") end
    else
      if not state.err and store.has_room(self.conf) then
        state.status.stored = true
        state.status.ttl = math.floor(state.ask.ttl)
      end
      local flight = state.flight
      if flight and flight.grown and state.ask.came_as_stream then self.flights:begin(flight, state.ask.form) end
    end
  end
  add_status(ctx, state.status)
end

-- Keeps an answer that has come whole; the outcome.
local function keep(self, ctx, state, text)
  if state.err then return "error" end
  if #text > self.conf.max_size then return "too_large" end
  if not store.has_room(self.conf) then return "full" end
  local outcome, err = state.ask:put(text)
  if err then tg.log.warn("cache: an answer could not be kept: ", err) end
  return outcome
end

--- The request has ended: keeps the answer, and ends the flight.
function M.log(self, ctx)
  local state = ctx.cache
  if not state then return end
  local flight = state.flight
  end_along(ctx, flight)
  if not state.ask then return flight and self.flights:finish(flight, "again") end
  if state.why or not ctx.response then
    if flight then self.flights:finish(flight, "again") end
    return
  end
  local text, why = state.ask:text(ctx)
  if not text then
    fills_total:inc(1, ctx.route.name, why)
    -- One that broke off may come whole next time; one that cannot be kept will not.
    if flight then self.flights:finish(flight, why == "incomplete" and "again" or "pass") end
    return
  end
  if flight then self.flights:tell(flight, text) end
  fills_total:inc(1, ctx.route.name, keep(self, ctx, state, text))
  if flight then self.flights:finish(flight, "value") end
end

return M
