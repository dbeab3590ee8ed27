/* See exchange.h: the phases target and attempt. Both run at once and must not wait, each time in a
 * coroutine that is given back when they are done.
 *
 * A plugin whose target hook let a target pass hears of it by its attempt hook, once, whatever
 * happens: also where the request then went elsewhere. */
#include <math.h>

#include "api.h"
#include "exchange.h"

/* Pushes function, conf, ctx and target. */
static lua_State *push_call(struct exchange *x, struct task **task, const struct hook *h,
                            const struct target *t)
{
    if (*task == NULL)
        *task = exchange_task_new(x);
    task_set_mark(*task, h->mark);
    task_set_meter(*task, figures_hook_called(h->figures));
    lua_State *co = task_lua(*task);
    lua_rawgeti(co, LUA_REGISTRYINDEX, h->fn);
    lua_rawgeti(co, LUA_REGISTRYINDEX, h->conf);
    api_ctx_push(co, x);
    lua_rawgeti(co, LUA_REGISTRYINDEX, t->lua_ref);
    return co;
}

/* False where it failed, which has been reported; then the coroutine is gone. */
static bool call(struct exchange *x, struct task **task, const struct hook *h, enum phase phase,
                 int nargs)
{
    switch (task_call(*task, nargs)) {
    case TASK_DONE: return true;
    case TASK_WAITS:
        exchange_report_misuse(x, h, phase,
                               phase == PHASE_TARGET ? "the target phase must not wait"
                                                     : "the attempt phase must not wait");
        break;
    case TASK_ERROR: exchange_report(x, h, phase, task_error(*task)); break;
    }
    task_free(*task);
    *task = NULL;
    return false;
}

/* --- target --- */

/* What a target hook returned: PICK_FOUND lets pass, PICK_NONE passes over. */
static enum exchange_pick read_verdict(struct exchange *x, const struct hook *h, lua_State *co,
                                       uint64_t *again_ms)
{
    const char *wrong = NULL;
    enum exchange_pick said = PICK_FOUND;
    bool given = lua_gettop(co) > 0 && !lua_isnil(co, 1);
    if (given && !lua_isboolean(co, 1)) {
        wrong = "the target phase must return false to pass over a target, or nothing";
    } else if (given && !lua_toboolean(co, 1)) {
        lua_Number seconds = lua_isnoneornil(co, 2) ? 0 : lua_tonumber(co, 2);
        said = PICK_NONE;
        if (!lua_isnoneornil(co, 2) &&
            (lua_type(co, 2) != LUA_TNUMBER || !(seconds >= 0 && seconds < 1e9)))
            wrong = "the target phase returned something other than seconds behind false";
        else
            *again_ms = (uint64_t)ceil(seconds * 1000);
    }
    lua_settop(co, 0);
    if (wrong == NULL)
        return said;
    exchange_report_misuse(x, h, PHASE_TARGET, wrong);
    return PICK_FAILED;
}

/* The attempt hooks of those whose target hook is among the first n. */
static void not_tried(struct exchange *x, struct target *t, uint32_t n)
{
    const struct hooks *asked = &x->route->hooks[PHASE_TARGET];
    const struct hooks *told = &x->route->hooks[PHASE_ATTEMPT];
    const struct attempt_outcome o = { .error = "not_tried",
                                       .first_byte_ms = -1,
                                       .retry_after_ms = -1 };
    for (uint32_t i = 0; i < told->n; i++) {
        bool let_pass = false;
        for (uint32_t k = 0; k < n; k++)
            let_pass = let_pass || asked->v[k].place == told->v[i].place;
        if (let_pass) {
            struct hooks one = { &told->v[i], 1 };
            exchange_attempt_tell(x, t, &o, &one);
        }
    }
}

enum exchange_pick exchange_target_hooks(struct exchange *x, struct target *t, uint64_t *again_ms)
{
    const struct hooks *hooks = &x->route->hooks[PHASE_TARGET];
    struct task *task = NULL;
    enum exchange_pick said = PICK_FOUND;
    uint32_t i = 0;
    for (; i < hooks->n && said == PICK_FOUND; i++) {
        const struct hook *h = &hooks->v[i];
        if (h->off)
            continue;
        lua_State *co = push_call(x, &task, h, t);
        said = call(x, &task, h, PHASE_TARGET, 3) ? read_verdict(x, h, co, again_ms) : PICK_FAILED;
        if (said == PICK_FAILED && h->skip_on_error)
            said = PICK_FOUND;
    }
    if (task != NULL)
        task_free(task);
    if (said != PICK_FOUND)
        not_tried(x, t, i - 1);
    if (said == PICK_FAILED)
        exchange_error(x, 500, "plugin_error", "A plugin of the gateway failed.");
    return said;
}

void exchange_not_tried(struct exchange *x, struct target *t)
{
    not_tried(x, t, x->route->hooks[PHASE_TARGET].n);
}

/* --- attempt --- */

static void put_number(lua_State *L, const char *name, double value)
{
    lua_pushnumber(L, value);
    lua_setfield(L, -2, name);
}

static void push_outcome(lua_State *L, const struct attempt_outcome *o)
{
    lua_createtable(L, 0, 8);
    put_number(L, "seconds", (double)o->ms / 1000);
    if (o->n > 0)
        put_number(L, "attempt", o->n);
    if (o->status != 0)
        put_number(L, "status", o->status);
    if (o->first_byte_ms >= 0)
        put_number(L, "first_byte_seconds", (double)o->first_byte_ms / 1000);
    if (o->retry_after_ms >= 0)
        put_number(L, "retry_after", (double)o->retry_after_ms / 1000);
    if (o->error != NULL) {
        lua_pushstring(L, o->error);
        lua_setfield(L, -2, "error");
    }
    if (o->span != NULL) {
        lua_pushstring(L, o->span);
        lua_setfield(L, -2, "span_id");
    }
    if (o->code.p != NULL) {
        lua_pushlstring(L, o->code.p, o->code.n);
        lua_setfield(L, -2, "code");
    }
}

void exchange_attempt_tell(struct exchange *x, struct target *t, const struct attempt_outcome *o,
                           const struct hooks *hooks)
{
    struct task *task = NULL;
    for (uint32_t i = 0; i < hooks->n; i++) {
        const struct hook *h = &hooks->v[i];
        if (h->off)
            continue;
        lua_State *co = push_call(x, &task, h, t);
        push_outcome(co, o);
        if (call(x, &task, h, PHASE_ATTEMPT, 4))
            lua_settop(co, 0);
    }
    if (task != NULL)
        task_free(task);
}
