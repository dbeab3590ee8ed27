/* tg.redis: commands on the worker's connection, which all requests share. See api_redis.h for what
 * its other files do. */
#include "api_redis.h"

/* tg.redis.call(command, …) → reply; or tg.redis.call{ command, …, timeout = seconds } → reply.
 * Waits, for the configured redis.timeout where none is named. Arguments are strings and
 * numbers. Replies: text is a string, an integer a number (beyond 2^53: a string, exact), a list
 * a table in which nil is false and an error is { err = text }, nil is nil. nil, err: "timeout"
 * (sent, no reply in time), "closed" (sent, the connection was lost: outcome unknown), "down"
 * (not sent), or Redis's own error text, such as "WRONGTYPE Operation against a key …". */
static int redis_call(lua_State *L)
{
    return api_redis_command(L, 1, "tg.redis.call", NULL);
}

/* tg.redis.pipeline({ { command, … }, … }, { timeout = seconds } or nil) → list of replies, in
 * order, as of tg.redis.call; nil is false, and an error of Redis { err = text }: the commands
 * behind it ran all the same. Sent in one write; at most 10,000 commands. Waits. nil, err where
 * not all replies came: "timeout", "closed" (some may have run), "down" (none was sent). */
static int redis_pipeline(lua_State *L)
{
    return api_redis_pipeline(L, 1, "tg.redis.pipeline", NULL);
}

void api_open_redis(lua_State *L)
{
    static const luaL_Reg functions[] = { { "call", redis_call },
                                          { "pipeline", redis_pipeline },
                                          { NULL, NULL } };
    lua_newtable(L);
    luaL_register(L, NULL, functions);
    api_redis_open_script(L);
    api_redis_open_conn(L);
    api_redis_open_subscribe(L);
    api_redis_open_key(L);
    lua_setfield(L, -2, "redis");
}
