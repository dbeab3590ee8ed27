/* See api.h: the module table, and what is too small for a file of its own. */
#include "api.h"

#include <string.h>

#include "log.h"
#include "zone.h"

struct generation *api_generation(lua_State *L)
{
    lua_getfield(L, LUA_REGISTRYINDEX, "tollgate.generation");
    struct generation *g = lua_touserdata(L, -1);
    lua_pop(L, 1);
    return g;
}

/* tg.now() → seconds since the epoch, with a fraction. */
static int tg_now(lua_State *L)
{
    lua_pushnumber(L, (lua_Number)loop_wall_ms() / 1000);
    return 1;
}

/* tg.monotonic() → seconds, with a fraction, of a clock that is never set, so that two of its times
 * may be compared; the same in all workers of this machine, since it was started. */
static int tg_monotonic(lua_State *L)
{
    lua_pushnumber(L, (lua_Number)zone_now() / 1000);
    return 1;
}

/* tg.replica() → string: the name of this replica, which its workers share and no other one has:
 * the host's name, a dash, and random digits. It lives as long as the gateway, through reloads and
 * upgrades; in tollgate exec it is the process's own. */
static int tg_replica(lua_State *L)
{
    const struct services *sv = api_generation(L)->sv;
    static char own[ZONE_REPLICA];
    if (sv->replica == NULL && own[0] == '\0')
        zone_name_replica(own);
    lua_pushstring(L, sv->replica != NULL ? sv->replica : own);
    return 1;
}

/* The id of the request whose plugin runs, or NULL. */
static const char *request_id(lua_State *L)
{
    struct task *t = api_generation(L)->tasks.current;
    return t != NULL ? task_tag(t) : NULL;
}

static int log_at(lua_State *L, enum log_level level)
{
    luaL_Buffer b;
    int n = lua_gettop(L);
    if (!log_enabled(level))
        return 0;
    luaL_buffinit(L, &b);
    for (int i = 1; i <= n; i++) {
        lua_getglobal(L, "tostring");
        lua_pushvalue(L, i);
        lua_call(L, 1, 1);
        luaL_addvalue(&b);
    }
    luaL_pushresult(&b);
    log_write(level, request_id(L), "%s", lua_tostring(L, -1));
    return 0;
}

/* tg.log.debug|info|warn|error(…): the values as text, joined, with the request's id. */
static int log_debug_(lua_State *L)
{
    return log_at(L, LOG_DEBUG);
}

static int log_info_(lua_State *L)
{
    return log_at(L, LOG_INFO);
}

static int log_warn_(lua_State *L)
{
    return log_at(L, LOG_WARN);
}

static int log_error_(lua_State *L)
{
    return log_at(L, LOG_ERROR);
}

static const luaL_Reg log_functions[] = { { "debug", log_debug_ },
                                          { "info", log_info_ },
                                          { "warn", log_warn_ },
                                          { "error", log_error_ },
                                          { NULL, NULL } };

void api_open(struct generation *g)
{
    lua_State *L = g->L;
    lua_pushlightuserdata(L, g);
    lua_setfield(L, LUA_REGISTRYINDEX, "tollgate.generation");
    lua_newtable(L);
    lua_pushcfunction(L, tg_now);
    lua_setfield(L, -2, "now");
    lua_pushcfunction(L, tg_monotonic);
    lua_setfield(L, -2, "monotonic");
    lua_pushcfunction(L, tg_replica);
    lua_setfield(L, -2, "replica");
    /* tg.version: the gateway's own, as text. */
    lua_pushliteral(L, TOLLGATE_VERSION);
    lua_setfield(L, -2, "version");
    lua_newtable(L);
    luaL_register(L, NULL, log_functions);
    lua_setfield(L, -2, "log");
    api_open_ctx(L);
    api_open_timer(L);
    api_open_routing(L);
    api_open_quota(L);
    api_open_llm(L);
    api_open_keys(L);
    api_open_redis(L);
    api_open_metrics(L);
    api_open_json(L);
    api_open_body(L);
    api_open_http(L);
    api_open_shared(L);
    api_open_crypto(L);
    api_open_sse(L);
    api_open_condition(L);
    lua_getglobal(L, "package");
    lua_getfield(L, -1, "loaded");
    lua_pushvalue(L, -3);
    lua_setfield(L, -2, "tollgate");
    lua_pop(L, 3);
}
