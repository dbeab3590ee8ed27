/* tg.metrics.read: the figures of the whole replica, which only the master can put together. */
#include "api.h"
#include "container.h"
#include "mem.h"

enum { LIMIT_MS = 5000 };

struct reading {
    struct metrics_reader reader;
    struct timer limit;
    struct generation *g;
    struct task *task;
};

static void leave(struct metrics_reader *r)
{
    if (r->link == NULL)
        return;
    *r->link = r->next;
    if (r->next != NULL)
        r->next->link = r->link;
    r->link = NULL;
}

static void reading_free(void *arg)
{
    struct reading *w = arg;
    leave(&w->reader);
    timer_deinit(w->g->sv->loop, &w->limit);
    mem_free(w);
}

static void on_done(struct metrics_reader *r, struct slice text)
{
    struct reading *w = CONTAINER(r, struct reading, reader);
    struct task *task = w->task;
    reading_free(w);
    lua_pushlstring(task_lua(task), text.p, text.n);
    task_resume(task, 1);
}

static void on_limit(struct timer *t)
{
    struct reading *w = CONTAINER(t, struct reading, limit);
    struct task *task = w->task;
    reading_free(w);
    lua_pushnil(task_lua(task));
    lua_pushliteral(task_lua(task), "timeout");
    task_resume(task, 2);
}

void api_metrics_answer(struct services *sv, uint64_t id, struct slice text)
{
    struct metrics_reader *r = sv->metrics_readers;
    while (r != NULL && r->id != id)
        r = r->next;
    if (r == NULL) /* given up */
        return;
    leave(r);
    r->done(r, text);
}

/* tg.metrics.read() → the figures of the replica, its workers together, as /metrics has them:
 * Prometheus' text format, version 0.0.4. Waits. nil, err: "timeout" (five seconds),
 * "unavailable" where no master runs (tollgate exec). */
int api_metrics_read(lua_State *L)
{
    struct task *task = task_check(L, "tg.metrics.read");
    struct generation *g = api_generation(L);
    struct services *sv = g->sv;
    if (sv->ask_metrics == NULL) {
        lua_pushnil(L);
        lua_pushliteral(L, "unavailable");
        return 2;
    }
    struct reading *w = mem_zalloc(sizeof *w);
    w->g = g;
    w->task = task;
    w->reader.done = on_done;
    w->reader.id = ++sv->metrics_asked;
    w->reader.next = sv->metrics_readers;
    w->reader.link = &sv->metrics_readers;
    if (w->reader.next != NULL)
        w->reader.next->link = &w->reader.next;
    sv->metrics_readers = &w->reader;
    w->limit.cb = on_limit;
    timer_set(sv->loop, &w->limit, LIMIT_MS);
    sv->ask_metrics(sv->ask_metrics_arg, w->reader.id);
    return task_wait(L, task, reading_free, w);
}
