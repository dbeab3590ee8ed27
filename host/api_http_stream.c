/* Streamed answers of tg.http. The Lua object is a table that has a handle; the stream behind it
 * ends when its body does, by close(), with the task that opened it, or when the handle is
 * collected, whichever is first. A read that waits keeps the stream alive, even where nobody else
 * holds it. */
#include "api_http.h"
#include "container.h"
#include "mem.h"

static const char HANDLE[] = "tollgate.http.handle"; /* its address is the key in the table */

struct http_stream {
    struct http_stream **handle; /* NULL: collected */
    struct fetch *f;             /* NULL: over */
    enum fetch_error err;        /* why it is over; FETCH_OK at the body's end, and before */
    struct task *reader;         /* who waits for a piece */
    struct task_hold hold;
};

static void free_unheld(struct http_stream *s)
{
    if (s->handle == NULL && s->f == NULL && s->reader == NULL)
        mem_free(s);
}

static void over(struct http_stream *s, enum fetch_error err)
{
    s->err = err;
    task_unhold(&s->hold);
    fetch_free(s->f);
    s->f = NULL;
    free_unheld(s);
}

/* One who waits for a piece is told, in this turn but later. */
static void stream_end(struct http_stream *s)
{
    if (s->f == NULL)
        return;
    if (s->reader != NULL)
        fetch_close(s->f);
    else
        over(s, FETCH_CLOSED);
}

static void on_task_end(struct task_hold *h)
{
    stream_end(CONTAINER(h, struct http_stream, hold));
}

/* Nobody can read it any more, but one who waits already. */
static void forget_handle(struct http_stream *s)
{
    s->handle = NULL;
    if (s->reader != NULL)
        return;
    if (s->f != NULL)
        over(s, FETCH_CLOSED);
    else
        mem_free(s);
}

static int handle_gc(lua_State *L)
{
    struct http_stream **handle = lua_touserdata(L, 1);
    struct http_stream *s = *handle;
    if (s != NULL)
        forget_handle(s);
    return 0;
}

void api_http_push_stream(lua_State *L, struct fetch *f, struct task *t)
{
    lua_pushlightuserdata(L, (void *)HANDLE);
    struct http_stream **handle = lua_newuserdata(L, sizeof *handle);
    struct http_stream *s = mem_zalloc(sizeof *s);
    *handle = s;
    s->handle = handle;
    s->f = f;
    s->hold.release = on_task_end;
    task_hold(t, &s->hold);
    luaL_getmetatable(L, HANDLE);
    lua_setmetatable(L, -2);
    lua_rawset(L, -3);
}

/* The stream of a res at idx. */
static struct http_stream *check_stream(lua_State *L, int idx)
{
    struct http_stream **handle = NULL;
    if (lua_istable(L, idx)) {
        lua_pushlightuserdata(L, (void *)HANDLE);
        lua_rawget(L, idx);
        handle = lua_touserdata(L, -1);
        lua_pop(L, 1);
    }
    if (handle == NULL)
        luaL_error(L, "tg.http.stream: call this on its result with a colon: res:read(), "
                      "res:pieces(), res:close()");
    return *handle;
}

/* --- reading --- */

static int push_end(lua_State *L, enum fetch_error err)
{
    lua_pushnil(L);
    if (err == FETCH_OK)
        return 1;
    lua_pushstring(L, fetch_error_name(err));
    return 2;
}

/* Pushes what can be read now and returns how many values, or 0 where nothing has come yet. */
static int push_next(lua_State *L, struct http_stream *s)
{
    struct slice piece;
    if (s->f == NULL)
        return push_end(L, s->err);
    switch (fetch_read(s->f, &piece)) {
    case FETCH_PIECE: lua_pushlstring(L, piece.p, piece.n); return 1;
    case FETCH_WAIT: return 0;
    default: break;
    }
    enum fetch_error err = fetch_failure(s->f);
    over(s, err);
    return push_end(L, err);
}

static void on_readable(void *arg)
{
    struct http_stream *s = arg;
    struct task *task = s->reader;
    int n = push_next(task_lua(task),
                      s); /* may collect the handle: while there is a reader, that ends nothing */
    s->reader = NULL;
    if (s->handle == NULL)
        forget_handle(s);
    task_resume(task, n);
}

static void on_cancel(void *arg)
{
    struct http_stream *s = arg;
    s->reader = NULL;
    fetch_unawait(s->f);
    if (s->handle == NULL)
        forget_handle(s);
}

static int next_piece(lua_State *L, struct http_stream *s, const char *what)
{
    struct task *task = task_check(L, what);
    if (s->reader != NULL)
        return luaL_error(L, "%s: another coroutine is reading this answer", what);
    int n = push_next(L, s);
    if (n > 0)
        return n;
    s->reader = task;
    fetch_await(s->f, on_readable, s);
    return task_wait(L, task, on_cancel, s);
}

/* res:read() → the next piece of a streamed body; nil at its end; or nil and err, as of
 * tg.http.request. Waits. What had arrived before a failure comes before it; after res:close() it
 * is "closed". */
static int stream_read(lua_State *L)
{
    return next_piece(L, check_stream(L, 1), "res:read()");
}

static int pieces_next(lua_State *L)
{
    return next_piece(L, check_stream(L, lua_upvalueindex(1)), "res:pieces()");
}

/* for piece in res:pieces() do: the pieces of a streamed body, until its end or a failure; res.err
 * tells which. */
static int stream_pieces(lua_State *L)
{
    check_stream(L, 1);
    lua_pushvalue(L, 1);
    lua_pushcclosure(L, pieces_next, 1);
    return 1;
}

/* res:close(): ends the connection unless the body has been read to its end. */
static int stream_close_(lua_State *L)
{
    stream_end(check_stream(L, 1));
    return 0;
}

/* res.err: why a streamed body ended before its end, as of tg.http.request; nil while it goes on
 * and at its end. */
static int stream_index(lua_State *L)
{
    const char *key = lua_type(L, 2) == LUA_TSTRING ? lua_tostring(L, 2) : "";
    if (strcmp(key, "err") == 0) {
        struct http_stream *s = check_stream(L, 1);
        if (s->err == FETCH_OK)
            lua_pushnil(L);
        else
            lua_pushstring(L, fetch_error_name(s->err));
        return 1;
    }
    lua_pushvalue(L, 2);
    lua_rawget(L, lua_upvalueindex(1));
    return 1;
}

void api_http_open_stream(lua_State *L)
{
    static const luaL_Reg methods[] = { { "read", stream_read },
                                        { "pieces", stream_pieces },
                                        { "close", stream_close_ },
                                        { NULL, NULL } };
    luaL_newmetatable(L, HANDLE);
    lua_pushcfunction(L, handle_gc);
    lua_setfield(L, -2, "__gc");
    luaL_newmetatable(L, API_HTTP_STREAM);
    lua_newtable(L);
    luaL_register(L, NULL, methods);
    lua_pushcclosure(L, stream_index, 1);
    lua_setfield(L, -2, "__index");
    lua_pop(L, 2);
}
