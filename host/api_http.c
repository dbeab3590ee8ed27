/* tg.http: an HTTP client over the gateway's own pool of connections. This file has the whole
 * answers. */
#include "api_http.h"

#include "api_json.h"
#include "mem.h"

static const char RESPONSE[] = "tollgate.http.response";

struct call {
    struct fetch *f;
    struct task *task;
};

/* --- what an answer looks like --- */

/* The field of that name in the table below the two on top, joined with what it has already (RFC
 * 9110, section 5.3). */
static void add_field(lua_State *L, int headers, struct slice lower, struct slice value)
{
    lua_pushlstring(L, lower.p, lower.n);
    lua_pushvalue(L, -1);
    lua_rawget(L, headers);
    if (lua_isnil(L, -1)) {
        lua_pop(L, 1);
        lua_pushlstring(L, value.p, value.n);
    } else {
        lua_pushliteral(L, ", ");
        lua_pushlstring(L, value.p, value.n);
        lua_concat(L, 3);
    }
    lua_rawset(L, headers);
}

static struct slice lower_case(struct arena *a, struct slice name)
{
    struct slice copy = arena_dup(a, name);
    for (size_t i = 0; i < copy.n; i++)
        if (copy.p[i] >= 'A' && copy.p[i] <= 'Z')
            ((char *)copy.p)[i] |= 0x20;
    return copy;
}

static void push_pair(lua_State *L, const struct header *h)
{
    lua_createtable(L, 2, 0);
    lua_pushlstring(L, h->name.p, h->name.n);
    lua_rawseti(L, -2, 1);
    lua_pushlstring(L, h->value.p, h->value.n);
    lua_rawseti(L, -2, 2);
}

void api_http_push_head(lua_State *L, struct fetch *f, const char *metatable)
{
    const struct response *res = fetch_response(f);
    struct slice url = fetch_final_url(f);
    lua_checkstack(L, 12);
    lua_createtable(L, 1, 5);
    lua_pushinteger(L, res->status);
    lua_setfield(L, -2, "status");
    lua_pushlstring(L, url.p, url.n);
    lua_setfield(L, -2, "url");
    lua_createtable(L, (int)res->headers.n, 0);
    lua_createtable(L, 0, (int)res->headers.n);
    for (uint32_t i = 0; i < res->headers.n; i++) {
        const struct header *h = &res->headers.v[i];
        add_field(L, lua_gettop(L), lower_case(fetch_arena(f), h->name), h->value);
        push_pair(L, h);
        lua_rawseti(L, -3, (int)i + 1);
    }
    lua_setfield(L, -3, "headers");
    lua_setfield(L, -2, "header_list");
    luaL_getmetatable(L, metatable);
    lua_setmetatable(L, -2);
}

int api_http_push_failure(lua_State *L, const struct fetch *f)
{
    lua_pushnil(L);
    lua_pushstring(L, fetch_error_name(fetch_failure(f)));
    lua_pushstring(L, fetch_detail(f));
    return 3;
}

/* res:json() → value, or nil and what is wrong: the body by tg.json.decode, whatever its
 * Content-Type says. */
static int response_json(lua_State *L)
{
    luaL_checktype(L, 1, LUA_TTABLE);
    lua_getfield(L, 1, "body");
    lua_replace(L, 1);
    lua_settop(L, 1);
    return api_json_decode_text(L);
}

/* --- asking --- */

static void on_answer(void *arg)
{
    struct call *c = arg;
    struct fetch *f = c->f;
    struct task *task = c->task;
    lua_State *co = task_lua(task);
    int n = 1;
    mem_free(c);
    if (fetch_failure(f) != FETCH_OK && !(fetch_options(f)->stream && fetch_answered(f))) {
        n = api_http_push_failure(co, f);
        fetch_free(f);
    } else if (fetch_options(f)->stream) {
        api_http_push_head(co, f, API_HTTP_STREAM);
        api_http_push_stream(co, f, task);
    } else {
        struct slice body = fetch_body(f);
        api_http_push_head(co, f, RESPONSE);
        lua_pushlstring(co, body.p, body.n);
        lua_setfield(co, -2, "body");
        fetch_free(f);
    }
    task_resume(task, n);
}

static void on_cancel(void *arg)
{
    struct call *c = arg;
    fetch_free(c->f);
    mem_free(c);
}

static int start(lua_State *L, const char *what, const char *method, bool stream)
{
    struct task *task = task_check(L, what);
    struct fetch **guard = api_http_prepare(L, what, method, stream);
    struct call *c = mem_zalloc(sizeof *c);
    c->task = task;
    c->f = *guard;
    *guard = NULL; /* from here on it is the call's */
    fetch_start(c->f, on_answer, c);
    return task_wait(L, task, on_cancel, c);
}

/* tg.http.request(url, options) → res, or nil, err and a sentence about it. Waits for the whole
 * answer; any status is one.
 *
 * url: "http://host[:port][/path][?query]", the same with https://, or
 * "unix:/path/to/socket[:/path[?query]]".
 *
 * options, all of which may be left out: method ("GET"); headers: name → string, number, or list of
 * them; body: a string, or json: a value for tg.json.encode (sets content-type unless given);
 * query: name → string, number, boolean or list of them, percent-encoded and sorted by name;
 * timeout: seconds to the end of the answer, redirects included (30); connect_timeout: seconds for
 * name and connection (5); first_byte_timeout: seconds from the request sent to the answer's head
 * (none); idle_timeout: seconds between two pieces of the answer (60); max_body: bytes (10485760);
 * redirects: how many are followed, at most 20 (0); tls: how https is spoken with this host: ca
 * (file of the authorities that are trusted, PEM; the system's), cert and key (files of our own
 * certificate), server_name (whose certificate it must show; the URL's host), verify (true).
 *
 * res: status; headers: lower-case name → string, repeated ones joined by ", "; header_list: list
 * of { name, value } as they came; body: string; url: where the answer came from; res:json().
 *
 * err: "timeout", "refused" (no connection), "closed" (the connection ended before the answer, or
 * the gateway stops), "resolve" (a name without address), "too_large" (a body above max_body),
 * "malformed" (an answer or redirect that cannot be used), "tls" (a certificate that is not
 * accepted, or another failure of TLS), "too_many_redirects".
 *
 * A request without a body whose method is idempotent is sent once more where a kept connection
 * turned out closed. Where a redirect leaves the origin, authorization, cookie, x-api-key and the
 * like are left out. */
static int http_request(lua_State *L)
{
    return start(L, "tg.http.request", NULL, false);
}

/* tg.http.get(url, options) → as tg.http.request, with the method GET. */
static int http_get(lua_State *L)
{
    return start(L, "tg.http.get", "GET", false);
}

/* tg.http.post(url, options) → as tg.http.request, with the method POST. */
static int http_post(lua_State *L)
{
    return start(L, "tg.http.post", "POST", false);
}

/* tg.http.stream(url, options) → res, or nil, err and a sentence about it, as tg.http.request.
 * Waits for the answer's head. The body is read piece by piece, and the origin is held back while
 * nobody reads. timeout counts up to the head, idle_timeout between two pieces while the origin is
 * not held back, and max_body has no default.
 *
 * res: status, headers, header_list, url as above; res:read(), res:pieces(), res:close(), res.err.
 * It ends with the request or timer that opened it, or when it is collected: its connection is
 * closed. */
static int http_stream(lua_State *L)
{
    return start(L, "tg.http.stream", NULL, true);
}

void api_open_http(lua_State *L)
{
    static const luaL_Reg functions[] = { { "request", http_request },
                                          { "get", http_get },
                                          { "post", http_post },
                                          { "stream", http_stream },
                                          { NULL, NULL } };
    api_http_open_guard(L);
    api_http_open_stream(L);
    luaL_newmetatable(L, RESPONSE);
    lua_newtable(L);
    lua_pushcfunction(L, response_json);
    lua_setfield(L, -2, "json");
    lua_setfield(L, -2, "__index");
    lua_pop(L, 1);
    lua_newtable(L);
    luaL_register(L, NULL, functions);
    lua_setfield(L, -2, "http");
}
