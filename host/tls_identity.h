/* A certificate with its key and what leads to its issuer. Whoever has the same bytes has the same
 * object: to decode a key takes OpenSSL about a millisecond, so a reload of a thousand certificates
 * costs a worker only those that have changed. */
#ifndef TOLLGATE_TLS_IDENTITY_H
#define TOLLGATE_TLS_IDENTITY_H

#include <stdint.h>

#include "tls_pem.h"

struct tls_identity {
    X509 *cert;
    EVP_PKEY *key;
    STACK_OF(X509) * chain; /* NULL: none */
    int kind;               /* of its key, as EVP_PKEY_get_base_id says */
    int64_t from, to;       /* when it is valid, in s since the epoch */
};

/* A reference, or NULL and *f. The text is not kept. `reader` is any context, which is used up by
 * it: to make one is slow, so callers with many certificates bring the same. */
struct tls_identity *tls_identity_get(SSL_CTX *reader, struct slice cert, struct slice key,
                                      struct tls_pem_fault *f);
void tls_identity_unref(struct tls_identity *i); /* NULL is fine */

#endif
