/* tg.keys: API keys from a file of JSON lines. A record becomes a Lua table when it is first
 * found and stays the same table, so that plugins may keep what they know of a key in a table
 * with weak keys. */
#include "api.h"
#include "keystore.h"
#include "snapshot.h"

static const char STORE[] = "tollgate.keys";

static struct keystore *check_store(lua_State *L)
{
    struct keystore **store = luaL_checkudata(L, 1, STORE);
    luaL_argcheck(L, *store != NULL, 1, "this store is closed"); /* __gc was called by hand */
    return *store;
}

static void set_text(lua_State *L, const char *name, struct slice text)
{
    if (text.p == NULL)
        return;
    lua_pushlstring(L, text.p, text.n);
    lua_setfield(L, -2, name);
}

static void set_number(lua_State *L, const char *name, double v, bool present)
{
    if (!present)
        return;
    lua_pushnumber(L, v);
    lua_setfield(L, -2, name);
}

static void push_record(lua_State *L, const struct key_record *r)
{
    lua_createtable(L, 0, 9);
    set_text(L, "id", r->id);
    set_text(L, "tenant", r->tenant);
    set_text(L, "plan", r->plan);
    set_number(L, "rps", r->rps, r->rps > 0);
    set_number(L, "burst", r->burst, r->burst > 0);
    set_number(L, "monthly_tokens", (double)r->monthly_tokens, r->monthly_tokens >= 0);
    set_number(L, "concurrency", (double)r->concurrency, r->concurrency > 0);
    lua_pushboolean(L, r->disabled);
    lua_setfield(L, -2, "disabled");
    if (r->routes == NULL)
        return;
    lua_createtable(L, (int)r->nroutes, 0);
    for (uint32_t i = 0; i < r->nroutes; i++) {
        lua_pushlstring(L, r->routes[i].p, r->routes[i].n);
        lua_rawseti(L, -2, (int)i + 1);
    }
    lua_setfield(L, -2, "routes");
}

/* Pushes the table of a record, made when it is first asked for; nil for NULL. The store is at 1.
 */
static int push_kept(lua_State *L, const struct keystore *ks, const struct key_record *r)
{
    if (r == NULL) {
        lua_pushnil(L);
        return 1;
    }
    int number = (int)keystore_index(ks, r) + 1;
    lua_getfenv(L, 1); /* the tables made so far, by record number */
    lua_rawgeti(L, -1, number);
    if (lua_isnil(L, -1)) {
        lua_pop(L, 1);
        push_record(L, r);
        lua_pushvalue(L, -1);
        lua_rawseti(L, -3, number);
    }
    return 1;
}

static struct slice check_text(lua_State *L, int idx)
{
    size_t n;
    luaL_checktype(L, idx, LUA_TSTRING);
    const char *p = lua_tolstring(L, idx, &n);
    return (struct slice){ p, n };
}

/*** The record of the key with a secret.
 * @function store:find
 * @tparam string secret
 * @treturn table|nil { id, tenant, plan, rps, burst, monthly_tokens, concurrency, routes,
 *   disabled }; what the file does not say is nil, but disabled is false. The same table each
 *   time; not to be changed. */
static int store_find(lua_State *L)
{
    struct keystore *ks = check_store(L);
    return push_kept(L, ks, keystore_find(ks, check_text(L, 2)));
}

/*** The record of the key with an id.
 * @function store:by_id
 * @tparam string id
 * @treturn table|nil as of find */
static int store_by_id(lua_State *L)
{
    struct keystore *ks = check_store(L);
    return push_kept(L, ks, keystore_find_id(ks, check_text(L, 2)));
}

/*** The i-th record of the file.
 * @function store:at
 * @tparam number i from 1
 * @treturn table|nil as of find; nil beyond the last */
static int store_at(lua_State *L)
{
    struct keystore *ks = check_store(L);
    lua_Number i = luaL_checknumber(L, 2);
    bool there = i >= 1 && i <= (lua_Number)keystore_count(ks);
    return push_kept(L, ks, there ? keystore_at(ks, (size_t)i - 1) : NULL);
}

/*** How many keys there are, disabled ones included.
 * @function store:count
 * @treturn number */
static int store_count(lua_State *L)
{
    lua_pushnumber(L, (lua_Number)keystore_count(check_store(L)));
    return 1;
}

static int store_gc(lua_State *L)
{
    struct keystore **store = luaL_checkudata(L, 1, STORE);
    keystore_free(*store);
    *store = NULL;
    return 0;
}

/* What a configuration is made of is read once, with it; a file that is run by itself reads the
 * disk. */
static struct keystore *open_store(struct generation *g, const char *path, struct buf *fault)
{
    struct slice text;
    if (g == NULL || g->snapshot == NULL)
        return keystore_open(path, fault);
    int err = snapshot_file(g->snapshot, path, &text);
    if (err == 0)
        return keystore_parse(text, path, fault);
    buf_printf(fault, "%s: cannot be read: %s", path, strerror(-err));
    return NULL;
}

/*** Loads a file of key records, all or nothing.
 * @function tg.keys.open
 * @tparam string path relative to the working directory
 * @treturn store|nil
 * @treturn string the first fault, as "path:line: message" */
static int keys_open(lua_State *L)
{
    size_t n;
    luaL_checktype(L, 1, LUA_TSTRING);
    const char *path = lua_tolstring(L, 1, &n);
    luaL_argcheck(L, strlen(path) == n, 1, "a path has no NUL");
    struct keystore **store = lua_newuserdata(L, sizeof *store);
    *store = NULL;
    luaL_getmetatable(L, STORE);
    lua_setmetatable(L, -2);
    lua_newtable(L);
    lua_setfenv(L, -2);
    struct buf fault;
    buf_init(&fault);
    *store = open_store(api_generation(L), path, &fault);
    if (*store != NULL) {
        buf_deinit(&fault);
        return 1;
    }
    lua_pushnil(L);
    lua_pushlstring(L, fault.p, fault.n);
    buf_deinit(&fault);
    return 2;
}

void api_open_keys(lua_State *L)
{
    static const luaL_Reg methods[] = { { "find", store_find },
                                        { "by_id", store_by_id },
                                        { "at", store_at },
                                        { "count", store_count },
                                        { NULL, NULL } };
    static const luaL_Reg functions[] = { { "open", keys_open }, { NULL, NULL } };
    luaL_newmetatable(L, STORE);
    lua_pushcfunction(L, store_gc);
    lua_setfield(L, -2, "__gc");
    lua_newtable(L);
    luaL_register(L, NULL, methods);
    lua_setfield(L, -2, "__index");
    lua_pop(L, 1);
    lua_newtable(L);
    luaL_register(L, NULL, functions);
    lua_setfield(L, -2, "keys");
}
