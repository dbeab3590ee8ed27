/* See master.h: a reload. The trial first, in a child; then one worker after the other loads the
 * new generation beside the old one; when all have it, all switch. A fault or a death anywhere, and
 * all drop it. Reloads asked for meanwhile are one further reload behind this one, since files may
 * have changed after they were read. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "log.h"
#include "master.h"
#include "mem.h"
#include "notify.h"
#include "paths.h"

enum {
    PLANS_KEPT = 4
}; /* as many as a worker may still have requests on; a plan holds all of its files */

static void begin(struct master *m, const char *why);

/* --- outcome --- */

static void tell(struct master *m, bool ok, struct slice text)
{
    struct waiter *w = m->waiters;
    m->waiters = NULL;
    m->last_reload.at = loop_wall_ms();
    m->last_reload.ok = ok;
    snprintf(m->last_reload.text, sizeof m->last_reload.text, "%.*s", (int)text.n, text.p);
    zone_totals(m->zone)->reloads += ok;
    zone_totals(m->zone)->reload_failures += !ok;
    notify("READY=1");
    while (w != NULL) {
        struct waiter *next = w->next;
        w->done(w->arg, ok, text);
        mem_free(w);
        w = next;
    }
    master_reload_again(m);
}

void master_reload_again(struct master *m)
{
    if (m->ending || m->upgrading || m->rolling || !m->again)
        return;
    m->again = false;
    m->waiters = m->later;
    m->later = NULL;
    begin(m, "asked for meanwhile");
}

static void refuse(struct master *m, struct slice faults)
{
    while (faults.n > 0 && faults.p[faults.n - 1] == '\n')
        faults.n--;
    log_error("reload failed, generation %" PRIu64 " stays: %.*s", m->plan->number, (int)faults.n,
              faults.p);
    tell(m, false, faults);
}

/* All drop what was being loaded; a plan that was never used goes. */
static void call_off(struct master *m, struct slice faults)
{
    char line[64];
    struct plan *p = m->next;
    m->next = NULL;
    snprintf(line, sizeof line, "drop %" PRIu64, p->number);
    for (struct member *w = m->members; w != NULL; w = w->next) {
        if (w->asked == p->number) {
            control_send(w->control, -1, "%s", line);
            w->asked = m->plan->number;
            master_guard_tell(m, w); /* lifted when it was asked */
        }
    }
    plan_free(p);
    refuse(m, faults);
}

static void commit(struct master *m)
{
    char line[128];
    struct plan *p = m->next;
    enum log_level level;
    m->next = NULL;
    if (log_level_of(plan_text(p, "log.level"), &level) == 0)
        log_set_level(level);
    snprintf(line, sizeof line, "switch %" PRIu64, p->number);
    master_send_all(m, line);
    master_guard_lift(m);
    p->next = m->plan;
    m->plan = p;
    master_log_apply(m);
    for (unsigned i = 1; p != NULL; i++, p = p->next) {
        if (i == PLANS_KEPT && p->next != NULL) {
            plan_free(p->next);
            p->next = NULL;
        }
    }
    master_routing_switched(m);
    master_tickets_start(m);
    master_http_tls(m);
    plan_warn(m->plan);
    master_watch_start(m);
    log_info("generation %" PRIu64 " serves (%.12s)", m->plan->number, m->plan->hash);
    snprintf(line, sizeof line, "generation %" PRIu64 " serves", m->plan->number);
    tell(m, true, slice_of(line));
}

/* --- the workers, one after the other --- */

static void load_next(struct master *m)
{
    for (struct member *w = m->members; w != NULL; w = w->next) {
        if (w->state == MEMBER_DRAINING || w->loaded == m->next->number)
            continue;
        if (w->asked != m->next->number) {
            w->asked = m->next->number;
            control_send(w->control, -1, "lift");
            control_send(w->control, m->next->fd, "load %" PRIu64, m->next->number);
        }
        return;
    }
    commit(m);
}

static void ready(struct master *m)
{
    for (const struct member *w = m->members; w != NULL; w = w->next) {
        if (w->state != MEMBER_SERVING)
            return;
    }
    m->ready = true;
    log_info("tollgate %s is ready", TOLLGATE_VERSION);
    notify("READY=1");
    master_watch_start(m);
    master_reload_again(m);
}

void master_reload_loaded(struct master *m, struct member *w, uint64_t number)
{
    (void)w;
    if (!m->ready && !m->ending)
        ready(m);
    if (m->next != NULL && m->next->number == number)
        load_next(m);
    master_roll(m);
}

void master_reload_failed(struct master *m, uint64_t number, struct slice faults)
{
    if (m->next != NULL && m->next->number == number) {
        call_off(m, faults);
        return;
    }
    log_error("a worker could not load generation %" PRIu64 ": %.*s", number, (int)faults.n,
              faults.p);
    if (!m->ready)
        master_end(m, 1);
}

/* A worker died, maybe of what it was to load. */
void master_reload_lost(struct master *m, struct member *w)
{
    if (m->next != NULL && w->asked == m->next->number)
        call_off(m, SLICE("a worker died while it held the new generation\n"));
    else if (m->next != NULL)
        load_next(m);
}

/* --- the trial --- */

static void on_checked(struct master *m, int fd, struct slice faults)
{
    struct buf keys;
    if (fd < 0) {
        refuse(m, faults);
        return;
    }
    struct plan *p = plan_new(fd, m->last_number + 1);
    if (p == NULL) {
        refuse(m, SLICE("the snapshot is damaged\n"));
        return;
    }
    buf_init(&keys);
    plan_restart_keys(m->plan, p, &keys);
    if (keys.n > 0) {
        buf_add_text(&keys, ": changed, which needs a restart\n");
        plan_free(p);
        refuse(m, buf_slice(&keys));
    } else if (strcmp(p->hash, m->plan->hash) == 0 && m->quarantine == NULL) {
        plan_free(p);
        tell(m, true, SLICE("nothing has changed"));
    } else {
        m->last_number = p->number;
        m->next = p;
        load_next(m);
    }
    buf_deinit(&keys);
}

static void begin(struct master *m, const char *why)
{
    log_info("reload: %s", why);
    notify_reloading();
    m->check = check_start(m, paths_image(), m->plan->check_ms, m->plan->memory, on_checked);
    if (m->check == NULL)
        tell(m, false, SLICE("the trial could not be started\n"));
}

void master_reload(struct master *m, const char *why,
                   void (*done)(void *arg, bool ok, struct slice text), void *arg)
{
    bool busy = m->upgrading || m->rolling || m->check != NULL || m->next != NULL || !m->ready;
    if (m->ending) {
        if (done != NULL)
            done(arg, false, SLICE("the gateway is stopping\n"));
        return;
    }
    if (done != NULL) {
        struct waiter *w = mem_zalloc(sizeof *w);
        w->done = done;
        w->arg = arg;
        struct waiter **list = busy ? &m->later : &m->waiters;
        w->next = *list;
        *list = w;
    }
    if (busy)
        m->again = true;
    else
        begin(m, why);
}

static void drop_waiters(struct waiter **list)
{
    while (*list != NULL) {
        struct waiter *w = *list;
        *list = w->next;
        w->done(w->arg, false, SLICE("the gateway is stopping\n"));
        mem_free(w);
    }
}

void master_reload_stop(struct master *m)
{
    if (m->check != NULL)
        check_stop(m->check);
    m->check = NULL;
    m->again = false;
    if (m->next != NULL)
        plan_free(m->next);
    m->next = NULL;
    drop_waiters(&m->waiters);
    drop_waiters(&m->later);
}
