/* See exchange.h: the phases of plugins. All hooks of access, response and a plugin's own answer run in one coroutine; body
 * hooks, which may not wait, and log hooks, which outlive the client, each in one of their own. */
#include <string.h>

#include "api.h"
#include "exchange.h"
#include "log.h"

enum { PRODUCE_AT_ONCE = 16 }; /* pieces before others get a turn */

static void run_hooks(struct exchange *x);
static bool produced(struct exchange *x, enum task_outcome outcome);
static void on_settled(void *owner, enum task_outcome outcome);

static const char *const phase_names[PHASES] = { "access", "response", "body", "log" };

static struct task **task_slot(struct exchange *x)
{
    return x->phase == PHASE_LOG ? &x->log_task : &x->task;
}

static struct task *request_task(struct exchange *x)
{
    struct task *t = task_new(&x->gen->tasks, on_settled, x);
    task_set_tag(t, x->id);
    return t;
}

void exchange_drop_tasks(struct exchange *x)
{
    struct task **all[3] = { &x->task, &x->body_task, &x->log_task };
    for (int i = 0; i < 3; i++) {
        if (*all[i] != NULL)
            task_free(*all[i]);
        *all[i] = NULL;
    }
}

static void report(struct exchange *x, const struct hook *h, enum phase phase, const char *error)
{
    x->sv->counters.plugin_errors++;
    log_write(LOG_ERROR, x->id, "plugin %s, phase %s, route %s: %s", h->plugin, phase_names[phase], x->route->name, error);
}

/* Lets go of a coroutine that failed. Returns true where the phase goes on without this hook. */
static bool hook_failed(struct exchange *x, const struct hook *h)
{
    struct task **slot = task_slot(x);
    report(x, h, x->phase, task_error(*slot));
    task_free(*slot);
    *slot = NULL;
    if (h->skip_on_error || x->phase == PHASE_LOG)
        return true;
    exchange_error(x, 500, "plugin_error", "A plugin of the gateway failed.");
    return false;
}

/* --- a plugin answers --- */

static void take_body(struct exchange *x, lua_State *co, int idx)
{
    struct buf json;
    size_t n;
    x->source = SOURCE_BYTES;
    switch (lua_type(co, idx)) {
    case LUA_TFUNCTION:
        lua_pushvalue(co, idx);
        x->producer_ref = generation_ref(x->gen, co);
        x->source = SOURCE_FUNCTION;
        break;
    case LUA_TTABLE:
        buf_init(&json);
        api_json_encode(co, idx, &json);
        x->answer = arena_dup(&x->arena, buf_slice(&json));
        buf_deinit(&json);
        if (headers_get_id(&x->res.headers, HEADER_CONTENT_TYPE).p == NULL)
            headers_add(&x->res.headers, SLICE("content-type"), SLICE("application/json"));
        break;
    case LUA_TNIL:
    case LUA_TNONE:
        x->answer = (struct slice){ "", 0 };
        break;
    default: {
        const char *text = luaL_checklstring(co, idx, &n);
        x->answer = arena_dup(&x->arena, (struct slice){ text, n });
    }
    }
}

/* Runs protected, since what a plugin returns may be anything: (lightuserdata x, status, body, headers). */
static int take_answer(lua_State *co)
{
    struct exchange *x = lua_touserdata(co, 1);
    lua_Number status = luaL_checknumber(co, 2);
    if (status < 200 || status > 599 || status != (int)status)
        return luaL_error(co, "access returned the status %f; it must be an integer from 200 to 599", status);
    x->res = (struct response){ .status = (int)status, .minor = 1 };
    headers_init(&x->res.headers, &x->arena);
    if (!lua_isnoneornil(co, 4)) {
        luaL_checktype(co, 4, LUA_TTABLE);
        api_headers_from_table(co, 4, &x->res.headers);
    }
    take_body(x, co, 3);
    return 0;
}

static void answer_from(struct exchange *x, const struct hook *h, lua_State *co)
{
    lua_settop(co, 3);
    lua_pushcfunction(co, take_answer);
    lua_insert(co, 1);
    lua_pushlightuserdata(co, x);
    lua_insert(co, 2);
    if (lua_pcall(co, 4, 0, 0) != 0) {
        report(x, h, PHASE_ACCESS, lua_tostring(co, -1));
        lua_settop(co, 0);
        exchange_error(x, 500, "plugin_error", "A plugin of the gateway failed.");
        return;
    }
    exchange_answer(x);
}

/* --- running --- */

/* One hook has ended. Returns false where the exchange goes on by another way. */
static bool hook_done(struct exchange *x, enum task_outcome outcome)
{
    const struct hook *h = &x->route->hooks[x->phase].v[x->hook++];
    if (outcome == TASK_ERROR)
        return hook_failed(x, h);
    lua_State *co = task_lua(*task_slot(x));
    if (x->phase == PHASE_ACCESS && lua_gettop(co) > 0 && !lua_isnil(co, 1)) {
        answer_from(x, h, co);
        return false;
    }
    lua_settop(co, 0);
    return true;
}

static void on_settled(void *owner, enum task_outcome outcome)
{
    struct exchange *x = owner;
    if (x->producing) {
        if (produced(x, outcome))
            exchange_produce(x);
        return;
    }
    if (hook_done(x, outcome))
        run_hooks(x);
}

static void run_hooks(struct exchange *x)
{
    const struct hooks *hooks = &x->route->hooks[x->phase];
    while (x->hook < hooks->n) {
        const struct hook *h = &hooks->v[x->hook];
        struct task **slot = task_slot(x);
        if (*slot == NULL)
            *slot = request_task(x);
        lua_State *co = task_lua(*slot);
        if (h->off) {
            x->hook++;
            continue;
        }
        task_set_mark(*slot, h->mark);
        lua_rawgeti(co, LUA_REGISTRYINDEX, h->fn);
        lua_rawgeti(co, LUA_REGISTRYINDEX, h->conf);
        api_ctx_push(co, x);
        enum task_outcome outcome = task_call(*slot, 2);
        if (outcome == TASK_WAITS || !hook_done(x, outcome))
            return;
    }
    exchange_phase_done(x);
}

void exchange_phase_run(struct exchange *x, enum phase phase)
{
    x->phase = phase;
    x->hook = 0;
    run_hooks(x);
}

/* --- body --- */

static bool body_failed(struct exchange *x, const struct hook *h, const char *error)
{
    report(x, h, PHASE_BODY, error);
    task_free(x->body_task);
    x->body_task = NULL;
    if (h->skip_on_error)
        return true;
    exchange_finish(x, ENDED_PLUGIN_ERROR);
    return false;
}

/* Calls one hook; replaces x->edited with what it returned, if anything. */
static bool body_hook(struct exchange *x, const struct hook *h, struct slice *piece, bool last)
{
    if (h->off)
        return true;
    if (x->body_task == NULL)
        x->body_task = request_task(x);
    task_set_mark(x->body_task, h->mark);
    lua_State *co = task_lua(x->body_task);
    lua_rawgeti(co, LUA_REGISTRYINDEX, h->fn);
    lua_rawgeti(co, LUA_REGISTRYINDEX, h->conf);
    api_ctx_push(co, x);
    lua_pushlstring(co, piece->p, piece->n);
    lua_pushboolean(co, last);
    switch (task_call(x->body_task, 4)) {
    case TASK_WAITS:
        return body_failed(x, h, "the body phase must not wait");
    case TASK_ERROR:
        return body_failed(x, h, task_error(x->body_task));
    default:
        break;
    }
    if (lua_gettop(co) > 0 && !lua_isnil(co, 1)) {
        size_t n;
        const char *text = lua_tolstring(co, 1, &n);
        if (text == NULL) {
            lua_settop(co, 0);
            return body_failed(x, h, "the body phase must return a string or nil");
        }
        buf_clear(&x->edited);
        buf_add(&x->edited, text, n);
        *piece = buf_slice(&x->edited);
    }
    lua_settop(co, 0);
    return true;
}

bool exchange_body_hooks(struct exchange *x, struct slice piece, bool last, void (*emit)(void *, struct slice))
{
    const struct hooks *hooks = &x->route->hooks[PHASE_BODY];
    for (uint32_t i = 0; i < hooks->n; i++) {
        if (!body_hook(x, &hooks->v[i], &piece, last))
            return false;
    }
    emit(x, piece);
    return true;
}

/* --- an answer that a function makes --- */

/* Takes one piece. Returns false at the end. */
static bool produced(struct exchange *x, enum task_outcome outcome)
{
    x->producing = false;
    if (outcome == TASK_ERROR) {
        const struct hook *h = &x->route->hooks[PHASE_ACCESS].v[0];
        report(x, h, PHASE_ACCESS, task_error(x->task));
        exchange_finish(x, ENDED_PLUGIN_ERROR);
        return false;
    }
    lua_State *co = task_lua(x->task);
    size_t n = 0;
    const char *text = lua_gettop(co) > 0 ? lua_tolstring(co, 1, &n) : NULL;
    if (text == NULL) {
        bool proper = lua_gettop(co) == 0 || lua_isnil(co, 1);
        lua_settop(co, 0);
        if (proper) {
            exchange_relay_end(x);
        } else {
            log_write(LOG_ERROR, x->id, "route %s: a plugin's body function returned neither a string nor nil", x->route->name);
            exchange_finish(x, ENDED_PLUGIN_ERROR);
        }
        return false;
    }
    exchange_relay(x, (struct slice){ text, n });
    if (x->stage == STAGE_RELAY)
        lua_settop(co, 0);
    return x->stage == STAGE_RELAY;
}

void exchange_produce(struct exchange *x)
{
    for (int i = 0; i < PRODUCE_AT_ONCE; i++) {
        if (x->stage != STAGE_RELAY || x->producing)
            return;
        x->producer_blocked = exchange_client_full(x);
        if (x->producer_blocked)
            return;
        if (x->task == NULL)
            x->task = request_task(x);
        lua_rawgeti(task_lua(x->task), LUA_REGISTRYINDEX, x->producer_ref);
        x->producing = true;
        enum task_outcome outcome = task_call(x->task, 0);
        if (outcome == TASK_WAITS || !produced(x, outcome))
            return;
    }
    loop_defer(x->sv->loop, &x->produce, LOOP_COLLECT);
}
