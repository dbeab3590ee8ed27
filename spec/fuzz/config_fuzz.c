/* Configuration files, through the sandbox and the schema: each gives a configuration or faults
 * that name a place, nothing raises, and no fault repeats a value of `env`. Lines of Lua count as
 * coverage. What a file may use is bounded here as the trial of a configuration bounds it: memory,
 * and steps in the place of time. */
#include <lauxlib.h>
#include <lua.h>
#include <lualib.h>

#include "fuzz.h"

enum { STEPS = 300000, COUNTERS = 1 << 14, MEMORY = 64 << 20 };

__attribute__((section("__libfuzzer_extra_counters"))) static uint8_t counters[COUNTERS];

static lua_State *L;
static int steps;
static size_t memory;

static const char driver[] =
    "local dir = ...\n"
    "table.insert(package.loaders, 2, function(name)\n"
    "  local file = name:match('^tollgate%.([%w_]+)$')\n"
    "  return file and assert(loadfile(dir .. '/host/lua/' .. file .. '.lua'))\n"
    "end)\n"
    "jit.off()\n"
    "local config = require 'tollgate.config'\n"
    "local SECRET = 's3cr3t-of-the-environment'\n"
    "local host = { env = function() return SECRET end, policy = function() end,\n"
    "  json = { decode = function() end } }\n"
    "return function(source)\n"
    "  function host.read(path)\n"
    "    if path == 'gateway.lua' then return source end\n"
    "    return nil, 'no such file'\n"
    "  end\n"
    "  local loaded, faults = config.load('gateway.lua', host)\n"
    "  if loaded then return end\n"
    "  assert(#faults > 0, 'neither a configuration nor a fault')\n"
    "  for _, fault in ipairs(faults) do\n"
    "    assert(type(fault.path) == 'string', 'a fault without a place')\n"
    "    assert(type(fault.message) == 'string', 'a fault without a message')\n"
    "    local text = config.format(fault)\n"
    "    assert(source:find(SECRET, 1, true) or not text:find(SECRET, 1, true), 'a secret in ' .. "
    "text)\n"
    "  end\n"
    "end\n";

static void *allocate(void *arg, void *p, size_t old, size_t n)
{
    (void)arg;
    if (n > old && memory + (n - old) > MEMORY)
        return NULL;
    memory += n - old;
    if (n == 0) {
        free(p);
        return NULL;
    }
    return realloc(p, n);
}

static void on_line(lua_State *state, lua_Debug *d)
{
    lua_getinfo(state, "S", d);
    unsigned h = (unsigned)d->currentline;
    for (const char *p = d->short_src; *p != '\0'; p++)
        h = h * 31 + (unsigned char)*p;
    if (strcmp(d->short_src, "config") != 0 && counters[h % COUNTERS] < 255)
        counters[h % COUNTERS]++;
    if (++steps > STEPS)
        luaL_error(state, "too many steps");
}

static void open_state(void)
{
    L = lua_newstate(allocate, NULL);
    CHECK(L != NULL);
    luaL_openlibs(L);
    CHECK(luaL_loadbuffer(L, driver, sizeof driver - 1, "driver") == 0);
    lua_pushstring(L, TOLLGATE_SOURCE_DIR);
    if (lua_pcall(L, 1, 1, 0) != 0) {
        fprintf(stderr, "%s\n", lua_tostring(L, -1));
        abort();
    }
    lua_sethook(L, on_line, LUA_MASKLINE, 0);
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t n)
{
    if (L == NULL)
        open_state();
    steps = 0;
    lua_pushvalue(L, 1);
    lua_pushlstring(L, (const char *)bytes, n);
    int status = lua_pcall(L, 1, 0, 0);
    bool bounded = status == LUA_ERRMEM || steps > STEPS;
    if (status != 0 && !bounded) {
        fprintf(stderr, "does not hold: %s\n", lua_tostring(L, -1));
        abort();
    }
    lua_settop(L, 1);
    if (status != 0 || memory > MEMORY / 2) { /* begins anew */
        lua_close(L);
        L = NULL;
    }
    return 0;
}
