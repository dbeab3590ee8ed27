/* See redisd.h. fork and exec by hand, since uv_spawn has no parent-death signal; its exit is seen
 * by SIGCHLD. */
#include "redisd.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "container.h"
#include "log.h"
#include "mem.h"
#include "paths.h"
#include "stream.h"

enum {
    LOCK_MS = 10000,
    RESTART_MIN_MS = 100,
    RESTART_MAX_MS = 5000,
    KILL_MS = 10000,
    END_MS = 3000,
    END_STEP_MS = 20
};

struct redisd {
    struct loop *loop;
    char dir[PATH_MAX], socket[108];
    int lock;
    pid_t pid; /* 0: not running */
    uv_signal_t child;
    struct timer restart, kill;
    uint64_t backoff;
    bool stopping;
    void (*on_stopped)(void *arg);
    void *arg;
};

/* Secrets of the configuration are none of its business. */
static void forget_environment(void)
{
    static const char *const kept[] = {
        "PATH", "HOME", "LANG", "LC_ALL", "TZ", "TMPDIR", "LD_LIBRARY_PATH", "LD_PRELOAD"
    };
    char *values[sizeof kept / sizeof *kept];
    for (size_t i = 0; i < sizeof kept / sizeof *kept; i++) {
        const char *value = getenv(kept[i]);
        values[i] = value != NULL ? mem_strdup(value) : NULL;
    }
    clearenv();
    for (size_t i = 0; i < sizeof kept / sizeof *kept; i++) {
        if (values[i] != NULL)
            setenv(kept[i], values[i], 1);
    }
}

static void run_server(struct redisd *r, pid_t parent)
{
    char log[PATH_MAX + 16];
    snprintf(log, sizeof log, "%s/redis.log", r->dir);
    signal(SIGTERM, SIG_DFL); /* the loop's handler would swallow it until exec */
    prctl(PR_SET_PDEATHSIG, SIGTERM);
    if (getppid() != parent)
        _exit(1);               /* it died before we could say so */
    fcntl(r->lock, F_SETFD, 0); /* it holds the lock too, for as long as it lives */
    setsid(); /* a Ctrl-C in the terminal is for the gateway, which stops us last */
    sigset_t none;
    sigemptyset(&none);
    sigprocmask(SIG_SETMASK, &none, NULL);
    forget_environment();
    execlp("redis-server", "redis-server", "--port", "0", "--unixsocket", r->socket,
           "--unixsocketperm", "600", "--dir", r->dir, "--save", "", "--appendonly", "yes",
           "--appendfsync", "everysec", "--maxmemory-policy", "noeviction", "--daemonize", "no",
           "--logfile", log, (char *)NULL);
    static const char message[] =
        "tollgate: cannot run redis-server: is it installed and in PATH?\n";
    ssize_t ignored = write(STDERR_FILENO, message, sizeof message - 1);
    (void)ignored;
    _exit(127);
}

static int spawn(struct redisd *r)
{
    pid_t parent = getpid(), pid = fork();
    if (pid < 0)
        return -errno;
    if (pid == 0)
        run_server(r, parent);
    r->pid = pid;
    return 0;
}

static void stopped(struct redisd *r)
{
    void (*cb)(void *) = r->on_stopped;
    r->on_stopped = NULL;
    timer_stop(&r->kill);
    if (cb != NULL)
        cb(r->arg);
}

static void on_restart(struct timer *t)
{
    struct redisd *r = CONTAINER(t, struct redisd, restart);
    int err = spawn(r);
    if (err != 0) {
        log_error("private redis: %s", uv_strerror(err));
        timer_set(r->loop, t, RESTART_MAX_MS);
    }
}

static void on_child(uv_signal_t *h, int signum)
{
    struct redisd *r = h->data;
    int status;
    (void)signum;
    if (r->pid == 0 || waitpid(r->pid, &status, WNOHANG) != r->pid)
        return;
    r->pid = 0;
    if (r->stopping) {
        stopped(r);
        return;
    }
    if (WIFSIGNALED(status))
        log_error("private redis: ended by signal %d; starting it again in %d ms", WTERMSIG(status),
                  (int)r->backoff);
    else
        log_error(
            "private redis: ended with status %d (see %s/redis.log); starting it again in %d ms",
            WEXITSTATUS(status), r->dir, (int)r->backoff);
    timer_set(r->loop, &r->restart, r->backoff);
    r->backoff = r->backoff * 2 > RESTART_MAX_MS ? RESTART_MAX_MS : r->backoff * 2;
}

static void on_kill(struct timer *t)
{
    struct redisd *r = CONTAINER(t, struct redisd, kill);
    log_error("private redis: does not end; killed");
    if (r->pid > 0)
        kill(r->pid, SIGKILL);
}

/* The last owner may have died a moment ago, and its Redis with it. */
static int take_lock(const char *dir)
{
    char path[PATH_MAX + 16];
    snprintf(path, sizeof path, "%s/lock", dir);
    return paths_lock(path, LOCK_MS);
}

static void begin(struct redisd *r, struct loop *l)
{
    r->loop = l;
    r->backoff = RESTART_MIN_MS;
    r->restart.cb = on_restart;
    r->kill.cb = on_kill;
    uv_signal_init(&l->uv, &r->child);
    r->child.data = r;
    uv_signal_start(&r->child, on_child, SIGCHLD);
    uv_unref((uv_handle_t *)&r->child);
}

struct redisd *redisd_adopt(struct loop *l, const char *data_dir, const char *run_dir, int pid,
                            int lock)
{
    struct redisd *r = mem_zalloc(sizeof *r);
    if (realpath(data_dir, r->dir) == NULL)
        snprintf(r->dir, sizeof r->dir, "%s", data_dir);
    snprintf(r->socket, sizeof r->socket, "%s/redis.sock", run_dir);
    r->lock = lock;
    r->pid = pid;
    fcntl(lock, F_SETFD, FD_CLOEXEC);
    begin(r, l);
    if (pid == 0) /* it had died, and was to be started again */
        timer_set(l, &r->restart, RESTART_MIN_MS);
    else
        on_child(&r->child, SIGCHLD); /* it may have died in between */
    return r;
}

int redisd_pid(const struct redisd *r)
{
    return r->pid;
}

int redisd_lock(const struct redisd *r)
{
    return r->lock;
}

struct redisd *redisd_start(struct loop *l, const char *data_dir, const char *run_dir, char *why,
                            size_t size)
{
    struct redisd *r = mem_zalloc(sizeof *r);
    char absolute[PATH_MAX];
    int err = paths_make(data_dir);
    if (err == 0)
        err = paths_make(run_dir);
    if (err != 0 || realpath(data_dir, r->dir) == NULL || realpath(run_dir, absolute) == NULL) {
        snprintf(why, size, "data_dir %s, run_dir %s: %s", data_dir, run_dir,
                 uv_strerror(err != 0 ? err : -errno));
        goto fail;
    }
    if ((size_t)snprintf(r->socket, sizeof r->socket, "%s/redis.sock", absolute) >=
        sizeof r->socket) {
        snprintf(why, size, "run_dir %s: the path is too long for a socket (at most %zu bytes)",
                 absolute, sizeof r->socket - 12);
        goto fail;
    }
    r->lock = take_lock(r->dir);
    if (r->lock < 0) {
        snprintf(why, size, "data_dir %s: %s", r->dir,
                 r->lock == UV_EBUSY ? "another gateway uses it" : uv_strerror(r->lock));
        goto fail;
    }
    begin(r, l);
    unlink(r->socket);
    err = spawn(r);
    if (err == 0)
        return r;
    snprintf(why, size, "redis-server: %s", uv_strerror(err));
    uv_close((uv_handle_t *)&r->child, NULL);
    uv_run(&l->uv, UV_RUN_NOWAIT);
    close(r->lock);
fail:
    mem_free(r);
    return NULL;
}

const char *redisd_socket(const struct redisd *r)
{
    return r->socket;
}

void redisd_stop(struct redisd *r, void (*on_stopped)(void *arg), void *arg)
{
    r->stopping = true;
    r->on_stopped = on_stopped;
    r->arg = arg;
    timer_stop(&r->restart);
    uv_ref((uv_handle_t *)&r->child);
    if (r->pid == 0) {
        stopped(r);
        return;
    }
    kill(r->pid, SIGTERM);
    timer_set(r->loop, &r->kill, KILL_MS);
}

void redisd_end(struct redisd *r)
{
    for (int waited = 0; r->pid > 0 && waitpid(r->pid, NULL, WNOHANG) == 0; waited += END_STEP_MS) {
        kill(r->pid,
             waited < END_MS ? SIGTERM : SIGKILL); /* again: one that has just begun may lose it */
        usleep(END_STEP_MS * 1000);
    }
    r->pid = 0;
}

static void on_closed(uv_handle_t *h)
{
    mem_free(h->data);
}

void redisd_free(struct redisd *r)
{
    timer_deinit(r->loop, &r->restart);
    timer_deinit(r->loop, &r->kill);
    close(r->lock);
    uv_close((uv_handle_t *)&r->child, on_closed);
}
