-- `luacheck .` checks every Lua file of the tree; scripts/test runs it as one test.
std = "luajit"
max_line_length = 130
unused_args = false
codes = true
exclude_files = { "build/**" }

files["spec"] = { std = "luajit+busted" }
-- A configuration sees these two functions and nothing else of the host.
files["**/gateway.lua"] = { read_globals = { "env", "file" } }
files["spec/support/gateway.lua"] = { std = "luajit" }
local redis_script = { std = "lua51", read_globals = { "redis", "cjson", "cmsgpack", "struct", "bit", "KEYS", "ARGV" } }
files["scripts/redis"] = redis_script
files["plugins/breaker/announce.lua"] = redis_script
files["plugins/webhook/invalidate.lua"] = redis_script
files["plugins/cache/fill.lua"] = redis_script
files["plugins/ratelimit/count.lua"] = redis_script
for _, name in ipairs { "claim", "hold", "store" } do files["plugins/idempotency/" .. name .. ".lua"] = redis_script end
-- Runs in nginx's Lua module.
files["scripts/bench.d/quota.lua"] = { globals = { "ngx" } }
-- The runtime replaces these for the code that it runs.
files["host/lua/exec.lua"] = { globals = { "os" } }
files["host/lua/iteration.lua"] = { globals = { "next", "pairs" } }
files["host/lua/runtime.lua"] = { globals = { "coroutine" } }
