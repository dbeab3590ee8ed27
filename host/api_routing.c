/* tg.routing: for the plugin that follows the routing version which operators publish. The master
 * compares what is reported with what the replica runs, and reloads where they differ. */
#include <math.h>

#include "api.h"

static const char F[] = "tg.routing.follow";

static void read_field(lua_State *L, const char *name, struct routing_report *r)
{
    lua_Number n = lua_tonumber(L, -1);
    size_t size;
    if (strcmp(name, "version") == 0) {
        if (lua_type(L, -1) != LUA_TNUMBER || !(n >= 0 && n < 9007199254740992.0 && n == floor(n)))
            luaL_error(L, "%s: version must be an integer from 0 to 2^53", F);
        r->known = true;
        r->version = (uint64_t)n;
    } else if (strcmp(name, "stale_after") == 0) {
        if (lua_type(L, -1) != LUA_TNUMBER || !(n > 0 && n <= 86400.0 * 366))
            luaL_error(
                L, "%s: stale_after must be a number of seconds, greater than 0 and at most a year",
                F);
        r->stale_ms = (uint64_t)ceil(n * 1000);
    } else if (strcmp(name, "policy") == 0) {
        if (lua_type(L, -1) != LUA_TSTRING)
            luaL_error(L, "%s: policy must be a string, not %s", F, luaL_typename(L, -1));
        r->policy.p = lua_tolstring(L, -1, &size);
        r->policy.n = size;
    } else {
        luaL_error(L, "%s: unknown field '%s'; there are: version, stale_after, policy", F, name);
    }
}

/* tg.routing.follow({ version = integer, stale_after = seconds, policy = string }) → true: tells
 * the gateway which routing version was published: 0 where none was; leave it out where that could
 * not be found out. Where it is not the version that the replica runs, the gateway reloads, once,
 * with the policy (JSON text) in the place of its own routes and plugins where one is given and
 * routing.source is "redis". To be called again and again: where nothing was confirmed for
 * stale_after seconds, /readyz and status say so. Does not wait. nil, err: "unavailable" where no
 * master runs (tollgate exec, check). */
static int routing_follow(lua_State *L)
{
    struct services *sv = api_generation(L)->sv;
    struct routing_report r = { 0 };
    if (!lua_istable(L, 1))
        return luaL_error(L, "%s: needs a table, not %s", F, luaL_typename(L, 1));
    lua_settop(L, 1);
    for (lua_pushnil(L); lua_next(L, 1) != 0; lua_pop(L, 1)) {
        if (lua_type(L, -2) != LUA_TSTRING)
            return luaL_error(L, "%s: the fields' names must be strings", F);
        read_field(L, lua_tostring(L, -2), &r);
    }
    if (sv->follow == NULL) {
        lua_pushnil(L);
        lua_pushliteral(L, "unavailable");
        return 2;
    }
    sv->follow(sv->follow_arg, &r);
    lua_pushboolean(L, 1);
    return 1;
}

/* tg.routing.version() → the routing version that the replica runs; 0 where that is not known, as
 * after a start. */
static int routing_version(lua_State *L)
{
    const uint64_t *version = api_generation(L)->sv->routing_version;
    lua_pushnumber(L, version != NULL ? (lua_Number)*version : 0);
    return 1;
}

void api_open_routing(lua_State *L)
{
    static const luaL_Reg functions[] = { { "follow", routing_follow },
                                          { "version", routing_version },
                                          { NULL, NULL } };
    lua_newtable(L);
    luaL_register(L, NULL, functions);
    lua_setfield(L, -2, "routing");
}
