-- Runs a person's Lua file, or busted, inside a coroutine of the host, so that tg.redis, tg.timer and the rest
-- wait as they do in a plugin. os.exit ends the run and not the process: what is left open afterwards is still
-- looked for.

local M = {}

local exit_mark = {}

local function replace_exit()
  function os.exit(code)
    if code == nil or code == true then
      code = 0
    elseif code == false then
      code = 1
    end
    error(setmetatable({ code = tonumber(code) or 1 }, exit_mark), 0)
  end
end

local function handler(err)
  if type(err) == "table" and getmetatable(err) == exit_mark then
    return err
  end
  local text = type(err) == "table" and not (getmetatable(err) or {}).__tostring and "error object of type table"
    or tostring(err)
  return debug.traceback(text, 2)
end

-- The exit code of a protected call; what it raised goes to stderr.
local function code_of(ok, err)
  if ok then
    return 0
  end
  if type(err) == "table" and getmetatable(err) == exit_mark then
    return err.code
  end
  io.stderr:write(tostring(err), "\n")
  return 1
end

local function set_arg(name, args)
  local list = { [0] = name }
  for i, value in ipairs(args) do
    list[i] = value
  end
  rawset(_G, "arg", list)
end

--- Runs a file with arguments, as `lua FILE args` does.
-- @tparam string path
-- @tparam {string,...} args also at hand as `arg` and `...`
-- @treturn integer exit code
function M.file(path, args)
  replace_exit()
  set_arg(path, args)
  local chunk, err = loadfile(path)
  if not chunk then
    io.stderr:write(err, "\n")
    return 1
  end
  return code_of(xpcall(function()
    return chunk(unpack(args))
  end, handler))
end

--- Runs busted with its own command line.
-- @tparam {string,...} args
-- @treturn integer exit code: 0, or 1 where a spec failed or busted could not run
function M.test(args)
  replace_exit()
  set_arg("tollgate test", args)
  if not pcall(require, "busted.core") then
    io.stderr:write("tollgate test: busted is not installed (Debian: lua-busted)\n")
    return 1
  end
  -- The chunk's name is what busted calls itself.
  local run = assert(loadstring("require 'busted.runner' { standalone = false }", "@tollgate test"))
  local failed = false
  local ok, err = xpcall(run, function(raised)
    failed = raised == nil -- how busted leaves on Lua 5.1 where a spec failed
    return handler(raised)
  end)
  if failed then
    return 1
  end
  return code_of(ok, err)
end

return M
