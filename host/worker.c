/* See worker.h. Start: configuration, Redis, quota, plugins' init, sockets. End: no new connections, answers that are owed are
 * given (up to timeouts.drain), settlements reach Redis, then everything is closed in the reverse order, Redis last. */
#include "worker.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "admin.h"
#include "generation.h"
#include "log.h"
#include "mem.h"
#include "paths.h"
#include "redisd.h"
#include "server.h"

enum { EXIT_FINE = 0, EXIT_START = 1, EXIT_LEAK = 70, SETTLE_MS = 3000, SETTLE_STEP_MS = 10, REDIS_WAIT_MS = 5, REDIS_WAITS = 1000, ACCESS_LOG_MAX = 1 << 20 };

#define CONTAINER(ptr, type, member) ((type *)((char *)(ptr) - offsetof(type, member)))

struct worker {
    struct loop loop;
    struct services sv;
    struct generation *gen;
    struct redisd *redisd;
    struct server *server;
    uv_signal_t term, interrupt;
    struct timer limit;      /* of the drain, then of settling */
    struct timer settle;
    uint64_t settle_until;
    struct timer redis_wait;
    int redis_waits;
    struct buf access_log;
    struct deferred access_flush;
    struct rds_watch watch;
    int code;
    bool ending, refused;
};

static struct generation *current(void *arg)
{
    return ((struct worker *)arg)->gen;
}

/* --- the access log --- */

static void on_access_flush(struct deferred *d)
{
    struct worker *w = CONTAINER(d, struct worker, access_flush);
    size_t at = 0;
    while (at < w->access_log.n) {
        ssize_t n = write(STDOUT_FILENO, w->access_log.p + at, w->access_log.n - at);
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0)
            break; /* nobody reads it any more, or it does not take it now: dropped rather than waited for */
        at += (size_t)n;
    }
    buf_clear(&w->access_log);
    if (w->access_log.cap > ACCESS_LOG_MAX)
        buf_deinit(&w->access_log);
}

/* --- the end --- */

static void on_redis_stopped(void *arg)
{
    struct worker *w = arg;
    redisd_free(w->redisd);
    w->redisd = NULL;
}

/* In the reverse order of the start; Redis last. */
static void close_all(struct worker *w)
{
    generation_stop(w->gen);
    quota_free(w->sv.quota);
    rds_free(w->sv.rds);
    server_free(w->server);
    generation_release(w->gen);
    upstream_free(w->sv.upstream);
    resolve_free(w->sv.resolve);
    timer_deinit(&w->loop, &w->limit);
    timer_deinit(&w->loop, &w->settle);
    timer_deinit(&w->loop, &w->redis_wait);
    uv_close((uv_handle_t *)&w->term, NULL);
    uv_close((uv_handle_t *)&w->interrupt, NULL);
    if (w->redisd != NULL)
        redisd_stop(w->redisd, on_redis_stopped, w);
}

/* Settlements, voids and log phases may still be under way: waits for them, but not for ever. */
static void on_settle(struct timer *t)
{
    struct worker *w = CONTAINER(t, struct worker, settle);
    bool idle = quota_idle(w->sv.quota) && w->sv.exchanges == 0;
    if (!idle && loop_now(&w->loop) < w->settle_until) {
        timer_set(&w->loop, t, SETTLE_STEP_MS);
        return;
    }
    if (w->sv.exchanges > 0)
        log_error("leak: %u exchanges have not ended", w->sv.exchanges);
    w->sv.leaks += w->sv.exchanges;
    close_all(w);
}

static void on_server_empty(void *arg)
{
    struct worker *w = arg;
    timer_stop(&w->limit);
    w->settle_until = loop_now(&w->loop) + SETTLE_MS;
    on_settle(&w->settle);
}

static void on_limit(struct timer *t)
{
    struct worker *w = CONTAINER(t, struct worker, limit);
    log_warn("drain: the limit of %d s has passed; %u connections are cut off",
        (int)(w->gen->settings.timeouts.drain / 1000), server_connections(w->server));
    server_abort(w->server);
}

static void end(struct worker *w)
{
    w->ending = true;
    w->sv.draining = true;
    log_info("stopping: %u connections", server_connections(w->server));
    timer_set(&w->loop, &w->limit, w->gen->settings.timeouts.drain);
    server_drain(w->server, on_server_empty, w);
}

static void on_signal(uv_signal_t *h, int signum)
{
    struct worker *w = h->data;
    (void)signum;
    if (!w->ending) {
        end(w);
    } else {
        log_warn("stopping at once");
        server_abort(w->server);
    }
}

/* --- the start --- */

/* Keys that decide must not be evicted: a Redis that may do that is refused. */
static void on_redis_change(struct rds_watch *watch, bool usable)
{
    struct worker *w = CONTAINER(watch, struct worker, watch);
    const char *policy = usable ? rds_memory_policy(w->sv.rds) : "";
    if (policy[0] == '\0' || strcmp(policy, "noeviction") == 0)
        return;
    log_write(w->gen->settings.redis_eviction_refuse ? LOG_ERROR : LOG_WARN, NULL,
        "redis: maxmemory-policy is %s: limits could be evicted; set it to noeviction%s", policy,
        w->gen->settings.redis_eviction_refuse ? " (or redis.eviction = \"warn\")" : "");
    if (w->gen->settings.redis_eviction_refuse && !w->ending) {
        w->code = EXIT_START;
        if (w->server != NULL)
            end(w);
        w->refused = true;
    }
}

/* The private server takes a moment to make its socket: no connection is tried before. */
static void on_redis_wait(struct timer *t)
{
    struct worker *w = CONTAINER(t, struct worker, redis_wait);
    bool there = w->redisd == NULL || access(redisd_socket(w->redisd), F_OK) == 0;
    if (there || ++w->redis_waits > REDIS_WAITS)
        rds_start(w->sv.rds);
    else
        timer_set(&w->loop, t, REDIS_WAIT_MS);
}

static int start_redis(struct worker *w)
{
    const struct settings *s = &w->gen->settings;
    struct rds_config c;
    char why[PATH_MAX * 2 + 64], url[160], home[PATH_MAX], scripts[PATH_MAX + 16];
    const char *text = s->redis_url;
    if (text == NULL) {
        w->redisd = redisd_start(&w->loop, s->data_dir, s->run_dir, why, sizeof why);
        if (w->redisd == NULL) {
            log_error("private redis: %s", why);
            return -1;
        }
        snprintf(url, sizeof url, "unix://%s", redisd_socket(w->redisd));
        text = url;
    }
    const char *wrong = rds_config_parse(slice_of(text), &c);
    if (wrong != NULL) {
        log_error("redis.url: %s", wrong);
        return -1;
    }
    if (s->redis_timeout != 0)
        c.deadline_ms = s->redis_timeout;
    if (s->redis_connect_timeout != 0)
        c.connect_ms = s->redis_connect_timeout;
    c.resolve = w->sv.resolve;
    w->sv.rds = rds_new(&w->loop, &c);
    snprintf(scripts, sizeof scripts, "%s/scripts/redis", paths_home(home, sizeof home));
    w->sv.quota = quota_new(&w->loop, w->sv.rds, scripts, s->redis_hash_tags);
    if (w->sv.quota == NULL)
        return -1;
    w->watch.on_change = on_redis_change;
    rds_watch(w->sv.rds, &w->watch);
    w->redis_wait.cb = on_redis_wait;
    on_redis_wait(&w->redis_wait);
    return 0;
}

static int listen_on(struct worker *w, const struct listen_address *a, uint32_t limit, void (*begin)(struct exchange *x),
    const char *what)
{
    bool v6 = strchr(a->host, ':') != NULL;
    int port = server_listen(w->server, a->host, a->port, limit, begin);
    if (port < 0) {
        log_error("cannot listen on %s%s%s:%d: %s", v6 ? "[" : "", a->host, v6 ? "]" : "", a->port, uv_strerror(port));
        return -1;
    }
    log_info("%s on %s%s%s:%d", what, v6 ? "[" : "", a->host, v6 ? "]" : "", port);
    return 0;
}

static int start_server(struct worker *w)
{
    const struct settings *s = &w->gen->settings;
    w->server = server_new(&w->sv, current, w);
    for (uint32_t i = 0; i < s->nlisten; i++) {
        if (listen_on(w, &s->listen[i], s->connections, exchange_begin, "listening") != 0)
            return -1;
    }
    if (s->has_admin && listen_on(w, &s->admin, 256, admin_begin, "admin") != 0)
        return -1;
    return 0;
}

static void watch_signal(struct worker *w, uv_signal_t *h, int signum)
{
    uv_signal_init(&w->loop.uv, h);
    h->data = w;
    uv_signal_start(h, on_signal, signum);
}

static int start(struct worker *w, const char *config)
{
    struct upstream_limits none = { 0 };
    const char *why = NULL;
    struct buf faults;
    buf_init(&faults);
    w->sv.loop = &w->loop;
    w->sv.resolve = resolve_new(&w->loop, &why);
    if (w->sv.resolve == NULL) {
        log_error("c-ares: %s", why);
        return -1;
    }
    w->sv.upstream = upstream_new(&w->loop, w->sv.resolve, &none);
    w->gen = generation_load(&w->sv, config, false, &faults);
    if (w->gen == NULL) {
        fprintf(stderr, "%.*s", (int)faults.n, faults.p);
        buf_deinit(&faults);
        return -1;
    }
    const struct settings *s = &w->gen->settings;
    enum log_level level;
    if (log_level_of(s->log_level, &level) == 0)
        log_set_level(level);
    upstream_set_limits(w->sv.upstream, &s->upstream);
    w->sv.via = s->via;
    w->sv.hash_tags = s->redis_hash_tags;
    w->access_flush.run = on_access_flush;
    w->sv.access_flush = &w->access_flush;
    w->sv.access_log = s->access_log ? &w->access_log : NULL;
    w->limit.cb = on_limit;
    w->settle.cb = on_settle;
    if (start_redis(w) != 0)
        return -1;
    if (generation_start(w->gen, &faults) != 0) {
        fprintf(stderr, "%.*s", (int)faults.n, faults.p);
        buf_deinit(&faults);
        return -1;
    }
    buf_deinit(&faults);
    return start_server(w);
}

/* A start that failed: what was made goes at once, without the courtesies of a drain. */
static int give_up(struct worker *w)
{
    if (w->redisd != NULL)
        redisd_stop(w->redisd, NULL, NULL);
    return EXIT_START; /* the process ends; its Redis ends with it */
}

int worker_run(const char *config)
{
    struct worker *w = mem_zalloc(sizeof *w);
    signal(SIGPIPE, SIG_IGN);
    if (loop_init(&w->loop) != 0) {
        log_error("cannot make an event loop");
        return EXIT_START;
    }
    if (start(w, config) != 0)
        return give_up(w);
    watch_signal(w, &w->term, SIGTERM);
    watch_signal(w, &w->interrupt, SIGINT);
    log_info("tollgate %s is ready", TOLLGATE_VERSION);
    loop_run(&w->loop);
    int left = loop_deinit(&w->loop);
    int code = w->code;
    if (left > 0 || w->sv.leaks > 0)
        code = EXIT_LEAK;
    buf_deinit(&w->access_log);
    mem_free(w);
    return code;
}
