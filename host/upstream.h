/* Connections to origins: dialed with a deadline, kept for reuse, limited in number. One origin is
 * one host and port, or a Unix socket; all targets that name it share its pool. Connections to an
 * address that the host's name does not have any more are let go.
 *
 * An idle connection stays readable: bytes or an end that nobody asked for close it, so that it is
 * never used again. */
#ifndef TOLLGATE_UPSTREAM_H
#define TOLLGATE_UPSTREAM_H

#include "counters.h"
#include "loop.h"
#include "parse.h"
#include "resolve.h"
#include "stream.h"
#include "tls_client.h"
#include "url.h"

struct upstream;
struct origin;
struct upstream_wait;

struct upstream_limits {
    uint32_t idle;        /* connections kept idle per origin */
    uint32_t connections; /* per origin, 0: no limit; who comes above it waits */
    uint64_t idle_ms;     /* how long one is kept idle */
};

/* A connection on loan. The borrower reads and writes `stream` and may keep a parser here for the
 * next borrower. */
struct upstream_conn {
    struct upstream_conn *next, **link; /* private: list of idle ones */
    struct origin *origin;
    struct stream *stream;
    struct parser *parser; /* freed with the connection */
    void *arg;             /* the borrower's */
    uint64_t uses;         /* exchanges begun on it, this one included */
    struct timer expiry;   /* private */
    struct ip ip;          /* private: the peer's; none for a Unix socket */
    uint32_t epoch;        /* private: of the origin, when ip was last known to be its own */
};

struct upstream *upstream_new(struct loop *l, struct resolve *r,
                              const struct upstream_limits *limits);
void upstream_set_limits(struct upstream *u, const struct upstream_limits *limits);
/* Closes idle connections; none may be on loan. */
void upstream_free(struct upstream *u);

/* Counts TLS handshakes there from now on; borrowed. */
void upstream_count(struct upstream *u, struct counters *c);

/* The origin of a URL, found or made; held until origin_release. tls is borrowed for the call;
 * NULL: https is spoken by the system's authorities. */
struct origin *upstream_origin(struct upstream *u, const struct url *url,
                               const struct tls_remote *tls);
/* Why TLS failed, in a callback with UV_EPROTO or another failure of the handshake. */
const struct tls_fault *origin_fault(const struct origin *o);
void origin_release(struct origin *o);

/* Asks for a connection. cb is called once and never before this returns: a connection, or NULL and
 * UV_E* (UV_ETIMEDOUT after connect_ms, which covers name, wait, dial and TLS; UV_EPROTO where TLS
 * failed: see origin_fault). `fresh` asks for a new one. */
struct upstream_wait *upstream_get(struct origin *o, uint64_t connect_ms, bool fresh,
                                   void (*cb)(void *arg, struct upstream_conn *c, int err),
                                   void *arg);
void upstream_cancel(struct upstream_wait *w);
/* An idle connection at once, or NULL: the common case without a wait. */
struct upstream_conn *upstream_take(struct origin *o);

/* Gives a connection back for reuse for at most keep_ms (0: the pool's limit). */
void upstream_put(struct upstream_conn *c, uint64_t keep_ms);
/* Ends it. */
void upstream_drop(struct upstream_conn *c);
/* Ends it behind what was written on it, which has linger_ms to get there. */
void upstream_finish(struct upstream_conn *c, uint64_t linger_ms);

#endif
