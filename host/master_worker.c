/* See master.h: worker processes. Each is our own image (/proc/self/exe, which stays what it was
 * when the file is replaced), in a session of its own, with the sockets of all places; it ends when
 * we do. One that dies is replaced at once, and with growing pauses while it keeps dying. */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "container.h"
#include "log.h"
#include "master.h"
#include "mem.h"
#include "paths.h"
#include "worker.h"

enum { RESTART_MIN_MS = 100, RESTART_MAX_MS = 5000, STEADY_MS = 10000, KILL_SPARE_MS = 8000 };

/* --- starting one --- */

static char *text_of(long n)
{
    char text[32];
    snprintf(text, sizeof text, "%ld", n);
    return mem_strdup(text);
}

/* The command line; freed by the child's end or exec, and here for the parent. */
static char **arguments(struct master *m, const struct member *w, int control_fd)
{
    unsigned n = m->naddresses * m->places,
             share = (m->plan->connections + m->places - 1) / m->places;
    char **argv = mem_zalloc((n + 16) * sizeof *argv);
    argv[0] = mem_strdup("tollgate");
    argv[1] = mem_strdup("worker");
    argv[2] = mem_strdup(m->config);
    argv[3] = text_of((long)w->place);
    argv[4] = text_of((long)m->places);
    argv[5] = text_of((long)w->slot);
    argv[6] = text_of(control_fd);
    argv[7] = text_of(m->zone_fd);
    argv[8] = mem_strdup(m->redisd != NULL ? redisd_socket(m->redisd) : "-");
    argv[9] = text_of((long)share);
    argv[10] = text_of(shared_fd(m->shared));
    argv[11] = text_of(master_log_pipe(m, w->slot));
    for (unsigned i = 0; i < n; i++)
        argv[12 + i] = text_of(m->sockets[i]);
    return argv;
}

static void run_child(struct master *m, const struct member *w, char **argv, int control_fd,
                      pid_t parent)
{
    sigset_t none;
    sigemptyset(&none);
    signal(SIGTERM, SIG_DFL); /* the loop's handler would swallow it until exec */
    prctl(PR_SET_PDEATHSIG, SIGTERM);
    if (getppid() != parent)
        _exit(1);
    setsid(); /* a Ctrl-C in the terminal is for the master */
    sigprocmask(SIG_SETMASK, &none, NULL);
    fcntl(control_fd, F_SETFD, 0);
    fcntl(m->zone_fd, F_SETFD, 0);
    fcntl(shared_fd(m->shared), F_SETFD, 0);
    int log = master_log_pipe(m, w->slot);
    if (log >= 0)
        fcntl(log, F_SETFD, 0);
    for (unsigned i = 0; i < m->naddresses * m->places; i++)
        fcntl(m->sockets[i], F_SETFD, 0);
    execv(paths_image(), argv);
    _exit(127);
}

static unsigned free_slot(const struct master *m)
{
    for (unsigned i = 0;; i++) {
        const struct member *w = m->members;
        while (w != NULL && w->slot != i)
            w = w->next;
        if (w == NULL)
            return i;
    }
}

static void on_message(void *arg, struct slice text, int fd)
{
    struct member *w = arg;
    struct master *m = w->m;
    char line[64], verb[16] = "";
    uint64_t number = 0;
    snprintf(line, sizeof line, "%.*s", (int)text.n, text.p);
    sscanf(line, "%15s %" SCNu64, verb, &number);
    if (strcmp(verb, "follow") == 0) {
        master_routing_follow(m, line + strlen("follow "), fd);
        return;
    }
    if (strcmp(verb, "answer") == 0) {
        master_command_answered(m, line + strlen("answer "), fd);
        return;
    }
    if (fd >= 0)
        close(fd);
    if (strcmp(verb, "metrics") == 0)
        master_metrics_tell(m, w, number);
    if (strcmp(verb, "loaded") == 0) {
        w->loaded = number;
        master_reload_loaded(m, w, number);
    } else if (strcmp(verb, "serving") == 0) {
        w->state = w->state == MEMBER_STARTING ? MEMBER_SERVING : w->state;
        master_reload_loaded(m, w, number);
    } else if (strcmp(verb, "failed") == 0) {
        const char *rest = memchr(text.p, '\n', text.n);
        struct slice faults = SLICE("");
        if (rest != NULL)
            faults = (struct slice){ rest + 1, text.n - (size_t)(rest + 1 - text.p) };
        master_reload_failed(m, number, faults);
    }
}

/* It is about to end, which SIGCHLD will say; where it is only deaf, it has to. */
static void on_control_end(void *arg)
{
    struct member *w = arg;
    if (w->kill_at == 0)
        w->kill_at = loop_now(&w->m->loop) + KILL_SPARE_MS;
}

static const struct control_events events = { on_message, on_control_end };

static struct member *member_new(struct master *m, unsigned place, unsigned slot)
{
    struct member *w = mem_zalloc(sizeof *w);
    w->m = m;
    w->place = place;
    w->slot = slot;
    w->started = loop_now(&m->loop);
    return w;
}

static void add(struct master *m, struct member *w, int fd)
{
    w->control = control_new(&m->loop, fd, &events, w);
    w->next = m->members;
    m->members = w;
}

void master_worker_adopt(struct master *m, unsigned place, unsigned slot, pid_t pid, int fd,
                         int state)
{
    struct member *w = member_new(m, place, slot);
    w->pid = pid;
    w->state = (enum member_state)state;
    w->adopted = true;
    add(m, w, fd);
}

/* Sets the pid. 0, or a negative errno. Takes the child's end, and ours where it fails. */
static int spawn(struct master *m, struct member *w, const int pair[2])
{
    char **argv = arguments(m, w, pair[1]);
    pid_t parent = getpid();
    fcntl(pair[1], F_SETFD, FD_CLOEXEC);
    w->pid = fork();
    if (w->pid == 0)
        run_child(m, w, argv, pair[1], parent);
    int err = w->pid < 0 ? -errno : 0;
    for (char **a = argv; *a != NULL; a++)
        mem_free(*a);
    mem_free(argv);
    close(pair[1]);
    if (err != 0)
        close(pair[0]);
    return err;
}

void master_worker_start(struct master *m, unsigned place)
{
    int pair[2];
    struct member *w = member_new(m, place, free_slot(m));
    int err = w->slot >= zone_slots(m->zone) ? UV_EBUSY : control_pair(pair);
    if (err == 0)
        err = spawn(m, w, pair);
    if (err != 0) {
        log_error("worker %u: cannot be started now: %s", place, uv_strerror(err));
        mem_free(w);
        timer_set(&m->loop, &m->place[place].restart, RESTART_MAX_MS);
        return;
    }
    zone_slot(m->zone, w->slot)->beat = zone_now();
    zone_slot(m->zone, w->slot)->mark = 0;
    zone_slot(m->zone, w->slot)->state = ZONE_STARTING;
    add(m, w, pair[0]);
    master_guard_tell(m, w);
    w->asked = m->plan->number;
    control_send(w->control, m->plan->fd, "load %" PRIu64, m->plan->number);
    control_send(w->control, -1, "switch %" PRIu64, m->plan->number);
}

/* --- the end of one --- */

static void on_restart(struct timer *t)
{
    struct place *p = CONTAINER(t, struct place, restart);
    if (!p->m->ending)
        master_worker_start(p->m, p->index);
}

static void replace(struct master *m, const struct member *w)
{
    struct place *p = &m->place[w->place];
    p->crashes = loop_now(&m->loop) - w->started > STEADY_MS ? 0 : p->crashes;
    uint64_t pause = p->crashes == 0 ? 0 : RESTART_MIN_MS << (p->crashes < 7 ? p->crashes : 6);
    p->crashes++;
    timer_set(&m->loop, &p->restart, pause > RESTART_MAX_MS ? RESTART_MAX_MS : pause);
}

static void say_how(const struct member *w, int status)
{
    if (WIFSIGNALED(status))
        log_error("worker %u (pid %d) was ended by signal %d (%s)", w->place, (int)w->pid,
                  WTERMSIG(status), strsignal(WTERMSIG(status)));
    else
        log_error("worker %u (pid %d) ended with code %d", w->place, (int)w->pid,
                  WEXITSTATUS(status));
}

static struct member *unlink_member(struct master *m, pid_t pid)
{
    for (struct member **at = &m->members; *at != NULL; at = &(*at)->next) {
        struct member *w = *at;
        if (w->pid == pid) {
            *at = w->next;
            return w;
        }
    }
    return NULL;
}

/* An adopted one may have its successor already. */
static bool replaced(const struct master *m, const struct member *w)
{
    const struct member *young = m->members;
    while (young != NULL && (young->adopted || young->place != w->place))
        young = young->next;
    return young != NULL;
}

/* Nothing that it counted is lost; the requests that it had are counted as such. */
static void close_slot(struct master *m, struct zone_slot *slot, unsigned number)
{
    struct counters *c = &slot->counters;
    slot->state = ZONE_EMPTY;
    slot->connections = slot->exchanges = 0;
    slot->redis_usable = 0;
    slot->mark = 0;
    c->lost = c->requests - c->ended;
    slot->quota.lost += slot->quota.pending;
    slot->quota.pending = 0;
    zone_metrics_fold(m->zone, number);
}

static enum zone_exit reason(const struct member *w, int status)
{
    return w->interrupted != 0 ? EXIT_WATCHDOG : WIFSIGNALED(status) ? EXIT_SIGNAL : EXIT_CODE;
}

static void judge(struct master *m, struct member *w, int status)
{
    int code = WIFEXITED(status) ? WEXITSTATUS(status) : -1;
    struct zone_slot *slot = zone_slot(m->zone, w->slot);
    uint64_t mark = slot->mark;
    close_slot(m, slot, w->slot);
    if (code == WORKER_LEAK || (code > 0 && m->ending && m->code == 0))
        m->code = code == WORKER_LEAK ? WORKER_LEAK
                                      : 1; /* its end is our end: whoever watches us should know */
    if (code != 0 && !(m->ending && code < 0 && w->kill_at != 0))
        say_how(w, status);
    if (w->interrupted != 0)
        master_guard_killed(m, w, mark);
    master_reload_lost(m, w);
    master_command_lost(m, w);
    if (code == WORKER_REFUSED)
        master_end(m, 1);
    else if (!m->ending && w->state != MEMBER_DRAINING && !(w->adopted && replaced(m, w))) {
        zone_totals(m->zone)->restarts[reason(w, status)]++;
        replace(m, w);
    }
    master_roll(m);
}

void master_worker_lost(struct master *m, pid_t pid, int status)
{
    struct member *w = unlink_member(m, pid);
    if (w == NULL)
        return;
    judge(m, w, status);
    control_free(w->control);
    mem_free(w);
    if (m->ending && m->members == NULL)
        master_workers_gone(m);
}

void master_worker_drain(struct master *m, struct member *w)
{
    uint64_t limit = m->plan->drain_ms;
    w->state = MEMBER_DRAINING;
    w->kill_at = loop_now(&m->loop) + limit + KILL_SPARE_MS;
    control_send(w->control, -1, "drain %" PRIu64, limit);
}

void master_workers_drain(struct master *m)
{
    for (struct member *w = m->members; w != NULL; w = w->next)
        master_worker_drain(m, w);
    if (m->members == NULL)
        master_workers_gone(m);
}

void master_workers_abort(struct master *m)
{
    for (struct member *w = m->members; w != NULL; w = w->next) {
        w->kill_at = loop_now(&m->loop) + KILL_SPARE_MS;
        control_send(w->control, -1, "abort");
    }
}

void master_send_all(struct master *m, const char *text)
{
    for (struct member *w = m->members; w != NULL; w = w->next)
        control_send(w->control, -1, "%s", text);
}

void master_place_init(struct master *m)
{
    m->place = mem_zalloc(m->places * sizeof *m->place);
    for (unsigned i = 0; i < m->places; i++) {
        m->place[i].m = m;
        m->place[i].index = i;
        m->place[i].restart.cb = on_restart;
    }
}

void master_place_deinit(struct master *m)
{
    for (unsigned i = 0; i < m->places; i++)
        timer_deinit(&m->loop, &m->place[i].restart);
    mem_free(m->place);
    m->place = NULL;
}
