/* Certificates and keys out of PEM text. What cannot be used is refused with a sentence that fits
 * behind the key of the configuration it belongs to; neither it nor anything else shows the bytes
 * of a key. */
#ifndef TOLLGATE_TLS_PEM_H
#define TOLLGATE_TLS_PEM_H

#include <openssl/ssl.h>

#include "slice.h"

struct tls_pem_fault {
    const char *key; /* "ca", "cert" or "key"; static */
    char text[256];
};

/* The certificate (the first in `cert`; the rest are its issuers) and its key. 0, or -1. */
int tls_pem_identity(SSL_CTX *c, struct slice cert, struct slice key, struct tls_pem_fault *f);
/* The first certificate in a text, owned by the caller, or NULL. */
X509 *tls_pem_first(struct slice cert, struct tls_pem_fault *f);
/* Adds all certificates as trusted. Revocation lists in the text are checked too, for the whole
 * chain, from the first one on. 0, or -1. */
int tls_pem_trust(X509_STORE *store, struct slice ca, struct tls_pem_fault *f);

#endif
