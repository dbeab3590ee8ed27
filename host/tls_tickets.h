/* The keys of session tickets (RFC 5077, RFC 8446, section 4.6.1): with them a client's next
 * connection skips most of a handshake, whichever worker it comes to, and no worker keeps anything.
 *
 * A ring of keys is in memory that all workers share. The master makes keys and is the only one who
 * writes; the newest makes tickets, and it and the one before take them. Where several replicas are
 * to take each other's tickets, keys are derived from secrets in a file instead. */
#ifndef TOLLGATE_TLS_TICKETS_H
#define TOLLGATE_TLS_TICKETS_H

#include <openssl/ssl.h>
#include <stdatomic.h>
#include <stdint.h>

#include "slice.h"

enum { TICKET_NAME = 16, TICKET_SECRET = 32, TICKET_RING = 4, TICKET_FILE_KEYS = 16 };

struct ticket_key {
    unsigned char name[TICKET_NAME], cipher[TICKET_SECRET], mac[TICKET_SECRET];
};

/* All zero: no key yet. Key n is in slot n % TICKET_RING, so that whoever reads the newest two has
 * them whole even while the next one is written. */
struct ticket_ring {
    _Atomic uint64_t newest; /* number of the newest key, from 1 */
    struct ticket_key slots[TICKET_RING];
};

/* Makes one key more, the newest from then on. 0, or -1: no random bytes. */
int ticket_ring_rotate(struct ticket_ring *r);

struct tls_tickets;

/* Keys of a ring, which is borrowed. */
struct tls_tickets *tls_tickets_of_ring(const struct ticket_ring *r);
/* Keys out of a file's text: a secret of at least 32 characters a line, the first makes tickets,
 * all take them; empty lines and those that begin with # are left out. NULL and *why (static) where
 * it is not like that. */
struct tls_tickets *tls_tickets_of_text(struct slice text, const char **why);
void tls_tickets_free(struct tls_tickets *t); /* NULL is fine */
/* The key that makes tickets now; NULL where there is none. */
const struct ticket_key *tls_tickets_newest(const struct tls_tickets *t);
/* The key of that name; NULL where it is not, or not any more, among those that take tickets. */
const struct ticket_key *tls_tickets_find(const struct tls_tickets *t,
                                          const unsigned char name[TICKET_NAME]);
/* Makes connections of c use them; t is borrowed and outlives c. */
void tls_tickets_use(SSL_CTX *c, struct tls_tickets *t);

#endif
