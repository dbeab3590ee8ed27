/* What the files of upstream share: upstream.c (origins and their idle connections) and
 * upstream_wait.c (asking for a connection: the queue, dialing, TLS). */
#ifndef TOLLGATE_UPSTREAM_INTERNAL_H
#define TOLLGATE_UPSTREAM_INTERNAL_H

#include "dial.h"
#include "upstream.h"

struct origin {
    struct origin *next;
    struct upstream *u;
    uint32_t refs, open, idle; /* open: on loan, idle or being dialed */
    struct upstream_conn *idle_list;
    struct upstream_wait *first, **last; /* who waits for the limit, in order */
    struct resolve_hold *name;           /* held while there are connections */
    struct tls_context *tls;             /* held; NULL: plain */
    struct tls_session *session;         /* the newest with it, where there is TLS */
    struct tls_fault fault;              /* of the TLS that failed last */
    uint32_t epoch;                      /* counts how often the name has lost addresses */
    int port;
    char path[108];
    char *server_name; /* whose certificate it must show; owned */
    char host[];
};

struct upstream_wait {
    struct upstream_wait *next, **link; /* in the origin's queue */
    struct origin *origin;
    struct timer deadline;
    struct deferred later;
    struct dial *dial;
    struct stream *securing; /* connected, TLS is being agreed */
    struct address to;       /* where `securing` leads to */
    bool counted;            /* in origin->open */
    bool fresh;
    int err;
    uint64_t until;
    void (*cb)(void *arg, struct upstream_conn *c, int err);
    void *arg;
};

struct upstream {
    struct loop *loop;
    struct resolve *resolve;
    struct upstream_limits limits;
    struct counters *counters;
    struct tls_context *tls; /* what https means where nothing is said; NULL: not known yet */
    struct origin *origins;
};

/* upstream.c */
struct upstream_conn *upstream_conn_new(struct origin *o, struct stream *s,
                                        const struct address *to);
/* Ends an idle one, without looking at who waits. */
void upstream_conn_end(struct upstream_conn *c);
/* One connection more, or less. */
void upstream_opened(struct origin *o);
void upstream_closed(struct origin *o);
void upstream_free_unused(struct origin *o);

/* upstream_wait.c */
bool upstream_at_limit(const struct origin *o);
/* Whoever waits gets an idle connection, or dials where the limit leaves room. */
void upstream_serve_queue(struct origin *o);

#endif
