/* Header fields and query parameters of tg.http: tables from Lua, checked on the way in, so that no
 * plugin can split a message or break its framing. */
#include "api_http.h"

struct slice api_http_copy(lua_State *L, struct fetch *f, int idx)
{
    struct slice s;
    lua_pushvalue(L, idx);
    s.p = lua_tolstring(L, -1, &s.n);
    s = arena_dup(fetch_arena(f), s);
    lua_pop(L, 1);
    return s;
}

static bool textual(lua_State *L, int idx)
{
    int type = lua_type(L, idx);
    return type == LUA_TSTRING || type == LUA_TNUMBER;
}

/* --- headers --- */

static bool of_the_gateway(enum header_id id)
{
    switch (id) {
    case HEADER_CONNECTION:
    case HEADER_CONTENT_LENGTH:
    case HEADER_EXPECT:
    case HEADER_KEEP_ALIVE:
    case HEADER_PROXY_CONNECTION:
    case HEADER_TE:
    case HEADER_TRAILER:
    case HEADER_TRANSFER_ENCODING:
    case HEADER_UPGRADE: return true;
    default: return false;
    }
}

static void add_header(lua_State *L, struct fetch *f, const char *what, struct slice name, int idx)
{
    struct slice host;
    int port;
    if (!textual(L, idx))
        luaL_error(L,
                   "%s: header '%s': a value must be a string, a number or a list of these, not %s",
                   what, name.p, luaL_typename(L, idx));
    struct slice value = slice_trim(api_http_copy(L, f, idx));
    if (!header_value_valid(value))
        luaL_error(L, "%s: header '%s': the value has a control character", what, name.p);
    if (header_id(name) == HEADER_HOST && !url_authority(value, &host, &port))
        luaL_error(L, "%s: header '%s': the value must be host or host:port", what, name.p);
    headers_add(&fetch_request(f)->headers, name, value);
}

void api_http_take_headers(lua_State *L, struct fetch *f, const char *what, int idx)
{
    lua_pushnil(L);
    while (lua_next(L, idx) != 0) {
        int value = lua_gettop(L);
        if (lua_type(L, -2) != LUA_TSTRING)
            luaL_error(L, "%s: headers must be a table of name = value", what);
        struct slice name = api_http_copy(L, f, -2);
        if (!header_name_valid(name))
            luaL_error(L, "%s: '%s' is not a valid header name", what, name.p);
        if (of_the_gateway(header_id(name)))
            luaL_error(L, "%s: the header '%s' is set by the gateway itself", what, name.p);
        if (header_id(name) == HEADER_HOST || !lua_istable(L, value)) {
            add_header(L, f, what, name, value);
        } else {
            int n = (int)lua_objlen(L, value);
            for (int i = 1; i <= n; i++) {
                lua_rawgeti(L, value, i);
                add_header(L, f, what, name, lua_gettop(L));
                lua_pop(L, 1);
            }
        }
        lua_pop(L, 1);
    }
}

/* --- query --- */

struct pair {
    struct slice name, text;
};

struct pairs {
    struct pair *v;
    size_t n, cap;
};

/* In the order of names, so that equal tables make equal URLs; values of one name keep theirs. */
static void insert_pair(struct fetch *f, struct pairs *ps, struct pair p)
{
    if (ps->n == ps->cap) {
        size_t cap = ps->cap == 0 ? 16 : ps->cap * 2;
        struct pair *more = arena_alloc(fetch_arena(f), cap * sizeof *more);
        if (ps->n > 0)
            memcpy(more, ps->v, ps->n * sizeof *more);
        ps->v = more;
        ps->cap = cap;
    }
    size_t i = ps->n++;
    for (; i > 0 && strcmp(ps->v[i - 1].name.p, p.name.p) > 0; i--)
        ps->v[i] = ps->v[i - 1];
    ps->v[i] = p;
}

static void add_pair(lua_State *L, struct fetch *f, const char *what, struct pairs *ps,
                     struct slice name, int idx)
{
    bool boolean = lua_isboolean(L, idx);
    if (!boolean && !textual(L, idx))
        luaL_error(L,
                   "%s: query '%s': a value must be a string, a number, a boolean or a list of "
                   "these, not %s",
                   what, name.p, luaL_typename(L, idx));
    struct slice value = !boolean                ? api_http_copy(L, f, idx)
                         : lua_toboolean(L, idx) ? SLICE("true")
                                                 : SLICE("false");
    insert_pair(f, ps, (struct pair){ name, fetch_url_pair(fetch_arena(f), name, value) });
}

static struct pairs read_query(lua_State *L, struct fetch *f, const char *what, int idx)
{
    struct pairs ps = { 0 };
    lua_pushnil(L);
    while (lua_next(L, idx) != 0) {
        int value = lua_gettop(L);
        if (lua_type(L, -2) != LUA_TSTRING)
            luaL_error(L, "%s: query must be a table of name = value", what);
        struct slice name = api_http_copy(L, f, -2);
        int n = lua_istable(L, value) ? (int)lua_objlen(L, value) : 0;
        for (int i = 1; i <= n; i++) {
            lua_rawgeti(L, value, i);
            add_pair(L, f, what, &ps, name, lua_gettop(L));
            lua_pop(L, 1);
        }
        if (!lua_istable(L, value))
            add_pair(L, f, what, &ps, name, value);
        lua_pop(L, 1);
    }
    return ps;
}

void api_http_take_query(lua_State *L, struct fetch *f, const char *what, int idx)
{
    struct buf target;
    struct fetch_url url = *fetch_url_of(f);
    struct pairs ps = read_query(L, f, what, idx);
    if (ps.n == 0)
        return;
    bool has_query = memchr(url.target.p, '?', url.target.n) != NULL;
    buf_init(&target);
    buf_add_slice(&target, url.target);
    for (size_t i = 0; i < ps.n; i++) {
        buf_add_text(&target, i > 0 || has_query ? "&" : "?");
        buf_add_slice(&target, ps.v[i].text);
    }
    url.target = arena_dup(fetch_arena(f), buf_slice(&target));
    buf_deinit(&target);
    fetch_set_url(f, &url);
}
