/* tg.json: JSON that leaves the gateway as it came. Arrays have a metatable of their own, so
 * that an empty one stays an array; null is a value; a number that a Lua number cannot hold is
 * kept as its text, in an object that tostring gives the text of. tostring(null) is "null". */
#include "api_json.h"
#include "json_canonical.h"

void api_json_literal_push(lua_State *L, struct slice text, const char *metatable)
{
    struct json_literal *l = lua_newuserdata(L, sizeof *l + text.n);
    l->n = text.n;
    memcpy(l->text, text.p, text.n);
    luaL_getmetatable(L, metatable);
    lua_setmetatable(L, -2);
}

static int literal_tostring(lua_State *L)
{
    luaL_checktype(L, 1, LUA_TUSERDATA);
    const struct json_literal *l = lua_touserdata(L, 1);
    lua_pushlstring(L, l->text, l->n);
    return 1;
}

/* As text: 1.0 and 1 are different here. */
static int number_eq(lua_State *L)
{
    const struct json_literal *a = luaL_checkudata(L, 1, API_JSON_NUMBER);
    const struct json_literal *b = luaL_checkudata(L, 2, API_JSON_NUMBER);
    lua_pushboolean(L, slice_eq((struct slice){ a->text, a->n }, (struct slice){ b->text, b->n }));
    return 1;
}

/*** Marks a table as an array: it encodes as [] also where it is empty.
 * @function tg.json.array
 * @tparam[opt] table t without a metatable of its own; default: a new table
 * @treturn table t */
static int json_array(lua_State *L)
{
    lua_settop(L, 1);
    if (lua_isnil(L, 1)) {
        lua_newtable(L);
        lua_replace(L, 1);
    }
    luaL_checktype(L, 1, LUA_TTABLE);
    luaL_getmetatable(L, API_JSON_ARRAY);
    if (lua_getmetatable(L, 1))
        luaL_argcheck(L, lua_rawequal(L, -1, 2), 1, "the table has another metatable");
    lua_pushvalue(L, 2);
    lua_setmetatable(L, 1);
    lua_settop(L, 1);
    return 1;
}

/* Ends the scan where the value is anything but a number from the first byte on. */
static int on_number(void *arg, const struct json_event *e)
{
    *(uint64_t *)arg = e->end;
    return e->type != JSON_NUMBER || e->start != 0;
}

/*** A number with exactly this text, such as an integer beyond 2^53. What decode makes of such
 * numbers.
 * @function tg.json.number
 * @tparam string text
 * @treturn userdata tostring gives the text, == compares it; raises where the text is no JSON
 *   number */
static int json_number(lua_State *L)
{
    size_t n;
    luaL_checktype(L, 1, LUA_TSTRING);
    const char *text = lua_tolstring(L, 1, &n);
    struct json j;
    uint64_t end = 0;
    json_init(&j, on_number, &end);
    bool valid = json_feed(&j, text, n) == 0 && json_finish(&j) == 0 && end == n;
    luaL_argcheck(L, valid, 1, "this is not a number in JSON");
    api_json_literal_push(L, (struct slice){ text, n }, API_JSON_NUMBER);
    return 1;
}

static int on_any(void *arg, const struct json_event *e)
{
    (void)arg;
    (void)e;
    return 0;
}

/*** JSON that encodes as exactly this text, and is not looked into. What decode makes of what lies
 * deeper than it was asked for.
 * @function tg.json.raw
 * @tparam string text
 * @treturn userdata tostring gives the text; or nil
 * @treturn string what is wrong with the text */
static int json_raw(lua_State *L)
{
    size_t n;
    luaL_checktype(L, 1, LUA_TSTRING);
    const char *text = lua_tolstring(L, 1, &n);
    struct json j;
    json_init(&j, on_any, NULL);
    if (json_feed(&j, text, n) != 0 || json_finish(&j) != 0) {
        lua_pushnil(L);
        lua_pushfstring(L, "%s at byte %f", json_fault(&j), (lua_Number)j.offset + 1);
        return 2;
    }
    api_json_literal_push(L, (struct slice){ text, n }, API_JSON_RAW);
    return 1;
}

/* The names in the list at idx; raises where it is none. */
static unsigned take_names(lua_State *L, int idx, struct slice *out, unsigned most)
{
    if (lua_isnoneornil(L, idx))
        return 0;
    luaL_checktype(L, idx, LUA_TTABLE);
    unsigned n = (unsigned)lua_objlen(L, idx);
    luaL_argcheck(L, n <= most, idx, "at most 16 names");
    for (unsigned i = 0; i < n; i++) {
        lua_rawgeti(L, idx, (int)i + 1);
        luaL_argcheck(L, lua_type(L, -1) == LUA_TSTRING, idx, "a list of names");
        out[i].p = lua_tolstring(L, -1, &out[i].n);
        lua_pop(L, 1); /* the list keeps it */
    }
    return n;
}

/*** The canonical form of a JSON text, to be hashed or compared: members sorted by name, no white
 * space, strings escaped in one way, numbers as they stand (1.0 is not 1, and no digit is lost). A
 * text in which a name stands twice in its object, or half of a surrogate pair, has none.
 * @function tg.json.canonical
 * @tparam string text
 * @tparam[opt] table omit names of members of the outermost object that are left out
 * @treturn string or nil
 * @treturn string what is wrong, "... at byte N" */
static int canonical(lua_State *L)
{
    struct slice doc, omit[16];
    struct buf out;
    const char *fault;
    size_t at;
    luaL_checktype(L, 1, LUA_TSTRING);
    doc.p = lua_tolstring(L, 1, &doc.n);
    unsigned n = take_names(L, 2, omit, 16);
    buf_init(&out);
    if (json_canonical(doc, omit, n, &out, &fault, &at) == 0) {
        lua_pushlstring(L, out.p, out.n);
        buf_deinit(&out);
        return 1;
    }
    buf_deinit(&out);
    lua_pushnil(L);
    lua_pushfstring(L, "%s at byte %f", fault, (lua_Number)at + 1);
    return 2;
}

static void open_literals(lua_State *L)
{
    static const char *const names[] = { API_JSON_NUMBER, API_JSON_CONSTANT, API_JSON_RAW };
    luaL_newmetatable(L, API_JSON_NUMBER);
    lua_pushcfunction(L, number_eq);
    lua_setfield(L, -2, "__eq");
    lua_pop(L, 1);
    for (int i = 0; i < 3; i++) {
        luaL_newmetatable(L, names[i]);
        lua_pushcfunction(L, literal_tostring);
        lua_setfield(L, -2, "__tostring");
        /* Hides the metatable; getmetatable gives this name, which tells what the value is. */
        lua_pushstring(L, names[i]);
        lua_setfield(L, -2, "__metatable");
        lua_pop(L, 1);
    }
}

/* tg.json.null: JSON's null, since a nil would be no value at all. */
/* tg.json.empty_array: encodes as [], and cannot be changed. */
/* tg.json.array_mt: the metatable of arrays. */
void api_open_json(lua_State *L)
{
    static const luaL_Reg functions[] = {
        { "decode", api_json_decode_text },
        { "encode", api_json_encode_text },
        { "array", json_array },
        { "number", json_number },
        { "raw", json_raw },
        { "canonical", canonical },
        { NULL, NULL },
    };
    open_literals(L);
    api_json_encode_open(L);
    lua_newtable(L);
    luaL_register(L, NULL, functions);
    luaL_newmetatable(L, API_JSON_ARRAY);
    lua_setfield(L, -2, "array_mt");
    api_json_literal_push(L, SLICE("null"), API_JSON_CONSTANT);
    lua_pushvalue(L, -1);
    lua_setfield(L, LUA_REGISTRYINDEX, API_JSON_NULL);
    lua_setfield(L, -2, "null");
    api_json_literal_push(L, SLICE("[]"), API_JSON_CONSTANT);
    lua_setfield(L, -2, "empty_array");
    lua_setfield(L, -2, "json");
}
