-- The busted output handler of scripts/test (and of plain busted here): one line a test, a failure whole
-- and at once. Where TOLLGATE_RESULTS names a file, it keeps "passed failed skipped state" there after every
-- test; state is "open" until the suite has ended, so that a crash is seen as one whatever the exit code.
return function(options)
  local busted = require "busted"
  local handler = require "busted.outputHandlers.base"()
  local path = os.getenv "TOLLGATE_RESULTS"
  local count = { success = 0, failed = 0, pending = 0 }

  local function save(state)
    if not path then return end
    local file = assert(io.open(path, "w"))
    file:write(("%d %d %d %s\n"):format(count.success, count.failed, count.pending, state))
    file:close()
  end

  local function describe(entry)
    local text = tostring(entry.message or "no message")
    local trace = entry.trace and entry.trace.traceback
    -- What ran in a coroutine of the support library brings its own.
    if options.verbose and trace and not text:find("stack traceback:", 1, true) then text = text .. "\n" .. trace end
    return (text:gsub("\n", "\n       "))
  end

  local function line(mark, name, more)
    io.write(("%-4s %s%s\n"):format(mark, name, more or ""))
    io.flush()
  end

  function handler.suiteStart()
    save "open"
    return nil, true
  end

  function handler.testEnd(element, _, status)
    local name = handler.getFullName(element)
    if status == "success" or status == "pending" then
      count[status] = count[status] + 1
      line(status == "success" and "ok" or "skip", name, (" (%d ms)"):format((element.duration or 0) * 1000))
    else
      count.failed = count.failed + 1
      local entries = status == "failure" and handler.failures or handler.errors
      line("FAIL", name, "\n       " .. describe(entries[#entries]))
    end
    save "open"
    return nil, true
  end

  -- Outside of a test: a file that does not load, a setup or teardown that raises.
  function handler.error(element)
    if element.descriptor == "it" then return nil, true end
    count.failed = count.failed + 1
    line("FAIL", handler.getFullName(element), "\n       " .. describe(handler.errors[#handler.errors]))
    save "open"
    return nil, true
  end

  function handler.suiteEnd()
    line("", ("%d passed, %d failed, %d skipped"):format(count.success, count.failed, count.pending))
    save "ended"
    return nil, true
  end

  busted.subscribe({ "suite", "start" }, handler.suiteStart)
  busted.subscribe({ "suite", "end" }, handler.suiteEnd)
  busted.subscribe({ "test", "end" }, handler.testEnd, { predicate = handler.cancelOnPending })
  busted.subscribe({ "error" }, handler.error)
  return handler
end
