/* ctx.request: what the client asked for; the access phase may change it. */
#include <string.h>

#include "api_ctx.h"
#include "url.h"

static void check_request_open(lua_State *L, const struct exchange *x)
{
    if (x->stage > STAGE_ACCESS)
        luaL_error(L, "the request has been sent: only the access phase may change it");
}

static int whole_result(lua_State *L, struct exchange *x)
{
    lua_pushlstring(L, x->body.p != NULL ? x->body.p : "", x->body.n);
    return 1;
}

static void on_whole(void *arg)
{
    struct exchange *x = arg;
    lua_State *co = task_lua(x->task);
    task_resume(x->task, whole_result(co, x));
}

static void cancel_whole(void *arg)
{
    exchange_unwant_whole(arg);
}

/* ctx.request:body() → string: the whole body, read first where it has not come yet. Waits. A body
 * above the route's limit never returns: the client gets 413. */
static int request_body(lua_State *L)
{
    struct exchange *x = api_exchange(L, 1);
    if (x->stage > STAGE_ACCESS && !x->whole)
        return luaL_error(L, "ctx.request:body() is there in the access phase, or later where that "
                             "phase has read it");
    if (x->body_done && exchange_want_whole(x, on_whole, x))
        return whole_result(L, x);
    struct task *t = task_check(L, "ctx.request:body()");
    if (task_owner(t) != x)
        return luaL_error(L, "ctx.request:body() must be called in the request's own phase");
    exchange_want_whole(x, on_whole, x);
    return task_wait(L, t, cancel_whole, x);
}

static void on_read(void *arg)
{
    task_resume(((struct exchange *)arg)->task, 0);
}

/* ctx.request:read(): the same wait as body(), without making a string of it. */
static int request_read(lua_State *L)
{
    struct exchange *x = api_exchange(L, 1);
    if (x->stage > STAGE_ACCESS && !x->whole)
        return luaL_error(L, "ctx.request:read() belongs to the access phase");
    if (x->body_done && exchange_want_whole(x, on_read, x))
        return 0;
    struct task *t = task_check(L, "ctx.request:read()");
    if (task_owner(t) != x)
        return luaL_error(L, "ctx.request:read() must be called in the request's own phase");
    exchange_want_whole(x, on_read, x);
    return task_wait(L, t, cancel_whole, x);
}

/* ctx.request:set_body(text): what goes upstream. Access phase, once the body has been read with
 * body(). */
static int request_set_body(lua_State *L)
{
    struct exchange *x = api_exchange(L, 1);
    size_t n;
    const char *text = luaL_checklstring(L, 2, &n);
    check_request_open(L, x);
    if (!x->body_done || !x->whole)
        return luaL_error(L, "ctx.request:set_body() needs ctx.request:body() to be called first");
    buf_clear(&x->body);
    buf_add(&x->body, text, n);
    exchange_budget_note(x);
    return 0;
}

/* for name, value in ctx.request:each_header() do: every field as it came, repeated ones one by
 * one. */
static int request_each(lua_State *L)
{
    return api_ctx_push_each(L, false);
}

static int request_index(lua_State *L)
{
    struct exchange *x = api_exchange(L, 1);
    const char *key = luaL_checkstring(L, 2);
    if (strcmp(key, "headers") == 0) {
        api_ctx_push_part(L, 1, API_REQUEST_HEADERS);
        api_ctx_keep_field(L, "headers");
    } else if (strcmp(key, "method") == 0) {
        api_ctx_push_slice(L, x->req.method);
    } else if (strcmp(key, "path") == 0) {
        api_ctx_push_slice(L, x->req.path);
    } else if (strcmp(key, "query") == 0) {
        api_ctx_push_slice(L, x->req.query);
    } else if (strcmp(key, "host") == 0) {
        api_ctx_push_slice(L, x->req.authority);
    } else if (strcmp(key, "version") == 0) {
        lua_pushstring(L, x->req.minor == 0 ? "1.0" : "1.1");
    } else if (strcmp(key, "scheme") == 0) {
        api_ctx_push_slice(L, exchange_scheme(x));
    } else if (strcmp(key, "body") == 0) {
        lua_pushcfunction(L, request_body);
    } else if (strcmp(key, "read") == 0) {
        lua_pushcfunction(L, request_read);
    } else if (strcmp(key, "json") == 0) {
        return api_ctx_push_json(L, false);
    } else if (strcmp(key, "set_body") == 0) {
        lua_pushcfunction(L, request_set_body);
    } else if (strcmp(key, "each_header") == 0) {
        lua_pushcfunction(L, request_each);
    } else {
        return luaL_error(L, "ctx.request has no field '%s'", key);
    }
    return 1;
}

static int request_newindex(lua_State *L)
{
    struct exchange *x = api_exchange(L, 1);
    const char *key = luaL_checkstring(L, 2);
    size_t n;
    check_request_open(L, x);
    if (strcmp(key, "path") == 0) {
        const char *text = luaL_checklstring(L, 3, &n);
        struct slice path;
        if (n == 0 || text[0] != '/' ||
            url_normalise(&x->arena, arena_dup(&x->arena, (struct slice){ text, n }), &path) != 0)
            return luaL_error(L, "ctx.request.path must be a path that begins with '/'");
        x->req.path = path;
        x->prefix = 0;
    } else if (strcmp(key, "query") == 0) {
        const char *text = luaL_optlstring(L, 3, NULL, &n);
        for (size_t i = 0; text != NULL && i < n; i++) {
            if ((unsigned char)text[i] <= 0x20 || (unsigned char)text[i] >= 0x7f || text[i] == '#')
                return luaL_error(L, "ctx.request.query must be percent-encoded");
        }
        x->req.query = text == NULL ? (struct slice){ NULL, 0 }
                                    : arena_dup(&x->arena, (struct slice){ text, n });
    } else {
        return luaL_error(L, "ctx.request.%s cannot be set", key);
    }
    return 0;
}

static int request_header(lua_State *L)
{
    struct exchange *x = api_exchange(L, 1);
    size_t n;
    const char *name = luaL_checklstring(L, 2, &n);
    api_headers_push(L, &x->req.headers, (struct slice){ name, n });
    return 1;
}

static int request_set_header(lua_State *L)
{
    struct exchange *x = api_exchange(L, 1);
    size_t n;
    const char *name = luaL_checklstring(L, 2, &n);
    check_request_open(L, x);
    api_headers_assign(L, &x->req.headers, (struct slice){ name, n }, 3);
    return 0;
}

void api_ctx_open_request(lua_State *L)
{
    api_ctx_metatable(L, API_REQUEST, request_index, request_newindex);
    api_ctx_metatable(L, API_REQUEST_HEADERS, request_header, request_set_header);
}
