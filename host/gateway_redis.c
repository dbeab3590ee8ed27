/* See gateway.h: the connection to Redis, and the quota on it. */
#include <limits.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "container.h"
#include "gateway.h"
#include "log.h"
#include "paths.h"

enum { REDIS_WAIT_MS = 5, REDIS_WAITS = 1000 };

/* Keys that decide must not be evicted: a Redis that may do that is refused. */
static void on_redis_change(struct rds_watch *watch, bool usable)
{
    struct gateway *gw = CONTAINER(watch, struct gateway, redis_watch);
    const struct generation *g = gw->current != NULL ? gw->current : gw->pending;
    const char *policy = usable ? rds_memory_policy(gw->sv.rds) : "";
    if (g == NULL || policy[0] == '\0' || strcmp(policy, "noeviction") == 0)
        return;
    bool refuse = g->settings.redis_eviction_refuse;
    log_write(refuse ? LOG_ERROR : LOG_WARN, NULL,
              "redis: maxmemory-policy is %s: limits could be evicted; set it to noeviction%s",
              policy, refuse ? " (or redis.eviction = \"warn\")" : "");
    if (refuse && !gw->ending && !gw->redis_refused) {
        gw->redis_refused = true;
        gw->on_refused(gw);
    }
}

/* The private server takes a moment to make its socket: no connection is tried before. */
static void on_redis_wait(struct timer *t)
{
    struct gateway *gw = CONTAINER(t, struct gateway, redis_wait);
    bool there = gw->redis_socket == NULL || access(gw->redis_socket, F_OK) == 0;
    if (there || ++gw->redis_waits > REDIS_WAITS)
        rds_start(gw->sv.rds);
    else
        timer_set(gw->loop, t, REDIS_WAIT_MS);
}

/* What was tried is what runs. */
static int read_script(void *snapshot, const char *path, struct slice *text)
{
    return snapshot_file(snapshot, path, text);
}

static void on_redis_ended(void *figures, const char *script, uint64_t ns, const char *error)
{
    figures_redis(figures, script, ns, error);
}

static void on_batch(void *figures, bool settle, unsigned requests)
{
    figures_batch(figures, settle, requests);
}

int gateway_redis_start(struct gateway *gw)
{
    const struct settings *s = &gw->current->settings;
    struct rds_config c;
    char url[PATH_MAX + 16], home[PATH_MAX], scripts[PATH_MAX + 16];
    const char *text = s->redis_url;
    if (text == NULL) {
        snprintf(url, sizeof url, "unix://%s", gw->redis_socket);
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
    rds_config_secure(&c, &s->redis_tls);
    c.resolve = gw->sv.resolve;
    gw->sv.rds = rds_new(gw->loop, &c);
    gw->sv.rds_pool = rds_pool_new(gw->loop, gw->sv.rds);
    snprintf(scripts, sizeof scripts, "%s/scripts/redis", paths_home(home, sizeof home));
    gw->sv.quota = quota_new_from(gw->loop, gw->sv.rds, scripts, s->redis_hash_tags, read_script,
                                  gw->current->snapshot);
    if (gw->sv.quota == NULL)
        return -1;
    rds_set_meter(gw->sv.rds, on_redis_ended, gw->sv.figures);
    quota_set_batch(gw->sv.quota, on_batch, gw->sv.figures);
    if (gw->sv.quota_at != NULL)
        quota_count_at(gw->sv.quota, gw->sv.quota_at);
    gw->redis_watch.on_change = on_redis_change;
    rds_watch(gw->sv.rds, &gw->redis_watch);
    gw->redis_wait.cb = on_redis_wait;
    on_redis_wait(&gw->redis_wait);
    return 0;
}
