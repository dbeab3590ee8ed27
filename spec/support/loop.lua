-- Coroutines on the luv loop, for specs. A test body runs in a coroutine, and what waits (a read, a
-- process, a timer) yields it, so that client, origin and gateway are written as straight code in one file.
--
-- A run is one test body with all that it spawned. An error in any of its coroutines ends the run at once
-- and fails the test with that coroutine's traceback; so does a run that takes longer than its limit. What
-- a run started is ended at its end, last started first, also when it failed (`on_end`).
local ffi = require "ffi"
local uv = require "luv"

-- A write to a connection that the gateway has ended is an error to look at, not the end of the test process. (Children
-- get the default back: libuv sees to that.)
ffi.cdef "void (*signal(int signum, void (*handler)(int)))(int);"
ffi.C.signal(13, ffi.cast("void (*)(int)", 1)) -- SIGPIPE, SIG_IGN

local M = { limit_ms = 30000 }

local active          -- the run in progress
local tasks = {}      -- coroutine → true, of all runs (what a shared scope started outlives a run)

local function pack(...) return { n = select("#", ...), ... } end

-- The first line of the spec itself in a traceback; busted would otherwise name this file.
local function place(trace)
  for line in trace:gmatch("[^\n]+") do
    local where = line:match("([%w_%-%./]*_spec%.lua:%d+):")
    if where then return where .. ": " end
  end
  return ""
end

local function with_trace(text, trace)
  return (text:match("^[^\n]-_spec%.lua:%d+: ") and "" or place(trace)) .. text .. "\n" .. trace
end

-- Keeps luassert's failure objects, so that busted tells a failure from an error.
local function explain(err, trace)
  if type(err) ~= "table" then return with_trace(tostring(err), trace) end
  if type(err.message) == "string" then err.message = with_trace(err.message, trace) end
  return err
end

local function fail(err, co)
  if not active or active.failed then return end
  active.failed = true
  active.err = explain(err, co and debug.traceback(co) or debug.traceback())
end

local function step(co, ...)
  local ok, err = coroutine.resume(co, ...)
  if coroutine.status(co) == "dead" then tasks[co] = nil end
  if not ok then fail(err, co) end
end

--- A function for luv to call: an error inside fails the test (luv itself would end the process).
function M.callback(fn)
  return function(...)
    local ok, err = xpcall(fn, function(e) return { e = e, trace = debug.traceback() } end, ...)
    if ok or not active or active.failed then return end
    active.failed, active.err = true, explain(err.e, err.trace)
  end
end

--- Closes a luv handle once.
function M.close(handle, on_closed)
  if handle and not handle:is_closing() then handle:close(on_closed) end
end

--- Suspends the coroutine until the function that `start` receives is called; returns its arguments.
-- @param start function(resume)
-- @param limit_ms after so many milliseconds returns nil, "timeout" (default: never)
function M.wait(start, limit_ms)
  local co = assert(coroutine.running(), "what waits needs support.async around the test body")
  local results, waiting, timer
  local function resume(...)
    if results then return end
    results = pack(...)
    M.close(timer)
    if waiting then step(co) end
  end
  start(resume)
  if not results and limit_ms then
    timer = uv.new_timer()
    timer:start(limit_ms, 0, function() resume(nil, "timeout") end)
  end
  if not results then
    waiting = true
    coroutine.yield()
  end
  return unpack(results, 1, results.n)
end

function M.sleep(ms)
  M.wait(function() end, ms)
end

local Task = {}
Task.__index = Task

--- Waits for the end of a spawned function and returns what it returned.
function Task:join(limit_ms)
  if not self.results then
    local _, err = M.wait(function(resume) self.joiners[#self.joiners + 1] = resume end, limit_ms)
    if err then error("join: " .. err, 2) end
  end
  return unpack(self.results, 1, self.results.n)
end

--- Runs a function in a coroutine of its own, at once until it first waits.
-- @return a handle with :join() and .done
function M.spawn(fn, ...)
  local task = setmetatable({ joiners = {}, done = false }, Task)
  local co = coroutine.create(function(...)
    local results = pack(fn(...))
    task.results, task.done = results, true
    for _, resume in ipairs(task.joiners) do resume() end
  end)
  tasks[co] = true
  step(co, ...)
  return task
end

--- Runs functions side by side; returns the list of their first results, in order.
function M.all(fns)
  local handles, results = {}, {}
  for i, fn in ipairs(fns) do handles[i] = M.spawn(fn) end
  for i, task in ipairs(handles) do results[i] = task:join() end
  return results
end

--- Polls until condition() is truthy and returns that value; raises after limit_ms (default 5000).
-- @param what text for the error
function M.wait_for(condition, what, limit_ms)
  local deadline = uv.hrtime() + (limit_ms or 5000) * 1e6
  while true do
    local value = condition()
    if value then return value end
    if uv.hrtime() > deadline then
      error(("waited %d ms in vain for %s"):format(limit_ms or 5000, what or "a condition"), 2)
    end
    M.sleep(3)
  end
end

--- The scope in which a thing is started now: the run, or the shared scope that is being set up.
function M.scope()
  return assert(active, "outside of support.async").cleanups
end

--- Calls fn(failed) when the scope (default: the present one) ends. fn may wait.
function M.on_end(fn, scope)
  scope = scope or M.scope()
  scope[#scope + 1] = fn
end

local function turn_until(done)
  while not done() do uv.run("once") end
end

local function with_limit(ms, what, fn)
  local finished = false
  local timer = uv.new_timer()
  timer:start(ms, 0, function()
    finished = true
    local traces = { what .. (" took more than %d ms; its coroutines:"):format(ms) }
    for co in pairs(tasks) do traces[#traces + 1] = debug.traceback(co) end
    fail(table.concat(traces, "\n"))
  end)
  M.spawn(function()
    fn()
    finished = true
  end)
  turn_until(function() return finished or active.failed end)
  M.close(timer)
end

local function clean(run)
  for i = #run.cleanups, 1, -1 do
    local cleanup = table.remove(run.cleanups, i)
    local before, err = run.failed, run.err
    run.failed = false
    with_limit(M.limit_ms, "cleaning up", function() cleanup(before) end)
    if before then run.failed, run.err = before, err end
  end
  uv.run("nowait")
end

local function begin(cleanups)
  assert(not active, "support.run does not nest")
  active = { cleanups = cleanups or {} }
  return active
end

local function finish(run)
  active = nil
  if run.failed then error(run.err, 0) end
end

--- Runs fn to its end on the loop; raises what it, or a coroutine that it spawned, raised.
function M.run(fn, limit_ms)
  local run = begin()
  with_limit(limit_ms or M.limit_ms, "the test", fn)
  clean(run)
  finish(run)
end

--- `it("does x", support.async(function() … end))`
function M.async(fn, limit_ms)
  return function() M.run(fn, limit_ms) end
end

--- What all tests of a block share: returns two functions, for setup() and teardown().
function M.shared(fn)
  local cleanups = {}
  return function()
    local run = begin(cleanups)
    with_limit(M.limit_ms, "setup", fn)
    if run.failed then clean(run) end
    finish(run)
  end, function()
    local run = begin(cleanups)
    clean(run)
    finish(run)
  end
end

return M
