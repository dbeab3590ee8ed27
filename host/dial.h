/* A connection to a host, by name, address or path: looks the name up, then tries its addresses in
 * order with a stagger until one connects (RFC 8305, section 5). The first to connect wins, the
 * others are closed, and `resolve` remembers how each went. One deadline covers all of it. */
#ifndef TOLLGATE_DIAL_H
#define TOLLGATE_DIAL_H

#include "address.h"
#include "loop.h"
#include "resolve.h"
#include "stream.h"

struct dial;

struct dial_to {
    const char *host; /* borrowed until the end; a name, or an address without brackets */
    int port;
    const char *path; /* of a Unix socket, then there is no host; else NULL or "" */
};

/* cb is called once, later: a connected stream that is the callee's and the address it leads to
 * (borrowed), or NULL and UV_E*: UV_ETIMEDOUT after timeout_ms, UV_EAI_* where the name was not
 * found. Without a resolver (NULL) only addresses and paths can be dialed. */
struct dial *dial_start(struct loop *l, struct resolve *r, const struct dial_to *to,
                        uint64_t timeout_ms,
                        void (*cb)(void *arg, struct stream *s, const struct address *a, int err),
                        void *arg);
/* Ends it without a call. */
void dial_cancel(struct dial *d);

#endif
