/* See client_limit.h. */
#include "client_limit.h"

#include <inttypes.h>
#include <stdlib.h>
#include <sys/random.h>

#include "log.h"

enum { WARN_MS = 10000 };

void client_limit_init(struct client_limit *c, struct loop *l, struct counters *counters)
{
    uint64_t secret[2];
    if (getrandom(secret, sizeof secret, 0) != sizeof secret)
        abort(); /* up to 256 bytes come whole */
    *c = (struct client_limit){ .loop = l, .counters = counters };
    crowd_init(&c->crowd, secret);
}

void client_limit_deinit(struct client_limit *c)
{
    crowd_deinit(&c->crowd);
}

static void refused(struct client_limit *c, const struct stream *s, uint32_t limit)
{
    uint64_t now = loop_now(c->loop);
    c->counters->crowded++;
    if (c->warned != 0 && now - c->warned < WARN_MS)
        return;
    c->warned = now;
    log_warn("client %s: closed, it has %" PRIu32
             " connections to this worker (limits.connections_per_address)",
             stream_peer(s), limit);
}

bool client_limit_enter(struct client_limit *c, const struct settings *set,
                        const struct listen_address *at, const struct stream *s,
                        struct crowd_net *net)
{
    uint32_t limit = set->connections_per_address;
    struct ip ip = { 0 };
    ip_parse(slice_of(stream_peer(s)), &ip);
    *net = crowd_net(&ip);
    bool exempt = limit == 0 || net->size == 0 || trusted_has(&set->forwarded.trusted, &ip) ||
                  (at->proxied && trusted_has(&at->proxies, &ip));
    if (!exempt && crowd_count(&c->crowd, net) >= limit) {
        refused(c, s, limit);
        *net = (struct crowd_net){ 0 };
        return false;
    }
    crowd_enter(&c->crowd, net);
    return true;
}

void client_limit_leave(struct client_limit *c, const struct crowd_net *net)
{
    crowd_leave(&c->crowd, net);
}
