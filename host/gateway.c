/* See gateway.h. The end: no new connections, answers that are owed are given (up to a limit),
 * settlements reach Redis, then everything is closed in the reverse order of the start. */
#include "gateway.h"

#include <stddef.h>
#include <string.h>

#include "api.h"
#include "container.h"
#include "log.h"
#include "mem.h"

enum { SETTLE_MS = 3000, SETTLE_LAST_MS = 500, SETTLE_STEP_MS = 10 };

/* --- generations --- */

static struct generation *current(void *arg)
{
    return ((struct gateway *)arg)->current;
}

static void apply_settings(struct gateway *gw)
{
    const struct settings *s = &gw->current->settings;
    enum log_level level;
    if (log_level_of(s->log_level, &level) == 0)
        log_set_level(level);
    upstream_set_limits(gw->sv.upstream, &s->upstream);
    if (gw->sv.rds != NULL)
        rds_secure(gw->sv.rds, &s->redis_tls);
    const char *why;
    if (resolve_set_options(gw->sv.resolve, &s->resolver, &why) != 0)
        log_error("resolver: %s; names are asked for as before", why);
    gw->sv.hash_tags = s->redis_hash_tags;
}

/* The oldest that is neither current nor being loaded. */
static struct generation *oldest(const struct gateway *gw)
{
    struct generation *found = NULL;
    for (struct generation *g = gw->sv.generations; g != NULL; g = g->next) {
        if (g != gw->current && g != gw->pending)
            found = g;
    }
    return found;
}

static void on_oldest(struct timer *t)
{
    struct gateway *gw = CONTAINER(t, struct gateway, oldest);
    struct generation *g = oldest(gw);
    if (g == NULL || gw->sv.ngenerations < GATEWAY_GENERATIONS)
        return;
    log_warn("generation %llu has not ended after reload.drain; what runs on it is cut off",
             (unsigned long long)g->number);
    server_abort_generation(gw->server, g);
    exchange_end_gone(&gw->sv, g, true);
    api_timers_give_up(g);
}

bool gateway_has_room(struct gateway *gw)
{
    if (gw->sv.ngenerations < GATEWAY_GENERATIONS)
        return true;
    if (gw->oldest.at == 0)
        timer_set(gw->loop, &gw->oldest, gw->current->settings.reload_drain);
    return false;
}

static int begin(struct gateway *gw)
{
    gw->current = gw->pending;
    apply_settings(gw);
    int err = gateway_redis_start(gw);
    gw->current = NULL;
    return err;
}

int gateway_load(struct gateway *gw, struct snapshot *from, uint64_t number, struct buf *faults)
{
    struct shared *shared = gw->sv.shared;
    gw->sv.shared =
        NULL; /* not for the file level of plugins, which runs once more than they think */
    gw->pending = generation_load_from(&gw->sv, gw->config, from, number, false, faults);
    gw->sv.shared = shared;
    if (gw->pending == NULL)
        return -1;
    if (gw->current == NULL && begin(gw) != 0) {
        buf_add_text(faults, "the services could not be started\n");
        gateway_drop(gw);
        return -1;
    }
    if (gw->current != NULL)
        generation_suspend(gw->current);
    if (generation_start(gw->pending, gw->current, faults) == 0)
        return 0;
    gateway_drop(gw);
    return -1;
}

void gateway_switch(struct gateway *gw)
{
    struct generation *old = gw->current;
    gw->current = gw->pending;
    gw->pending = NULL;
    apply_settings(gw);
    if (gw->server == NULL)
        gw->server = server_new(&gw->sv, current, gw);
    if (old != NULL)
        generation_release(old);
}

void gateway_drop(struct gateway *gw)
{
    struct generation *g = gw->pending;
    gw->pending = NULL;
    generation_stop(g);
    generation_release(g);
    if (gw->current != NULL)
        generation_resume(gw->current);
}

void gateway_quarantine(struct gateway *gw, const char *plugin, bool fail)
{
    struct quarantine *q = mem_zalloc(sizeof *q + strlen(plugin) + 1);
    strcpy(q->plugin, plugin);
    q->fail = fail;
    q->next = gw->sv.quarantine;
    gw->sv.quarantine = q;
    for (struct generation *g = gw->sv.generations; g != NULL; g = g->next)
        generation_quarantine(g, q);
}

void gateway_quarantine_lift(struct gateway *gw)
{
    while (gw->sv.quarantine != NULL) {
        struct quarantine *q = gw->sv.quarantine;
        gw->sv.quarantine = q->next;
        mem_free(q);
    }
}

/* --- start and end --- */

static void close_all(struct gateway *gw)
{
    if (gw->on_closing != NULL)
        gw->on_closing(gw);
    if (gw->sv.quota != NULL)
        quota_free(gw->sv.quota);
    gw->sv.quota = NULL;
    if (gw->server != NULL)
        server_free(gw->server);
    gw->server = NULL;
    if (gw->current != NULL)
        generation_release(gw->current);
    gw->current = NULL;
    if (gw->sv.rds_pool != NULL) /* what plugins had borrowed is back */
        rds_pool_free(gw->sv.rds_pool);
    if (gw->sv.rds != NULL)
        rds_free(gw->sv.rds);
    gw->sv.rds = NULL;
    figures_free(gw->sv.figures);
    metrics_free(gw->sv.metrics);
    fetch_client_free(gw->sv.fetch);
    upstream_free(gw->sv.upstream);
    resolve_free(gw->sv.resolve);
    gateway_quarantine_lift(gw);
    timer_deinit(gw->loop, &gw->limit);
    timer_deinit(gw->loop, &gw->settle);
    timer_deinit(gw->loop, &gw->redis_wait);
    timer_deinit(gw->loop, &gw->oldest);
    access_log_free(gw->sv.access_log);
    gw->on_end(gw);
}

/* The generations that end have timers that linger, or not. */
static bool lingers(const struct gateway *gw)
{
    const struct generation *g = gw->sv.generations;
    while (g != NULL && !api_timers_linger(g))
        g = g->next;
    return g != NULL;
}

/* What plugins still send behind stop has its time, too. */
static void on_last(struct timer *t)
{
    struct gateway *gw = CONTAINER(t, struct gateway, settle);
    if (lingers(gw) && loop_now(gw->loop) < gw->settle_until) {
        timer_set(gw->loop, t, SETTLE_STEP_MS);
        return;
    }
    if (lingers(gw))
        log_warn("stopping: what plugins do behind stop did not end in time and was given up");
    for (struct generation *g = gw->sv.generations, *next; g != NULL; g = next) {
        next = g->next;
        api_timers_give_up(g);
    }
    close_all(gw);
}

static void stop_plugins(struct gateway *gw)
{
    if (gw->pending != NULL) {
        generation_stop(gw->pending);
        generation_release(gw->pending);
        gw->pending = NULL;
    }
    if (gw->current != NULL)
        generation_stop(gw->current);
    gw->settle.cb = on_last;
    gw->settle_until = loop_now(gw->loop) + SETTLE_MS;
    on_last(&gw->settle);
}

/* Settlements, voids and log phases may still be under way: waits for them, but not for ever. */
static void on_settle(struct timer *t)
{
    struct gateway *gw = CONTAINER(t, struct gateway, settle);
    bool idle = (gw->sv.quota == NULL || quota_idle(gw->sv.quota)) && gw->sv.exchanges == 0;
    if (!idle && loop_now(gw->loop) < gw->settle_until) {
        timer_set(gw->loop, t, SETTLE_STEP_MS);
        return;
    }
    if (gw->sv.exchanges > 0 && !gw->fetches_cut) { /* log phases that wait for an answer get an
                                                       error, and a moment to end */
        gw->fetches_cut = true;
        gw->settle_until = loop_now(gw->loop) + SETTLE_LAST_MS;
        timer_set(gw->loop, t, SETTLE_STEP_MS);
        fetch_client_stop(gw->sv.fetch);
        return;
    }
    uint32_t waiting = exchange_end_logs(&gw->sv);
    if (waiting > 0)
        log_warn("stopping: %u log phases of plugins did not end in time and were given up",
                 waiting);
    if (gw->sv.exchanges > 0)
        log_error("leak: %u exchanges have not ended", gw->sv.exchanges);
    if (gw->sv.exchanges == 0 && gw->sv.buffered > 0)
        log_error("leak: %zu bytes of bodies and answers are counted still", gw->sv.buffered);
    gw->sv.leaks += gw->sv.exchanges + (gw->sv.exchanges == 0 && gw->sv.buffered > 0);
    stop_plugins(gw);
}

/* Answers that plugins keep for nobody may come to their end until the drain's limit. */
static void on_kept(struct timer *t)
{
    struct gateway *gw = CONTAINER(t, struct gateway, settle);
    if (gw->sv.gone != NULL && gw->limit.at != 0) {
        timer_set(gw->loop, t, SETTLE_STEP_MS);
        return;
    }
    timer_stop(&gw->limit);
    if (gw->sv.gone != NULL)
        log_warn("drain: answers that plugins keep for clients that have left are cut off");
    exchange_end_gone(&gw->sv, NULL, true);
    gw->settle.cb = on_settle;
    gw->settle_until = loop_now(gw->loop) + SETTLE_MS;
    on_settle(t);
}

static void on_server_empty(void *arg)
{
    struct gateway *gw = arg;
    exchange_end_gone(&gw->sv, NULL, false);
    gw->settle.cb = on_kept;
    on_kept(&gw->settle);
}

static void on_limit(struct timer *t)
{
    struct gateway *gw = CONTAINER(t, struct gateway, limit);
    uint32_t n = server_connections(gw->server);
    if (n > 0)
        log_warn("drain: the limit has passed; %u connections are cut off", n);
    server_abort(gw->server);
}

void gateway_drain(struct gateway *gw, uint64_t limit_ms)
{
    if (gw->ending)
        return;
    gw->ending = true;
    gw->sv.draining = true;
    if (gw->server == NULL) {
        on_server_empty(gw);
        return;
    }
    timer_set(gw->loop, &gw->limit, limit_ms);
    server_drain(gw->server, on_server_empty, gw);
}

void gateway_abort(struct gateway *gw)
{
    timer_stop(&gw->limit);
    if (gw->server != NULL)
        server_abort(gw->server);
}

int gateway_init(struct gateway *gw, struct loop *l)
{
    struct upstream_limits none = { 0 };
    const char *why = NULL;
    gw->loop = gw->sv.loop = l;
    gw->sv.resolve = resolve_new(l, &why);
    if (gw->sv.resolve == NULL) {
        log_error("c-ares: %s", why);
        return -1;
    }
    gw->sv.upstream = upstream_new(l, gw->sv.resolve, &none);
    gw->sv.fetch = fetch_client_new(l, gw->sv.upstream);
    gw->limit.cb = on_limit;
    gw->oldest.cb = on_oldest;
    return 0;
}

unsigned gateway_deinit(struct gateway *gw)
{
    return gw->sv.leaks;
}
