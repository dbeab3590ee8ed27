/* Names of keys in Redis: parts encoded as scripts/README.md says, the same for all plugins. */
#include "api_redis.h"
#include "buf.h"
#include "redis_key.h"

/* Text of a string or number; raises for anything else. */
static struct slice check_part(lua_State *L, const char *what)
{
    struct slice part;
    int type = lua_type(L, 1);
    if (type != LUA_TSTRING && type != LUA_TNUMBER)
        luaL_error(L, "%s: a part of a key must be a string or a number, not %s", what,
                   luaL_typename(L, 1));
    part.p = lua_tolstring(L, 1, &part.n);
    return part;
}

static int push_part(lua_State *L, struct slice part, bool tag)
{
    struct buf b;
    if (!tag && redis_key_plain(part)) {
        lua_settop(L, 1);
        return 1;
    }
    buf_init(&b);
    redis_key_add_tag(&b, part, tag);
    lua_pushlstring(L, b.p, b.n);
    buf_deinit(&b);
    return 1;
}

/* tg.redis.encode(part) → string: a part of a key's name: the bytes : % { }, 0x00 to 0x20 and 0x7F
 * as % and two upper-case hex digits, so that two different parts never make one key. Numbers count
 * as their text. */
static int redis_encode(lua_State *L)
{
    return push_part(L, check_part(L, "tg.redis.encode"), false);
}

/* tg.redis.tag(part) → string: the part that a decision turns on, as tg.redis.encode; with
 * redis.hash_tags in literal braces, so that Redis Cluster keeps all keys with this part in one
 * place: "rl:" .. tg.redis.tag(id) .. ":" .. window. Raises where the part is empty. */
static int redis_tag(lua_State *L)
{
    struct slice part = check_part(L, "tg.redis.tag");
    if (part.n == 0)
        return luaL_error(L, "tg.redis.tag: the part must not be empty");
    return push_part(L, part, api_generation(L)->sv->hash_tags);
}

void api_redis_open_key(lua_State *L)
{
    lua_pushcfunction(L, redis_encode);
    lua_setfield(L, -2, "encode");
    lua_pushcfunction(L, redis_tag);
    lua_setfield(L, -2, "tag");
}
