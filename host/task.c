/* See task.h. A wait leaves Lua by a yield whose only value is `mark`; the runtime's
 * coroutine.resume and wrap pass it outwards, so a plugin's own coroutines may wait too. Any other
 * yield that reaches this file is a plugin's mistake and ends its call with an error. */
#include "task.h"

#include <lauxlib.h>
#include <time.h>

#include "mem.h"

enum { TASK_IDLE_MAX = 256 };

struct task {
    struct task_pool *pool;
    lua_State *co;
    int ref; /* of co in the registry */
    enum task_state state;
    bool dead; /* freed while running */
    void (*cancel)(void *arg);
    void *cancel_arg;
    void (*on_settled)(void *owner, enum task_outcome outcome);
    void *owner;
    const char *tag;
    uint64_t mark;
    double *meter; /* seconds; NULL: none */
    char *error;
    struct task_hold *holds;
};

static int mark; /* its address is the mark */

void task_pool_init(struct task_pool *p, lua_State *L)
{
    *p = (struct task_pool){ .L = L };
    lua_pushlightuserdata(L, &mark);
    lua_setfield(L, LUA_REGISTRYINDEX, "tollgate.wait");
    lua_pushlightuserdata(L, p);
    lua_setfield(L, LUA_REGISTRYINDEX, "tollgate.tasks");
}

void task_pool_deinit(struct task_pool *p)
{
    for (uint32_t i = 0; i < p->nidle; i++)
        luaL_unref(p->L, LUA_REGISTRYINDEX, p->idle[i]);
    mem_free(p->idle);
    p->idle = NULL;
    p->nidle = p->idle_cap = 0;
}

static struct task_pool *pool_of(lua_State *L)
{
    lua_getfield(L, LUA_REGISTRYINDEX, "tollgate.tasks");
    struct task_pool *p = lua_touserdata(L, -1);
    lua_pop(L, 1);
    return p;
}

struct task *task_new(struct task_pool *p,
                      void (*on_settled)(void *owner, enum task_outcome outcome), void *owner)
{
    struct task *t = mem_zalloc(sizeof *t);
    t->pool = p;
    t->on_settled = on_settled;
    t->owner = owner;
    if (p->nidle > 0) {
        t->ref = p->idle[--p->nidle];
        lua_rawgeti(p->L, LUA_REGISTRYINDEX, t->ref);
        t->co = lua_tothread(p->L, -1);
        lua_pop(p->L, 1);
    } else {
        t->co = lua_newthread(p->L);
        t->ref = luaL_ref(p->L, LUA_REGISTRYINDEX);
    }
    p->alive++;
    return t;
}

static void give_back(struct task *t)
{
    struct task_pool *p = t->pool;
    bool reusable = t->state == TASK_IDLE && p->nidle < TASK_IDLE_MAX;
    if (!reusable) {
        luaL_unref(p->L, LUA_REGISTRYINDEX, t->ref);
        return;
    }
    lua_settop(t->co, 0);
    if (p->nidle == p->idle_cap) {
        p->idle_cap = p->idle_cap == 0 ? 16 : p->idle_cap * 2;
        p->idle = mem_realloc(p->idle, p->idle_cap * sizeof *p->idle);
    }
    p->idle[p->nidle++] = t->ref;
}

static void drop_wait(struct task *t)
{
    void (*cancel)(void *) = t->cancel;
    t->cancel = NULL;
    if (cancel != NULL)
        cancel(t->cancel_arg);
}

void task_hold(struct task *t, struct task_hold *h)
{
    h->next = t->holds;
    h->link = &t->holds;
    if (h->next != NULL)
        h->next->link = &h->next;
    t->holds = h;
}

void task_unhold(struct task_hold *h)
{
    if (h->link == NULL)
        return;
    *h->link = h->next;
    if (h->next != NULL)
        h->next->link = h->link;
    h->link = NULL;
}

static void release_holds(struct task *t)
{
    while (t->holds != NULL) {
        struct task_hold *h = t->holds;
        task_unhold(h);
        h->release(h);
    }
}

void task_free(struct task *t)
{
    if (t->state == TASK_RUNNING) {
        t->dead = true;
        return;
    }
    if (t->state == TASK_WAITING)
        drop_wait(t);
    release_holds(t);
    give_back(t);
    t->pool->alive--;
    mem_free(t->error);
    mem_free(t);
}

lua_State *task_lua(struct task *t)
{
    return t->co;
}

const char *task_error(const struct task *t)
{
    return t->error != NULL ? t->error : "no error";
}

enum task_state task_state(const struct task *t)
{
    return t->state;
}

void *task_owner(const struct task *t)
{
    return t->owner;
}

void task_set_tag(struct task *t, const char *tag)
{
    t->tag = tag;
}

const char *task_tag(const struct task *t)
{
    return t->tag;
}

void task_set_meter(struct task *t, double *seconds)
{
    t->meter = seconds;
}

void task_set_mark(struct task *t, uint64_t word)
{
    t->mark = word;
}

uint64_t task_mark(const struct task *t)
{
    return t->mark;
}

uint64_t task_pool_mark(struct task_pool *p, uint64_t word)
{
    if (p->watch == NULL || p->watch->mark == NULL)
        return 0;
    uint64_t before = *p->watch->mark;
    p->watch->running = word != 0 ? p->L : NULL;
    *p->watch->mark = word;
    return before;
}

/* The message on top of a coroutine that raised, with its traceback; the stack is still as it was.
 */
static void take_error(struct task *t)
{
    lua_State *co = t->co, *L = t->pool->L;
    const char *message = lua_tostring(co, -1);
    if (message == NULL)
        message = luaL_typename(co, -1);
    luaL_traceback(L, co, message, 0);
    mem_free(t->error);
    t->error = mem_strdup(lua_tostring(L, -1));
    lua_pop(L, 1);
}

static enum task_outcome fail(struct task *t)
{
    take_error(t);
    t->state = TASK_FAILED;
    return TASK_ERROR;
}

static uint64_t nanoseconds(void)
{
    struct timespec ts;
    clock_gettime(CLOCK_MONOTONIC, &ts);
    return (uint64_t)ts.tv_sec * 1000000000 + (uint64_t)ts.tv_nsec;
}

static int resume(struct task *t, int nargs)
{
    double *meter = t->meter;
    if (meter == NULL)
        return lua_resume(t->co, nargs);
    uint64_t begun = nanoseconds();
    int status = lua_resume(t->co, nargs);
    *meter += (double)(nanoseconds() - begun) / 1e9;
    return status;
}

static enum task_outcome run(struct task *t, int nargs)
{
    struct task_pool *p = t->pool;
    struct task *outer = p->current;
    p->current = t;
    t->state = TASK_RUNNING;
    uint64_t before = task_pool_mark(p, t->mark);
    int status = resume(t, nargs);
    task_pool_mark(p, before);
    p->current = outer;
    bool waits = t->state == TASK_WAITING;
    bool marked = status == LUA_YIELD && lua_touserdata(t->co, -1) == &mark;
    if (waits && !marked)
        drop_wait(t);
    if (status == 0) {
        t->state = TASK_IDLE;
        return TASK_DONE;
    }
    if (status != LUA_YIELD)
        return fail(t);
    if (!marked || !waits) {
        lua_settop(t->co, 0);
        lua_pushliteral(t->co,
                        "a plugin's phase yielded outside its own coroutines (coroutine.yield)");
        return fail(t);
    }
    lua_pop(t->co, 1);
    return TASK_WAITS;
}

static bool buried(struct task *t)
{
    if (!t->dead)
        return false;
    t->dead = false;
    task_free(t);
    return true;
}

enum task_outcome task_call(struct task *t, int nargs)
{
    enum task_outcome outcome = run(t, nargs);
    return buried(t) ? TASK_WAITS : outcome;
}

void task_resume(struct task *t, int nresults)
{
    t->cancel = NULL;
    enum task_outcome outcome = run(t, nresults);
    if (!buried(t) && outcome != TASK_WAITS)
        t->on_settled(t->owner, outcome);
}

struct task *task_check(lua_State *L, const char *what)
{
    struct task_pool *p = pool_of(L);
    if (p->current == NULL)
        luaL_error(L,
                   "%s cannot wait here: it is called while a file is loaded, or outside a request "
                   "or timer",
                   what);
    if (p->current->state ==
        TASK_WAITING) { /* the yield of the last wait met a C function, and the error was caught */
        drop_wait(p->current);
        p->current->state = TASK_RUNNING;
    }
    if (!lua_isyieldable(L))
        luaL_error(
            L,
            "%s cannot wait here: LuaJIT cannot yield across the C function that called this code "
            "(table.sort, string.gsub, require, a finalizer, an FFI callback, …)",
            what);
    return p->current;
}

int task_wait(lua_State *L, struct task *t, void (*cancel)(void *arg), void *arg)
{
    t->state = TASK_WAITING;
    t->cancel = cancel;
    t->cancel_arg = arg;
    lua_pushlightuserdata(L, &mark);
    return lua_yield(L, 1);
}
