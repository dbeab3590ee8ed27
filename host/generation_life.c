/* See generation.h: the plugins' init and stop, and the state that a generation hands to the next
 * one. It crosses from one Lua state to another, so it must be plain data: nil, booleans, numbers,
 * strings, and tables of these without cycles. */
#include <lauxlib.h>

#include "api.h"
#include "health.h"
#include "log.h"
#include "zone.h"

enum { STATE_DEPTH = 64 };

/* --- plain data from one Lua state to another --- */

struct crossing {
    lua_State *from;
    int idx;
};

static void cross(lua_State *from, int idx, lua_State *to, int depth)
{
    size_t n;
    const char *text;
    idx = idx < 0 ? lua_gettop(from) + idx + 1 : idx;
    luaL_checkstack(to, 4, "the state is too deep");
    if (depth > STATE_DEPTH || !lua_checkstack(from, 4))
        luaL_error(to, "it is too deep, or holds itself");
    switch (lua_type(from, idx)) {
    case LUA_TNIL: lua_pushnil(to); return;
    case LUA_TBOOLEAN: lua_pushboolean(to, lua_toboolean(from, idx)); return;
    case LUA_TNUMBER: lua_pushnumber(to, lua_tonumber(from, idx)); return;
    case LUA_TSTRING:
        text = lua_tolstring(from, idx, &n);
        lua_pushlstring(to, text, n);
        return;
    case LUA_TTABLE: break;
    default:
        luaL_error(
            to, "it holds a %s; only nil, booleans, numbers, strings and tables can be handed over",
            luaL_typename(from, idx));
    }
    lua_newtable(to);
    lua_pushnil(from);
    while (lua_next(from, idx) != 0) {
        cross(from, -2, to, depth + 1);
        cross(from, -1, to, depth + 1);
        lua_rawset(to, -3);
        lua_pop(from, 1);
    }
}

static int cross_protected(lua_State *to)
{
    struct crossing *c = lua_touserdata(to, 1);
    cross(c->from, c->idx, to, 0);
    return 1;
}

/* Pushes a copy of from's value on to. Pushes nil, with a line in the log, where it is not plain.
 */
static void hand_over(lua_State *from, int idx, lua_State *to, const char *where)
{
    struct crossing c = { from, idx };
    int top = lua_gettop(from);
    lua_pushcfunction(to, cross_protected);
    lua_pushlightuserdata(to, &c);
    if (lua_pcall(to, 1, 1, 0) != 0) {
        log_error("%s: what stop returned is not handed over: %s", where, lua_tostring(to, -1));
        lua_pop(to, 1);
        lua_pushnil(to);
    }
    lua_settop(from, top);
}

/* --- one plugin --- */

bool generation_quarantined(const struct generation *g, const char *plugin)
{
    const struct quarantine *q = g->sv->quarantine;
    while (q != NULL && strcmp(q->plugin, plugin) != 0)
        q = q->next;
    return q != NULL;
}

static void on_settled(void *owner, enum task_outcome outcome)
{
    (void)owner, (void)outcome; /* a task that waits is not kept */
}

/* Text of a member of the entry on top of the stack, which keeps it. */
static const char *entry_text(lua_State *L, const char *name)
{
    lua_getfield(L, -1, name);
    const char *text = lua_tostring(L, -1);
    lua_pop(L, 1);
    return text;
}

/* Calls plugin[phase](conf, entry.state) of the entry on top of L's stack; entry.state becomes its
 * result. */
static bool call_entry(struct generation *g, const char *phase, uint64_t mark, struct buf *faults)
{
    lua_State *L = g->L;
    bool fine = true;
    const char *where = entry_text(L, "path");
    lua_getfield(L, -1, "plugin");
    lua_getfield(L, -1, phase);
    lua_remove(L, -2);
    if (lua_isnil(L, -1)) {
        lua_pop(L, 1);
        return true;
    }
    struct task *t = task_new(&g->tasks, on_settled, NULL);
    task_set_mark(t, mark);
    lua_getfield(L, -2, "conf");
    lua_getfield(L, -3, "state");
    lua_xmove(L, task_lua(t), 3);
    lua_pushnil(L);
    lua_setfield(L, -2, "state");
    switch (task_call(t, 2)) {
    case TASK_WAITS:
        fine = false;
        buf_printf(faults,
                   "%s: %s must not wait; start a timer with tg.timer.after(0, fn) instead\n",
                   where, phase);
        break;
    case TASK_ERROR:
        fine = false;
        buf_printf(faults, "%s: %s: %s\n", where, phase, task_error(t));
        break;
    default:
        if (lua_gettop(task_lua(t)) > 0) {
            lua_settop(task_lua(t), 1);
            lua_xmove(task_lua(t), L, 1);
            lua_setfield(L, -2, "state");
        }
    }
    task_free(t);
    return fine;
}

/* --- all plugins --- */

/* Pushes what the old generation has for the same plugin (route name, plugin name, index): its
 * entry's state, or nothing. */
static bool push_old_state(struct generation *old, const char *route, const char *plugin,
                           lua_Integer index)
{
    lua_State *L = old->L;
    int top = lua_gettop(L);
    lua_getfield(L, LUA_REGISTRYINDEX, "tollgate.config");
    lua_getfield(L, -1, "chains");
    for (int i = 1, n = (int)lua_objlen(L, -1); i <= n; i++) {
        lua_rawgeti(L, -1, i);
        if (strcmp(entry_text(L, "name"), route) == 0) {
            lua_getfield(L, -1, "chain");
            for (int k = 1, m = (int)lua_objlen(L, -1); k <= m; k++) {
                lua_rawgeti(L, -1, k);
                lua_getfield(L, -1, "index");
                bool same = lua_tointeger(L, -1) == index;
                lua_pop(L, 1);
                if (same && strcmp(entry_text(L, "name"), plugin) == 0) {
                    lua_getfield(L, -1, "state");
                    return true;
                }
                lua_pop(L, 1);
            }
            lua_pop(L, 1);
        }
        lua_pop(L, 1);
    }
    lua_settop(L, top);
    return false;
}

static void take_old_state(struct generation *g, struct generation *old, const char *route)
{
    lua_State *L = g->L;
    int top = lua_gettop(old->L);
    lua_getfield(L, -1, "index");
    lua_Integer index = lua_tointeger(L, -1);
    lua_pop(L, 1);
    if (push_old_state(old, route, entry_text(L, "name"), index)) {
        hand_over(old->L, lua_gettop(old->L), L, entry_text(L, "path"));
        lua_setfield(L, -2, "state");
    }
    lua_settop(old->L, top);
}

/* stop is for what has been started. The entry is on top of the stack. */
static bool runs(const struct generation *g, bool starting)
{
    lua_State *L = g->L;
    lua_getfield(L, -1, "started");
    bool started = lua_toboolean(L, -1);
    lua_pop(L, 1);
    return (starting || started) && !generation_quarantined(g, entry_text(L, "name"));
}

/* Calls the phase of every entry. `old` gives states to init. */
static bool each_entry(struct generation *g, unsigned phase, struct generation *old,
                       struct buf *faults)
{
    lua_State *L = g->L;
    bool fine = true, starting = phase == MARK_INIT;
    int top = lua_gettop(L);
    lua_getfield(L, LUA_REGISTRYINDEX, "tollgate.config");
    if (lua_isnil(L, -1)) { /* a bare one */
        lua_pop(L, 1);
        return true;
    }
    lua_getfield(L, -1, "chains");
    for (int i = 1, nroutes = (int)lua_objlen(L, -1); i <= nroutes; i++) {
        lua_rawgeti(L, -1, i);
        const char *route = entry_text(L, "name");
        lua_getfield(L, -1, "chain");
        for (int k = 1, n = (int)lua_objlen(L, -1); k <= n; k++) {
            lua_rawgeti(L, -1, k);
            if (starting && old != NULL)
                take_old_state(g, old, route);
            uint64_t mark = zone_mark(g->number, (unsigned)i - 1, (unsigned)k - 1, phase);
            if (runs(g, starting)) {
                bool went = call_entry(g, starting ? "init" : "stop", mark, faults);
                lua_pushboolean(L, starting && went);
                lua_setfield(L, -2, "started");
                fine = went && fine;
            }
            lua_pop(L, 1);
        }
        lua_pop(L, 2);
    }
    lua_settop(L, top);
    return fine;
}

int generation_start(struct generation *g, struct generation *old, struct buf *faults)
{
    api_redis_scripts_start(g);
    if (!each_entry(g, MARK_INIT, old, faults))
        return -1;
    g->health = health_start(g, old);
    return 0;
}

static void run_logged(struct generation *g, unsigned phase)
{
    struct buf faults;
    buf_init(&faults);
    if (!each_entry(g, phase, NULL, &faults)) {
        faults.p[faults.n - 1] = '\0'; /* the last line's end */
        log_error("%s", faults.p);
    }
    buf_deinit(&faults);
}

void generation_suspend(struct generation *g)
{
    if (g->stopped)
        return;
    g->stopped = true;
    health_stop(g->health);
    g->health = NULL;
    run_logged(g, MARK_STOP);
    api_timers_stop(g);
    api_redis_subscriptions_stop(g);
}

void generation_resume(struct generation *g)
{
    g->stopped = false;
    run_logged(g, MARK_INIT);
    g->health = health_start(g, NULL);
}

void generation_stop(struct generation *g)
{
    generation_suspend(g);
}

/* --- quarantine --- */

void generation_quarantine(struct generation *g, const struct quarantine *q)
{
    for (uint32_t i = 0; i < g->nroutes; i++) {
        struct route *r = &g->routes[i];
        for (int p = 0; p < PHASES; p++) {
            for (uint32_t k = 0; k < r->hooks[p].n; k++) {
                struct hook *h = &r->hooks[p].v[k];
                if (strcmp(h->plugin, q->plugin) != 0)
                    continue;
                h->off = true;
                r->quarantined = r->quarantined || q->fail;
            }
        }
    }
}
