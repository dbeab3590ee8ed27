/* See master.h: what people ask of plugins. The master runs no Lua, so it asks the worker that
 * turned last, and waits for so long; whatever becomes of that worker, there is one answer. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "container.h"
#include "master.h"
#include "mem.h"

enum { ANSWER_MAX = 16 << 20 }; /* bytes */

static const char STATUS[] = "{\"status\":true}";

struct command {
    struct command *next;
    struct master *m;
    const struct member *w; /* NULL: nobody could be asked */
    uint64_t id;
    struct timer limit;
    const char *problem; /* what is answered at the limit */
    void (*done)(void *arg, bool ok, struct slice text);
    void *arg;
};

static void finish(struct command *c, bool ok, struct slice text)
{
    struct command **at = &c->m->commands;
    while (*at != c)
        at = &(*at)->next;
    *at = c->next;
    timer_deinit(&c->m->loop, &c->limit);
    c->done(c->arg, ok, text);
    mem_free(c);
}

static void on_limit(struct timer *t)
{
    struct command *c = CONTAINER(t, struct command, limit);
    finish(c, false, slice_of(c->problem));
}

/* NULL where none serves. */
static struct member *freshest(struct master *m)
{
    struct member *found = NULL;
    for (struct member *w = m->members; w != NULL; w = w->next) {
        if (w->state == MEMBER_SERVING &&
            (found == NULL ||
             zone_slot(m->zone, w->slot)->beat > zone_slot(m->zone, found->slot)->beat))
            found = w;
    }
    return found;
}

void master_command(struct master *m, struct slice request, uint64_t limit_ms,
                    void (*done)(void *arg, bool ok, struct slice text), void *arg)
{
    struct command *c = mem_zalloc(sizeof *c);
    bool takes = plan_text(m->plan, "commands") != NULL;
    c->m = m;
    c->id = ++m->last_command;
    c->done = done;
    c->arg = arg;
    c->w = takes ? freshest(m) : NULL;
    c->problem = !takes         ? "no plugin of the configuration takes commands"
                 : c->w == NULL ? "no worker serves"
                                : "the worker that was asked did not answer in time";
    c->next = m->commands;
    m->commands = c;
    c->limit.cb = on_limit;
    timer_set(&m->loop, &c->limit, c->w != NULL ? limit_ms : 0);
    if (c->w != NULL)
        control_send(c->w->control, -1, "command %" PRIu64 "\n%.*s", c->id, (int)request.n,
                     request.p);
}

void master_command_status(struct master *m, void (*done)(void *arg, bool ok, struct slice text),
                           void *arg)
{
    enum { LIMIT_MS = 500 }; /* status is for gateways that are stuck, too */
    master_command(m, slice_of(STATUS), LIMIT_MS, done, arg);
}

static void read_answer(int fd, struct buf *out)
{
    struct stat st;
    ssize_t n;
    off_t at = 0;
    if (fstat(fd, &st) != 0 || st.st_size > ANSWER_MAX)
        return;
    while ((n = pread(fd, buf_reserve(out, 65536), 65536, at)) > 0) {
        out->n += (size_t)n;
        at += n;
    }
}

void master_command_answered(struct master *m, const char *text, int fd)
{
    char how[8] = "";
    uint64_t id = 0;
    struct command *c = m->commands;
    struct buf answer;
    sscanf(text, "%" SCNu64 " %7s", &id, how);
    while (c != NULL && c->id != id)
        c = c->next;
    buf_init(&answer);
    if (fd >= 0 && c != NULL)
        read_answer(fd, &answer);
    if (fd >= 0)
        close(fd);
    if (c != NULL)
        finish(c, strcmp(how, "ok") == 0, buf_slice(&answer));
    buf_deinit(&answer);
}

void master_command_lost(struct master *m, const struct member *w)
{
    for (struct command *c = m->commands, *next; c != NULL; c = next) {
        next = c->next;
        if (c->w == w)
            finish(c, false, SLICE("the worker that was asked has ended"));
    }
}

void master_commands_stop(struct master *m)
{
    while (m->commands != NULL)
        finish(m->commands, false, SLICE("the gateway ends"));
}
