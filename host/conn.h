/* One client's connection: requests out of its bytes, one exchange at a time, keep-alive and
 * pipelining. It owns the socket, the parser and the deadlines of head, body, idle time and
 * writing; the exchange owns everything else.
 *
 * The socket stays readable while an answer is owed (libuv reports no reset once reading is
 * stopped); what a client pipelines meanwhile is held, up to a limit. */
#ifndef TOLLGATE_CONN_H
#define TOLLGATE_CONN_H

#include "exchange.h"
#include "idle.h"

struct conn;

/* What connections need of their listener. */
struct conn_owner {
    struct services *sv;
    /* The generation for the next request. */
    struct generation *(*generation)(void *self);
    void (*closed)(void *self, struct conn *c);
    void *self;
    struct idlers *idlers; /* those to end first where there is no room: without a request whose
                              head is complete, and without an answer that is still to be taken */
};

/* Takes the stream, and the reference to what is known of its TLS (NULL: it has none). The owner is
 * borrowed and outlives the connection. */
struct conn *conn_new(struct stream *s, struct tls_peer *tls, const struct conn_owner *owner);
/* Bytes of its that were read before it was made. It may end. */
void conn_feed(struct conn *c, struct slice bytes);
/* Its place in the owner's list. */
uint32_t conn_slot(const struct conn *c);
void conn_set_slot(struct conn *c, uint32_t slot);
/* Whose request it serves now; NULL where none. */
const struct generation *conn_generation(const struct conn *c);
/* Drain: an idle connection ends now, a busy one behind its answer. */
void conn_drain(struct conn *c);
/* Whether one has waited `ms` or longer for a request, or for the rest of its head. */
bool conn_evictable(const struct idlers *idlers, uint64_t ms);
/* Ends the one that has waited longest for a request, or for the rest of its head, where that is
 * `ms` or longer. False where it is not. */
bool conn_evict(struct idlers *idlers, uint64_t ms);
/* The drain's limit: ends at once. */
void conn_abort(struct conn *c);

#endif
