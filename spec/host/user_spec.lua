-- The configuration's user: who runs what, with which rights, whose the files are, and that reload, upgrade and restart
-- work without root's. Core dumps besides. It takes root to show.
local uv = require "luv"
local support = require "spec.support"
local async = support.async

local USER, UID = "nobody", 65534

local root = uv.getuid() == 0
local it = root and it or pending -- luacheck: ignore

-- A folder that everybody may enter: others of specs, and those around them, are root's alone.
local function folder()
  local dir = support.tmpdir("/tmp")
  assert(uv.fs_chmod(dir, tonumber("755", 8)))
  return dir
end

local plugins = { ["plugins/who.lua"] = [[
  local status = io.open("/proc/self/status"):read("*a")
  local uid = status:match("Uid:%s*(%d+)")
  return { version = "1", schema = {}, access = function() return 200, uid end }
]] }

local function start(config, dir)
  local all = { user = USER, workers = 2, routes = { { name = "a", path = "/*", plugins = { who = {} } } } }
  for key, value in pairs(config or {}) do all[key] = value end
  all.user = all.user or nil
  return support.gateway { config = all, files = plugins, dir = dir or folder() }
end

local function status_of(pid)
  local out = {}
  for name, value in support.read_file("/proc/" .. pid .. "/status"):gmatch("(%w+):[ \t]*([^\n]*)") do out[name] = value end
  return out
end

local function children(pid)
  local list = {}
  for child in support.read_file(("/proc/%d/task/%d/children"):format(pid, pid)):gmatch("%d+") do
    list[#list + 1] = tonumber(child)
  end
  return list
end

local function is_bare(pid)
  local s = status_of(pid)
  assert.equal(("%d\t%d\t%d\t%d"):format(UID, UID, UID, UID), s.Uid)
  assert.equal("", (s.Groups:gsub("%s", "")))
  for _, set in ipairs { "CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb" } do
    assert.matches("^0+$", s[set], set .. " of " .. s.Name)
  end
  assert.equal("1", s.NoNewPrivs)
end

describe("user", function()
  it("runs master, workers and Redis, without any of root's rights", async(function()
    local gw = start()
    local names = {}
    is_bare(gw.pid)
    for _, pid in ipairs(children(gw.pid)) do
      is_bare(pid)
      names[#names + 1] = status_of(pid).Name
    end
    table.sort(names)
    assert.same({ "exe", "exe", "exe", "redis-server" }, names) -- two workers and the log writer, from the master's own image
    assert.equal(tostring(UID), gw:request({}).body)
    assert(gw.log():find("running as nobody", 1, true))
  end))

  it("loads plugins as that user, in the trial too", async(function()
    local dir = folder()
    local seen = dir .. "/seen"
    support.write_file(seen, "")
    uv.fs_chmod(seen, tonumber("666", 8))
    support.write_file(dir .. "/plugins/note.lua", ([[
      local f = io.open(%q, "a")
      f:write(io.open("/proc/self/status"):read("*a"):match("Uid:%%s*(%%d+)"), "\n")
      f:close()
      return { version = "1", schema = {}, access = function() return 200, "ok" end }
    ]]):format(seen))
    start({ plugin_path = { "plugins" }, routes = { { name = "a", path = "/", plugins = { note = {} } } } }, dir)
    local uids = support.read_file(seen)
    assert.equal("", (uids:gsub(UID .. "\n", "")))
    assert.is_true(#uids > 0)
  end))

  it("gets what root could bind, and files of its own", async(function()
    local dir = folder()
    local path = dir .. "/gw.sock"
    local gw
    for port = 901, 960 do
      local probe = uv.new_tcp()
      local free = probe:bind("127.0.0.1", port)
      probe:close()
      if free then
        gw = start({ listen = { "127.0.0.1:" .. port, "unix:" .. path } }, dir)
        break
      end
    end
    assert.equal(tostring(UID), gw:request({}).body)
    for _, name in ipairs { "data", "data/tollgate.pid", "data/admin.sock", "data/redis.sock", "data/lock", "gw.sock" } do
      assert.equal(UID, uv.fs_stat(dir .. "/" .. name).uid, name)
    end
    assert.equal(UID, uv.fs_lstat(path).uid)
  end))

  it("takes over data that root made", async(function()
    local dir = folder()
    local gw = start({ user = false }, dir)
    gw:stop()
    assert.equal(0, uv.fs_stat(dir .. "/data/appendonlydir").uid)
    support.write_file(dir .. "/data/other", "not ours")
    gw = start({}, dir)
    gw:wait_log("redis: usable")
    assert.equal(UID, uv.fs_stat(dir .. "/data/appendonlydir").uid)
    assert.equal(0, uv.fs_stat(dir .. "/data/other").uid)
  end))

  it("reloads, replaces workers and upgrades as that user", async(function()
    local gw = start()
    assert.equal(0, gw:command("reload").code)
    local before = gw:workers()
    uv.kill(before[1], "sigkill")
    support.wait_for(function()
      local now = gw:workers()
      return #now == 2 and now[1] ~= before[1] and now[2] ~= before[1]
    end, "the new worker", 10000)
    before = gw:workers()
    assert.equal(0, gw:command("upgrade").code)
    support.wait_for(function()
      local now = gw:workers()
      for _, pid in ipairs(now) do if pid == before[1] or pid == before[2] then return false end end
      return #now == 2
    end, "the new workers", 20000)
    is_bare(gw.pid)
    for _, pid in ipairs(gw:workers()) do is_bare(pid) end
    assert.equal(tostring(UID), gw:request({}).body)
    gw:write("gateway.lua", (support.read_file(gw.dir .. "/gateway.lua"):gsub('"nobody"', '"daemon"')))
    local res = gw:command("reload") -- a change takes a restart
    assert.equal(1, res.code)
    assert((res.out .. res.err):find("user: only root can become another user", 1, true), res.out .. res.err)
    assert.equal(tostring(UID), gw:request({}).body)
  end))

  it("is refused where it cannot be", async(function()
    local function fails(user, message, runner)
      local dir = folder()
      support.write_file(dir .. "/gateway.lua",
        ('return { user = %q, data_dir = %q, listen = "127.0.0.1:0", admin = false, routes = { { name = "a", path = "/" } } }')
          :format(user, dir .. "/data"))
      local args = { "run", "-c", dir .. "/gateway.lua" }
      local res
      if runner then
        local all = { unpack(runner, 2) }
        for _, arg in ipairs { os.getenv("TOLLGATE_BIN") or "build/dev/tollgate", unpack(args) } do all[#all + 1] = arg end
        res = support.exec { cmd = runner[1], args = all }
      else
        res = support.tollgate(args)
      end
      assert.equal(1, res.code)
      assert((res.out .. res.err):find(message, 1, true), res.out .. res.err)
    end
    fails("no-such-user", "user: there is no user no-such-user")
    fails("nobody:no-such-group", "user: there is no group no-such-group")
    fails("root", "user: this is root: root")
    fails("0:0", "user: this is root: 0")
    fails("54321", "user: a number without an account needs a group: 54321")
    fails("a b", 'user: must be "name" or "name:group"')
    fails("daemon", "user: only root can become another user",
      { "setpriv", "--reuid=65534", "--regid=65534", "--clear-groups" })
  end))

  it("may be a number, with a group", async(function()
    local gw = start { user = "54321:54322", redis = "redis://127.0.0.1:1" }
    local s = status_of(gw.pid)
    assert.matches("^54321\t", s.Uid)
    assert.matches("^54322\t", s.Gid)
    assert.equal("54321", gw:request({}).body)
  end))

  it("has to be able to read what a reload reads", async(function()
    local dir = folder()
    support.write_file(dir .. "/gateway.lua",
      ('return { user = "nobody", data_dir = %q, admin = false, routes = { { name = "a", path = "/" } } }')
        :format(dir .. "/data"))
    uv.fs_chmod(dir .. "/gateway.lua", tonumber("600", 8))
    local res = support.tollgate { "run", "-c", dir .. "/gateway.lua" }
    assert.equal(1, res.code)
    assert((res.out .. res.err):find("user: it cannot read " .. dir .. "/gateway.lua, which a reload has to", 1, true), res.err)
  end))
end)

describe("core dumps", function()
  local function look(pid)
    local limits = support.read_file("/proc/" .. pid .. "/limits")
    return limits:match("Max core file size%s+(%d+)") == "0", uv.fs_stat("/proc/" .. pid .. "/environ").uid
  end

  it("are off in every process that holds secrets", async(function()
    local gw = start()
    for _, pid in ipairs { gw.pid, unpack(gw:workers()) } do
      local off, owner = look(pid)
      assert.is_true(off)
      assert.equal(0, owner) -- so the kernel shows a process that may not be dumped
    end
    gw:stop()
    gw = start { core_dumps = true }
    for _, pid in ipairs { gw.pid, unpack(gw:workers()) } do
      local _, owner = look(pid)
      assert.equal(UID, owner)
    end
  end))
end)
