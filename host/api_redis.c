/* tg.redis: commands on the worker's connection. */
#include <string.h>

#include "api.h"
#include "mem.h"

enum { REDIS_ARGS_MAX = 1024 };

struct call {
    struct task *task; /* NULL once the wait was given up */
};

static void push_reply(lua_State *L, const redisReply *r)
{
    switch (r->type) {
    case REDIS_REPLY_INTEGER:
        lua_pushnumber(L, (lua_Number)r->integer);
        break;
    case REDIS_REPLY_STRING:
    case REDIS_REPLY_STATUS:
    case REDIS_REPLY_ERROR:
        lua_pushlstring(L, r->str, r->len);
        break;
    case REDIS_REPLY_ARRAY:
        lua_createtable(L, (int)r->elements, 0);
        luaL_checkstack(L, 4, "a reply is nested too deeply");
        for (size_t i = 0; i < r->elements; i++) {
            if (r->element[i]->type == REDIS_REPLY_NIL)
                lua_pushboolean(L, 0); /* as Redis's own Lua has it: a list has no holes */
            else
                push_reply(L, r->element[i]);
            lua_rawseti(L, -2, (int)i + 1);
        }
        break;
    default:
        lua_pushnil(L);
    }
}

static void on_reply(void *arg, redisReply *reply, enum rds_error err)
{
    static const char *const names[] = { "", "timeout", "closed", "down" };
    struct call *c = arg;
    struct task *task = c->task;
    mem_free(c);
    if (task == NULL)
        return;
    lua_State *co = task_lua(task);
    if (err != RDS_OK || reply->type == REDIS_REPLY_ERROR) {
        lua_pushnil(co);
        if (err != RDS_OK)
            lua_pushstring(co, names[err]);
        else
            push_reply(co, reply);
        task_resume(task, 2);
        return;
    }
    push_reply(co, reply);
    task_resume(task, 1);
}

static void on_cancel(void *arg)
{
    ((struct call *)arg)->task = NULL;
}

/* These wait on the server or change the connection, which all requests share. */
static bool forbidden(const char *name)
{
    static const char *const names[] = { "BLPOP", "BRPOP", "BLMOVE", "BLMPOP", "BRPOPLPUSH", "BZPOPMIN", "BZPOPMAX",
        "BZMPOP", "WAIT", "WAITAOF", "SUBSCRIBE", "PSUBSCRIBE", "SSUBSCRIBE", "UNSUBSCRIBE", "PUNSUBSCRIBE", "MONITOR",
        "MULTI", "EXEC", "DISCARD", "WATCH", "UNWATCH", "SELECT", "AUTH", "HELLO", "QUIT", "RESET", "CLIENT", "SYNC",
        "PSYNC", NULL };
    for (int i = 0; names[i] != NULL; i++) {
        if (strcasecmp(names[i], name) == 0)
            return true;
    }
    return false;
}

/* tg.redis.call(command, …) → reply, or nil and "timeout", "closed" (sent, outcome unknown), "down" (not sent) or Redis's
 * own error text. Waits. Integers are numbers, a nil inside a list is false. */
static int redis_call(lua_State *L)
{
    struct generation *g = api_generation(L);
    int n = lua_gettop(L);
    const char *name = luaL_checkstring(L, 1);
    luaL_argcheck(L, n <= REDIS_ARGS_MAX, n, "too many arguments");
    if (forbidden(name))
        return luaL_error(L, "tg.redis.call: %s waits or changes the shared connection's state", name);
    struct slice *argv = lua_newuserdata(L, (size_t)n * sizeof *argv);
    for (int i = 0; i < n; i++)
        argv[i].p = luaL_checklstring(L, i + 1, &argv[i].n);
    struct task *task = task_check(L, "tg.redis.call");
    if (g->sv->rds == NULL) {
        lua_pushnil(L);
        lua_pushliteral(L, "down");
        return 2;
    }
    struct call *c = mem_zalloc(sizeof *c);
    c->task = task;
    rds_command(g->sv->rds, n, argv, 0, on_reply, c);
    return task_wait(L, task, on_cancel, c);
}

void api_open_redis(lua_State *L)
{
    lua_createtable(L, 0, 1);
    lua_pushcfunction(L, redis_call);
    lua_setfield(L, -2, "call");
    lua_setfield(L, -2, "redis");
}
