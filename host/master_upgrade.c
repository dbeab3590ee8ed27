/* See master.h: an upgrade in place. The program that now has our path tries the configuration
 * first, as a reload's trial does; then we become it by exec: the same process, so the same pid and
 * children, with the sockets, the zone, the dictionary, the workers' channels and Redis kept by
 * descriptor. What these are is written into a file in memory, whose descriptor is in the
 * environment. The workers are then rolled one at a time: the new one serves before the old one
 * drains, and meanwhile the sockets stay open, so no connection is refused. */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "log.h"
#include "master.h"
#include "mem.h"
#include "notify.h"

static const char VARIABLE[] = "TOLLGATE_UPGRADE_FD";

/* --- before: the trial and the exec --- */

static void tell(struct master *m, bool ok, struct slice text)
{
    void (*done)(void *, bool, struct slice) = m->upgrade_done;
    m->upgrading = false;
    m->upgrade_done = NULL;
    while (text.n > 0 && text.p[text.n - 1] == '\n')
        text.n--;
    if (!ok)
        log_error("upgrade refused: %.*s", (int)text.n, text.p);
    if (done != NULL)
        done(m->upgrade_arg, ok, text);
    master_reload_again(m);
}

static void write_state(struct master *m, FILE *f, const struct plan *p)
{
    fprintf(f, "started %" PRId64 "\nzone %d\nshared %d\nplan %" PRIu64 " %d\n", m->started,
            m->zone_fd, shared_fd(m->shared), p->number, p->fd);
    if (m->http != NULL)
        fprintf(f, "http %d\n", master_http_fd(m));
    master_log_state(m, f);
    if (m->redisd != NULL)
        fprintf(f, "redis %d %d\n", (int)redisd_pid(m->redisd), redisd_lock(m->redisd));
    fprintf(f, "sockets %u %u", m->naddresses, m->places);
    for (unsigned i = 0; i < m->naddresses * m->places; i++)
        fprintf(f, " %d", m->sockets[i]);
    fprintf(f, "\n");
    for (const struct member *w = m->members; w != NULL; w = w->next)
        fprintf(f, "member %u %u %d %d %d\n", w->place, w->slot, (int)w->pid,
                control_fd(w->control), (int)w->state);
}

/* Descriptors that go along, or not any more. */
static void keep(struct master *m, const struct plan *p, int flags)
{
    fcntl(m->zone_fd, F_SETFD, flags);
    fcntl(shared_fd(m->shared), F_SETFD, flags);
    fcntl(p->fd, F_SETFD, flags);
    master_log_keep(m, flags);
    if (m->http != NULL)
        fcntl(master_http_fd(m), F_SETFD, flags);
    if (m->redisd != NULL)
        fcntl(redisd_lock(m->redisd), F_SETFD, flags);
    for (unsigned i = 0; i < m->naddresses * m->places; i++)
        fcntl(m->sockets[i], F_SETFD, flags);
    for (const struct member *w = m->members; w != NULL; w = w->next)
        fcntl(control_fd(w->control), F_SETFD, flags);
}

/* Returns only where it failed. */
static void become(struct master *m, struct plan *p)
{
    char number[16];
    int fd = memfd_create("tollgate state", 0), copy = fd >= 0 ? dup(fd) : -1;
    FILE *f = copy >= 0 ? fdopen(copy, "w") : NULL;
    if (f == NULL) {
        tell(m, false, SLICE("no memory for what is to be kept"));
        return;
    }
    write_state(m, f, p);
    fclose(f);
    snprintf(number, sizeof number, "%d", fd);
    setenv(VARIABLE, number, 1);
    log_info("upgrade: %s takes over", m->exe);
    void (*done)(void *, bool, struct slice) = m->upgrade_done;
    if (done != NULL)
        done(m->upgrade_arg, true, SLICE("the new program takes over"));
    m->upgrade_done = NULL;
    keep(m, p, 0);
    master_signals_hold(true); /* until the other program looks at them: their default is to end */
    execl(m->exe, "tollgate", "run", "-c", m->config, (char *)NULL);
    log_error("upgrade: %s: %s", m->exe, strerror(errno));
    master_signals_hold(false);
    keep(m, p, FD_CLOEXEC);
    unsetenv(VARIABLE);
    close(fd);
    m->upgrading = false;
    master_reload_again(m);
}

/* It has to take over the zone of workers that run. */
static bool same_layout(const struct plan *p)
{
    char ours[64];
    const char *text = plan_text(p, "zone.layout");
    zone_layout(ours, sizeof ours);
    return text != NULL && strcmp(text, ours) == 0;
}

static void on_checked(struct master *m, int fd, struct slice faults)
{
    struct buf keys;
    if (fd < 0) {
        tell(m, false, faults);
        return;
    }
    struct plan *p = plan_new(fd, m->last_number + 1);
    if (p == NULL) {
        tell(m, false, SLICE("the snapshot is damaged"));
        return;
    }
    buf_init(&keys);
    plan_restart_keys(m->plan, p, &keys);
    if (keys.n > 0) {
        buf_add_text(&keys, ": changed, which needs a restart");
        tell(m, false, buf_slice(&keys));
    } else if (!same_layout(p)) {
        tell(m, false,
             SLICE("the new program lays out shared memory differently, which needs a restart"));
    } else {
        become(m, p);
    }
    buf_deinit(&keys);
    plan_free(p);
}

void master_upgrade(struct master *m, void (*done)(void *arg, bool ok, struct slice text),
                    void *arg)
{
    if (m->check != NULL || m->next != NULL || !m->ready || m->ending || m->upgrading ||
        m->rolling) {
        struct slice why =
            SLICE("a reload or an upgrade is under way, or the gateway is starting or stopping");
        log_warn("upgrade refused: %s", why.p);
        if (done != NULL)
            done(arg, false, why);
        return;
    }
    m->upgrading = true;
    m->upgrade_done = done;
    m->upgrade_arg = arg;
    m->check = check_start(m, m->exe, m->plan->check_ms, m->plan->memory, on_checked);
    if (m->check == NULL)
        tell(m, false, SLICE("the trial could not be started"));
}

/* --- after: what was kept --- */

static bool take_sockets(struct master *m, const char *rest)
{
    int used, n;
    if (sscanf(rest, "%u %u%n", &m->naddresses, &m->places, &used) != 2 || m->places == 0 ||
        m->places > ZONE_WORKERS)
        return false;
    m->sockets = mem_zalloc((m->naddresses * m->places + 1) * sizeof *m->sockets);
    for (unsigned i = 0; i < m->naddresses * m->places; i++) {
        rest += used;
        if (sscanf(rest, "%d%n", &n, &used) != 1)
            return false;
        m->sockets[i] = n;
    }
    return true;
}

static bool take_line(struct master *m, const char *line, struct kept *k)
{
    unsigned place, slot;
    int a, b, state, used = 0;
    char word[16];
    uint64_t number;
    if (sscanf(line, "%15s %n", word, &used) != 1)
        return false;
    const char *rest = line + used;
    if (strcmp(word, "started") == 0)
        return sscanf(rest, "%" SCNd64, &m->started) == 1;
    if (strcmp(word, "zone") == 0) {
        if (sscanf(rest, "%d", &m->zone_fd) != 1 || (m->zone = zone_map(m->zone_fd)) == NULL)
            return false;
        master_log_init(m);
        return true;
    }
    if (m->logger != NULL && master_log_take(m, word, rest))
        return true;
    if (strcmp(word, "shared") == 0)
        return sscanf(rest, "%d", &a) == 1 && shared_map(&m->shared, a) == 0;
    if (strcmp(word, "plan") == 0) {
        m->plan = sscanf(rest, "%" SCNu64 " %d", &number, &a) == 2 ? plan_new(a, number) : NULL;
        return m->plan != NULL;
    }
    if (strcmp(word, "http") == 0)
        return sscanf(rest, "%d", &k->http) == 1;
    if (strcmp(word, "redis") == 0)
        return sscanf(rest, "%d %d", &k->redis_pid, &k->redis_lock) == 2;
    if (strcmp(word, "sockets") == 0)
        return take_sockets(m, rest);
    if (strcmp(word, "member") == 0 &&
        sscanf(rest, "%u %u %d %d %d", &place, &slot, &a, &b, &state) == 5) {
        master_worker_adopt(m, place, slot, a, b, state);
        return true;
    }
    return true; /* of a later version */
}

bool master_upgraded(struct master *m, struct kept *k)
{
    const char *number = getenv(VARIABLE);
    if (number == NULL)
        return false;
    FILE *f = fdopen(atoi(number), "r");
    char line[65536];
    unsetenv(VARIABLE);
    *k = (struct kept){ .http = -1, .redis_lock = -1 };
    if (f == NULL) {
        log_error("upgrade: what was kept is gone");
        _exit(1);
    }
    rewind(f);
    while (fgets(line, sizeof line, f) != NULL) {
        if (!take_line(m, line, k)) {
            log_error("upgrade: cannot take over: %s", line);
            _exit(1);
        }
    }
    fclose(f);
    m->last_number = m->plan->number;
    keep(m, m->plan, FD_CLOEXEC);
    return true;
}

/* --- the roll --- */

void master_roll(struct master *m)
{
    if (m->ending) /* all of them drain, and none is to come */
        return;
    for (struct member *old = m->members; old != NULL && m->rolling; old = old->next) {
        if (!old->adopted || old->state == MEMBER_DRAINING)
            continue;
        struct member *young = m->members;
        while (young != NULL && (young->adopted || young->place != old->place))
            young = young->next;
        if (young == NULL && m->place[old->place].restart.at == 0)
            master_worker_start(m, old->place);
        if (young == NULL || young->state != MEMBER_SERVING)
            return;
        master_worker_drain(m, old);
    }
    if (!m->rolling)
        return;
    m->rolling = false;
    master_log_renew(m);
    log_info("upgraded: tollgate %s serves", TOLLGATE_VERSION);
    notify("READY=1");
    master_watch_start(m);
    master_reload_again(m);
}
