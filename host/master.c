/* See master.h. Start: the configuration's trial, sockets, zone, Redis, workers. End: workers
 * drain, then Redis, then we. */
#include "master.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "log.h"
#include "mem.h"
#include "notify.h"
#include "paths.h"

enum {
    RUN_DIR_MS = 2000,
    FIRST_CHECK_MS = 60000
}; /* what the configuration says is not known yet */

/* --- the end --- */

static void take_away_pid(struct master *m)
{
    char path[PATH_MAX + 16];
    snprintf(path, sizeof path, "%s/tollgate.pid", m->run_dir);
    if (m->pid_fd > 0)
        unlink(path);
}

static void close_rest(struct master *m)
{
    sigset_t late; /* one more signal must not kill what has ended but for its memory */
    sigemptyset(&late);
    sigaddset(&late, SIGTERM);
    sigaddset(&late, SIGINT);
    sigprocmask(SIG_BLOCK, &late, NULL);
    for (size_t i = 0; i < sizeof m->signals / sizeof *m->signals; i++)
        uv_close((uv_handle_t *)&m->signals[i], NULL);
    uv_close((uv_handle_t *)&m->child, NULL);
    take_away_pid(m);
}

static void on_redis_stopped(void *arg)
{
    struct master *m = arg;
    redisd_free(m->redisd);
    m->redisd = NULL;
    close_rest(m);
}

static void on_log_stopped(struct master *m)
{
    master_log_deinit(m);
    if (m->redisd != NULL)
        redisd_stop(m->redisd, on_redis_stopped, m);
    else
        close_rest(m);
}

void master_workers_gone(struct master *m)
{
    if (m->gone)
        return;
    m->gone = true;
    master_guard_deinit(m);
    master_tickets_stop(m);
    master_place_deinit(m);
    master_commands_stop(m);
    master_admin_stop(m);
    master_http_stop(m);
    master_log_stop(m, on_log_stopped);
}

void master_end(struct master *m, int code)
{
    if (m->zone == NULL) /* not started yet: there is nothing to drain */
        _exit(code);
    if (m->ending) {
        log_warn("stopping at once");
        master_workers_abort(m);
        return;
    }
    unsigned connections = 0;
    for (unsigned i = 0; i < zone_slots(m->zone); i++)
        connections += (unsigned)zone_slot(m->zone, i)->connections;
    log_info("stopping: %u connections", connections);
    m->code = code != 0 ? code : m->code;
    m->ending = true;
    notify("STOPPING=1");
    master_sockets_shut(m);
    master_watch_stop(m);
    master_reload_stop(m);
    master_workers_drain(m);
}

/* --- signals --- */

static void on_signal(uv_signal_t *h, int signum)
{
    struct master *m = h->data;
    if (signum == SIGHUP)
        master_reload(m, "SIGHUP", NULL, NULL);
    else if (signum == SIGUSR1)
        master_log_reopen(m);
    else if (signum == SIGUSR2)
        master_upgrade(m, NULL, NULL);
    else
        master_end(m, 0);
}

static void on_child(uv_signal_t *h, int signum)
{
    struct master *m = h->data;
    struct member *next;
    int status;
    (void)signum;
    for (struct member *w = m->members; w != NULL; w = next) {
        next = w->next;
        if (waitpid(w->pid, &status, WNOHANG) == w->pid)
            master_worker_lost(m, w->pid, status);
    }
    master_log_lost(m, &status);
    if (m->check != NULL) {
        pid_t pid = check_pid(m->check);
        if (waitpid(pid, &status, WNOHANG) == pid)
            check_ended(m->check, status);
    }
}

static const int signal_numbers[] = { SIGTERM, SIGINT, SIGHUP, SIGUSR1, SIGUSR2 };

void master_signals_hold(bool hold)
{
    sigset_t set;
    sigemptyset(&set);
    for (size_t i = 0; i < sizeof signal_numbers / sizeof *signal_numbers; i++)
        sigaddset(&set, signal_numbers[i]);
    sigprocmask(hold ? SIG_BLOCK : SIG_UNBLOCK, &set, NULL);
}

static void watch_signals(struct master *m)
{
    for (size_t i = 0; i < sizeof signal_numbers / sizeof *signal_numbers; i++) {
        uv_signal_init(&m->loop.uv, &m->signals[i]);
        m->signals[i].data = m;
        uv_signal_start(&m->signals[i], on_signal, signal_numbers[i]);
    }
    uv_signal_init(&m->loop.uv, &m->child);
    m->child.data = m;
    uv_signal_start(&m->child, on_child, SIGCHLD);
    signal(SIGPIPE, SIG_IGN);
    master_signals_hold(false); /* the program that we were held them */
}

/* --- the start --- */

/* The sockets in it are ours alone, from before the first is made until we end. */
static int claim_run_dir(struct master *m)
{
    const char *dir = plan_text(m->plan, "run_dir");
    char path[PATH_MAX + 16];
    int err = paths_make(dir);
    if (err == 0 && realpath(dir, m->run_dir) == NULL)
        err = -errno;
    snprintf(path, sizeof path, "%s/tollgate.pid", m->run_dir);
    int fd = err == 0 ? paths_lock(path, RUN_DIR_MS) : err;
    if (fd < 0 || ftruncate(fd, 0) != 0 || dprintf(fd, "%d\n", (int)getpid()) < 0) {
        log_error("run_dir %s: %s", dir,
                  fd == UV_EBUSY ? "another gateway uses it" : uv_strerror(fd < 0 ? fd : -errno));
        return -1;
    }
    m->pid_fd = fd;
    return 0;
}

static int start_redis(struct master *m)
{
    char why[PATH_MAX * 2 + 64];
    if (plan_text(m->plan, "redis") != NULL)
        return 0;
    m->redisd = redisd_start(&m->loop, plan_text(m->plan, "data_dir"), m->run_dir, why, sizeof why);
    if (m->redisd == NULL)
        log_error("private redis: %s", why);
    return m->redisd != NULL ? 0 : -1;
}

static unsigned count_workers(const struct plan *p)
{
    long n = atol(plan_text(p, "workers"));
    if (n == 0)
        n = sysconf(_SC_NPROCESSORS_ONLN);
    return n < 1 ? 1 : n > ZONE_WORKERS / 2 ? ZONE_WORKERS / 2 : (unsigned)n;
}

static int start_http(struct master *m, int fd)
{
    const char *text = plan_text(m->plan, "admin");
    char host[64];
    int port;
    if (text == NULL || sscanf(text, "%63s %d", host, &port) != 2)
        return 0;
    int err = master_http_start(m, host, port, fd);
    if (err == 0)
        master_http_tls(m);
    return err;
}

/* We hold the configuration, and with it its secrets. */
static void hide(const struct master *m)
{
    if (atoi(plan_text(m->plan, "core_dumps")) == 0)
        privileges_hide();
}

static int start(struct master *m)
{
    enum log_level level;
    if (log_level_of(plan_text(m->plan, "log.level"), &level) == 0)
        log_set_level(level);
    m->places = count_workers(m->plan);
    m->zone = zone_new(2 * m->places, &m->zone_fd);
    if (m->zone == NULL) {
        log_error("the zone: %s", strerror(errno));
        return -1;
    }
    fcntl(m->zone_fd, F_SETFD, FD_CLOEXEC);
    log_never_wait(&zone_totals(m->zone)->log_dropped);
    master_log_init(m);
    int err = shared_new(&m->shared, strtoull(plan_text(m->plan, "shared.size"), NULL, 10));
    if (err != 0) {
        log_error("shared.size: %s", strerror(-err));
        return -1;
    }
    master_place_init(m);
    hide(m);
    if (master_user_find(m) != 0 || claim_run_dir(m) != 0 || master_sockets_open(m) != 0 ||
        start_http(m, -1) != 0 || master_user_become(m) != 0 || master_admin_start(m) != 0 ||
        start_redis(m) != 0)
        return -1;
    master_guard_start(m);
    master_tickets_start(m);
    plan_warn(m->plan);
    master_log_apply(m);
    for (unsigned i = 0; i < m->places; i++)
        master_worker_start(m, i);
    return 0;
}

/* A start that failed: what was made goes at once. */
static void give_up(struct master *m)
{
    if (m->redisd != NULL)
        redisd_end(m->redisd);
    master_admin_stop(m);
    master_sockets_shut(m);
    take_away_pid(m);
    _exit(1); /* the sockets end with us */
}

static void on_first_check(struct master *m, int fd, struct slice faults)
{
    if (m->ending) {
        if (fd >= 0)
            close(fd);
        return;
    }
    if (fd < 0)
        fprintf(stderr, "%.*s", (int)faults.n, faults.p);
    m->plan = fd >= 0 ? plan_new(fd, 1) : NULL;
    m->last_number = 1;
    if (m->plan == NULL || start(m) != 0)
        give_up(m);
}

/* We have taken over: what is kept is in m. */
static int resume(struct master *m, const struct kept *k)
{
    enum log_level level;
    if (log_level_of(plan_text(m->plan, "log.level"), &level) == 0)
        log_set_level(level);
    log_never_wait(&zone_totals(m->zone)->log_dropped);
    hide(m);
    master_place_init(m);
    if (claim_run_dir(m) != 0)
        return -1;
    if (k->redis_lock >= 0)
        m->redisd = redisd_adopt(&m->loop, plan_text(m->plan, "data_dir"), m->run_dir, k->redis_pid,
                                 k->redis_lock);
    if (start_http(m, k->http) != 0 || master_admin_start(m) != 0)
        return -1;
    m->ready = m->rolling = true;
    master_log_apply(m);
    master_guard_start(m);
    master_tickets_start(m);
    on_child(&m->child, SIGCHLD); /* who died in between */
    master_roll(m);
    return 0;
}

static void find_exe(struct master *m)
{
    static const char gone[] = " (deleted)";
    ssize_t n = readlink("/proc/self/exe", m->exe, sizeof m->exe - 1);
    m->exe[n > 0 ? n : 0] = '\0';
    if (slice_ends(slice_of(m->exe), SLICE(" (deleted)")))
        m->exe[strlen(m->exe) - (sizeof gone - 1)] = '\0';
}

static int finish(struct master *m)
{
    int left = loop_deinit(&m->loop), code = m->code;
    while (m->plan != NULL) {
        struct plan *p = m->plan;
        m->plan = p->next;
        plan_free(p);
    }
    for (unsigned i = 0; i < m->naddresses * m->places; i++)
        close(m->sockets[i]);
    mem_free(m->sockets);
    shared_free(m->shared);
    zone_free(m->zone);
    mem_free(m);
    return left > 0 ? 70 : code;
}

int master_run(const char *config)
{
    struct master *m = mem_zalloc(sizeof *m);
    struct kept kept;
    m->config = config;
    m->routing.next_policy = -1;
    m->started = loop_wall_ms();
    if (loop_init(&m->loop) != 0) {
        log_error("cannot make an event loop");
        return 1;
    }
    watch_signals(m);
    find_exe(m);
    if (master_upgraded(m, &kept)) {
        if (resume(m, &kept) != 0)
            give_up(m);
        loop_run(&m->loop);
        return finish(m);
    }
    m->check = check_start(m, paths_image(), FIRST_CHECK_MS, 0, on_first_check);
    if (m->check == NULL)
        return 1;
    loop_run(&m->loop);
    return finish(m);
}
