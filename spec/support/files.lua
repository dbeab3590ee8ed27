-- Files and directories of a spec: everything goes into temporary directories, which are removed when the
-- run that made them ends. Paths are short, since Unix sockets live in them.
local uv = require "luv"
local loop = require "spec.support.loop"

local M = {}

local given = {} -- ports that free_port has told of

local function remove_tree(path)
  local stat = uv.fs_lstat(path)
  if not stat then return end
  if stat.type ~= "directory" then return uv.fs_unlink(path) end
  local scan = uv.fs_scandir(path)
  local names = {}
  for name in function() return uv.fs_scandir_next(scan) end do names[#names + 1] = name end
  for _, name in ipairs(names) do remove_tree(path .. "/" .. name) end
  uv.fs_rmdir(path)
end

--- A new directory, removed with all in it at the end of the run.
-- @param base where (default: TMPDIR, or /tmp)
function M.tmpdir(base)
  local dir = assert(uv.fs_mkdtemp((base or os.getenv("TMPDIR") or "/tmp") .. "/tg-XXXXXX"))
  loop.on_end(function() remove_tree(dir) end)
  return dir
end

--- Writes a file; makes the directories above it.
function M.write_file(path, text)
  for at in path:gmatch("()/") do
    if at > 1 then uv.fs_mkdir(path:sub(1, at - 1), tonumber("755", 8)) end
  end
  local file = assert(io.open(path, "wb"))
  assert(file:write(text))
  assert(file:close())
  return path
end

function M.read_file(path)
  local file, err = io.open(path, "rb")
  if not file then return nil, err end
  local text = file:read("*a")
  file:close()
  return text
end

--- A port of 127.0.0.1 on which nobody listens now; never the same one twice in a spec.
function M.free_port()
  local port
  repeat
    local probe = uv.new_tcp()
    assert(probe:bind("127.0.0.1", 0))
    port = probe:getsockname().port
    loop.close(probe)
  until not given[port]
  given[port] = true
  return port
end

--- A port where nobody listens, and nobody will until the test ends: it is bound.
function M.dead_port()
  local holder = uv.new_tcp()
  assert(holder:bind("127.0.0.1", 0))
  loop.on_end(function() loop.close(holder) end)
  return holder:getsockname().port
end

return M
