/* Header fields between Lua and the host: names and values are checked on the way in, so that no
 * plugin can split a message or break its framing. */
#include "api.h"

/* What frames a message or belongs to one connection is the host's own. */
static void check_name(lua_State *L, struct slice name)
{
    if (!header_name_valid(name))
        luaL_error(L, "'%s' is not a valid header name", name.p);
    switch (header_id(name)) {
    case HEADER_CONNECTION:
    case HEADER_CONTENT_LENGTH:
    case HEADER_EXPECT:
    case HEADER_HOST:
    case HEADER_KEEP_ALIVE:
    case HEADER_PROXY_CONNECTION:
    case HEADER_TE:
    case HEADER_TRAILER:
    case HEADER_TRANSFER_ENCODING:
    case HEADER_UPGRADE:
        luaL_error(L, "the header '%s' is set by the gateway itself", name.p);
        break;
    default: break;
    }
}

static struct slice check_value(lua_State *L, struct headers *h, struct slice name, int idx)
{
    size_t n;
    int type = lua_type(L, idx);
    if (type != LUA_TSTRING && type != LUA_TNUMBER)
        luaL_error(L, "header '%s': a value must be a string, a number or a list of these, not %s",
                   name.p, luaL_typename(L, idx));
    lua_pushvalue(L, idx); /* so that a number in a table is not changed in place */
    const char *text = lua_tolstring(L, -1, &n);
    struct slice value = slice_trim((struct slice){ text, n });
    if (!header_value_valid(value))
        luaL_error(L, "header '%s': the value has a control character", name.p);
    value = arena_dup(h->arena, value);
    lua_pop(L, 1);
    return value;
}

void api_headers_assign(lua_State *L, struct headers *h, struct slice name, int idx)
{
    check_name(L, name);
    if (lua_isnil(L, idx)) {
        headers_remove(h, name);
        return;
    }
    struct slice copy = arena_dup(h->arena, name);
    if (!lua_istable(L, idx)) {
        headers_set(h, copy, check_value(L, h, name, idx));
        return;
    }
    headers_remove(h, name);
    int n = (int)lua_objlen(L, idx);
    for (int i = 1; i <= n; i++) {
        lua_rawgeti(L, idx, i);
        headers_add(h, copy, check_value(L, h, name, lua_gettop(L)));
        lua_pop(L, 1);
    }
}

void api_headers_from_table(lua_State *L, int idx, struct headers *h)
{
    lua_pushnil(L);
    while (lua_next(L, idx) != 0) {
        if (lua_type(L, -2) != LUA_TSTRING)
            luaL_error(L, "headers must be a table of name = value");
        size_t n;
        const char *name = lua_tolstring(L, -2, &n);
        api_headers_assign(L, h, (struct slice){ name, n }, lua_gettop(L));
        lua_pop(L, 1);
    }
}

/* Repeated fields are one value, joined by ", " (RFC 9110, section 5.3). */
void api_headers_push(lua_State *L, const struct headers *h, struct slice name)
{
    int i = headers_find(h, name, 0);
    if (i < 0) {
        lua_pushnil(L);
        return;
    }
    int next = headers_find(h, name, (uint32_t)i + 1);
    if (next < 0) {
        lua_pushlstring(L, h->v[i].value.p, h->v[i].value.n);
        return;
    }
    luaL_Buffer b;
    luaL_buffinit(L, &b);
    luaL_addlstring(&b, h->v[i].value.p, h->v[i].value.n);
    for (; next >= 0; next = headers_find(h, name, (uint32_t)next + 1)) {
        luaL_addlstring(&b, ", ", 2);
        luaL_addlstring(&b, h->v[next].value.p, h->v[next].value.n);
    }
    luaL_pushresult(&b);
}
