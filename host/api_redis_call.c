/* Commands of tg.redis, on the shared connection and on borrowed ones. All arguments are looked
 * at before anything is sent; replies of a pipeline gather on the stack of the coroutine that
 * waits. */
#include <stdio.h>

#include "api_redis.h"
#include "mem.h"

static const long long EXACT = 1LL << 53;

/* --- replies --- */

static void push_reply(lua_State *L, const redisReply *r, bool inside);

static void push_list(lua_State *L, const redisReply *r)
{
    lua_createtable(L, (int)r->elements, 0);
    for (size_t i = 0; i < r->elements; i++) {
        push_reply(L, r->element[i], true);
        lua_rawseti(L, -2, (int)i + 1);
    }
}

/* Exactly: as text where a number could not hold it. */
static void push_integer(lua_State *L, long long v)
{
    char text[24];
    if (v >= -EXACT && v <= EXACT)
        lua_pushnumber(L, (lua_Number)v);
    else
        lua_pushlstring(L, text, (size_t)snprintf(text, sizeof text, "%lld", v));
}

static void push_reply(lua_State *L, const redisReply *r, bool inside)
{
    switch (r->type) {
    case REDIS_REPLY_INTEGER: push_integer(L, r->integer); break;
    case REDIS_REPLY_STRING:
    case REDIS_REPLY_STATUS: lua_pushlstring(L, r->str, (size_t)r->len); break;
    case REDIS_REPLY_ERROR:
        if (inside)
            lua_createtable(L, 0, 1);
        lua_pushlstring(L, r->str, (size_t)r->len);
        if (inside)
            lua_setfield(L, -2, "err");
        break;
    case REDIS_REPLY_ARRAY: push_list(L, r); break;
    default:
        if (inside) /* as Redis's own Lua has it: a list has no holes */
            lua_pushboolean(L, 0);
        else
            lua_pushnil(L);
    }
}

int api_redis_push_error(lua_State *L, const char *err)
{
    lua_pushnil(L);
    lua_pushstring(L, err);
    return 2;
}

/* --- the wait --- */

struct redis_call *api_redis_call_new(struct task *task, int commands, struct redis_conn *conn)
{
    struct redis_call *c = mem_zalloc(sizeof *c);
    c->task = task;
    c->commands = commands;
    c->left = commands > 0 ? commands : 1;
    c->conn = conn;
    if (conn != NULL) {
        conn->refs++;
        conn->calls++;
    }
    return c;
}

static void call_free(struct redis_call *c)
{
    if (c->conn != NULL) {
        c->conn->calls--;
        api_redis_conn_unref(c->conn);
    }
    if (c->script != NULL)
        api_redis_script_unref(c->script);
    mem_free(c);
}

static const char *error_name(const struct redis_call *c, enum rds_error err)
{
    const struct redis_conn *conn = c->conn;
    if (err == RDS_TIMEOUT)
        return "timeout";
    if (err == RDS_CLOSED)
        return "closed";
    /* A borrowed connection that is gone does not come back. */
    return conn == NULL || (conn->r != NULL && rds_state(conn->r) == RDS_HUNG) ? "down" : "closed";
}

/* How many results the wait ends with; 0: it goes on. */
static int add_reply(struct redis_call *c, lua_State *co, const redisReply *reply)
{
    bool single = c->commands == 0;
    lua_checkstack(co, 40); /* the reader lets replies nest nine deep at most */
    if (!single && c->at == 0)
        lua_createtable(co, c->commands, 0);
    if (single && reply->type == REDIS_REPLY_ERROR)
        lua_pushnil(co);
    push_reply(co, reply, !single);
    if (single)
        return reply->type == REDIS_REPLY_ERROR ? 2 : 1;
    lua_rawseti(co, -2, ++c->at);
    return c->at == c->commands ? 1 : 0;
}

void api_redis_call_reply(void *arg, redisReply *reply, enum rds_error err)
{
    struct redis_call *c = arg;
    struct task *task = c->task;
    int results = 0;
    if (err != RDS_OK && c->conn != NULL)
        c->conn->changed = true;
    if (task != NULL && err != RDS_OK)
        results = api_redis_push_error(task_lua(task), error_name(c, err));
    else if (task != NULL)
        results = add_reply(c, task_lua(task), reply);
    if (results > 0)
        c->task = NULL;
    if (--c->left == 0)
        call_free(c);
    if (results > 0)
        task_resume(task, results);
}

static void on_cancel(void *arg)
{
    ((struct redis_call *)arg)->task = NULL;
}

int api_redis_call_wait(lua_State *L, struct redis_call *c)
{
    return task_wait(L, c->task, on_cancel, c);
}

/* --- commands --- */

/* Raises where the command is not for this connection. Returns how long it asks to wait. */
static uint64_t check_command(lua_State *L, const struct redis_args *a, const char *what,
                              const struct redis_conn *conn, enum redis_kind *kind)
{
    uint64_t wait = 0;
    const char *name = a->n > 0 ? a->v[0].p : "";
    if (a->n == 0)
        luaL_error(L, "%s: the name of a command is missing", what);
    *kind = api_redis_kind(a, &wait);
    if (*kind == REDIS_LISTENS)
        luaL_error(L, "%s: %s is not for here; use tg.redis.subscribe", what, name);
    if (*kind == REDIS_REFUSED)
        luaL_error(L, "%s: %s would break the order of replies, and cannot be used", what, name);
    if (conn == NULL && *kind != REDIS_PLAIN)
        luaL_error(L,
                   "%s: %s waits on the server or changes the connection, which all requests "
                   "share; use a connection of tg.redis.connect()",
                   what, name);
    return wait;
}

static struct rds *rds_for(lua_State *L, const struct redis_conn *conn, const char *what)
{
    if (conn == NULL)
        return api_generation(L)->sv->rds;
    if (conn->r == NULL)
        luaL_error(L,
                   "%s: this connection has been released, by release() or with the task that "
                   "took it",
                   what);
    return conn->r;
}

static void send_command(struct rds *r, const struct redis_args *a, uint64_t wait_ms,
                         uint64_t timeout_ms, struct redis_call *c)
{
    if (wait_ms > 0)
        wait_ms += timeout_ms > 0 ? timeout_ms : rds_deadline_ms(r);
    rds_command(r, a->n, a->v, wait_ms > 0 ? wait_ms : timeout_ms, api_redis_call_reply, c);
}

int api_redis_command(lua_State *L, int first, const char *what, struct redis_conn *conn)
{
    static const char *const options[] = { "timeout", NULL };
    struct redis_args a;
    uint64_t timeout = 0;
    enum redis_kind kind;
    a.n = 0;
    if (lua_istable(L, first)) {
        int n = api_redis_list(L, first, what, "the command", options);
        timeout = api_redis_timeout(L, first, what);
        if (lua_gettop(L) > first)
            return luaL_error(L, "%s: with a table there is no further argument", what);
        api_redis_add_list(L, first, n, what, "", &a);
    } else {
        api_redis_add_stack(L, first, what, &a);
    }
    uint64_t wait = check_command(L, &a, what, conn, &kind);
    struct task *task = task_check(L, what);
    struct rds *r = rds_for(L, conn, what);
    if (r == NULL)
        return api_redis_push_error(L, "down");
    if (conn != NULL)
        api_redis_conn_note(conn, kind);
    struct redis_call *c = api_redis_call_new(task, 0, conn);
    send_command(r, &a, wait, timeout, c);
    return api_redis_call_wait(L, c);
}

/* Puts the i-th command of the pipeline at idx into a; raises where it is wrong. The stack
 * grows. */
static enum redis_kind read_command(lua_State *L, int idx, int i, const char *what,
                                    const struct redis_conn *conn, struct redis_args *a,
                                    uint64_t *wait_ms)
{
    enum redis_kind kind;
    lua_rawgeti(L, idx, i);
    int at = lua_gettop(L);
    const char *here = lua_pushfstring(L, "%s: command %d", what, i);
    a->n = 0;
    api_redis_add_list(L, at, api_redis_list(L, at, here, "it", NULL), here, "", a);
    uint64_t wait = check_command(L, a, here, conn, &kind);
    *wait_ms = *wait_ms + wait; /* each waits for those before it */
    return kind;
}

/* Sends the n commands of the pipeline at idx, which have been looked at. */
static void send_pipeline(lua_State *L, int idx, int n, const char *what, struct rds *r,
                          uint64_t timeout, struct redis_call *c)
{
    struct redis_args a;
    uint64_t wait = 0;
    for (int i = 1, top = lua_gettop(L); i <= n; i++, lua_settop(L, top)) {
        enum redis_kind kind = read_command(L, idx, i, what, c->conn, &a, &wait);
        if (c->conn != NULL)
            api_redis_conn_note(c->conn, kind);
        send_command(r, &a, wait, timeout, c);
    }
}

int api_redis_pipeline(lua_State *L, int first, const char *what, struct redis_conn *conn)
{
    struct redis_args a;
    uint64_t wait = 0;
    int n = api_redis_list(L, first, what, "the pipeline", NULL);
    uint64_t timeout = api_redis_timeout_option(L, first + 1, what);
    if (n > API_REDIS_COMMANDS)
        return luaL_error(L, "%s: a pipeline has at most %d commands", what, API_REDIS_COMMANDS);
    for (int i = 1, top = lua_gettop(L); i <= n; i++, lua_settop(L, top))
        read_command(L, first, i, what, conn, &a, &wait);
    struct task *task = task_check(L, what);
    struct rds *r = rds_for(L, conn, what);
    if (r == NULL)
        return api_redis_push_error(L, "down");
    if (n == 0) {
        lua_newtable(L);
        return 1;
    }
    struct redis_call *c = api_redis_call_new(task, n, conn);
    send_pipeline(L, first, n, what, r, timeout, c);
    return api_redis_call_wait(L, c);
}
