/* See master.h: the watchdog. Each worker writes the time of its last turn into the zone. One that
 * has not turned for `watchdog` is asked to let go of what it runs, and killed a second later.
 * Where our own timer was late the whole machine was, and nobody is to blame. */
#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>

#include "container.h"
#include "log.h"
#include "master.h"
#include "mem.h"

enum { GUARD_MS = 50, GUARD_LATE_MS = 250, LET_GO_MS = 1000 };

const struct plan *master_plan_of(const struct master *m, uint64_t number)
{
    if (m->next != NULL && m->next->number == number)
        return m->next;
    const struct plan *p = m->plan;
    while (p != NULL && (p->number & 0xffffffff) != (number & 0xffffffff))
        p = p->next;
    return p;
}

static void what_runs(struct master *m, uint64_t mark, char *out, size_t size, const char **plugin)
{
    *plugin = NULL;
    if (mark == 0)
        snprintf(out, size, "no plugin");
    else
        *plugin = plan_mark(master_plan_of(m, zone_mark_generation(mark)), mark, out, size);
}

/* --- stuck workers --- */

static void interrupt(struct master *m, struct member *w, uint64_t mark, uint64_t since)
{
    char what[256];
    const char *plugin;
    what_runs(m, mark, what, sizeof what, &plugin);
    log_error("worker %u (pid %d) has been stuck for %.1f s in %s", w->place, (int)w->pid,
              (double)since / 1000, what);
    w->interrupted = loop_now(&m->loop);
    kill(w->pid, SIGUSR1);
}

static void look_at(struct master *m, struct member *w)
{
    const struct zone_slot *slot = zone_slot(m->zone, w->slot);
    uint64_t now = zone_now(), beat = slot->beat > m->awake ? slot->beat : m->awake;
    uint64_t since = now > beat ? now - beat : 0;
    if (w->kill_at != 0 && loop_now(&m->loop) > w->kill_at) {
        log_error("worker %u (pid %d) does not end; killed", w->place, (int)w->pid);
        kill(w->pid, SIGKILL);
        w->kill_at += LET_GO_MS;
    } else if (since < m->plan->watchdog_ms) {
        w->interrupted = 0;
    } else if (w->interrupted == 0) {
        interrupt(m, w, slot->mark, since);
    } else if (loop_now(&m->loop) - w->interrupted >= LET_GO_MS) {
        kill(w->pid, SIGKILL);
    }
}

static void on_guard(struct timer *t)
{
    struct master *m = CONTAINER(t, struct master, guard);
    uint64_t now = zone_now();
    if (now > m->guard_due + GUARD_LATE_MS)
        m->awake = now;
    for (struct member *w = m->members; w != NULL; w = w->next)
        look_at(m, w);
    m->guard_due = now + GUARD_MS;
    timer_set(&m->loop, t, GUARD_MS);
    log_flush();
}

void master_guard_start(struct master *m)
{
    m->guard.cb = on_guard;
    m->guard_due = zone_now() + GUARD_MS;
    timer_set(&m->loop, &m->guard, GUARD_MS);
}

/* --- the quarantine --- */

static const char *policy(const struct master *m)
{
    const char *text = plan_text(m->plan, "quarantine.policy");
    return text != NULL ? text : "off";
}

static struct quarantined *entry_of(struct master *m, const char *plugin)
{
    struct quarantined *q = m->quarantine;
    while (q != NULL && strcmp(q->plugin, plugin) != 0)
        q = q->next;
    if (q != NULL)
        return q;
    q = mem_zalloc(sizeof *q + strlen(plugin) + 1);
    strcpy(q->plugin, plugin);
    q->next = m->quarantine;
    m->quarantine = q;
    return q;
}

void master_guard_tell(struct master *m, struct member *w)
{
    for (const struct quarantined *q = m->quarantine; q != NULL; q = q->next) {
        if (q->active)
            control_send(w->control, -1, "%s %s", policy(m), q->plugin);
    }
}

void master_guard_killed(struct master *m, struct member *w, uint64_t mark)
{
    char what[256], line[256];
    const char *plugin;
    what_runs(m, mark, what, sizeof what, &plugin);
    log_error("the watchdog killed worker %u (pid %d) in %s", w->place, (int)w->pid, what);
    if (plugin == NULL)
        return;
    struct quarantined *q = entry_of(m, plugin);
    if (++q->kills < m->plan->quarantine_after || q->active || strcmp(policy(m), "off") == 0)
        return;
    q->active = true;
    log_error(
        "plugin %s is quarantined (%s): workers were killed in it %u times; a reload lifts it",
        plugin, policy(m), q->kills);
    snprintf(line, sizeof line, "%s %s", policy(m), plugin);
    master_send_all(m, line);
}

void master_guard_lift(struct master *m)
{
    while (m->quarantine != NULL) {
        struct quarantined *q = m->quarantine;
        m->quarantine = q->next;
        mem_free(q);
    }
}

void master_guard_deinit(struct master *m)
{
    timer_deinit(&m->loop, &m->guard);
    master_guard_lift(m);
}
