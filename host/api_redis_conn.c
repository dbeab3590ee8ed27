/* Borrowed connections of tg.redis: for commands that wait on the server, and for those that
 * change the connection, such as MULTI, WATCH and SELECT. A connection is given back by
 * release(), when its object is collected, or when the task that took it ends, whichever is
 * first. One whose state may differ from a new one's is closed then and not lent again. */
#include "api_redis.h"
#include "container.h"
#include "mem.h"
#include "rds_pool.h"

static const char CONN[] = "tollgate.redis.conn";

void api_redis_conn_unref(struct redis_conn *c)
{
    if (--c->refs == 0)
        mem_free(c);
}

void api_redis_conn_note(struct redis_conn *c, enum redis_kind kind)
{
    switch (kind) {
    case REDIS_MULTI: c->multi = true; break;
    case REDIS_WATCH: c->watching = true; break;
    case REDIS_UNWATCH: c->watching = false; break;
    case REDIS_EXEC: c->multi = c->watching = false; break;
    case REDIS_CHANGES: c->changed = true; break;
    default: break;
    }
}

static void give_back(struct redis_conn *c)
{
    struct rds *r = c->r;
    if (r == NULL)
        return;
    c->r = NULL;
    task_unhold(&c->hold);
    rds_pool_give(c->pool, r, !c->multi && !c->watching && !c->changed && c->calls == 0);
}

static void on_task_end(struct task_hold *h)
{
    give_back(CONTAINER(h, struct redis_conn, hold));
}

static int conn_gc(lua_State *L)
{
    struct redis_conn *c = *(struct redis_conn **)lua_touserdata(L, 1);
    give_back(c);
    api_redis_conn_unref(c);
    return 0;
}

static void push_conn(lua_State *L, struct rds_pool *p, struct rds *r, struct task *t)
{
    struct redis_conn **out = lua_newuserdata(L, sizeof *out);
    struct redis_conn *c = mem_zalloc(sizeof *c);
    *out = c;
    *c = (struct redis_conn){ .refs = 1, .pool = p, .r = r, .hold.release = on_task_end };
    luaL_getmetatable(L, CONN);
    lua_setmetatable(L, -2);
    task_hold(t, &c->hold);
}

/* --- taking one --- */

struct taking {
    struct task *task;
    struct rds_pool *pool;
    struct rds_pool_wait *wait;
};

static void on_taken(void *arg, struct rds *r, enum rds_error err)
{
    struct taking *t = arg;
    struct task *task = t->task;
    struct rds_pool *pool = t->pool;
    mem_free(t);
    if (r == NULL) {
        task_resume(task,
                    api_redis_push_error(task_lua(task), err == RDS_TIMEOUT ? "timeout" : "down"));
        return;
    }
    push_conn(task_lua(task), pool, r, task);
    task_resume(task, 1);
}

static void on_cancel(void *arg)
{
    struct taking *t = arg;
    rds_pool_cancel(t->wait);
    mem_free(t);
}

/* tg.redis.connect({ timeout = seconds } or nil) → conn: a connection of one's own, one of at
 * most 16 in a worker, for commands that wait (BLPOP) or change the connection (MULTI, WATCH,
 * SELECT). It is released with the task that took it at the latest. Waits for a free one, for
 * redis.timeout where no time is named. nil, err: "timeout" (all were taken), "down" (Redis
 * cannot be reached). */
static int redis_connect(lua_State *L)
{
    static const char F[] = "tg.redis.connect";
    uint64_t timeout = api_redis_timeout_option(L, 1, F);
    struct task *task = task_check(L, F);
    struct services *sv = api_generation(L)->sv;
    if (sv->rds_pool == NULL)
        return api_redis_push_error(L, "down");
    struct taking *t = mem_zalloc(sizeof *t);
    t->task = task;
    t->pool = sv->rds_pool;
    t->wait = rds_pool_take(t->pool, timeout > 0 ? timeout : rds_deadline_ms(sv->rds), on_taken, t);
    return task_wait(L, task, on_cancel, t);
}

/* --- using it --- */

static struct redis_conn *check_conn(lua_State *L)
{
    return *(struct redis_conn **)luaL_checkudata(L, 1, CONN);
}

/* conn:call(command, …) → reply; or conn:call{ command, …, timeout = seconds } → reply: as
 * tg.redis.call, on a borrowed connection. A command that waits on the server, such as BLPOP,
 * has the time that it asks for and the timeout on top. nil, err: as tg.redis.call; "closed"
 * also where the connection was lost before (it does not come back: its state would be gone),
 * "down" while an earlier command is overdue. */
static int conn_call(lua_State *L)
{
    return api_redis_command(L, 2, "conn:call", check_conn(L));
}

/* conn:pipeline({ { command, … }, … }, { timeout = seconds } or nil) → list of replies: as
 * tg.redis.pipeline, on a borrowed connection; { "MULTI" } and { "EXEC" } may be in it. nil,
 * err: as conn:call. */
static int conn_pipeline(lua_State *L)
{
    return api_redis_pipeline(L, 2, "conn:pipeline", check_conn(L));
}

/* conn:release(): gives a borrowed connection back. It is closed where its state may have changed
 * (MULTI without EXEC, WATCH, SELECT, CLIENT, a call under way or failed), else lent again. Once
 * more does nothing; call and pipeline raise from then on. */
static int conn_release(lua_State *L)
{
    give_back(check_conn(L));
    return 0;
}

void api_redis_open_conn(lua_State *L)
{
    static const luaL_Reg methods[] = { { "call", conn_call },
                                        { "pipeline", conn_pipeline },
                                        { "release", conn_release },
                                        { NULL, NULL } };
    luaL_newmetatable(L, CONN);
    lua_pushcfunction(L, conn_gc);
    lua_setfield(L, -2, "__gc");
    lua_newtable(L);
    luaL_register(L, NULL, methods);
    lua_setfield(L, -2, "__index");
    lua_pop(L, 1);
    lua_pushcfunction(L, redis_connect);
    lua_setfield(L, -2, "connect");
}
