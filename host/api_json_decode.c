/* tg.json.decode: the scanner's events build the value on the Lua stack. A container lies there,
 * with the name of the member that is being read above it where it is an object, until its end
 * moves it into its parent. Nothing is allocated outside of Lua, so an error may pass through at
 * any place. */
#include <float.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "api_json.h"

enum { OBJECT = -1 };
enum { DIGITS_SURE = 15, DIGITS_MAX = 17 }; /* that a double always, and ever, keeps */

static const double EXACT = 9007199254740992.0; /* 2^53: integers up to it */

struct decoder {
    lua_State *L;
    const char *text;
    int null, array; /* places on the stack: null, and the arrays' metatable */
    int limit;       /* containers that lie this deep stay text */
    int within;      /* 1 + the depth of the container that is passed over; 0: none */
    uint64_t raw_start;
    int count[JSON_DEPTH]; /* of each open array the elements so far, or OBJECT */
    const char *fault;     /* what the scanner cannot know */
    uint64_t fault_offset;
};

/* --- numbers --- */

struct digits {
    char d[DIGITS_MAX]; /* significant ones: without zeros at either end */
    size_t n, zeros;    /* how many, and the zeros behind them; n may be more than are kept */
    bool integer;       /* neither point nor exponent */
};

static void add_digit(struct digits *s, char c)
{
    if (s->n < DIGITS_MAX)
        s->d[s->n] = c;
    s->n++;
}

static struct digits significant(struct slice text)
{
    struct digits s = { .integer = true };
    for (size_t i = 0; i < text.n; i++) {
        char c = text.p[i];
        if (c == '.' || c == 'e' || c == 'E')
            s.integer = false;
        if (c == 'e' || c == 'E')
            break;
        if (c == '0' && s.n > 0)
            s.zeros++;
        if (c < '1' || c > '9')
            continue;
        for (; s.zeros > 0; s.zeros--)
            add_digit(&s, '0');
        add_digit(&s, c);
    }
    return s;
}

/* Whether v, the double nearest to a number, gives its digits back. Plain integers beyond 2^53
 * never count as kept, so that all ids of a series are of one type. */
static bool keeps(double v, const struct digits *s)
{
    if (s->n == 0)
        return true;
    if (s->integer && fabs(v) > EXACT)
        return false;
    if (s->n <= DIGITS_SURE && isfinite(v) && fabs(v) >= DBL_MIN)
        return true;
    if (s->n > DIGITS_MAX || !isfinite(v))
        return false;
    char text[40];
    snprintf(text, sizeof text, "%.*e", (int)s->n - 1, fabs(v));
    return text[0] == s->d[0] && (s->n == 1 || memcmp(text + 2, s->d + 1, s->n - 1) == 0);
}

static void push_number(const struct decoder *d, const struct json_event *e)
{
    struct slice text = { d->text + e->start, (size_t)(e->end - e->start) };
    struct digits s = significant(text);
    double v =
        strtod(text.p, NULL); /* ends by itself: no byte that may follow belongs to a number */
    if (keeps(v, &s))
        lua_pushnumber(d->L, v);
    else
        api_json_literal_push(d->L, text, API_JSON_NUMBER);
}

/* --- strings --- */

/* The scanner captures short strings; a long one is taken from the text. */
static void push_string(const struct decoder *d, const struct json_event *e)
{
    const char *p = d->text + e->start + 1, *end = d->text + e->end - 1;
    if (e->whole) {
        lua_pushlstring(d->L, e->text.p, e->text.n);
        return;
    }
    if (e->decoded == (uint64_t)(end - p)) { /* every escape is longer than what it stands for */
        lua_pushlstring(d->L, p, (size_t)e->decoded);
        return;
    }
    char *space = lua_newuserdata(d->L, (size_t)e->decoded);
    char *to = json_unescape(space, (struct slice){ p, (size_t)(end - p) }, NULL);
    lua_pushlstring(d->L, space, (size_t)(to - space));
    lua_remove(d->L, -2);
}

/* --- structure --- */

/* Moves a complete value from the top into its container, which lies below it. */
static int place(struct decoder *d, int depth)
{
    if (depth == 0)
        return 0;
    if (d->count[depth - 1] == OBJECT)
        lua_rawset(d->L, -3);
    else
        lua_rawseti(d->L, -2, ++d->count[depth - 1]);
    return 0;
}

static int begin_container(struct decoder *d, const struct json_event *e)
{
    if (e->depth >= d->limit) {
        d->within = e->depth + 1;
        d->raw_start = e->start;
        return 0;
    }
    luaL_checkstack(d->L, 8, "JSON is nested too deeply");
    lua_newtable(d->L);
    d->count[e->depth] = OBJECT;
    if (e->type == JSON_ARRAY) {
        d->count[e->depth] = 0;
        lua_pushvalue(d->L, d->array);
        lua_setmetatable(d->L, -2);
    }
    return 0;
}

static int begin_member(struct decoder *d, const struct json_event *e)
{
    push_string(d, e);
    lua_pushvalue(d->L, -1);
    lua_rawget(d->L, -3);
    if (!lua_isnil(d->L, -1)) {
        d->fault = "duplicate member";
        d->fault_offset = e->start;
        return 1;
    }
    lua_pop(d->L, 1);
    return 0;
}

/* Inside a container that stays text: at its end the text is its value. */
static int pass_over(struct decoder *d, const struct json_event *e)
{
    bool ends = e->type == JSON_OBJECT_END || e->type == JSON_ARRAY_END;
    if (!ends || e->depth + 1 != d->within)
        return 0;
    d->within = 0;
    struct slice text = { d->text + d->raw_start, (size_t)(e->end - d->raw_start) };
    api_json_literal_push(d->L, text, API_JSON_RAW);
    return place(d, e->depth);
}

static int on_event(void *arg, const struct json_event *e)
{
    struct decoder *d = arg;
    if (d->within > 0)
        return pass_over(d, e);
    switch (e->type) {
    case JSON_OBJECT:
    case JSON_ARRAY: return begin_container(d, e);
    case JSON_KEY: return begin_member(d, e);
    case JSON_STRING: push_string(d, e); break;
    case JSON_NUMBER: push_number(d, e); break;
    case JSON_TRUE:
    case JSON_FALSE: lua_pushboolean(d->L, e->type == JSON_TRUE); break;
    case JSON_NULL: lua_pushvalue(d->L, d->null); break;
    default: break; /* a container's end: it is on top */
    }
    return place(d, e->depth);
}

/*** The value of a JSON text (RFC 8259, nested at most 128 deep). Arrays have the metatable
 * array_mt, null is tg.json.null. A number is a Lua number where that keeps all its digits;
 * else, and where it is an integer beyond 2^53, it is what tg.json.number makes. With a depth,
 * objects and arrays inside that many others are not looked into: they are what tg.json.raw makes
 * of their text (depth 1: the members of the outermost).
 * @function tg.json.decode
 * @tparam string text
 * @tparam[opt] number depth at least 1; default: no limit
 * @treturn any|nil
 * @treturn string what is wrong, "... at byte N" (the first is 1); a repeated member is a fault
 *   too */
int api_json_decode_text(lua_State *L)
{
    size_t n;
    luaL_checktype(L, 1, LUA_TSTRING);
    lua_Integer limit = luaL_optinteger(L, 2, JSON_DEPTH);
    luaL_argcheck(L, limit >= 1, 2, "the depth must be at least 1");
    lua_settop(L, 1);
    lua_getfield(L, LUA_REGISTRYINDEX, API_JSON_NULL);
    luaL_getmetatable(L, API_JSON_ARRAY);
    struct decoder d = { .L = L, .text = lua_tolstring(L, 1, &n), .null = 2, .array = 3 };
    d.limit = limit < JSON_DEPTH ? (int)limit : JSON_DEPTH;
    struct json j;
    json_init(&j, on_event, &d);
    int rc = json_feed(&j, d.text, n);
    if (rc == 0)
        rc = json_finish(&j);
    if (rc == 0)
        return 1;
    bool own = d.fault != NULL;
    lua_settop(L, 0);
    lua_pushnil(L);
    lua_pushfstring(L, "%s at byte %f", own ? d.fault : json_fault(&j),
                    (lua_Number)((own ? d.fault_offset : j.offset) + 1));
    return 2;
}
