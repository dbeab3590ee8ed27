/* tg.sse: server-sent events for plugins that read streams. */
#include "api.h"
#include "sse.h"

static const char PARSER[] = "tollgate.sse";

struct parser {
    struct sse sse;
    struct buf data; /* of the current event */
    size_t max;
    bool too_large;
    lua_State *L; /* during feed: the list of events is on top */
    int n;
};

static void on_data(void *arg, struct slice piece)
{
    struct parser *p = arg;
    if (p->too_large || piece.n > p->max - p->data.n) {
        p->too_large = true;
        return;
    }
    buf_add_slice(&p->data, piece);
}

static void on_event(void *arg, const struct sse_event *e)
{
    struct parser *p = arg;
    if (p->too_large)
        return;
    lua_createtable(p->L, 0, 2);
    lua_pushlstring(p->L, e->name.p, e->name.n);
    lua_setfield(p->L, -2, "event");
    lua_pushlstring(p->L, p->data.p != NULL ? p->data.p : "", p->data.n);
    lua_setfield(p->L, -2, "data");
    lua_rawseti(p->L, -2, ++p->n);
    buf_clear(&p->data);
}

/* tg.sse.parser(bytes or nil) → parser of one stream of server-sent events (WHATWG HTML,
 * section 9.2.6). An event's data may have so many bytes, 1 MiB where no number is given. */
static int sse_parser(lua_State *L)
{
    lua_Number max = luaL_optnumber(L, 1, 1 << 20);
    luaL_argcheck(L, max >= 1 && max < 9007199254740992.0, 1, "bytes must be a number from 1");
    struct parser *p = lua_newuserdata(L, sizeof *p);
    *p = (struct parser){ .max = (size_t)max };
    buf_init(&p->data);
    sse_init(&p->sse, on_data, on_event, p);
    luaL_getmetatable(L, PARSER);
    lua_setmetatable(L, -2);
    return 1;
}

/* parser:feed(bytes) → list of the events that are complete by now: { event = name or "", data =
 * text }. The stream may be split anywhere. nil, "too_large": an event is larger than allowed; it
 * stays so. */
static int parser_feed_(lua_State *L)
{
    struct parser *p = luaL_checkudata(L, 1, PARSER);
    struct slice bytes;
    bytes.p = luaL_checklstring(L, 2, &bytes.n);
    lua_settop(L, 2);
    lua_newtable(L);
    p->L = L;
    p->n = 0;
    sse_feed(&p->sse, bytes);
    if (!p->too_large)
        return 1;
    lua_pushnil(L);
    lua_pushliteral(L, "too_large");
    return 2;
}

static int parser_gc(lua_State *L)
{
    buf_deinit(&((struct parser *)luaL_checkudata(L, 1, PARSER))->data);
    return 0;
}

void api_open_sse(lua_State *L)
{
    luaL_newmetatable(L, PARSER);
    lua_pushcfunction(L, parser_gc);
    lua_setfield(L, -2, "__gc");
    lua_newtable(L);
    lua_pushcfunction(L, parser_feed_);
    lua_setfield(L, -2, "feed");
    lua_setfield(L, -2, "__index");
    lua_pop(L, 1);
    lua_newtable(L);
    lua_pushcfunction(L, sse_parser);
    lua_setfield(L, -2, "parser");
    lua_setfield(L, -2, "sse");
}
