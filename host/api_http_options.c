/* The arguments of tg.http: url and options become a fetch. What is wrong with them raises before
 * anything is begun. */
#include <math.h>

#include "api_http.h"

static const char GUARD[] = "tollgate.http.guard";
static const char KNOWN[] =
    "method, headers, body, json, query, timeout, connect_timeout, first_byte_timeout, "
    "idle_timeout, max_body, redirects, tls";

enum { DAY_S = 86400, CONNECT_MS = 5000, TOTAL_MS = 30000, IDLE_MS = 60000, METHOD_MAX = 64 };
enum { BODY_MAX = 10 << 20 }; /* bytes, by default */

struct arguments {
    lua_State *L;
    struct fetch *f;
    const char *what;
    const char *method; /* fixed, or NULL */
    bool has_body, has_json;
};

struct option {
    const char *name;
    void (*take)(struct arguments *a, const struct option *o, int idx);
    size_t field; /* of a number in struct fetch_options */
};

static void check_type(struct arguments *a, const struct option *o, int idx, int type)
{
    if (lua_type(a->L, idx) != type)
        luaL_error(a->L, "%s: %s must be a %s, not %s", a->what, o->name, lua_typename(a->L, type),
                   luaL_typename(a->L, idx));
}

/* --- method, times, sizes --- */

static void set_method(struct arguments *a, struct slice method)
{
    bool valid = method.n <= METHOD_MAX && header_name_valid(method);
    if (!valid || slice_eq(method, SLICE("CONNECT")))
        luaL_error(a->L, "%s: method: '%s' is not the name of a method, or is CONNECT", a->what,
                   method.p);
    fetch_request(a->f)->method = method;
}

static void take_method(struct arguments *a, const struct option *o, int idx)
{
    if (a->method != NULL)
        luaL_error(a->L, "%s: the method is %s; use tg.http.request for another", a->what,
                   a->method);
    check_type(a, o, idx, LUA_TSTRING);
    set_method(a, api_http_copy(a->L, a->f, idx));
}

static uint64_t *number_field(struct arguments *a, const struct option *o)
{
    return (uint64_t *)((char *)fetch_options(a->f) + o->field);
}

static void take_seconds(struct arguments *a, const struct option *o, int idx)
{
    check_type(a, o, idx, LUA_TNUMBER);
    lua_Number s = lua_tonumber(a->L, idx);
    if (!(s > 0 && s <= DAY_S))
        luaL_error(a->L, "%s: %s must be a number of seconds above 0, at most a day", a->what,
                   o->name);
    *number_field(a, o) = (uint64_t)ceil(s * 1000);
}

static void take_bytes(struct arguments *a, const struct option *o, int idx)
{
    check_type(a, o, idx, LUA_TNUMBER);
    lua_Number n = lua_tonumber(a->L, idx);
    if (!(n >= 1 && n <= 9007199254740992.0 && n == floor(n)))
        luaL_error(a->L, "%s: %s must be a whole number of bytes from 1", a->what, o->name);
    *number_field(a, o) = (uint64_t)n;
}

static void take_redirects(struct arguments *a, const struct option *o, int idx)
{
    check_type(a, o, idx, LUA_TNUMBER);
    lua_Number n = lua_tonumber(a->L, idx);
    if (!(n >= 0 && n <= FETCH_REDIRECTS_MAX && n == floor(n)))
        luaL_error(a->L, "%s: redirects must be a whole number from 0 to %d", a->what,
                   FETCH_REDIRECTS_MAX);
    fetch_options(a->f)->redirects = (uint32_t)n;
}

static void take_tls(struct arguments *a, const struct option *o, int idx)
{
    check_type(a, o, idx, LUA_TTABLE);
    api_http_take_tls(a->L, a->f, a->what, idx);
}

/* --- headers, query --- */

static void take_headers(struct arguments *a, const struct option *o, int idx)
{
    check_type(a, o, idx, LUA_TTABLE);
    api_http_take_headers(a->L, a->f, a->what, idx);
}

static void take_query(struct arguments *a, const struct option *o, int idx)
{
    check_type(a, o, idx, LUA_TTABLE);
    api_http_take_query(a->L, a->f, a->what, idx);
}

static void default_header(struct arguments *a, struct slice name, struct slice value)
{
    struct headers *h = &fetch_request(a->f)->headers;
    if (headers_find(h, name, 0) < 0)
        headers_add(h, name, value);
}

/* --- body --- */

static void set_body(struct arguments *a, struct slice body)
{
    if (a->has_body)
        luaL_error(a->L, "%s: give either body or json", a->what);
    a->has_body = true;
    fetch_set_body(a->f, body);
}

static void take_body(struct arguments *a, const struct option *o, int idx)
{
    check_type(a, o, idx, LUA_TSTRING);
    set_body(a, api_http_copy(a->L, a->f, idx));
}

static void take_json(struct arguments *a, const struct option *o, int idx)
{
    struct buf text;
    (void)o;
    buf_init(&text);
    api_json_encode(a->L, idx, &text); /* where it raises, nothing has been added */
    struct slice body = arena_dup(fetch_arena(a->f), buf_slice(&text));
    buf_deinit(&text);
    set_body(a, body);
    a->has_json = true;
}

/* --- all of them --- */

#define FIELD(name) offsetof(struct fetch_options, name)

static const struct option options[] = {
    { "method", take_method, 0 },
    { "headers", take_headers, 0 },
    { "body", take_body, 0 },
    { "json", take_json, 0 },
    { "query", take_query, 0 },
    { "timeout", take_seconds, FIELD(total_ms) },
    { "connect_timeout", take_seconds, FIELD(connect_ms) },
    { "first_byte_timeout", take_seconds, FIELD(first_byte_ms) },
    { "idle_timeout", take_seconds, FIELD(idle_ms) },
    { "max_body", take_bytes, FIELD(max_body) },
    { "redirects", take_redirects, 0 },
    { "tls", take_tls, 0 },
};

static void take_option(struct arguments *a, const char *name, int idx)
{
    for (size_t i = 0; i < sizeof options / sizeof options[0]; i++) {
        if (strcmp(options[i].name, name) == 0) {
            options[i].take(a, &options[i], idx);
            return;
        }
    }
    luaL_error(a->L, "%s: there is no option '%s'; known are %s", a->what, name, KNOWN);
}

static void take_options(struct arguments *a)
{
    lua_State *L = a->L;
    if (lua_isnoneornil(L, 2))
        return;
    if (!lua_istable(L, 2))
        luaL_error(L, "%s: the options must be a table, not %s", a->what, luaL_typename(L, 2));
    lua_pushnil(L);
    while (lua_next(L, 2) != 0) {
        if (lua_type(L, -2) != LUA_TSTRING)
            luaL_error(L, "%s: the options must be a table of name = value", a->what);
        take_option(a, lua_tostring(L, -2), lua_gettop(L));
        lua_pop(L, 1);
    }
}

static void take_url(struct arguments *a)
{
    struct fetch_url url;
    if (lua_type(a->L, 1) != LUA_TSTRING)
        luaL_error(a->L, "%s: the URL must be a string, not %s", a->what, luaL_typename(a->L, 1));
    const char *wrong = fetch_url_parse(fetch_arena(a->f), api_http_copy(a->L, a->f, 1), &url);
    if (wrong != NULL)
        luaL_error(a->L, "%s: the URL '%s' is not valid: %s", a->what, lua_tostring(a->L, 1),
                   wrong);
    fetch_set_url(a->f, &url);
}

/* What was not said. */
static void complete(struct arguments *a)
{
    struct request *r = fetch_request(a->f);
    bool wants_body = slice_eq(r->method, SLICE("POST")) || slice_eq(r->method, SLICE("PUT")) ||
                      slice_eq(r->method, SLICE("PATCH"));
    if (!a->has_body && wants_body)
        fetch_set_body(a->f, SLICE("")); /* RFC 9110, section 8.6 */
    if (a->has_json)
        default_header(a, SLICE("content-type"), SLICE("application/json"));
    default_header(a, SLICE("user-agent"), SLICE("tollgate/" TOLLGATE_VERSION));
}

struct fetch **api_http_prepare(lua_State *L, const char *what, const char *method, bool stream)
{
    struct generation *g = api_generation(L);
    if (g->sv->fetch == NULL)
        luaL_error(L, "%s is not there in this tool", what);
    lua_settop(L, 2);
    struct fetch **guard = lua_newuserdata(L, sizeof *guard);
    *guard = NULL;
    luaL_getmetatable(L, GUARD);
    lua_setmetatable(L, -2);
    *guard = fetch_new(g->sv->fetch);
    struct arguments a = { .L = L, .f = *guard, .what = what, .method = method };
    *fetch_options(a.f) = (struct fetch_options){ .parse = g->settings.parse,
                                                  .total_ms = TOTAL_MS,
                                                  .connect_ms = CONNECT_MS,
                                                  .idle_ms = IDLE_MS,
                                                  .max_body = stream ? 0 : BODY_MAX,
                                                  .stream = stream };
    take_url(&a);
    take_options(&a);
    if (method != NULL)
        set_method(&a, slice_of(method));
    complete(&a);
    return guard;
}

static int guard_gc(lua_State *L)
{
    struct fetch **guard = lua_touserdata(L, 1);
    if (*guard != NULL)
        fetch_free(*guard);
    *guard = NULL;
    return 0;
}

void api_http_open_guard(lua_State *L)
{
    luaL_newmetatable(L, GUARD);
    lua_pushcfunction(L, guard_gc);
    lua_setfield(L, -2, "__gc");
    lua_pop(L, 1);
}
