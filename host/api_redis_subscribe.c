/* Subscriptions of tg.redis. Messages and gaps are told in their order, one at a time, each in a
 * task of its own; while one waits the next ones queue, up to a limit. A subscription belongs to
 * its generation, which ends it. */
#include "api_redis.h"
#include "log.h"
#include "mem.h"
#include "rds_sub.h"

enum { QUEUE_MAX = 1000 /* messages */, QUEUE_BYTES = 64 << 20 };
static const char SUBSCRIPTION[] = "tollgate.redis.subscription";

enum event_kind { MESSAGE, START, RECONNECT, OVERFLOW };
static const char *const gap_names[] = {
    [START] = "start", [RECONNECT] = "reconnect", [OVERFLOW] = "overflow"
};

/* What is to be told; texts follow each other in `bytes`. */
struct event {
    struct event *next;
    enum event_kind kind;
    size_t channel, message, pattern; /* bytes of each */
    char bytes[];
};

struct redis_subscription {
    struct redis_subscription *next, **link; /* of the generation */
    struct generation *g;
    struct redis_subscription **owner; /* the Lua object's pointer, emptied at the end */
    struct rds_sub *sub;
    struct task *task; /* that is being told something */
    struct event *first, **last;
    unsigned queued; /* messages, and their bytes */
    size_t bytes;
    bool overflowed; /* the last event says so already */
    bool warned;     /* and the log, since the queue was empty */
    bool patterns, stopping;
    int fn, on_gap; /* on_gap: LUA_NOREF where there is none */
};

static void subscription_free(struct redis_subscription *s)
{
    struct generation *g = s->g;
    if (s->owner != NULL)
        *s->owner = NULL;
    rds_sub_free(s->sub);
    if (s->task != NULL)
        task_free(s->task);
    for (struct event *e; (e = s->first) != NULL;) {
        s->first = e->next;
        mem_free(e);
    }
    generation_unref(g, s->fn);
    if (s->on_gap != LUA_NOREF)
        generation_unref(g, s->on_gap);
    *s->link = s->next;
    if (s->next != NULL)
        s->next->link = s->link;
    mem_free(s);
}

/* --- telling --- */

/* Pushes the function and its arguments; returns how many. */
static int push_event(lua_State *co, const struct redis_subscription *s, const struct event *e)
{
    lua_rawgeti(co, LUA_REGISTRYINDEX, e->kind == MESSAGE ? s->fn : s->on_gap);
    if (e->kind != MESSAGE) {
        lua_pushstring(co, gap_names[e->kind]);
        return 1;
    }
    lua_pushlstring(co, e->bytes, e->channel);
    lua_pushlstring(co, e->bytes + e->channel, e->message);
    if (!s->patterns)
        return 2;
    lua_pushlstring(co, e->bytes + e->channel + e->message, e->pattern);
    return 3;
}

/* False where the subscription is gone. */
static bool told(struct redis_subscription *s, enum task_outcome outcome)
{
    struct task *task = s->task;
    if (outcome == TASK_ERROR) {
        services_plugin_failed(s->g->sv, "", "subscription");
        log_error("a plugin's subscription: %s", task_error(task));
    }
    s->task = NULL;
    task_free(task);
    if (!s->stopping)
        return true;
    subscription_free(s);
    return false;
}

static void tell_all(struct redis_subscription *s);

static void on_settled(void *owner, enum task_outcome outcome)
{
    if (told(owner, outcome))
        tell_all(owner);
}

/* Until one waits. */
static void tell_all(struct redis_subscription *s)
{
    while (s->first != NULL && s->task == NULL) {
        struct event *e = s->first;
        s->first = e->next;
        if (s->first == NULL) {
            s->last = &s->first;
            s->overflowed = s->warned = false;
        }
        if (e->kind == MESSAGE)
            s->queued--;
        s->bytes -= e->channel + e->message + e->pattern;
        s->task = task_new(&s->g->tasks, on_settled, s);
        int nargs = push_event(task_lua(s->task), s, e);
        mem_free(e);
        enum task_outcome outcome = task_call(s->task, nargs);
        if (outcome != TASK_WAITS && !told(s, outcome))
            return;
    }
}

/* --- what comes --- */

static struct event *append(struct redis_subscription *s, enum event_kind kind, size_t n)
{
    struct event *e = mem_alloc(sizeof *e + n);
    *e = (struct event){ .kind = kind };
    *s->last = e;
    s->last = &e->next;
    s->overflowed = kind == OVERFLOW;
    return e;
}

static void add_gap(struct redis_subscription *s, enum event_kind kind)
{
    if (s->on_gap != LUA_NOREF && !s->stopping)
        append(s, kind, 0);
    tell_all(s);
}

/* The queue is full, so something waits: nothing is told from here. */
static void overflow(struct redis_subscription *s)
{
    if (!s->warned)
        log_warn("a plugin's subscription is behind by %u messages: those that come now are lost",
                 s->queued);
    s->warned = true;
    if (!s->overflowed)
        add_gap(s, OVERFLOW);
    s->overflowed = true;
}

static void on_active(void *arg, bool again)
{
    add_gap(arg, again ? RECONNECT : START);
}

static void on_message(void *arg, struct slice channel, struct slice message, struct slice pattern)
{
    struct redis_subscription *s = arg;
    if (s->stopping)
        return;
    size_t n = channel.n + message.n + pattern.n;
    if (s->queued == QUEUE_MAX || (s->queued > 0 && s->bytes + n > QUEUE_BYTES)) {
        overflow(s);
        return;
    }
    struct event *e = append(s, MESSAGE, n);
    e->channel = channel.n;
    e->message = message.n;
    e->pattern = pattern.n;
    memcpy(e->bytes, channel.p, channel.n);
    memcpy(e->bytes + channel.n, message.p, message.n);
    if (pattern.n > 0)
        memcpy(e->bytes + channel.n + message.n, pattern.p, pattern.n);
    s->queued++;
    s->bytes += n;
    tell_all(s);
}

/* --- the functions --- */

struct options {
    bool patterns;
    bool has_gap; /* its function is on top of the stack */
};

static struct options read_options(lua_State *L, int idx, const char *what)
{
    static const char *const known[] = { "pattern", "on_gap", NULL };
    struct options o = { false, false };
    if (lua_isnoneornil(L, idx))
        return o;
    if (!lua_istable(L, idx))
        luaL_error(L, "%s: the options must be a table, not %s", what, luaL_typename(L, idx));
    for (lua_pushnil(L); lua_next(L, idx) != 0; lua_pop(L, 1)) {
        const char *key = lua_type(L, -2) == LUA_TSTRING ? lua_tostring(L, -2) : "";
        if (strcmp(key, known[0]) != 0 && strcmp(key, known[1]) != 0)
            luaL_error(L, "%s: unknown option '%s'; there are: pattern, on_gap", what, key);
    }
    lua_getfield(L, idx, "pattern");
    if (!lua_isnil(L, -1) && !lua_isboolean(L, -1))
        luaL_error(L, "%s: pattern must be true or false, not %s", what, luaL_typename(L, -1));
    o.patterns = lua_toboolean(L, -1);
    lua_pop(L, 1);
    lua_getfield(L, idx, "on_gap");
    o.has_gap = !lua_isnil(L, -1);
    if (o.has_gap && !lua_isfunction(L, -1))
        luaL_error(L, "%s: on_gap must be a function, not %s", what, luaL_typename(L, -1));
    if (!o.has_gap)
        lua_pop(L, 1);
    return o;
}

static void read_channels(lua_State *L, const char *what, struct redis_args *a)
{
    a->n = 0;
    if (lua_type(L, 1) == LUA_TSTRING) {
        a->n = 1;
        a->v[0].p = lua_tolstring(L, 1, &a->v[0].n);
        return;
    }
    if (!lua_istable(L, 1))
        luaL_error(L, "%s: channels must be a string or a list of strings, not %s", what,
                   luaL_typename(L, 1));
    int n = api_redis_list(L, 1, what, "channels", NULL);
    if (n == 0)
        luaL_error(L, "%s: channels is empty", what);
    api_redis_add_list(L, 1, n, what, "channels", a);
}

/* Pushes its object; on_gap is on top of the stack where there is one. */
static struct redis_subscription *push_new(lua_State *L, struct generation *g,
                                           const struct options *o)
{
    struct redis_subscription *s = mem_zalloc(sizeof *s);
    s->g = g;
    s->patterns = o->patterns;
    s->last = &s->first;
    s->on_gap = o->has_gap ? generation_ref(g, L) : LUA_NOREF;
    lua_pushvalue(L, 2);
    s->fn = generation_ref(g, L);
    s->owner = lua_newuserdata(L, sizeof *s->owner);
    *s->owner = s;
    luaL_getmetatable(L, SUBSCRIPTION);
    lua_setmetatable(L, -2);
    s->next = g->redis_subscriptions;
    s->link = &g->redis_subscriptions;
    if (s->next != NULL)
        s->next->link = &s->next;
    g->redis_subscriptions = s;
    return s;
}

/* tg.redis.subscribe(channels, fn, { pattern = boolean, on_gap = function } or nil) →
 * subscription: calls fn(channel, message) for each message published to a channel (a string, or
 * a list of them), or with pattern = true fn(channel, message, pattern) for channels that match,
 * as PSUBSCRIBE. In order, each in a task of its own that may wait; the next message waits
 * meanwhile, behind 1,000 others (64 MiB) at most. It has a connection of its own, comes back
 * when that is lost, and ends with its generation, so init may call it. Does not wait:
 * on_gap(why) says that messages may have been missed: why is "start" (subscribed now; what was
 * published before did not come), "reconnect" (what was published meanwhile is lost), or
 * "overflow" (fn was too slow; messages are dropped here). A plugin that keeps what it was told
 * reads it anew then. nil, err: "down" where there is no Redis at all (tollgate exec without
 * --redis). */
static int redis_subscribe(lua_State *L)
{
    static const char F[] = "tg.redis.subscribe";
    static const struct rds_sub_events events = { on_message, on_active };
    struct generation *g = api_generation(L);
    struct redis_args a;
    if (!lua_isfunction(L, 2))
        return luaL_error(L, "%s: fn must be a function, not %s", F, luaL_typename(L, 2));
    lua_settop(L, 3);
    read_channels(L, F, &a);
    struct options o = read_options(L, 3, F);
    if (g->tasks.current == NULL)
        return luaL_error(L, "%s: not while a file is loaded; call it in init", F);
    if (g->stopped)
        return luaL_error(L, "%s: this generation has stopped", F);
    if (g->sv->rds == NULL)
        return api_redis_push_error(L, "down");
    struct redis_subscription *s = push_new(L, g, &o);
    s->sub = rds_sub_new(g->sv->loop, g->sv->rds, o.patterns, a.n, a.v, &events, s);
    return 1;
}

/* subscription:stop(): nothing is told any more, and what waits is given up. Its own functions may
 * call it. */
static int subscription_stop(lua_State *L)
{
    struct redis_subscription *s =
        *(struct redis_subscription **)luaL_checkudata(L, 1, SUBSCRIPTION);
    if (s == NULL)
        return 0;
    if (s->task != NULL && task_state(s->task) == TASK_RUNNING)
        s->stopping = true;
    else
        subscription_free(s);
    return 0;
}

/* The Lua object went, the subscription goes on. */
static int subscription_gc(lua_State *L)
{
    struct redis_subscription *s = *(struct redis_subscription **)lua_touserdata(L, 1);
    if (s != NULL)
        s->owner = NULL;
    return 0;
}

void api_redis_subscriptions_stop(struct generation *g)
{
    while (g->redis_subscriptions != NULL)
        subscription_free(g->redis_subscriptions);
}

void api_redis_open_subscribe(lua_State *L)
{
    luaL_newmetatable(L, SUBSCRIPTION);
    lua_pushcfunction(L, subscription_gc);
    lua_setfield(L, -2, "__gc");
    lua_newtable(L);
    lua_pushcfunction(L, subscription_stop);
    lua_setfield(L, -2, "stop");
    lua_setfield(L, -2, "__index");
    lua_pop(L, 1);
    lua_pushcfunction(L, redis_subscribe);
    lua_setfield(L, -2, "subscribe");
}
