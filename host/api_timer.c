/* tg.timer: sleep, after, every. A timer belongs to its generation, which ends it; its function
 * runs in a coroutine of its own and may wait. A run that is still waiting when the next one is due
 * is not doubled: that one is left out. */
#include <math.h>
#include <string.h>

#include "api.h"
#include "container.h"
#include "log.h"
#include "mem.h"
#include "zone.h"

static const char TIMER[] = "tollgate.timer";

struct timer_entry {
    struct timer_entry *next, **link;
    struct generation *g;
    struct timer timer;
    struct task *task;
    uint64_t every_ms; /* 0: once */
    int fn;
    bool once;                  /* runs in one worker of the replica */
    bool lingers;               /* goes on behind stop; see holds */
    bool stopping;              /* was stopped; ends once no Lua runs */
    uint64_t mark;              /* of the code that made it */
    struct timer_entry **owner; /* the Lua object's pointer, emptied at the end */
};

/* What lingers goes on while the generation has a request, and a single run holds it besides, until
 * it has ended. */
static bool holds(const struct timer_entry *e)
{
    return e->lingers && e->every_ms == 0;
}

static uint64_t check_ms(lua_State *L, int idx, const char *what)
{
    lua_Number s = luaL_checknumber(L, idx);
    if (!(s >= 0 && s <= 86400.0 * 366))
        luaL_error(L, "%s: a time must be a number of seconds from 0 to a year", what);
    return (uint64_t)ceil(s * 1000);
}

/* --- sleep --- */

struct sleep {
    struct timer timer;
    struct generation *g;
    struct task *task;
};

static void sleep_free(void *arg)
{
    struct sleep *s = arg;
    timer_deinit(s->g->sv->loop, &s->timer);
    mem_free(s);
}

static void on_wake(struct timer *t)
{
    struct sleep *s = CONTAINER(t, struct sleep, timer);
    struct task *task = s->task;
    sleep_free(s);
    task_resume(task, 0);
}

/* tg.timer.sleep(seconds). Waits. */
static int timer_sleep(lua_State *L)
{
    uint64_t ms = check_ms(L, 1, "tg.timer.sleep");
    struct task *task = task_check(L, "tg.timer.sleep");
    struct sleep *s = mem_zalloc(sizeof *s);
    s->g = api_generation(L);
    s->task = task;
    s->timer.cb = on_wake;
    timer_set(s->g->sv->loop, &s->timer, ms);
    return task_wait(L, task, sleep_free, s);
}

/* --- after and every --- */

static void entry_free(struct timer_entry *e)
{
    struct generation *g = e->g;
    if (e->owner != NULL)
        *e->owner = NULL;
    timer_deinit(g->sv->loop, &e->timer);
    if (e->task != NULL)
        task_free(e->task);
    generation_unref(g, e->fn);
    *e->link = e->next;
    if (e->next != NULL)
        e->next->link = e->link;
    g->timers--;
    bool held = holds(e);
    mem_free(e);
    if (held)
        generation_release(g);
}

static void run_ended(struct timer_entry *e, enum task_outcome outcome)
{
    struct generation *g = e->g;
    struct task *task = e->task;
    if (outcome == TASK_ERROR) {
        services_plugin_failed(g->sv, "", "timer");
        log_error("a plugin's timer: %s", task_error(task));
    }
    e->task = NULL;
    task_free(task);
    if (e->every_ms == 0 || e->stopping)
        entry_free(e);
}

static void on_settled(void *owner, enum task_outcome outcome)
{
    run_ended(owner, outcome);
}

static void on_due(struct timer *t)
{
    struct timer_entry *e = CONTAINER(t, struct timer_entry, timer);
    if (e->stopping) {
        entry_free(e);
        return;
    }
    if (e->every_ms != 0)
        timer_set(e->g->sv->loop, t, e->every_ms);
    if (e->task != NULL)
        return;
    if (e->once && e->g->sv->leads != NULL && !e->g->sv->leads(e->g->sv->leads_arg)) {
        if (e->every_ms == 0)
            entry_free(e);
        return;
    }
    e->task = task_new(&e->g->tasks, on_settled, e);
    task_set_mark(e->task, e->mark);
    lua_rawgeti(task_lua(e->task), LUA_REGISTRYINDEX, e->fn);
    enum task_outcome outcome = task_call(e->task, 0);
    if (outcome != TASK_WAITS)
        run_ended(e, outcome);
}

/* { once = boolean, lingers = boolean } at 3. */
static void read_options(lua_State *L, const char *what, bool *once, bool *lingers)
{
    *once = *lingers = false;
    if (lua_isnoneornil(L, 3))
        return;
    if (!lua_istable(L, 3))
        luaL_error(L, "%s: the options must be a table, not %s", what, luaL_typename(L, 3));
    for (lua_pushnil(L); lua_next(L, 3) != 0; lua_pop(L, 1)) {
        const char *name = lua_type(L, -2) == LUA_TSTRING ? lua_tostring(L, -2) : "";
        bool *out = strcmp(name, "once") == 0      ? once
                    : strcmp(name, "lingers") == 0 ? lingers
                                                   : NULL;
        if (out == NULL)
            luaL_error(L,
                       "%s: unknown option; there are: once (true: in one worker of the replica), "
                       "lingers (true: also behind stop)",
                       what);
        if (!lua_isboolean(L, -1))
            luaL_error(L, "%s: %s must be a boolean, not %s", what, name, luaL_typename(L, -1));
        *out = lua_toboolean(L, -1);
    }
    if (*once && *lingers)
        luaL_error(L, "%s: once and lingers do not go together", what);
}

static int timer_new(lua_State *L, bool repeat, const char *what)
{
    struct generation *g = api_generation(L);
    uint64_t ms = check_ms(L, 1, what);
    luaL_checktype(L, 2, LUA_TFUNCTION);
    bool once, lingers;
    read_options(L, what, &once, &lingers);
    if (g->tasks.current == NULL)
        return luaL_error(L, "%s: not while a file is loaded; call it in init", what);
    if (g->stopped && !(lingers && !repeat))
        return luaL_error(L,
                          "%s: this generation has stopped; only after with lingers = true may "
                          "be called now",
                          what);
    if (repeat && ms == 0)
        return luaL_error(L, "%s: the time must be greater than 0", what);
    struct timer_entry **owner = lua_newuserdata(L, sizeof *owner);
    struct timer_entry *e = mem_zalloc(sizeof *e);
    *owner = e;
    luaL_getmetatable(L, TIMER);
    lua_setmetatable(L, -2);
    e->g = g;
    e->owner = owner;
    e->every_ms = repeat ? ms : 0;
    e->once = once;
    e->lingers = lingers;
    uint64_t mark = task_mark(g->tasks.current);
    e->mark = zone_mark(g->number, zone_mark_route(mark), zone_mark_hook(mark), MARK_TIMER);
    e->timer.cb = on_due;
    lua_pushvalue(L, 2);
    e->fn = generation_ref(g, L);
    e->next = g->timer_list;
    e->link = &g->timer_list;
    if (e->next != NULL)
        e->next->link = &e->next;
    g->timer_list = e;
    g->timers++;
    if (holds(e))
        generation_hold(g);
    timer_set(g->sv->loop, &e->timer, ms);
    return 1;
}

/* tg.timer.after(seconds, fn, { once = boolean, lingers = boolean } or nil) → timer: calls fn
 * once. Options as for every; with lingers = true it may be made in stop, too, and the generation
 * waits for its end: at a reload for as long as for requests, at the gateway's end for three
 * seconds. So what a plugin has gathered is sent. */
static int timer_after(lua_State *L)
{
    return timer_new(L, false, "tg.timer.after");
}

/* tg.timer.every(seconds, fn, { once = boolean, lingers = boolean } or nil) → timer: calls fn again
 * and again, first after `seconds`. With once = true only in one worker of the replica: all workers
 * keep the time, and of those that are due the one that leads calls fn. Another one leads when that
 * one dies, drains, or has been stuck for a second. With lingers = true it goes on behind stop, for
 * requests that began before a reload, and ends with the last of them. */
static int timer_every(lua_State *L)
{
    return timer_new(L, true, "tg.timer.every");
}

/* tg.timer.leads() → boolean: whether this worker is the one of the replica in which timers with
 * once = true run now. */
static int timer_leads(lua_State *L)
{
    const struct services *sv = api_generation(L)->sv;
    lua_pushboolean(L, sv->leads == NULL || sv->leads(sv->leads_arg));
    return 1;
}

/* timer:stop(): no further run; one that waits is given up. A timer may stop itself. */
static int timer_stop_(lua_State *L)
{
    struct timer_entry **owner = luaL_checkudata(L, 1, TIMER);
    struct timer_entry *e = *owner;
    if (e == NULL)
        return 0;
    timer_stop(&e->timer);
    if (e->task != NULL && task_state(e->task) == TASK_RUNNING) {
        e->stopping = true; /* from within its own run */
        return 0;
    }
    if (!holds(e)) {
        entry_free(e);
        return 0;
    }
    if (e->task != NULL)
        task_free(e->task);
    e->task = NULL;
    e->stopping = true;
    timer_set(e->g->sv->loop, &e->timer, 0); /* not now: with the hold the Lua that runs may end */
    return 0;
}

/* The Lua object went, the timer goes on: after() is often called without keeping the result. */
static int timer_gc(lua_State *L)
{
    struct timer_entry **owner = lua_touserdata(L, 1);
    if (*owner != NULL)
        (*owner)->owner = NULL;
    return 0;
}

bool api_timers_linger(const struct generation *g)
{
    const struct timer_entry *e = g->timer_list;
    while (e != NULL && !holds(e))
        e = e->next;
    return e != NULL;
}

void api_timers_give_up(struct generation *g)
{
    generation_hold(g);
    for (struct timer_entry *e = g->timer_list, *next; e != NULL; e = next) {
        next = e->next;
        if (holds(e))
            entry_free(e);
    }
    generation_release(g);
}

bool api_timers_pending(const struct generation *g)
{
    for (const struct timer_entry *e = g->timer_list; e != NULL; e = e->next) {
        if (e->every_ms == 0)
            return true;
    }
    return false;
}

void api_timers_stop(struct generation *g)
{
    for (struct timer_entry *e = g->timer_list, *next; e != NULL; e = next) {
        next = e->next;
        if (!e->lingers)
            entry_free(e);
    }
}

void api_timers_end(struct generation *g)
{
    while (g->timer_list != NULL)
        entry_free(g->timer_list);
}

void api_open_timer(lua_State *L)
{
    static const luaL_Reg functions[] = { { "sleep", timer_sleep },
                                          { "after", timer_after },
                                          { "every", timer_every },
                                          { "leads", timer_leads },
                                          { NULL, NULL } };
    luaL_newmetatable(L, TIMER);
    lua_pushcfunction(L, timer_gc);
    lua_setfield(L, -2, "__gc");
    lua_newtable(L);
    lua_pushcfunction(L, timer_stop_);
    lua_setfield(L, -2, "stop");
    lua_setfield(L, -2, "__index");
    lua_pop(L, 1);
    lua_newtable(L);
    luaL_register(L, NULL, functions);
    lua_setfield(L, -2, "timer");
}
