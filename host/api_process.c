/* Child processes for tollgate exec and test, as require "tollgate.process": specs start a real
 * gateway with it. Plugins of a gateway do not get this. A child that still runs when the Lua state
 * ends is killed and counts as left open. */
#include <signal.h>
#include <string.h>

#include "api.h"
#include "log.h"
#include "mem.h"

static const char PROCESS[] = "tollgate.process";
enum { ARGS_MAX = 64, OUTPUT_MAX = 1 << 20 }; /* bytes of stderr that are kept */

struct process {
    uv_process_t handle;
    uv_pipe_t err;
    struct generation *g;
    struct buf output;    /* what it wrote to stderr */
    struct task *waiting; /* for more output, or for the end */
    bool running, open;   /* open: stderr */
    int code, closing;
    bool orphan; /* the Lua object has gone */
};

/* --- ends --- */

static void free_if_done(struct process *p)
{
    if (p->orphan && p->closing == 0) {
        buf_deinit(&p->output);
        mem_free(p);
    }
}

static void on_closed(uv_handle_t *h)
{
    struct process *p = h->data;
    p->closing--;
    free_if_done(p);
}

static void close_handle(struct process *p, uv_handle_t *h)
{
    p->closing++;
    uv_close(h, on_closed);
}

static void wake(struct process *p)
{
    struct task *t = p->waiting;
    p->waiting = NULL;
    if (t != NULL)
        task_resume(t, 0);
}

static void on_child_end(uv_process_t *h, int64_t code, int signum)
{
    struct process *p = h->data;
    p->running = false;
    p->code = signum != 0 ? 128 + signum : (int)code;
    close_handle(p, (uv_handle_t *)h);
    wake(p);
}

static void on_alloc(uv_handle_t *h, size_t hint, uv_buf_t *out)
{
    struct process *p = h->data;
    (void)hint;
    out->base = p->g->sv->loop->read_buf;
    out->len = LOOP_READ_SIZE;
}

static void on_read(uv_stream_t *h, ssize_t n, const uv_buf_t *bytes)
{
    struct process *p = h->data;
    if (n > 0 && p->output.n < OUTPUT_MAX)
        buf_add(&p->output, bytes->base, (size_t)n);
    if (n < 0) {
        p->open = false;
        close_handle(p, (uv_handle_t *)h);
    }
    if (n != 0)
        wake(p);
}

/* --- Lua --- */

static struct process *check(lua_State *L)
{
    return *(struct process **)luaL_checkudata(L, 1, PROCESS);
}

/* process.start{ program, argument, …, cwd = folder, stdout = false } → process, or nil, message.
 * Its stdin is closed, its stdout is ours, or dropped where that is false, its stderr is kept. */
static int process_start(lua_State *L)
{
    struct generation *g = api_generation(L);
    char *args[ARGS_MAX + 1];
    luaL_checktype(L, 1, LUA_TTABLE);
    int n = (int)lua_objlen(L, 1);
    luaL_argcheck(L, n >= 1 && n <= ARGS_MAX, 1, "needs a program and at most 63 arguments");
    luaL_checkstack(L, n + 4, "too many arguments");
    for (int i = 0; i < n; i++) {
        lua_rawgeti(L, 1, i + 1);
        args[i] = (char *)(uintptr_t)luaL_checkstring(L, -1);
    }
    args[n] = NULL;
    lua_getfield(L, 1, "stdout");
    uv_stdio_flags stdout_flag =
        lua_isboolean(L, -1) && !lua_toboolean(L, -1) ? UV_IGNORE : UV_INHERIT_FD;
    lua_getfield(L, 1, "cwd");
    struct process **out = lua_newuserdata(L, sizeof *out);
    struct process *p = mem_zalloc(sizeof *p);
    *out = p;
    luaL_getmetatable(L, PROCESS);
    lua_setmetatable(L, -2);
    p->g = g;
    p->handle.data = p->err.data = p;
    uv_pipe_init(&g->sv->loop->uv, &p->err, 0);
    uv_stdio_container_t io[3] = { { .flags = UV_IGNORE },
                                   { .flags = stdout_flag, .data.fd = 1 },
                                   { .flags = UV_CREATE_PIPE | UV_WRITABLE_PIPE,
                                     .data.stream = (uv_stream_t *)&p->err } };
    uv_process_options_t o = { .file = args[0],
                               .args = args,
                               .exit_cb = on_child_end,
                               .stdio = io,
                               .stdio_count = 3,
                               .cwd = lua_isnil(L, -2) ? NULL : luaL_checkstring(L, -2) };
    int err = uv_spawn(&g->sv->loop->uv, &p->handle, &o);
    if (err != 0) {
        close_handle(p, (uv_handle_t *)&p->handle);
        close_handle(p, (uv_handle_t *)&p->err);
        lua_pushnil(L);
        lua_pushstring(L, uv_strerror(err));
        return 2;
    }
    p->running = p->open = true;
    uv_read_start((uv_stream_t *)&p->err, on_alloc, on_read);
    return 1;
}

static void on_cancel(void *arg)
{
    ((struct process *)arg)->waiting = NULL;
}

/* process:wait(): until it writes to stderr, closes it or ends. Waits. */
static int process_wait(lua_State *L)
{
    struct process *p = check(L);
    if (!p->running && !p->open)
        return 0;
    if (p->waiting != NULL)
        return luaL_error(L, "process:wait(): somebody waits already");
    p->waiting = task_check(L, "process:wait()");
    return task_wait(L, p->waiting, on_cancel, p);
}

/* process:stderr() → all that it has written so far. */
static int process_stderr(lua_State *L)
{
    struct process *p = check(L);
    lua_pushlstring(L, p->output.p != NULL ? p->output.p : "", p->output.n);
    return 1;
}

/* process:code() → exit code (128 + signal where one ended it), or nil while it runs. */
static int process_code(lua_State *L)
{
    struct process *p = check(L);
    if (p->running || p->open)
        lua_pushnil(L);
    else
        lua_pushinteger(L, p->code);
    return 1;
}

/* process:kill(signal number): nothing where it has ended. */
static int process_kill(lua_State *L)
{
    struct process *p = check(L);
    int signum = (int)luaL_optinteger(L, 2, SIGTERM);
    if (p->running)
        uv_process_kill(&p->handle, signum);
    return 0;
}

static int process_gc(lua_State *L)
{
    struct process *p = *(struct process **)lua_touserdata(L, 1);
    p->orphan = true;
    if (p->running) {
        log_error("leak: process %d still ran and was killed", p->handle.pid);
        p->g->sv->leaks++;
        uv_process_kill(&p->handle, SIGKILL);
        p->running = false;
        close_handle(p, (uv_handle_t *)&p->handle);
    }
    if (p->open)
        close_handle(p, (uv_handle_t *)&p->err);
    p->open = false;
    free_if_done(p);
    return 0;
}

void api_open_process(lua_State *L)
{
    static const luaL_Reg functions[] = { { "start", process_start }, { NULL, NULL } };
    static const luaL_Reg methods[] = { { "wait", process_wait },
                                        { "stderr", process_stderr },
                                        { "code", process_code },
                                        { "kill", process_kill },
                                        { NULL, NULL } };
    luaL_newmetatable(L, PROCESS);
    lua_pushcfunction(L, process_gc);
    lua_setfield(L, -2, "__gc");
    lua_newtable(L);
    luaL_register(L, NULL, methods);
    lua_setfield(L, -2, "__index");
    lua_pop(L, 1);
    lua_getglobal(L, "package");
    lua_getfield(L, -1, "loaded");
    lua_newtable(L);
    luaL_register(L, NULL, functions);
    lua_setfield(L, -2, "tollgate.process");
    lua_pop(L, 2);
}
