/* tg.condition: something that coroutines of one worker wait for together. */
#include <math.h>

#include "api.h"
#include "container.h"
#include "mem.h"

static const char CONDITION[] = "tollgate.condition";

struct waiter {
    struct waiter *next, **link; /* link is NULL once it was told */
    struct timer timer;
    struct generation *g;
    struct task *task;
    bool told;
};

/* Waiters hold it: it is an argument of their call. */
struct condition {
    struct waiter *first;
};

static void leave(struct waiter *w)
{
    if (w->link == NULL)
        return;
    *w->link = w->next;
    if (w->next != NULL)
        w->next->link = w->link;
    w->link = NULL;
}

static void waiter_free(void *arg)
{
    struct waiter *w = arg;
    leave(w);
    timer_deinit(w->g->sv->loop, &w->timer);
    mem_free(w);
}

static void on_wake(struct timer *t)
{
    struct waiter *w = CONTAINER(t, struct waiter, timer);
    struct task *task = w->task;
    bool told = w->told;
    waiter_free(w);
    lua_State *co = task_lua(task);
    if (told) {
        lua_pushboolean(co, true);
        task_resume(task, 1);
        return;
    }
    lua_pushnil(co);
    lua_pushliteral(co, "timeout");
    task_resume(task, 2);
}

/* tg.condition() → condition: coroutines of this worker wait for it until another one notifies it.
 * It holds nothing: who was told looks again whether what it waits for is there. */
static int condition_new(lua_State *L)
{
    struct condition *c = lua_newuserdata(L, sizeof *c);
    c->first = NULL;
    luaL_getmetatable(L, CONDITION);
    lua_setmetatable(L, -2);
    return 1;
}

/* condition:wait(seconds) → true where it was notified; nil, "timeout". Waits. */
static int condition_wait(lua_State *L)
{
    struct condition *c = luaL_checkudata(L, 1, CONDITION);
    lua_Number s = luaL_checknumber(L, 2);
    if (!(s >= 0 && s <= 86400.0 * 366))
        return luaL_error(L, "condition:wait: a time must be a number of seconds from 0 to a year");
    struct task *task = task_check(L, "condition:wait");
    struct waiter *w = mem_zalloc(sizeof *w);
    w->g = api_generation(L);
    w->task = task;
    w->next = c->first;
    w->link = &c->first;
    if (w->next != NULL)
        w->next->link = &w->next;
    c->first = w;
    w->timer.cb = on_wake;
    timer_set(w->g->sv->loop, &w->timer, (uint64_t)ceil(s * 1000));
    return task_wait(L, task, waiter_free, w);
}

static int notify(struct condition *c)
{
    int n = 0;
    for (; c->first != NULL; n++) {
        struct waiter *w = c->first;
        leave(w);
        w->told = true;
        timer_set(w->g->sv->loop, &w->timer, 0);
    }
    return n;
}

void *api_condition_check(lua_State *L, int idx)
{
    return luaL_checkudata(L, idx, CONDITION);
}

void api_condition_notify(void *condition)
{
    notify(condition);
}

/* condition:notify() → how many waited: all of them go on, in this turn's successor. */
static int condition_notify(lua_State *L)
{
    lua_pushinteger(L, notify(luaL_checkudata(L, 1, CONDITION)));
    return 1;
}

void api_open_condition(lua_State *L)
{
    luaL_newmetatable(L, CONDITION);
    lua_newtable(L);
    lua_pushcfunction(L, condition_wait);
    lua_setfield(L, -2, "wait");
    lua_pushcfunction(L, condition_notify);
    lua_setfield(L, -2, "notify");
    lua_setfield(L, -2, "__index");
    lua_pop(L, 1);
    lua_pushcfunction(L, condition_new);
    lua_setfield(L, -2, "condition");
}
