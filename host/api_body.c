/* ctx.request.json and ctx.response.json: reading and editing single values of a JSON body by their
 * place. An edit replaces the bytes of one value; all other bytes stay as they came. Waiting for
 * the body is done in Lua (host/lua/body.lua), these work on one that is there. */
#include "api.h"
#include "json_edit.h"

/* The body that a call works on, or NULL where it has not been read. */
static struct buf *body_of(lua_State *L, struct exchange *x, bool response)
{
    struct buf *b = response ? exchange_gathered(x) : x->whole && x->body_done ? &x->body : NULL;
    if (b == NULL)
        luaL_error(L, "the body has not been read");
    return b;
}

/* A path at idx: a member's name, or a list of names and indices (from 1). Returns the number of
 * steps. */
static unsigned take_path(lua_State *L, int idx, struct json_step *out)
{
    if (lua_type(L, idx) == LUA_TSTRING) {
        out[0] = (struct json_step){ { lua_tostring(L, idx), lua_objlen(L, idx) }, 0 };
        return 1;
    }
    luaL_checktype(L, idx, LUA_TTABLE);
    unsigned n = (unsigned)lua_objlen(L, idx);
    luaL_argcheck(L, n >= 1 && n <= JSON_STEPS, idx, "a path has 1 to 16 steps");
    for (unsigned i = 0; i < n; i++) {
        lua_rawgeti(L, idx, (int)i + 1);
        if (lua_type(L, -1) == LUA_TNUMBER && lua_tonumber(L, -1) >= 1)
            out[i] = (struct json_step){ { NULL, 0 }, (uint64_t)lua_tonumber(L, -1) - 1 };
        else if (lua_type(L, -1) == LUA_TSTRING)
            out[i] = (struct json_step){ { lua_tostring(L, -1), lua_objlen(L, -1) }, 0 };
        else
            luaL_argerror(L, idx, "a step is a member's name or an index from 1");
        lua_pop(L, 1); /* the table keeps it */
    }
    return n;
}

/* (ctx, response, path): finds the place. False after pushing nil and the error. */
static bool locate(lua_State *L, struct buf **body, struct json_step *steps, unsigned *n,
                   struct json_place *p)
{
    struct exchange *x = api_exchange(L, 1);
    const char *fault = NULL;
    size_t at = 0;
    *body = body_of(L, x, lua_toboolean(L, 2));
    *n = take_path(L, 3, steps);
    if (json_locate((struct slice){ (*body)->p != NULL ? (*body)->p : "", (*body)->n }, steps, *n,
                    p, &fault, &at) == 0)
        return true;
    lua_pushnil(L);
    lua_pushfstring(L, "invalid: %s at byte %d", fault, (int)at + 1);
    return false;
}

/* get(ctx, response, path) → the value's bytes as text, nil where absent, or nil, "invalid: …". */
static int body_get(lua_State *L)
{
    struct json_step steps[JSON_STEPS];
    struct json_place p;
    struct buf *body;
    unsigned n;
    if (!locate(L, &body, steps, &n, &p))
        return 2;
    if (p.found)
        lua_pushlstring(L, body->p + p.start, p.end - p.start);
    else
        lua_pushnil(L);
    return 1;
}

static void check_open(lua_State *L, struct exchange *x, bool response)
{
    if (response ? x->stage != STAGE_RESPONSE : x->stage != STAGE_ACCESS)
        luaL_error(L, response ? "the response can be changed in the response phase only"
                               : "the request can be changed in the access phase only");
}

static void replace(struct buf *body, struct buf *with)
{
    buf_deinit(body);
    *body = *with;
}

/* set(ctx, response, path, JSON text) → true; nil, "absent" where it has no place to be, or nil,
 * "invalid: …". */
static int body_set(lua_State *L)
{
    struct json_step steps[JSON_STEPS];
    struct json_place p;
    struct buf *body, out;
    unsigned n;
    struct slice value;
    value.p = luaL_checklstring(L, 4, &value.n);
    check_open(L, api_exchange(L, 1), lua_toboolean(L, 2));
    if (!locate(L, &body, steps, &n, &p))
        return 2;
    buf_init(&out);
    if (!json_set(buf_slice(body), &p, steps[n - 1].key, value, &out)) {
        lua_pushnil(L);
        lua_pushliteral(L, "absent");
        return 2;
    }
    replace(body, &out);
    lua_pushboolean(L, 1);
    return 1;
}

/* remove(ctx, response, path) → true where it was there, else false; or nil, "invalid: …". */
static int body_remove(lua_State *L)
{
    struct json_step steps[JSON_STEPS];
    struct json_place p;
    struct buf *body, out;
    unsigned n;
    check_open(L, api_exchange(L, 1), lua_toboolean(L, 2));
    if (!locate(L, &body, steps, &n, &p))
        return 2;
    lua_pushboolean(L, p.found);
    if (p.found) {
        buf_init(&out);
        json_remove(buf_slice(body), &p, &out);
        replace(body, &out);
    }
    return 1;
}

void api_open_body(lua_State *L)
{
    static const luaL_Reg functions[] = {
        { "get", body_get }, { "set", body_set }, { "remove", body_remove }, { NULL, NULL }
    };
    lua_newtable(L);
    luaL_register(L, NULL, functions);
    lua_setfield(L, LUA_REGISTRYINDEX, "tollgate.body");
}
