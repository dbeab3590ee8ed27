/* ctx:keep_origin, ctx:record and ctx:recorded: for plugins that store an origin's answer, whatever
 * the client that asked for it does meanwhile. */
#include <math.h>
#include <string.h>

#include "api_ctx.h"

static uint64_t check_bytes(lua_State *L, int idx, const char *what)
{
    lua_Number n = luaL_checknumber(L, idx);
    if (!(n >= 0 && n < 9007199254740992.0))
        luaL_error(L, "%s: bytes must be a number from 0 to 2^53", what);
    return (uint64_t)n;
}

/* ctx:keep_origin(seconds, bytes): a client that leaves from now on does not cancel the origin. Its
 * answer is read on for so long, and for so many bytes, body phases included; then the request ends
 * with "client_gone". Until the request ends. Who asks for more wins. */
static int ctx_keep_origin(lua_State *L)
{
    struct exchange *x = api_exchange(L, 1);
    lua_Number s = luaL_checknumber(L, 2);
    uint64_t bytes = check_bytes(L, 3, "ctx:keep_origin");
    if (!(s > 0 && s <= 86400))
        return luaL_error(L, "ctx:keep_origin: seconds must be a number above 0, up to a day");
    if (x->stage >= STAGE_TAIL)
        return luaL_error(L, "ctx:keep_origin: the request has ended");
    exchange_keep_origin(x, (uint64_t)ceil(s * 1000), bytes);
    return 0;
}

/* ctx:record(bytes, condition or nil): keeps a copy of the body of the origin's answer, up to so
 * many bytes, for ctx:recorded: before any plugin's edit, and without the usage event that only the
 * gateway had asked for. A tg.condition is notified as the copy grows, for ctx:recorded_from.
 * Access phase, or response phase before anybody has read the body. */
static int ctx_record(lua_State *L)
{
    struct exchange *x = api_exchange(L, 1);
    uint64_t bytes = check_bytes(L, 2, "ctx:record");
    if (x->stage > STAGE_RESPONSE || x->gathering || x->gathered)
        return luaL_error(L, "ctx:record belongs to the access phase, or to the response phase "
                             "before a plugin reads the answer's body");
    if (x->recording != RECORD_NONE) /* two plugins share one copy */
        bytes = bytes > x->record_max ? bytes : x->record_max;
    exchange_record(x, bytes);
    if (!lua_isnoneornil(L, 3)) {
        exchange_record_told(x, api_condition_notify, api_condition_check(L, 3));
        lua_pushvalue(L, 3);
        lua_rawseti(L, 1, 1); /* ctx holds it as long as it may be notified */
    }
    return 0;
}

/* ctx:recorded() → string: the body that ctx:record kept, once the origin's answer has come to its
 * proper end; finish and log phase. nil, why: "none" (nobody asked, or the answer is not the
 * origin's), "incomplete", "too_large" (also where limits.buffered had no room for it). */
static int ctx_recorded(lua_State *L)
{
    struct exchange *x = api_exchange(L, 1);
    const char *why;
    if (x->stage < STAGE_TAIL)
        return luaL_error(L, "ctx:recorded belongs to the finish and log phase");
    const struct buf *b = exchange_recorded(x, &why);
    if (b != NULL) {
        lua_pushlstring(L, b->p != NULL ? b->p : "", b->n);
        return 1;
    }
    lua_pushnil(L);
    lua_pushstring(L, why);
    return 2;
}

/* ctx:recorded_from(offset) → string: what the copy of ctx:record has from so many bytes on, by
 * now; "" where that is nothing yet. nil, why: "none", "too_large". */
static int ctx_recorded_from(lua_State *L)
{
    struct exchange *x = api_exchange(L, 1);
    uint64_t from = check_bytes(L, 2, "ctx:recorded_from");
    if (x->recording == RECORD_NONE || x->recording == RECORD_TOO_LARGE) {
        lua_pushnil(L);
        lua_pushstring(L, x->recording == RECORD_NONE ? "none" : "too_large");
        return 2;
    }
    size_t n = from < x->record.n ? x->record.n - (size_t)from : 0;
    lua_pushlstring(L, n > 0 ? x->record.p + from : "", n);
    return 1;
}

bool api_ctx_push_record(lua_State *L, const char *key)
{
    static const luaL_Reg functions[] = { { "keep_origin", ctx_keep_origin },
                                          { "record", ctx_record },
                                          { "recorded", ctx_recorded },
                                          { "recorded_from", ctx_recorded_from } };
    for (size_t i = 0; i < sizeof functions / sizeof *functions; i++) {
        if (strcmp(key, functions[i].name) == 0) {
            lua_pushcfunction(L, functions[i].func);
            return true;
        }
    }
    return false;
}
