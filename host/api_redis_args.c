/* Arguments and options of tg.redis, and what is known of commands: which wait on the server, and
 * which change their connection. */
#include <float.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "api_redis.h"

static const lua_Number TIMEOUT_MAX = 86400;                     /* seconds */
static const uint64_t FOREVER_MS = (uint64_t)366 * 86400 * 1000; /* what 0 means to BLPOP */
static const lua_Number EXACT = 9007199254740992.0;              /* 2^53 */

/* --- lists --- */

static bool is_option(const char *key, const char *const options[])
{
    for (int i = 0; options != NULL && options[i] != NULL; i++) {
        if (strcmp(options[i], key) == 0)
            return true;
    }
    return false;
}

int api_redis_list(lua_State *L, int idx, const char *what, const char *name,
                   const char *const options[])
{
    int items = 0;
    if (!lua_istable(L, idx))
        luaL_error(L, "%s: %s must be a table, not %s", what, name, luaL_typename(L, idx));
    int n = (int)lua_objlen(L, idx);
    for (lua_pushnil(L); lua_next(L, idx) != 0; lua_pop(L, 1)) {
        int type = lua_type(L, -2);
        if (type == LUA_TNUMBER)
            items++;
        else if (type != LUA_TSTRING)
            luaL_error(L, "%s: a key of %s is a %s", what, name, lua_typename(L, type));
        else if (!is_option(lua_tostring(L, -2), options))
            luaL_error(L, "%s: unknown option '%s' in %s%s", what, lua_tostring(L, -2), name,
                       options != NULL ? "; there is: timeout (seconds)" : ", which is a list");
    }
    if (items != n)
        luaL_error(L, "%s: %s is a list with holes", what, name);
    return n;
}

/* --- arguments --- */

static int number_text(lua_Number v, char *out, size_t size)
{
    int n = 0;
    if (v == floor(v) && fabs(v) <= EXACT)
        return snprintf(out, size, "%.0f", v);
    for (int digits = DBL_DIG; digits <= DBL_DECIMAL_DIG; digits++) {
        n = snprintf(out, size, "%.*g", digits, v);
        if (strtod(out, NULL) == v)
            break;
    }
    return n;
}

/* Adds the value on top of the stack; pops it, or leaves the text of a number instead. */
static void add(lua_State *L, const char *what, const char *name, int place, struct redis_args *a)
{
    char text[40];
    lua_Number v = lua_tonumber(L, -1);
    int type = lua_type(L, -1);
    if ((type != LUA_TSTRING && type != LUA_TNUMBER) || (type == LUA_TNUMBER && v != v))
        luaL_error(L, "%s: %s%s%d%s must be a string or a number, not %s", what, name,
                   name[0] != '\0' ? "[" : "argument ", place, name[0] != '\0' ? "]" : "",
                   type == LUA_TNUMBER ? "NaN" : luaL_typename(L, -1));
    if (a->n == API_REDIS_ARGS)
        luaL_error(L, "%s: a command has at most %d arguments", what, API_REDIS_ARGS);
    struct slice *to = &a->v[a->n++];
    if (type == LUA_TSTRING) { /* who holds it stays on the stack */
        to->p = lua_tolstring(L, -1, &to->n);
        lua_pop(L, 1);
        return;
    }
    int n = number_text(v, text, sizeof text);
    lua_pop(L, 1);
    lua_pushlstring(L, text, (size_t)n);
    to->p = lua_tolstring(L, -1, &to->n);
}

void api_redis_add_list(lua_State *L, int idx, int n, const char *what, const char *name,
                        struct redis_args *a)
{
    for (int i = 1; i <= n; i++) {
        luaL_checkstack(L, 4, what);
        lua_rawgeti(L, idx, i);
        add(L, what, name, i, a);
    }
}

void api_redis_add_stack(lua_State *L, int first, const char *what, struct redis_args *a)
{
    for (int i = first, top = lua_gettop(L); i <= top; i++) {
        luaL_checkstack(L, 4, what);
        lua_pushvalue(L, i);
        add(L, what, "", i - first + 1, a);
    }
}

/* --- options --- */

uint64_t api_redis_timeout(lua_State *L, int idx, const char *what)
{
    lua_getfield(L, idx, "timeout");
    lua_Number s = lua_tonumber(L, -1);
    bool none = lua_isnil(L, -1);
    if (!none && !(lua_type(L, -1) == LUA_TNUMBER && s > 0 && s <= TIMEOUT_MAX))
        luaL_error(L, "%s: timeout must be a number of seconds above 0, at most a day", what);
    lua_pop(L, 1);
    return none ? 0 : (uint64_t)ceil(s * 1000);
}

uint64_t api_redis_timeout_option(lua_State *L, int idx, const char *what)
{
    static const char *const options[] = { "timeout", NULL };
    if (lua_isnoneornil(L, idx))
        return 0;
    if (api_redis_list(L, idx, what, "the options", options) != 0)
        luaL_error(L, "%s: the options are no list; there is: timeout (seconds)", what);
    return api_redis_timeout(L, idx, what);
}

/* --- commands --- */

enum { LAST = -1 };

/* In the order of their names, for a binary search. */
static const struct command {
    const char *name;
    enum redis_kind kind;
    int timeout_at; /* where it says how long it waits: an argument, or LAST */
    bool ms;
} commands[] = {
    { "ASKING", REDIS_CHANGES, 0, false },
    { "AUTH", REDIS_CHANGES, 0, false },
    { "BLMOVE", REDIS_BLOCKS, LAST, false },
    { "BLMPOP", REDIS_BLOCKS, 1, false },
    { "BLPOP", REDIS_BLOCKS, LAST, false },
    { "BRPOP", REDIS_BLOCKS, LAST, false },
    { "BRPOPLPUSH", REDIS_BLOCKS, LAST, false },
    { "BZMPOP", REDIS_BLOCKS, 1, false },
    { "BZPOPMAX", REDIS_BLOCKS, LAST, false },
    { "BZPOPMIN", REDIS_BLOCKS, LAST, false },
    { "CLIENT", REDIS_CHANGES, 0, false },
    { "DISCARD", REDIS_EXEC, 0, false },
    { "EXEC", REDIS_EXEC, 0, false },
    { "HELLO", REDIS_REFUSED, 0, false },
    { "MONITOR", REDIS_REFUSED, 0, false },
    { "MULTI", REDIS_MULTI, 0, false },
    { "PSUBSCRIBE", REDIS_LISTENS, 0, false },
    { "PSYNC", REDIS_REFUSED, 0, false },
    { "PUNSUBSCRIBE", REDIS_LISTENS, 0, false },
    { "QUIT", REDIS_REFUSED, 0, false },
    { "READONLY", REDIS_CHANGES, 0, false },
    { "READWRITE", REDIS_CHANGES, 0, false },
    { "REPLCONF", REDIS_REFUSED, 0, false },
    { "RESET", REDIS_CHANGES, 0, false },
    { "SELECT", REDIS_CHANGES, 0, false },
    { "SSUBSCRIBE", REDIS_LISTENS, 0, false },
    { "SUBSCRIBE", REDIS_LISTENS, 0, false },
    { "SUNSUBSCRIBE", REDIS_LISTENS, 0, false },
    { "SYNC", REDIS_REFUSED, 0, false },
    { "UNSUBSCRIBE", REDIS_LISTENS, 0, false },
    { "UNWATCH", REDIS_UNWATCH, 0, false },
    { "WAIT", REDIS_BLOCKS, LAST, true },
    { "WAITAOF", REDIS_BLOCKS, LAST, true },
    { "WATCH", REDIS_WATCH, 0, false },
};

static int by_name(const void *key, const void *command)
{
    return strcasecmp(key, ((const struct command *)command)->name);
}

static uint64_t wait_of(struct slice text, bool ms)
{
    double v = strtod(text.p, NULL);
    v = ms ? v : v * 1000;
    return v > 0 && v < (double)FOREVER_MS ? (uint64_t)ceil(v) : FOREVER_MS;
}

/* XREAD and XREADGROUP wait where BLOCK stands before STREAMS. */
static enum redis_kind kind_of_read(const struct redis_args *a, uint64_t *wait_ms)
{
    int first = slice_ieq(a->v[0], SLICE("XREAD"))        ? 1
                : slice_ieq(a->v[0], SLICE("XREADGROUP")) ? 4
                                                          : a->n;
    for (int i = first; i + 1 < a->n && !slice_ieq(a->v[i], SLICE("STREAMS")); i++) {
        if (!slice_ieq(a->v[i], SLICE("BLOCK")))
            continue;
        *wait_ms += wait_of(a->v[i + 1], true);
        return REDIS_BLOCKS;
    }
    return REDIS_PLAIN;
}

enum redis_kind api_redis_kind(const struct redis_args *a, uint64_t *wait_ms)
{
    const struct command *c =
        bsearch(a->v[0].p, commands, sizeof commands / sizeof *commands, sizeof *commands, by_name);
    if (c == NULL)
        return kind_of_read(a, wait_ms);
    if (c->kind == REDIS_BLOCKS) {
        int at = c->timeout_at == LAST ? a->n - 1 : c->timeout_at;
        *wait_ms += at > 0 && at < a->n ? wait_of(a->v[at], c->ms) : 0;
    }
    bool mute = strcmp(c->name, "CLIENT") == 0 && a->n > 1 && slice_ieq(a->v[1], SLICE("REPLY"));
    return mute ? REDIS_REFUSED : c->kind;
}
