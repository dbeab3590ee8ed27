/* tg.metrics.read: the figures of the whole replica, which only the master can put together.
 *
 * One question at a time is on its way to the master, however many tasks read. Who comes meanwhile
 * waits for the answer to the next one, as what was counted up to its call must be in it. A
 * question whose answer does not come in time counts as lost. */
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

static void enter(struct metrics_reader **first, struct metrics_reader *r)
{
    r->next = *first;
    r->link = first;
    if (r->next != NULL)
        r->next->link = &r->next;
    *first = r;
}

/* Asks for those that wait, unless a question is on its way. */
static void ask(struct services *sv)
{
    if (sv->metrics_asked == sv->metrics_answered && sv->metrics_readers != NULL)
        sv->ask_metrics(sv->ask_metrics_arg, ++sv->metrics_asked);
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
    struct services *sv = w->g->sv;
    struct task *task = w->task;
    if (w->reader.id >= sv->metrics_asked)
        sv->metrics_answered = sv->metrics_asked;
    reading_free(w);
    ask(sv);
    lua_pushnil(task_lua(task));
    lua_pushliteral(task_lua(task), "timeout");
    task_resume(task, 2);
}

void api_metrics_answer(struct services *sv, uint64_t id, struct slice text)
{
    struct metrics_reader *ready = NULL;
    for (struct metrics_reader *r = sv->metrics_readers, *next; r != NULL; r = next) {
        next = r->next;
        if (r->id > id)
            continue;
        leave(r);
        enter(&ready, r);
    }
    if (id > sv->metrics_answered)
        sv->metrics_answered = id;
    ask(sv);
    while (ready != NULL) {
        struct metrics_reader *r = ready;
        leave(r);
        r->done(r, text);
    }
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
    w->reader.id = sv->metrics_asked + 1;
    enter(&sv->metrics_readers, &w->reader);
    w->limit.cb = on_limit;
    timer_set(sv->loop, &w->limit, LIMIT_MS);
    ask(sv);
    return task_wait(L, task, reading_free, w);
}
