/* A server's certificates, found by the name that a client asks for. Several for the same names, by
 * different kinds of keys, go together, and the client takes what it can. */
#ifndef TOLLGATE_TLS_STORE_H
#define TOLLGATE_TLS_STORE_H

#include <stdbool.h>
#include <stdint.h>

#include "buf.h"
#include "tls_pem.h"

struct tls_store;

struct tls_certificate {
    const char *path;       /* where it stands in the configuration, for faults */
    struct slice cert, key; /* PEM */
    const char **names;     /* that it serves; none: those in it */
    uint32_t nnames;
};

enum { TLS_STORE_SOON_DAYS = 14 }; /* that one is good for less is warned of */

/* NULL with faults, one a line, each behind the path of its key. With valid_now what has expired,
 * or is not valid yet, is a fault, and what will expire soon is a warning. Nothing given is kept.
 */
struct tls_store *tls_store_new(const struct tls_certificate *given, uint32_t n, bool valid_now,
                                struct buf *faults, struct buf *warnings);
void tls_store_free(struct tls_store *s); /* NULL is fine */
/* When the first of them expires, in s since the epoch. */
int64_t tls_store_expires(const struct tls_store *s);
/* Which one is of the name that the client asks for; -1: none. */
int tls_store_find(const struct tls_store *s, SSL *ssl);
/* Gives a context the first one, so that most connections need not be given any: OpenSSL compares
 * certificate and key each time. 1, or 0: it cannot be used. */
int tls_store_set_first(const struct tls_store *s, SSL_CTX *c);
/* Gives the connection the certificate of that name, unless it is the first one, which its context
 * has. 1, or 0: it cannot be used (as OpenSSL's callbacks want it). */
int tls_store_use(const struct tls_store *s, SSL *ssl);

#endif
