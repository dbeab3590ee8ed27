/* See worker_internal.h: what people ask of plugins, in the Lua state of the current generation.
 * The answer goes to the master as a file in memory, since it may be larger than a message. */
#include <errno.h>
#include <inttypes.h>
#include <lauxlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "log.h"
#include "worker_internal.h"

static void answer(struct worker *w, uint64_t id, bool ok, struct slice text)
{
    int fd = memfd_create("tollgate answer", MFD_CLOEXEC);
    if (fd < 0 || write(fd, text.p, text.n) != (ssize_t)text.n)
        log_error("no memory for what a plugin says: %s", strerror(errno));
    control_send(w->control, fd, "answer %" PRIu64 " %s", id, ok ? "ok" : "failed");
    if (fd >= 0)
        close(fd);
}

/* Pushes the names of plugins that do not run any more, as keys. */
static void push_stopped(struct worker *w, lua_State *L)
{
    lua_newtable(L);
    for (const struct quarantine *q = w->gw.sv.quarantine; q != NULL; q = q->next) {
        lua_pushboolean(L, 1);
        lua_setfield(L, -2, q->plugin);
    }
}

static void on_settled(void *owner, enum task_outcome outcome)
{
    (void)owner, (void)outcome; /* a task that waits is not kept */
}

static void run(struct worker *w, struct generation *g, uint64_t id, struct slice request)
{
    struct task *t = task_new(&g->tasks, on_settled, NULL);
    lua_State *L = task_lua(t);
    task_set_mark(t, zone_mark(g->number, ZONE_NO_ROUTE, 0, MARK_COMMAND));
    generation_push_module(g, L, "tollgate.command");
    lua_getfield(L, -1, "run");
    lua_remove(L, -2);
    lua_getfield(L, LUA_REGISTRYINDEX, "tollgate.config");
    lua_pushlstring(L, request.p, request.n);
    push_stopped(w, L);
    switch (task_call(t, 3)) {
    case TASK_DONE:
        if (lua_isstring(L, 3))
            services_plugin_failed(g->sv, lua_tostring(L, 3), "command");
        struct slice text;
        text.p = luaL_checklstring(L, 2, &text.n);
        answer(w, id, lua_toboolean(L, 1), text);
        lua_settop(L, 0);
        break;
    case TASK_WAITS:
        log_error("a plugin's command must not wait; nothing came of it");
        answer(w, id, false, SLICE("the plugin's command waited, which it must not"));
        break;
    case TASK_ERROR:
        log_error("a plugin's command: %s", task_error(t));
        answer(w, id, false, SLICE("it failed; see the gateway's log"));
        break;
    }
    task_free(t);
}

void worker_command(struct worker *w, uint64_t id, struct slice request)
{
    struct generation *g = w->gw.current;
    if (g == NULL || g->stopped)
        answer(w, id, false, SLICE("no generation serves yet, or any more; try again"));
    else
        run(w, g, id, request);
}
