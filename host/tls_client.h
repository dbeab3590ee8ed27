/* What a configuration or a plugin says of TLS with a server: files by name, read from the snapshot
 * of the configuration, or once from the disk where it does not hold them. */
#ifndef TOLLGATE_TLS_CLIENT_H
#define TOLLGATE_TLS_CLIENT_H

#include "snapshot.h"
#include "tls_context.h"

/* Whom TLS is spoken with. */
struct tls_remote {
    struct tls_context *context; /* whose reference it is, its place says; NULL: the default */
    struct slice name;           /* whose certificate it must show; p == NULL: the URL's host */
};

struct tls_client {
    const char *ca, *cert, *key; /* paths, or NULL */
    bool insecure;               /* any certificate will do */
    bool http;
};

/* A context, which is the same object for the same bytes. snapshot may be NULL: the disk. NULL, and
 * *f, where a file cannot be read or used: key "ca", "cert" or "key", and a sentence that names the
 * file. */
struct tls_context *tls_client_load(const struct tls_client *c, struct snapshot *snapshot,
                                    struct tls_pem_fault *f);

#endif
