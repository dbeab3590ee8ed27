/* See exchange.h: the phases of plugins. All hooks of access, response and a plugin's own answer
 * run in one coroutine, those of finish in one that follows it; body hooks, which may not wait, and
 * log hooks, which outlive the client, each in one of their own. */
#include <stdio.h>
#include <string.h>

#include "api.h"
#include "exchange.h"
#include "log.h"

enum { PRODUCE_AT_ONCE = 16 }; /* pieces before others get a turn */

static void run_hooks(struct exchange *x);
static bool produced(struct exchange *x, enum task_outcome outcome);
static void on_settled(void *owner, enum task_outcome outcome);

static const char *const phase_names[PHASES] = { "access", "target", "attempt", "response",
                                                 "body",   "finish", "log" };

static struct task **task_slot(struct exchange *x)
{
    return x->phase == PHASE_LOG ? &x->log_task : &x->task;
}

struct task *exchange_task_new(struct exchange *x)
{
    struct task *t = task_new(&x->gen->tasks, on_settled, x);
    task_set_tag(t, x->id);
    return t;
}

/* --- finish and log phases may outlive their client; at the process's end they are given up --- */

static void enlist(struct exchange *x)
{
    if (x->link != NULL)
        return;
    x->next = x->sv->logging;
    x->link = &x->sv->logging;
    if (x->next != NULL)
        x->next->link = &x->next;
    x->sv->logging = x;
}

static void delist(struct exchange *x)
{
    if (x->link == NULL)
        return;
    *x->link = x->next;
    if (x->next != NULL)
        x->next->link = x->link;
    x->link = NULL;
}

uint32_t exchange_end_logs(struct services *sv)
{
    uint32_t n = 0;
    for (; sv->logging != NULL; n++) {
        struct exchange *x = sv->logging;
        exchange_drop_tasks(x);
        if (x->phase == PHASE_FINISH)
            x->finish.run(&x->finish); /* the last turn: nothing is deferred any more */
        else
            exchange_phase_done(x);
    }
    return n;
}

void exchange_drop_tasks(struct exchange *x)
{
    struct task **all[3] = { &x->task, &x->body_task, &x->log_task };
    delist(x);
    x->producing = false;
    for (int i = 0; i < 3; i++) {
        if (*all[i] != NULL)
            task_free(*all[i]);
        *all[i] = NULL;
    }
}

void exchange_report(struct exchange *x, const struct hook *h, enum phase phase, const char *error)
{
    x->sv->plugin_errors++;
    figures_hook_failed(h->figures);
    log_write(LOG_ERROR, x->id, "plugin %s, phase %s, route %s: %s", h->plugin, phase_names[phase],
              x->route->name, error);
}

/* Names the function that made the mistake. */
void exchange_report_misuse(struct exchange *x, const struct hook *h, enum phase phase,
                            const char *what)
{
    lua_State *L = x->gen->L;
    lua_Debug ar;
    char text[512];
    lua_rawgeti(L, LUA_REGISTRYINDEX, h->fn);
    lua_getinfo(L, ">S", &ar);
    snprintf(text, sizeof text, "%s:%d: %s", ar.short_src, ar.linedefined, what);
    exchange_report(x, h, phase, text);
}

/* Lets go of a coroutine that failed. Returns true where the phase goes on without this hook. */
static bool hook_failed(struct exchange *x, const struct hook *h)
{
    struct task **slot = task_slot(x);
    exchange_report(x, h, x->phase, task_error(*slot));
    task_free(*slot);
    *slot = NULL;
    if (h->skip_on_error || x->phase >= PHASE_FINISH)
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
    case LUA_TNUMBER:
    case LUA_TSTRING: {
        const char *text = lua_tolstring(co, idx, &n);
        x->answer = arena_dup(&x->arena, (struct slice){ text, n });
        break;
    }
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
    case LUA_TNONE: x->answer = (struct slice){ "", 0 }; break;
    default:
        luaL_error(
            co, "access returned a %s for a body; it must be a string, a table, a function or nil",
            luaL_typename(co, idx));
    }
}

/* Runs protected, since what a plugin returns may be anything: (lightuserdata x, status, body,
 * headers). */
static int take_answer(lua_State *co)
{
    struct exchange *x = lua_touserdata(co, 1);
    if (lua_type(co, 2) != LUA_TNUMBER)
        return luaL_error(co, "access returned a %s first; it must be a status, or nil to go on",
                          luaL_typename(co, 2));
    lua_Number status = lua_tonumber(co, 2);
    if (!(status >= 200 && status <= 599 && status == (int)status))
        return luaL_error(
            co, "access returned the status %f; it must be an integer from 200 to 599", status);
    x->res = (struct response){ .status = (int)status, .minor = 1 };
    headers_init(&x->res.headers, &x->arena);
    if (!lua_isnoneornil(co, 4)) {
        if (!lua_istable(co, 4))
            return luaL_error(co, "access returned a %s for headers; it must be a table",
                              luaL_typename(co, 4));
        api_headers_from_table(co, 4, &x->res.headers);
    }
    take_body(x, co, 3);
    return 0;
}

/* Returns true where the phase goes on as if the hook had returned nothing. */
static bool answer_from(struct exchange *x, const struct hook *h, lua_State *co)
{
    x->answerer = h;
    lua_settop(co, 3);
    lua_pushcfunction(co, take_answer);
    lua_insert(co, 1);
    lua_pushlightuserdata(co, x);
    lua_insert(co, 2);
    if (lua_pcall(co, 4, 0, 0) != 0) {
        exchange_report_misuse(x, h, PHASE_ACCESS, lua_tostring(co, -1));
        lua_settop(co, 0);
        x->res.status = 0;
        x->source = SOURCE_NONE;
        if (!h->skip_on_error)
            exchange_error(x, 500, "plugin_error", "A plugin of the gateway failed.");
        return h->skip_on_error;
    }
    exchange_answer(x);
    return false;
}

/* --- running --- */

/* One hook has ended. Returns false where the exchange goes on by another way. */
static bool hook_done(struct exchange *x, enum task_outcome outcome)
{
    const struct hook *h = &x->route->hooks[x->phase].v[x->hook++];
    if (outcome == TASK_ERROR)
        return hook_failed(x, h);
    lua_State *co = task_lua(*task_slot(x));
    if (x->phase == PHASE_ACCESS && lua_gettop(co) > 0 && !lua_isnil(co, 1))
        return answer_from(x, h, co);
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
            *slot = exchange_task_new(x);
        lua_State *co = task_lua(*slot);
        if (h->off) {
            x->hook++;
            continue;
        }
        task_set_mark(*slot, h->mark);
        task_set_meter(*slot, figures_hook_called(h->figures));
        lua_rawgeti(co, LUA_REGISTRYINDEX, h->fn);
        lua_rawgeti(co, LUA_REGISTRYINDEX, h->conf);
        api_ctx_push(co, x);
        enum task_outcome outcome = task_call(*slot, 2);
        if (outcome == TASK_WAITS && x->phase >= PHASE_FINISH)
            enlist(x);
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

static bool body_failed(struct exchange *x, const struct hook *h)
{
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
        x->body_task = exchange_task_new(x);
    task_set_mark(x->body_task, h->mark);
    task_set_meter(x->body_task, figures_hook_called(h->figures));
    lua_State *co = task_lua(x->body_task);
    lua_rawgeti(co, LUA_REGISTRYINDEX, h->fn);
    lua_rawgeti(co, LUA_REGISTRYINDEX, h->conf);
    api_ctx_push(co, x);
    lua_pushlstring(co, piece->p, piece->n);
    lua_pushboolean(co, last);
    switch (task_call(x->body_task, 4)) {
    case TASK_WAITS:
        exchange_report_misuse(x, h, PHASE_BODY, "the body phase must not wait");
        return body_failed(x, h);
    case TASK_ERROR:
        exchange_report(x, h, PHASE_BODY, task_error(x->body_task));
        return body_failed(x, h);
    default: break;
    }
    if (lua_gettop(co) > 0 && !lua_isnil(co, 1)) {
        size_t n;
        const char *text = lua_tolstring(co, 1, &n);
        if (text == NULL) {
            lua_settop(co, 0);
            exchange_report_misuse(x, h, PHASE_BODY, "the body phase must return a string or nil");
            return body_failed(x, h);
        }
        buf_clear(&x->edited);
        buf_add(&x->edited, text, n);
        *piece = buf_slice(&x->edited);
    }
    lua_settop(co, 0);
    return true;
}

bool exchange_body_hooks(struct exchange *x, struct slice piece, bool last,
                         void (*emit)(void *, struct slice))
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
        exchange_report(x, x->answerer, PHASE_ACCESS, task_error(x->task));
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
            exchange_report_misuse(
                x, x->answerer, PHASE_ACCESS,
                "the function that this returned as a body returned neither a string nor nil");
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
            x->task = exchange_task_new(x);
        lua_rawgeti(task_lua(x->task), LUA_REGISTRYINDEX, x->producer_ref);
        x->producing = true;
        enum task_outcome outcome = task_call(x->task, 0);
        if (outcome == TASK_WAITS || !produced(x, outcome))
            return;
    }
    loop_defer(x->sv->loop, &x->produce, LOOP_COLLECT);
}
