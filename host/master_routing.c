/* See master.h. A plugin of one worker looks which version was published (and, where the policy is
 * kept in Redis, reads it); it reports here again and again. Where the version is not the one that
 * runs, that is a reload like any other, but for the policy that is tried with it. A version that
 * cannot be loaded is tried again now and then. Nothing here is ever written to Redis. */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "json.h"
#include "log.h"
#include "master.h"

enum { RETRY_MS = 10000 };

static void drop_policy(struct master *m)
{
    if (m->routing.next_policy >= 0)
        close(m->routing.next_policy);
    m->routing.next_policy = -1;
}

static int copy(int from, int to)
{
    char piece[65536];
    ssize_t n;
    off_t at = 0;
    while ((n = pread(from, piece, sizeof piece, at)) > 0) {
        if (write(to, piece, (size_t)n) != n)
            return -1;
        at += n;
    }
    return n < 0 ? -1 : fsync(to);
}

/* What was taken is for the next start too: routing.json in data_dir, replaced as a whole. */
static void keep_policy(struct master *m)
{
    char path[PATH_MAX], part[PATH_MAX + 8];
    if (m->routing.next_policy < 0)
        return;
    snprintf(path, sizeof path, "%s/routing.json", plan_text(m->plan, "data_dir"));
    snprintf(part, sizeof part, "%s.part", path);
    int fd = open(part, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    bool fine = fd >= 0 && copy(m->routing.next_policy, fd) == 0;
    if (fd >= 0)
        close(fd);
    if (!fine || rename(part, path) != 0)
        log_error(
            "%s: %s; after a restart an older policy would serve until the current one is taken",
            path, strerror(errno));
}

static void on_reloaded(void *arg, bool ok, struct slice text)
{
    struct master *m = arg;
    uint64_t now = loop_now(&m->loop);
    if (ok) {
        *zone_routing(m->zone) = m->routing.asked;
        m->routing.confirmed = now;
        m->routing.failed = 0;
        m->routing.problem[0] = '\0';
        keep_policy(m);
        if (m->watch != NULL)
            master_watch_start(m); /* the file is ours */
    } else {
        m->routing.failed = m->routing.asked;
        m->routing.retry_at = now + RETRY_MS;
        snprintf(m->routing.problem, sizeof m->routing.problem,
                 "version %" PRIu64 " could not be loaded: %.*s", m->routing.asked, (int)text.n,
                 text.p);
    }
    m->routing.asked = 0;
    drop_policy(m);
}

static void load(struct master *m, uint64_t version, int policy)
{
    char why[96];
    uint64_t runs = *zone_routing(m->zone), now = loop_now(&m->loop);
    if (m->routing.asked != 0 || m->ending ||
        (version == m->routing.failed && now < m->routing.retry_at)) {
        if (policy >= 0)
            close(policy);
        return;
    }
    m->routing.asked = version;
    m->routing.next_policy = policy;
    snprintf(why, sizeof why, "routing version %" PRIu64 " is published, %" PRIu64 " runs", version,
             runs);
    master_reload(m, why, on_reloaded, m);
}

void master_routing_follow(struct master *m, const char *text, int policy)
{
    uint64_t version, now = loop_now(&m->loop);
    bool known = sscanf(text, "%" SCNu64 " %" SCNu64, &version, &m->routing.stale_ms) == 2;
    if (!known)
        sscanf(text, "- %" SCNu64, &m->routing.stale_ms);
    m->routing.followed = now;
    if (m->routing.confirmed == 0)
        m->routing.confirmed = now; /* as far as anybody knows */
    if (known)
        m->routing.wanted = version;
    if (known && (version == 0 || version == *zone_routing(m->zone)))
        m->routing.confirmed = now;
    else if (known) {
        load(m, version, policy);
        return;
    }
    if (policy >= 0)
        close(policy);
}

void master_routing_switched(struct master *m)
{
    m->routing.stale_ms = 0;
    m->routing.followed = 0;
}

const char *master_routing_stale(struct master *m)
{
    static char text[128];
    uint64_t age = loop_now(&m->loop) - m->routing.confirmed;
    if (m->routing.stale_ms == 0 || age <= m->routing.stale_ms)
        return NULL;
    snprintf(text, sizeof text,
             "routing is stale: version %" PRIu64 " runs, for %" PRIu64
             " s it has not been known to be the published one",
             *zone_routing(m->zone), age / 1000);
    return text;
}

void master_routing_status(struct master *m, struct buf *out)
{
    if (m->routing.followed == 0) {
        buf_add_text(out, "\"routing\":null");
        return;
    }
    buf_printf(out,
               "\"routing\":{\"version\":%" PRIu64 ",\"published\":%" PRIu64
               ",\"confirmed_ms_ago\":%" PRIu64 ",\"stale\":%s,\"problem\":",
               *zone_routing(m->zone), m->routing.wanted, loop_now(&m->loop) - m->routing.confirmed,
               master_routing_stale(m) != NULL ? "true" : "false");
    json_quote(out, slice_of(m->routing.problem));
    buf_add_text(out, "}");
}
