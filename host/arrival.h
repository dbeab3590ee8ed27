/* What comes on a client's connection before its first request: the header of the PROXY protocol,
 * then the TLS handshake, under one deadline from the moment it was accepted. Whoever speaks plain
 * HTTP to a port of TLS is told so; whoever does not send the header where it has to be, or may not
 * send it, is closed. */
#ifndef TOLLGATE_ARRIVAL_H
#define TOLLGATE_ARRIVAL_H

#include "counters.h"
#include "crowd.h"
#include "stream.h"
#include "tls_peer.h"

struct arrival;

/* Those of one server. */
struct arrivals {
    struct arrival *first, **end; /* the oldest first */
    uint32_t n;
    struct loop *loop;
    struct counters *counters;
    bool draining;
    uint64_t warned; /* when somebody was closed for the PROXY protocol, as the log last said */
};

struct arrival_events {
    /* The header has said whose connection it is: false, and it is closed. What is written to *net
     * is given back with one of the others. NULL where no header is awaited. */
    bool (*on_client)(void *arg, const struct stream *s, struct crowd_net *net);
    /* Ready for its first request. The stream, and the reference to what is known of the peer
     * (NULL: no TLS), are the callee's; `early` has been read already, and is borrowed. */
    void (*on_ready)(void *arg, struct stream *s, struct tls_peer *peer, struct slice early,
                     const struct crowd_net *net);
    /* It ended before; nothing is left of it. */
    void (*on_gone)(void *arg, const struct crowd_net *net);
};

void arrivals_init(struct arrivals *list, struct loop *l, struct counters *counters);
/* What is awaited; one of them at least. */
struct arrival_how {
    bool proxied;            /* the header of the PROXY protocol */
    struct tls_context *tls; /* a handshake; NULL: none. A reference is taken */
    uint64_t timeout_ms;
    struct crowd_net net; /* as what it is counted, where no header is awaited */
};

/* Takes the stream. on_ready or on_gone comes, once, and not before this has returned. */
void arrival_start(struct arrivals *list, struct stream *s, const struct arrival_how *how,
                   const struct arrival_events *events, void *arg);
/* Counts and says that a peer was closed for the PROXY protocol; once a second at most. */
void arrival_refused(struct arrivals *list, const struct stream *s, const char *why);
/* From now on those that have sent nothing get a moment for it, and end: on_gone. */
void arrivals_drain(struct arrivals *list);
/* Whether the oldest has taken `ms` or longer. */
bool arrivals_evictable(const struct arrivals *list, uint64_t ms);
/* Ends the oldest where it has taken `ms` or longer: on_gone. False where it has not. */
bool arrivals_evict(struct arrivals *list, uint64_t ms);
/* Ends all: on_gone. */
void arrivals_abort(struct arrivals *list);

#endif
