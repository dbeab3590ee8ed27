/* See master.h: the trial of a configuration. A child of our own image loads it and writes the
 * snapshot into a file in memory; the master only waits, for so long, and reads what it said. */
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include "container.h"
#include "log.h"
#include "master.h"
#include "mem.h"

enum { FAULTS_MAX = 1 << 20 };

struct check {
    struct master *m;
    pid_t pid;
    int out, pipe;
    uv_poll_t poll;
    struct timer limit;
    uint64_t limit_ms;
    struct buf text;
    bool exited, closed, late;
    int status;
    void (*on_done)(struct master *m, int fd, struct slice faults);
};

static void limit_memory(uint64_t bytes)
{
#ifndef __SANITIZE_ADDRESS__
    struct rlimit r = { bytes, bytes };
    if (bytes > 0)
        setrlimit(RLIMIT_AS, &r);
#else
    (void)bytes; /* the shadow memory alone is larger */
#endif
}

static void run_child(struct master *m, const char *exe, int out, int faults, uint64_t memory,
                      pid_t parent)
{
    char a[16], b[16], policy[16] = "-";
    sigset_t none;
    sigemptyset(&none);
    sigprocmask(SIG_SETMASK, &none, NULL);
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != parent)
        _exit(1);
    setsid();
    int null = open("/dev/null", O_RDWR);
    dup2(null, STDIN_FILENO);
    dup2(null, STDOUT_FILENO); /* the access log's */
    fcntl(out, F_SETFD, 0);
    fcntl(faults, F_SETFD, 0);
    snprintf(a, sizeof a, "%d", out);
    snprintf(b, sizeof b, "%d", faults);
    if (m->routing.next_policy >= 0) {
        fcntl(m->routing.next_policy, F_SETFD, 0);
        snprintf(policy, sizeof policy, "%d", m->routing.next_policy);
    }
    limit_memory(memory);
    execl(exe, "tollgate", "load-check", m->config, a, b, policy, (char *)NULL);
    _exit(127);
}

static void on_closed(uv_handle_t *h)
{
    mem_free(h->data);
}

static void release(struct check *c)
{
    timer_deinit(&c->m->loop, &c->limit);
    buf_deinit(&c->text);
    uv_close((uv_handle_t *)&c->poll, on_closed);
    close(c->pipe);
}

/* "ok" as the last line says that all went well, whatever the exit code. */
static bool passed(const struct check *c)
{
    return slice_ends(buf_slice(&c->text), SLICE("ok\n")) && c->text.n == 3 && !c->late;
}

static void explain(struct check *c)
{
    if (c->late)
        buf_printf(&c->text, "the configuration did not load within %.3g s (reload.check)\n",
                   (double)c->limit_ms / 1000);
    else if (WIFSIGNALED(c->status))
        buf_printf(&c->text,
                   "the process that loaded the configuration was ended by signal %d (%s)\n",
                   WTERMSIG(c->status), strsignal(WTERMSIG(c->status)));
    else if (c->text.n == 0)
        buf_printf(&c->text,
                   "the process that loaded the configuration ended by itself with code %d\n",
                   WEXITSTATUS(c->status));
}

static void finish(struct check *c)
{
    if (!c->exited || !c->closed)
        return;
    struct master *m = c->m;
    void (*done)(struct master *, int, struct slice) = c->on_done;
    m->check = NULL;
    if (passed(c)) {
        done(m, c->out, SLICE(""));
    } else {
        explain(c);
        close(c->out);
        done(m, -1, buf_slice(&c->text));
    }
    release(c);
}

static void on_readable(uv_poll_t *h, int status, int events)
{
    struct check *c = h->data;
    (void)status, (void)events;
    char piece[4096];
    ssize_t n = read(c->pipe, piece, sizeof piece);
    if (n > 0) {
        if (c->text.n < FAULTS_MAX)
            buf_add(&c->text, piece, (size_t)n);
        return;
    }
    if (n < 0 && (errno == EAGAIN || errno == EINTR))
        return;
    uv_poll_stop(h);
    c->closed = true;
    finish(c);
}

static void on_limit(struct timer *t)
{
    struct check *c = CONTAINER(t, struct check, limit);
    c->late = true;
    kill(-c->pid, SIGKILL); /* what it started too */
    kill(c->pid, SIGKILL);
    uv_poll_stop(&c->poll);
    c->closed = true; /* maybe not yet: what left its session may hold the pipe */
    finish(c);
}

pid_t check_pid(const struct check *c)
{
    return c->pid;
}

void check_ended(struct check *c, int status)
{
    kill(-c->pid, SIGKILL); /* what it started, if anything */
    c->exited = true;
    c->status = status;
    finish(c);
}

struct check *check_start(struct master *m, const char *exe, uint64_t limit_ms, uint64_t memory,
                          void (*on_done)(struct master *m, int fd, struct slice faults))
{
    int ends[2], out = memfd_create("tollgate snapshot", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    if (out < 0 || pipe2(ends, O_CLOEXEC) != 0) {
        log_error("load: %s", strerror(errno));
        if (out >= 0)
            close(out);
        return NULL;
    }
    pid_t parent = getpid(), pid = fork();
    if (pid == 0)
        run_child(m, exe, out, ends[1], memory, parent);
    close(ends[1]);
    if (pid < 0) {
        log_error("fork: %s", strerror(errno));
        close(ends[0]);
        close(out);
        return NULL;
    }
    struct check *c = mem_zalloc(sizeof *c);
    c->m = m;
    c->pid = pid;
    c->out = out;
    c->pipe = ends[0];
    c->on_done = on_done;
    c->limit_ms = limit_ms;
    c->limit.cb = on_limit;
    timer_set(&m->loop, &c->limit, limit_ms);
    fcntl(c->pipe, F_SETFL, O_NONBLOCK);
    uv_poll_init(&m->loop.uv, &c->poll, c->pipe);
    c->poll.data = c;
    uv_poll_start(&c->poll, UV_READABLE, on_readable);
    return c;
}

void check_stop(struct check *c)
{
    int status;
    kill(-c->pid, SIGKILL);
    kill(c->pid, SIGKILL);
    if (!c->exited)
        waitpid(c->pid, &status, 0);
    close(c->out);
    release(c);
}
