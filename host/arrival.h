/* What comes on a client's connection before its first request: the TLS handshake, under one
 * deadline from the moment it was accepted. Whoever speaks plain HTTP to a port of TLS is told so.
 */
#ifndef TOLLGATE_ARRIVAL_H
#define TOLLGATE_ARRIVAL_H

#include "counters.h"
#include "stream.h"
#include "tls_peer.h"

struct arrival;

/* Those of one server. */
struct arrivals {
    struct arrival *first;
    uint32_t n;
    struct loop *loop;
    struct counters *counters;
};

struct arrival_events {
    /* Ready for its first request. The stream, and the reference to what is known of the peer, are
     * the callee's. */
    void (*on_ready)(void *arg, struct stream *s, struct tls_peer *peer);
    /* It ended before; nothing is left of it. */
    void (*on_gone)(void *arg);
};

void arrivals_init(struct arrivals *list, struct loop *l, struct counters *counters);
/* Takes the stream; refers to the context. One of the events comes, once, and not before this has
 * returned. */
void arrival_start(struct arrivals *list, struct stream *s, struct tls_context *tls,
                   uint64_t timeout_ms, const struct arrival_events *events, void *arg);
/* Ends those that have not sent a byte yet: on_gone. */
void arrivals_drain(struct arrivals *list);
/* Ends all: on_gone. */
void arrivals_abort(struct arrivals *list);

#endif
