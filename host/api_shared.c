/* tg.shared: the dictionary that all workers of this gateway share, under the names of OpenResty's
 * ngx.shared. Its plugins share one: begin keys with the plugin's name. It is memory of fixed size:
 * what was not used for longest goes when it is full, and all goes when the gateway restarts, so
 * nothing may depend on an entry's being there.
 *
 * No call waits for long: where another worker holds the lock of an entry for over five
 * milliseconds the result is nil, "busy". Keys are strings of 1 to 65535 bytes (numbers count as
 * their text), values strings, numbers and booleans. */
#include <math.h>

#include "api.h"
#include "shared.h"

static const char *const errors[] = {
    [SHARED_BUSY] = "busy",       [SHARED_NOT_FOUND] = "not found",
    [SHARED_EXISTS] = "exists",   [SHARED_NOT_NUMBER] = "not a number",
    [SHARED_CHANGED] = "changed", [SHARED_NO_MEMORY] = "no memory"
};

static const lua_Number TTL_MAX = 86400.0 * 366 * 100; /* seconds */

static struct shared *check_shared(lua_State *L, const char *function)
{
    struct shared *s = api_generation(L)->sv->shared;
    if (s == NULL)
        luaL_error(L, "%s: the dictionary is not there while files load; call it in init or later",
                   function);
    return s;
}

static int fail(lua_State *L, const char *err)
{
    lua_pushnil(L);
    lua_pushstring(L, err);
    return 2;
}

/* NULL, or what is wrong with the key: a request may have made it, so that is no misuse. */
static const char *check_key(lua_State *L, const char *function, struct slice *key)
{
    int type = lua_type(L, 1);
    if (type != LUA_TSTRING && type != LUA_TNUMBER)
        luaL_error(L, "%s: the key must be a string, not %s", function, luaL_typename(L, 1));
    key->p = lua_tolstring(L, 1, &key->n);
    return key->n == 0 ? "empty key" : key->n > SHARED_KEY_MAX ? "key too long" : NULL;
}

static struct shared_value check_value(lua_State *L, int idx, const char *function)
{
    struct shared_value v = { 0 };
    switch (lua_type(L, idx)) {
    case LUA_TSTRING:
        v.type = SHARED_STRING;
        v.text.p = lua_tolstring(L, idx, &v.text.n);
        break;
    case LUA_TNUMBER:
        v.type = SHARED_NUMBER;
        v.number = lua_tonumber(L, idx);
        break;
    case LUA_TBOOLEAN:
        v.type = SHARED_BOOLEAN;
        v.boolean = lua_toboolean(L, idx);
        break;
    default:
        luaL_error(L,
                   "%s: the value must be a string, a number or a boolean, not %s (tg.json.encode "
                   "makes text of a table)",
                   function, luaL_typename(L, idx));
    }
    return v;
}

/* Seconds as ms, rounded up: what is not 0 does not become it. */
static uint64_t check_ttl(lua_State *L, int idx, const char *function)
{
    lua_Number s = lua_tonumber(L, idx);
    bool number = lua_type(L, idx) == LUA_TNUMBER || lua_isnoneornil(L, idx);
    if (!(number && s >= 0 && s <= TTL_MAX))
        luaL_error(
            L,
            "%s: the time to live must be a number of seconds from 0 (for ever) to a hundred years",
            function);
    return (uint64_t)ceil(s * 1000);
}

static lua_Number check_number(lua_State *L, int idx, const char *function, const char *name)
{
    if (lua_type(L, idx) != LUA_TNUMBER)
        luaL_error(L, "%s: %s must be a number, not %s", function, name, luaL_typename(L, idx));
    return lua_tonumber(L, idx);
}

/* true or nil, err; and whether an entry was forced out. */
static int push_result(lua_State *L, enum shared_result r, bool forced)
{
    if (r != SHARED_OK)
        return fail(L, errors[r]);
    lua_pushboolean(L, true);
    lua_pushnil(L);
    lua_pushboolean(L, forced);
    return 3;
}

/* tg.shared.get(key) → string, number, boolean or nil. nil, err where the key is impossible or the
 * entry cannot be had now: "empty key", "key too long", "busy". */
static int shared_get_(lua_State *L)
{
    struct slice key;
    struct shared_value v;
    struct shared *s = check_shared(L, "tg.shared.get");
    const char *wrong = check_key(L, "tg.shared.get", &key);
    if (wrong != NULL)
        return fail(L, wrong);
    enum shared_result r = shared_get(s, key, &v);
    if (r == SHARED_BUSY)
        return fail(L, errors[r]);
    if (r != SHARED_OK)
        lua_pushnil(L);
    else if (v.type == SHARED_STRING)
        lua_pushlstring(L, v.text.p, v.text.n);
    else if (v.type == SHARED_NUMBER)
        lua_pushnumber(L, v.number);
    else
        lua_pushboolean(L, v.boolean);
    return 1;
}

static int remove_entry(lua_State *L, struct shared *s, struct slice key)
{
    enum shared_result r = shared_delete(s, key);
    if (r == SHARED_BUSY)
        return fail(L, errors[r]);
    lua_pushboolean(L, true);
    return 1;
}

static int put(lua_State *L, const char *function,
               enum shared_result (*store)(struct shared *s, struct slice key,
                                           const struct shared_value *v, uint64_t ttl,
                                           bool *forced))
{
    struct slice key;
    bool forced;
    struct shared *s = check_shared(L, function);
    const char *wrong = check_key(L, function, &key);
    struct shared_value v = check_value(L, 2, function);
    uint64_t ttl = check_ttl(L, 3, function);
    if (wrong != NULL)
        return fail(L, wrong);
    enum shared_result r = store(s, key, &v, ttl, &forced);
    return push_result(L, r, forced);
}

/* tg.shared.set(key, value, ttl in seconds or nil) → true, nil, forced. Without a ttl, or with 0,
 * the entry does not expire; nil for a value deletes. forced: an entry that had not expired made
 * room. nil, err: "no memory" (the value is too large, and the old one stays: over about 240 KiB
 * where shared.size is "1m", 480 KiB from "2m" on, 960 KiB from "256m", 1 MiB from "512m"), "empty
 * key", "key too long", "busy". */
static int shared_set_(lua_State *L)
{
    struct slice key;
    if (!lua_isnil(L, 2) || lua_gettop(L) < 2)
        return put(L, "tg.shared.set", shared_set);
    struct shared *s = check_shared(L, "tg.shared.set");
    const char *wrong = check_key(L, "tg.shared.set", &key);
    return wrong != NULL ? fail(L, wrong) : remove_entry(L, s, key);
}

/* tg.shared.add(key, value, ttl in seconds or nil) → true, nil, forced: as set, where there is no
 * such entry. nil, err: "exists", and those of set. */
static int shared_add_(lua_State *L)
{
    return put(L, "tg.shared.add", shared_add);
}

/* tg.shared.incr(key, by, init or nil, init ttl in seconds or nil) → number, nil, forced: adds to a
 * number, in one step for all workers, and returns the new one. Where there is no entry, makes one
 * of init + by that lives for the init ttl (nil or 0: for ever). nil, err: "not found" (and no
 * init), "not a number", "empty key", "key too long", "busy". */
static int shared_incr_(lua_State *L)
{
    static const char F[] = "tg.shared.incr";
    struct slice key;
    bool forced;
    double init = 0, out;
    struct shared *s = check_shared(L, F);
    const char *wrong = check_key(L, F, &key);
    double by = check_number(L, 2, F, "by");
    bool has_init = !lua_isnoneornil(L, 3);
    uint64_t ttl = check_ttl(L, 4, F);
    if (has_init)
        init = check_number(L, 3, F, "init");
    else if (!lua_isnoneornil(L, 4))
        return luaL_error(L, "%s: an init ttl needs an init", F);
    if (wrong != NULL)
        return fail(L, wrong);
    enum shared_result r = shared_incr(s, key, by, has_init ? &init : NULL, ttl, &out, &forced);
    if (r != SHARED_OK)
        return fail(L, errors[r]);
    lua_pushnumber(L, out);
    lua_pushnil(L);
    lua_pushboolean(L, forced);
    return 3;
}

/* tg.shared.swap(key, before, value, ttl in seconds or nil) → true, nil, forced: as set, in one
 * step for all workers, where the entry's value is still `before`: the same type and bytes; nil:
 * where there is no entry. So a value that was read and worked on is never written over another
 * worker's: read it anew and try again. nil, err: "changed", and those of set. */
static int shared_swap_(lua_State *L)
{
    static const char F[] = "tg.shared.swap";
    struct slice key;
    struct shared_value before = { 0 };
    bool forced, absent = lua_isnil(L, 2);
    struct shared *s = check_shared(L, F);
    const char *wrong = check_key(L, F, &key);
    if (!absent)
        before = check_value(L, 2, F);
    struct shared_value v = check_value(L, 3, F);
    uint64_t ttl = check_ttl(L, 4, F);
    if (wrong != NULL)
        return fail(L, wrong);
    enum shared_result r = shared_swap(s, key, absent ? NULL : &before, &v, ttl, &forced);
    return push_result(L, r, forced);
}

/* tg.shared.delete(key) → true, also where there was none. nil, err: "empty key", "key too long",
 * "busy". */
static int shared_delete_(lua_State *L)
{
    struct slice key;
    struct shared *s = check_shared(L, "tg.shared.delete");
    const char *wrong = check_key(L, "tg.shared.delete", &key);
    return wrong != NULL ? fail(L, wrong) : remove_entry(L, s, key);
}

/* tg.shared.expire(key, ttl in seconds) → true: sets an entry's time to live, from now on; 0: for
 * ever. nil, err: "not found", "empty key", "key too long", "busy". */
static int shared_expire_(lua_State *L)
{
    struct slice key;
    struct shared *s = check_shared(L, "tg.shared.expire");
    const char *wrong = check_key(L, "tg.shared.expire", &key);
    check_number(L, 2, "tg.shared.expire", "the time to live");
    uint64_t ttl = check_ttl(L, 2, "tg.shared.expire");
    if (wrong != NULL)
        return fail(L, wrong);
    enum shared_result r = shared_expire(s, key, ttl);
    if (r != SHARED_OK)
        return fail(L, errors[r]);
    lua_pushboolean(L, true);
    return 1;
}

/* tg.shared.ttl(key) → seconds that an entry has left, with a fraction; 0 where it does not expire.
 * Asking does not count as use. nil, err: "not found", "empty key", "key too long", "busy". */
static int shared_ttl_(lua_State *L)
{
    struct slice key;
    uint64_t ttl;
    struct shared *s = check_shared(L, "tg.shared.ttl");
    const char *wrong = check_key(L, "tg.shared.ttl", &key);
    if (wrong != NULL)
        return fail(L, wrong);
    enum shared_result r = shared_ttl(s, key, &ttl);
    if (r != SHARED_OK)
        return fail(L, errors[r]);
    lua_pushnumber(L, (lua_Number)ttl / 1000);
    return 1;
}

void api_open_shared(lua_State *L)
{
    static const luaL_Reg functions[] = {
        { "get", shared_get_ },   { "set", shared_set_ },       { "add", shared_add_ },
        { "incr", shared_incr_ }, { "delete", shared_delete_ }, { "expire", shared_expire_ },
        { "swap", shared_swap_ }, { "ttl", shared_ttl_ },       { NULL, NULL },
    };
    lua_newtable(L);
    luaL_register(L, NULL, functions);
    lua_setfield(L, -2, "shared");
}
