/* limits.connections_per_address: how many connections one client may have to this worker. All that
 * have an address are counted, so that a reload may set a limit at any time; peers that are trusted
 * proxies have as many as they like. */
#ifndef TOLLGATE_CLIENT_LIMIT_H
#define TOLLGATE_CLIENT_LIMIT_H

#include "counters.h"
#include "crowd.h"
#include "generation.h"
#include "stream.h"

struct client_limit {
    struct crowd crowd;
    struct loop *loop;
    struct counters *counters;
    uint64_t warned; /* when the log last said that somebody was refused; 0: never */
};

void client_limit_init(struct client_limit *c, struct loop *l, struct counters *counters);
void client_limit_deinit(struct client_limit *c);
/* A connection on the address `at` whose client is known. True where it may stay; it is counted in
 * *net then, for client_limit_leave. False where its client has its share already: the log hears of
 * that every 10 s. */
bool client_limit_enter(struct client_limit *c, const struct settings *set,
                        const struct listen_address *at, const struct stream *s,
                        struct crowd_net *net);
void client_limit_leave(struct client_limit *c, const struct crowd_net *net);

#endif
