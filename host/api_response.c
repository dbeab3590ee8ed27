/* ctx.response: the answer's head, and on demand its whole body; the response phase may change
 * both. */
#include <string.h>

#include "api_ctx.h"

static void check_response_open(lua_State *L, const struct exchange *x)
{
    if (x->stage != STAGE_RESPONSE)
        luaL_error(L, "the response's head has been sent: only the response phase may change it");
}

static int gathered_result(lua_State *L, struct exchange *x)
{
    const struct buf *b = exchange_gathered(x);
    lua_pushlstring(L, b->p != NULL ? b->p : "", b->n);
    return 1;
}

static void on_gathered(void *arg)
{
    struct exchange *x = arg;
    task_resume(x->task, gathered_result(task_lua(x->task), x));
}

static void on_gathered_read(void *arg)
{
    task_resume(((struct exchange *)arg)->task, 0);
}

static void cancel_gather(void *arg)
{
    exchange_ungather(arg);
}

/* Waits until the whole answer is there; result is what done pushes. */
static int gather(lua_State *L, const char *what, void (*on_done)(void *), bool text)
{
    struct exchange *x = api_exchange(L, 1);
    if (x->stage != STAGE_RESPONSE)
        return luaL_error(L, "%s belongs to the response phase", what);
    switch (exchange_gather(x, NULL, NULL)) {
    case GATHER_NEVER:
        if (exchange_switches(x))
            return luaL_error(L, "%s: what follows is no answer: the protocol changes", what);
        return luaL_error(L, "%s: this answer is made by a plugin's function as it goes out", what);
    case GATHER_DONE: return text ? gathered_result(L, x) : 0;
    default: break;
    }
    struct task *t = task_check(L, what);
    if (t != x->task)
        return luaL_error(L, "%s must be called in the request's own phase", what);
    exchange_gather(x, on_done, x);
    return task_wait(L, t, cancel_gather, x);
}

/* ctx.response:body() → string: the whole answer, as it will go out. Waits for it; response phase.
 * One above the route's limits.body becomes a 502. */
static int response_body(lua_State *L)
{
    return gather(L, "ctx.response:body()", on_gathered, true);
}

/* ctx.response:read(): the same wait as body(), without making a string of it. */
static int response_read(lua_State *L)
{
    return gather(L, "ctx.response:read()", on_gathered_read, false);
}

/* ctx.response:set_body(text): what goes to the client; response phase, once body() or read() has
 * been called. Content-Length is set by the gateway. */
static int response_set_body(lua_State *L)
{
    struct exchange *x = api_exchange(L, 1);
    size_t n;
    const char *text = luaL_checklstring(L, 2, &n);
    check_response_open(L, x);
    struct buf *b = exchange_gathered(x);
    if (b == NULL)
        return luaL_error(
            L, "ctx.response:set_body() needs ctx.response:body() or :read() to be called first");
    buf_clear(b);
    buf_add(b, text, n);
    exchange_budget_note(x);
    return 0;
}

static int response_each(lua_State *L)
{
    return api_ctx_push_each(L, true);
}

static int response_index(lua_State *L)
{
    struct exchange *x = api_exchange(L, 1);
    const char *key = luaL_checkstring(L, 2);
    if (strcmp(key, "headers") == 0) {
        api_ctx_push_part(L, 1, API_RESPONSE_HEADERS);
        api_ctx_keep_field(L, "headers");
    } else if (strcmp(key, "status") == 0) {
        lua_pushinteger(L, x->res.status);
    } else if (strcmp(key, "source") == 0) {
        lua_pushstring(L, x->source == SOURCE_ORIGIN ? "origin" : "gateway");
    } else if (strcmp(key, "body") == 0) {
        lua_pushcfunction(L, response_body);
    } else if (strcmp(key, "read") == 0) {
        lua_pushcfunction(L, response_read);
    } else if (strcmp(key, "set_body") == 0) {
        lua_pushcfunction(L, response_set_body);
    } else if (strcmp(key, "json") == 0) {
        return api_ctx_push_json(L, true);
    } else if (strcmp(key, "each_header") == 0) {
        lua_pushcfunction(L, response_each);
    } else {
        return luaL_error(L, "ctx.response has no field '%s'", key);
    }
    return 1;
}

static int response_newindex(lua_State *L)
{
    struct exchange *x = api_exchange(L, 1);
    const char *key = luaL_checkstring(L, 2);
    if (strcmp(key, "status") != 0)
        return luaL_error(L, "ctx.response.%s cannot be set", key);
    lua_Number status = luaL_checknumber(L, 3);
    check_response_open(L, x);
    bool had_body = !message_no_body(x->req.method, x->res.status);
    if (exchange_switches(x) || status < 200 || status > 599 || status != (int)status ||
        had_body != !message_no_body(x->req.method, (int)status))
        return luaL_error(L,
                          "ctx.response.status must be an integer from 200 to 599, and of one kind "
                          "with %d as to having a body",
                          x->res.status);
    x->res.status = (int)status;
    return 0;
}

static int response_header(lua_State *L)
{
    struct exchange *x = api_exchange(L, 1);
    size_t n;
    const char *name = luaL_checklstring(L, 2, &n);
    api_headers_push(L, &x->res.headers, (struct slice){ name, n });
    return 1;
}

static int response_set_header(lua_State *L)
{
    struct exchange *x = api_exchange(L, 1);
    size_t n;
    const char *name = luaL_checklstring(L, 2, &n);
    check_response_open(L, x);
    api_headers_assign(L, &x->res.headers, (struct slice){ name, n }, 3);
    return 0;
}

void api_ctx_open_response(lua_State *L)
{
    api_ctx_metatable(L, API_RESPONSE, response_index, response_newindex);
    api_ctx_metatable(L, API_RESPONSE_HEADERS, response_header, response_set_header);
}
