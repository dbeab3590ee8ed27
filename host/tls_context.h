/* What connections are secured with: versions, certificates, who is trusted. Shared by all
 * connections that are made with it, and gone with the last of them.
 *
 * TLS 1.2 and 1.3 only, no renegotiation, no compression. Client contexts of the same options are
 * one and the same object, so that whoever compares pointers compares options. */
#ifndef TOLLGATE_TLS_CONTEXT_H
#define TOLLGATE_TLS_CONTEXT_H

#include <openssl/ssl.h>
#include <stdbool.h>

#include "slice.h"
#include "tls_pem.h"

struct tls_context;

/* PEM text; p is NULL where there is none. */
struct tls_client_options {
    struct slice ca;        /* who is trusted; none: the system's authorities */
    struct slice cert, key; /* our own certificate, for origins that ask for one */
    bool insecure;          /* any certificate will do */
    bool http;              /* says by ALPN that it will speak http/1.1 */
};

/* A reference, or NULL and *f. The text is not kept. */
struct tls_context *tls_client_context(const struct tls_client_options *o, struct tls_pem_fault *f);
/* Takes ownership of a server's context and sets on it what all connections here need: the least
 * version, no renegotiation, modes. The rest (certificates, SNI, tickets) is the caller's. */
struct tls_context *tls_server_context(SSL_CTX *c);
struct tls_context *tls_context_ref(struct tls_context *c);
void tls_context_unref(struct tls_context *c); /* NULL is fine */

SSL_CTX *tls_context_ssl(const struct tls_context *c);
bool tls_context_is_server(const struct tls_context *c);
bool tls_context_verifies(const struct tls_context *c);

#endif
