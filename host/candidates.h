/* The addresses that a name has, and the order in which they are tried: plain data, time passed in.
 *
 * RFC 8305, section 4: families alternate, beginning with the preferred one. Inside a family the
 * first one moves on with each call, so that connections spread over all of them. An address that
 * failed, or was so slow that another won, comes behind all others for a while, which doubles with
 * each time. */
#ifndef TOLLGATE_CANDIDATES_H
#define TOLLGATE_CANDIDATES_H

#include "cidr.h"

enum {
    CANDIDATES_BAD_MS = 30000,
    CANDIDATES_BAD_DOUBLINGS = 4 /* 30 s to 8 min */
};

struct candidate {
    struct ip ip;
    uint8_t fails; /* in a row */
    uint64_t bad_until;
};

/* Of one family. */
struct candidates {
    struct candidate *v; /* owned */
    unsigned n;
    unsigned turn; /* who is first next time */
};

void candidates_deinit(struct candidates *c);
/* What is known of addresses that stay is kept. True where one has gone. */
bool candidates_set(struct candidates *c, const struct ip *v, unsigned n);
struct candidate *candidates_find(const struct candidates *c, const struct ip *ip);
void candidate_failed(struct candidate *c, uint64_t now);
void candidate_worked(struct candidate *c);

/* Fills at most `max` addresses, first choice first; returns how many. */
unsigned candidates_order(struct candidates *preferred, struct candidates *other, uint64_t now,
                          struct ip *out, unsigned max);

#endif
