/* What a listening socket secures its connections with: certificates chosen by the name that the
 * client asks for, certificates of clients, session tickets. All of it lives in the context, which
 * connections hold: those that were accepted before a reload end with what they began with. */
#ifndef TOLLGATE_TLS_SERVER_H
#define TOLLGATE_TLS_SERVER_H

#include "tls_context.h"
#include "tls_store.h"
#include "tls_tickets.h"

struct tls_server_options {
    const char *path;                     /* where TLS stands in the configuration, for faults */
    struct tls_certificate *certificates; /* at least one; the first serves all other names */
    uint32_t ncertificates;
    bool tls13;           /* nothing older */
    const char **ciphers; /* none: our own choice */
    uint32_t nciphers;
    struct slice ca; /* whose certificates clients may come with; p == NULL: they are not asked */
    bool required;
    bool tickets;
    struct slice ticket_keys;       /* p == NULL: those of the ring */
    const struct ticket_ring *ring; /* borrowed, outlives all contexts; NULL: no tickets then */
    bool valid_now;                 /* as for tls_store_new */
};

/* A reference, or NULL with faults, one a line. Nothing of the options is kept but the ring. */
struct tls_context *tls_server_new(const struct tls_server_options *o, struct buf *faults,
                                   struct buf *warnings);
/* When the first of its certificates expires, in s since the epoch. */
int64_t tls_server_expires(const struct tls_context *c);

#endif
