/* See master.h: the log writer, and the pipes that lead to it: one a slot of the zone, made when
 * its first worker starts, and held at both ends for as long as we live. So nothing that a worker
 * has written is lost with it, nor while the log writer is replaced. It is started once the
 * configuration wants an access log, and ends behind the last worker. */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "container.h"
#include "log.h"
#include "master.h"
#include "mem.h"
#include "paths.h"

enum {
    PIPE_SIZE = 262144, /* bytes; as far as the system lets us */
    AGAIN_MS = 1000,
    END_MS = 5000,
    GRACE_S = 10 /* that it may outlive workers, which outlive us by timeouts.drain */
};

struct log_pipe {
    int ends[2]; /* to be read, to be written; 0: not made yet */
};

struct logger {
    struct master *m;
    pid_t pid; /* 0: there is none */
    struct control *control;
    bool old;           /* of the program before an upgrade */
    bool leaving;       /* it was told to, for another one */
    struct timer timer; /* to be started again; to be killed */
    void (*on_stopped)(struct master *m);
    unsigned n;
    struct log_pipe pipes[];
};

static const char *wanted(const struct master *m)
{
    return plan_text(m->plan, "log.access");
}

/* --- pipes --- */

static int make_pipe(struct log_pipe *p)
{
    if (pipe2(p->ends, O_CLOEXEC) != 0) {
        log_error("access log: a pipe: %s", strerror(errno));
        p->ends[0] = p->ends[1] = 0;
        return -1;
    }
    fcntl(p->ends[1], F_SETFL, O_NONBLOCK);
    fcntl(p->ends[1], F_SETPIPE_SZ, PIPE_SIZE); /* where not, it is smaller */
    return 0;
}

static void send_pipe(struct logger *l, unsigned slot)
{
    if (l->pid != 0 && l->pipes[slot].ends[0] != 0)
        control_send(l->control, l->pipes[slot].ends[0], "pipe %u", slot);
}

int master_log_pipe(struct master *m, unsigned slot)
{
    struct logger *l = m->logger;
    struct log_pipe *p = &l->pipes[slot];
    if (p->ends[1] != 0)
        return p->ends[1];
    if (make_pipe(p) != 0)
        return -1;
    send_pipe(l, slot);
    return p->ends[1];
}

/* --- the process --- */

static void on_message(void *arg, struct slice text, int fd)
{
    (void)arg, (void)text;
    if (fd >= 0)
        close(fd);
}

static void on_control_end(void *arg)
{
    (void)arg; /* SIGCHLD says it */
}

static const struct control_events events = { on_message, on_control_end };

static void run_child(struct master *m, int control_fd)
{
    char a[16], b[16], c[24];
    sigset_t none;
    sigemptyset(&none);
    setsid(); /* a Ctrl-C in the terminal is for the master */
    signal(SIGTERM, SIG_IGN);
    sigprocmask(SIG_SETMASK, &none, NULL);
    fcntl(control_fd, F_SETFD, 0);
    fcntl(m->zone_fd, F_SETFD, 0);
    snprintf(a, sizeof a, "%d", control_fd);
    snprintf(b, sizeof b, "%d", m->zone_fd);
    snprintf(c, sizeof c, "%" PRIu64, m->plan->drain_ms / 1000 + GRACE_S);
    execl(paths_image(), "tollgate", "log-writer", a, b, c, (char *)NULL);
    _exit(127);
}

static void start(struct logger *l)
{
    struct master *m = l->m;
    int pair[2], err = control_pair(pair);
    pid_t pid = err == 0 ? fork() : -1;
    if (pid == 0)
        run_child(m, pair[1]);
    if (err == 0)
        close(pair[1]);
    if (pid < 0) {
        log_error("the log writer cannot be started now: %s", strerror(err != 0 ? -err : errno));
        if (err == 0)
            close(pair[0]);
        timer_set(&m->loop, &l->timer, AGAIN_MS);
        return;
    }
    l->pid = pid;
    l->control = control_new(&m->loop, pair[0], &events, l);
    control_send(l->control, -1, "to %s", wanted(m));
    for (unsigned i = 0; i < l->n; i++)
        send_pipe(l, i);
}

static void on_timer(struct timer *t)
{
    struct logger *l = CONTAINER(t, struct logger, timer);
    if (l->pid != 0)
        kill(l->pid, SIGKILL);
    else if (!l->m->ending && wanted(l->m) != NULL)
        start(l);
}

static void stopped(struct logger *l)
{
    void (*on_stopped)(struct master *) = l->on_stopped;
    l->on_stopped = NULL;
    if (on_stopped != NULL)
        on_stopped(l->m);
}

bool master_log_lost(struct master *m, int *status)
{
    struct logger *l = m->logger;
    if (l == NULL || l->pid == 0 || waitpid(l->pid, status, WNOHANG) != l->pid)
        return false;
    bool crashed = !WIFEXITED(*status) || WEXITSTATUS(*status) != 0;
    if (crashed)
        log_error("the log writer (pid %d) was ended (%s %d)", (int)l->pid,
                  WIFSIGNALED(*status) ? "signal" : "code",
                  WIFSIGNALED(*status) ? WTERMSIG(*status) : WEXITSTATUS(*status));
    l->pid = 0;
    control_free(l->control);
    timer_stop(&l->timer);
    l->old = l->leaving = false;
    if (l->on_stopped != NULL)
        stopped(l);
    else if (wanted(m) != NULL && crashed)
        timer_set(&m->loop, &l->timer, AGAIN_MS);
    else if (wanted(m) != NULL)
        start(l);
    return true;
}

/* --- what the master wants --- */

void master_log_init(struct master *m)
{
    unsigned n = zone_slots(m->zone);
    m->logger = mem_zalloc(sizeof *m->logger + n * sizeof m->logger->pipes[0]);
    m->logger->m = m;
    m->logger->n = n;
    m->logger->timer.cb = on_timer;
}

void master_log_apply(struct master *m)
{
    struct logger *l = m->logger;
    if (wanted(m) == NULL)
        return;
    if (l->pid == 0)
        start(l);
    else if (!l->leaving)
        control_send(l->control, -1, "to %s", wanted(m));
}

void master_log_renew(struct master *m)
{
    struct logger *l = m->logger;
    if (l->pid == 0 || !l->old)
        return;
    l->leaving = true;
    control_send(l->control, -1, "leave");
    timer_set(&m->loop, &l->timer, END_MS);
}

void master_log_reopen(struct master *m)
{
    struct logger *l = m->logger;
    if (l != NULL && l->pid != 0)
        control_send(l->control, -1, "reopen");
}

void master_log_stop(struct master *m, void (*on_stopped)(struct master *m))
{
    struct logger *l = m->logger;
    l->on_stopped = on_stopped;
    timer_stop(&l->timer);
    if (l->pid == 0) {
        stopped(l);
        return;
    }
    control_send(l->control, -1, "end");
    timer_set(&m->loop, &l->timer, END_MS);
}

void master_log_deinit(struct master *m)
{
    struct logger *l = m->logger;
    timer_deinit(&m->loop, &l->timer);
    for (unsigned i = 0; i < l->n; i++) {
        if (l->pipes[i].ends[1] != 0) {
            close(l->pipes[i].ends[0]);
            close(l->pipes[i].ends[1]);
        }
    }
    mem_free(l);
    m->logger = NULL;
}

/* --- over an upgrade --- */

void master_log_state(const struct master *m, FILE *f)
{
    const struct logger *l = m->logger;
    for (unsigned i = 0; i < l->n; i++) {
        if (l->pipes[i].ends[1] != 0)
            fprintf(f, "log-pipe %u %d %d\n", i, l->pipes[i].ends[0], l->pipes[i].ends[1]);
    }
    if (l->pid != 0)
        fprintf(f, "log-writer %d %d\n", (int)l->pid, control_fd(l->control));
}

void master_log_keep(const struct master *m, int flags)
{
    const struct logger *l = m->logger;
    for (unsigned i = 0; i < l->n; i++) {
        for (int k = 0; k < 2 && l->pipes[i].ends[1] != 0; k++)
            fcntl(l->pipes[i].ends[k], F_SETFD, flags);
    }
    if (l->pid != 0)
        fcntl(control_fd(l->control), F_SETFD, flags);
}

bool master_log_take(struct master *m, const char *word, const char *rest)
{
    struct logger *l = m->logger;
    unsigned slot;
    int a, b;
    if (strcmp(word, "log-pipe") == 0 && sscanf(rest, "%u %d %d", &slot, &a, &b) == 3 &&
        slot < l->n) {
        l->pipes[slot] = (struct log_pipe){ { a, b } };
        return true;
    }
    if (strcmp(word, "log-writer") != 0 || sscanf(rest, "%d %d", &a, &b) != 2)
        return false;
    l->pid = a;
    l->old = true;
    l->control = control_new(&m->loop, b, &events, l);
    return true;
}
