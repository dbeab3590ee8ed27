/* tg.json.encode: members sorted by name, so that equal values give equal texts. Tables are read
 * raw. What is written so far belongs to a userdata, since what JSON cannot hold raises in the
 * middle. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "api_json.h"

static const char ENCODER[] = "tollgate.json.encoder";
static const double EXACT = 9007199254740992.0; /* 2^53 */

struct encoder {
    lua_State *L;
    struct buf text;
    struct buf keys; /* struct slice: names of the objects being written, each sorted */
    int array, number, constant, raw; /* places of the metatables on the stack */
};

/* Where in the value we are. */
struct place {
    const struct place *up; /* NULL: the value itself */
    struct slice key;       /* p is NULL in an array */
    size_t index;
    int depth;
};

/* --- errors --- */

static void add_path(struct buf *out, const struct place *at)
{
    if (at->up == NULL)
        return;
    add_path(out, at->up);
    if (at->key.p == NULL)
        buf_printf(out, "[%zu]", at->index);
    else
        buf_printf(out, "%s%.*s", out->n > 0 ? "." : "", (int)(at->key.n < 64 ? at->key.n : 64),
                   at->key.p);
}

/* "cannot encode a function (at messages[1].content)" */
static void refuse(struct encoder *e, const struct place *at, const char *what)
{
    enum { PATH_MAX_SHOWN = 400 }; /* bytes */
    buf_clear(&e->text);
    add_path(&e->text, at);
    if (e->text.n > PATH_MAX_SHOWN) {
        e->text.n = PATH_MAX_SHOWN;
        buf_add_text(&e->text, "...");
    }
    buf_add(&e->text, "", 1);
    if (at->up == NULL)
        luaL_error(e->L, "cannot encode %s", what);
    luaL_error(e->L, "cannot encode %s (at %s)", what, e->text.p);
}

/* --- scalars --- */

static void add_number(struct encoder *e, const struct place *at, double v)
{
    char text[40];
    if (!isfinite(v))
        refuse(e, at, isnan(v) ? "NaN" : "an infinite number");
    if (v == floor(v) && fabs(v) <= EXACT) {
        snprintf(text, sizeof text, "%.0f", v);
    } else {
        for (int digits = 15; digits <= 17; digits++) { /* the fewest that read back as v */
            snprintf(text, sizeof text, "%.*g", digits, v);
            if (strtod(text, NULL) == v)
                break;
        }
    }
    buf_add_text(&e->text, text);
}

/* cjson's null is a light userdata of NULL; it is taken as one too. */
static void add_userdata(struct encoder *e, const struct place *at)
{
    lua_State *L = e->L;
    if (lua_touserdata(L, -1) == NULL) {
        buf_add_text(&e->text, "null");
        return;
    }
    if (lua_type(L, -1) == LUA_TLIGHTUSERDATA || !lua_getmetatable(L, -1))
        refuse(e, at, "a userdata");
    if (!lua_rawequal(L, -1, e->number) && !lua_rawequal(L, -1, e->constant) &&
        !lua_rawequal(L, -1, e->raw))
        refuse(e, at, "a userdata");
    lua_pop(L, 1);
    const struct json_literal *l = lua_touserdata(L, -1);
    buf_add(&e->text, l->text, l->n);
}

static void add_string(struct encoder *e)
{
    size_t n;
    const char *p = lua_tolstring(e->L, -1, &n);
    json_quote(&e->text, (struct slice){ p, n });
}

/* --- tables --- */

static void add_value(struct encoder *e, const struct place *at);

static bool marked_array(const struct encoder *e)
{
    if (!lua_getmetatable(e->L, -1))
        return false;
    bool marked = lua_rawequal(e->L, -1, e->array);
    lua_pop(e->L, 1);
    return marked;
}

/* Puts the names of the table on top into e->keys. True where it is an array. */
static bool classify(struct encoder *e, const struct place *at)
{
    lua_State *L = e->L;
    size_t strings = 0, integers = 0;
    lua_Number last = 0;
    lua_pushnil(L);
    while (lua_next(L, -2) != 0) {
        lua_pop(L, 1);
        if (lua_type(L, -1) == LUA_TSTRING) {
            struct slice key;
            key.p = lua_tolstring(L, -1, &key.n);
            buf_add(&e->keys, &key, sizeof key);
            strings++;
            continue;
        }
        lua_Number k = lua_type(L, -1) == LUA_TNUMBER ? lua_tonumber(L, -1) : 0;
        if (k < 1 || k != floor(k))
            refuse(e, at, "a table whose keys are neither 1 to n nor all strings");
        last = k > last ? k : last;
        integers++;
    }
    bool array = integers > 0 || marked_array(e);
    if (last != (lua_Number)integers || (array && strings > 0))
        refuse(e, at, "a table whose keys are neither 1 to n nor all strings");
    return array;
}

static void add_array(struct encoder *e, const struct place *at)
{
    struct place part = { .up = at, .depth = at->depth + 1 };
    size_t n = lua_objlen(e->L, -1);
    buf_add(&e->text, "[", 1);
    for (part.index = 1; part.index <= n; part.index++) {
        if (part.index > 1)
            buf_add(&e->text, ",", 1);
        lua_rawgeti(e->L, -1, (int)part.index);
        add_value(e, &part);
        lua_pop(e->L, 1);
    }
    buf_add(&e->text, "]", 1);
}

static int compare_keys(const void *a, const void *b)
{
    const struct slice *x = a, *y = b;
    int order = memcmp(x->p, y->p, x->n < y->n ? x->n : y->n);
    return order != 0 ? order : (x->n > y->n) - (x->n < y->n);
}

/* The names from `first` on are this object's; those of its members come and go behind them. */
static void add_object(struct encoder *e, const struct place *at, size_t first)
{
    struct place part = { .up = at, .depth = at->depth + 1 };
    size_t end = e->keys.n, size = sizeof part.key;
    if (end > first)
        qsort(e->keys.p + first, (end - first) / size, size, compare_keys);
    buf_add(&e->text, "{", 1);
    for (size_t i = first; i < end; i += size) {
        memcpy(&part.key, e->keys.p + i, size);
        if (i > first)
            buf_add(&e->text, ",", 1);
        json_quote(&e->text, part.key);
        buf_add(&e->text, ":", 1);
        lua_pushlstring(e->L, part.key.p, part.key.n);
        lua_rawget(e->L, -2);
        add_value(e, &part);
        lua_pop(e->L, 1);
    }
    buf_add(&e->text, "}", 1);
}

static void add_table(struct encoder *e, const struct place *at)
{
    size_t first = e->keys.n;
    if (at->depth == JSON_DEPTH)
        refuse(e, at, "a table nested more than 128 deep, or in itself");
    luaL_checkstack(e->L, 8, "the value is nested too deeply");
    if (classify(e, at))
        add_array(e, at);
    else
        add_object(e, at, first);
    e->keys.n = first;
}

/* The value on top of the stack, which stays there. */
static void add_value(struct encoder *e, const struct place *at)
{
    static const char *const others[] = {
        [LUA_TNIL] = "nil (null is tg.json.null)",
        [LUA_TFUNCTION] = "a function",
        [LUA_TTHREAD] = "a coroutine",
    };
    int type = lua_type(e->L, -1);
    switch (type) {
    case LUA_TTABLE: add_table(e, at); break;
    case LUA_TSTRING: add_string(e); break;
    case LUA_TNUMBER: add_number(e, at, lua_tonumber(e->L, -1)); break;
    case LUA_TBOOLEAN: buf_add_text(&e->text, lua_toboolean(e->L, -1) ? "true" : "false"); break;
    case LUA_TLIGHTUSERDATA:
    case LUA_TUSERDATA: add_userdata(e, at); break;
    default: refuse(e, at, type <= LUA_TTHREAD ? others[type] : "a cdata");
    }
}

/* --- the encoder --- */

static void encoder_done(struct encoder *e)
{
    buf_deinit(&e->text);
    buf_deinit(&e->keys);
}

static int encoder_gc(lua_State *L)
{
    encoder_done(luaL_checkudata(L, 1, ENCODER));
    return 0;
}

/* Encodes the value at idx. The encoder and what it needs stay on the stack. */
static struct encoder *encode(lua_State *L, int idx)
{
    luaL_checkstack(L, 12, "too many values");
    lua_pushvalue(L, idx);
    int value = lua_gettop(L);
    struct encoder *e = lua_newuserdata(L, sizeof *e);
    *e = (struct encoder){
        .L = L, .array = value + 2, .number = value + 3, .constant = value + 4, .raw = value + 5
    };
    luaL_getmetatable(L, ENCODER);
    lua_setmetatable(L, -2);
    luaL_getmetatable(L, API_JSON_ARRAY);
    luaL_getmetatable(L, API_JSON_NUMBER);
    luaL_getmetatable(L, API_JSON_CONSTANT);
    luaL_getmetatable(L, API_JSON_RAW);
    lua_pushvalue(L, value);
    add_value(e, &(struct place){ 0 });
    return e;
}

void api_json_encode(lua_State *L, int idx, struct buf *out)
{
    int top = lua_gettop(L);
    struct encoder *e = encode(L, idx);
    buf_add(out, e->text.p, e->text.n);
    encoder_done(e);
    lua_settop(L, top);
}

/*** A value as JSON. A table with the keys 1 to n is an array, and one that decode or
 * tg.json.array made; any other is an object with strings as keys, sorted by bytes. {} is an
 * empty object. Integers up to 2^53 have neither point nor exponent; other numbers have as many
 * digits as read back the same. Bytes of a string that are no UTF-8 become U+FFFD.
 * @function tg.json.encode
 * @tparam any value table, string, number, boolean, tg.json.null, tg.json.empty_array, or of
 *   tg.json.number or tg.json.raw
 * @treturn string raises on all else: NaN and infinity, functions, other keys, more than 128
 *   tables deep */
int api_json_encode_text(lua_State *L)
{
    luaL_checkany(L, 1);
    struct encoder *e = encode(L, 1);
    lua_pushlstring(L, e->text.p, e->text.n);
    encoder_done(e);
    return 1;
}

void api_json_encode_open(lua_State *L)
{
    luaL_newmetatable(L, ENCODER);
    lua_pushcfunction(L, encoder_gc);
    lua_setfield(L, -2, "__gc");
    lua_pop(L, 1);
}
