/* Who the client is where proxies stand before us, and what origins are told of it: X-Forwarded-*,
 * or Forwarded (RFC 7239). Plain data.
 *
 * A field is believed as far as trusted proxies wrote it. Each proxy adds whom it got the request
 * from at the right end, so the list is walked from there, over trusted addresses, to the first
 * that is not: that is the client. What stands further left is the client's own word. */
#ifndef TOLLGATE_FORWARDED_H
#define TOLLGATE_FORWARDED_H

#include "cidr.h"
#include "headers.h"

enum forwarded_form { FORWARDED_X = 1, FORWARDED_RFC7239 = 2 };

struct trusted {
    const struct cidr *v;
    uint32_t n;
    bool local; /* peers on Unix sockets */
};

struct forwarded_rules {
    struct trusted trusted;
    enum forwarded_form read;
    unsigned write; /* forms; the other one is removed */
};

/* What was found out about one request. Slices are borrowed from its fields. */
struct forwarded {
    bool trusted;             /* the peer is */
    struct ip client;         /* none: the peer itself, or a peer without an address */
    int port;                 /* the client's; 0: not known */
    struct slice proto, host; /* of the client's own request; p == NULL: not said */
};

/* peer: none for a Unix socket. */
bool trusted_has(const struct trusted *t, const struct ip *peer);

void forwarded_read(const struct forwarded_rules *r, const struct ip *peer, const struct headers *h,
                    struct forwarded *out);

/* How the request came to us. */
struct forwarded_hop {
    struct slice peer; /* the address as text, "" for a Unix socket */
    struct slice scheme, authority;
};

/* Makes the fields in h what the origin is to get: extended where the peer is trusted, else
 * replaced. Texts live in h's arena. */
void forwarded_write(const struct forwarded_rules *r, const struct forwarded *f,
                     const struct forwarded_hop *hop, struct headers *h);

#endif
