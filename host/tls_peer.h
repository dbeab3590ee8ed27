/* What is to be known of a connection that a client has secured, once its handshake is complete:
 * for the access log and for plugins. It lives as long as somebody holds it: a request's log phase
 * may outlive the connection. */
#ifndef TOLLGATE_TLS_PEER_H
#define TOLLGATE_TLS_PEER_H

#include <openssl/ssl.h>
#include <stdbool.h>
#include <stdint.h>

enum { TLS_PEER_NAMES_MAX = 64 };

/* Of a client's certificate that was verified. Text is UTF-8, RFC 4514; control characters are
 * escaped. */
struct tls_peer_certificate {
    const char *subject, *issuer;
    const char *serial;      /* hexadecimal, upper case */
    const char *fingerprint; /* SHA-256 of the certificate, hexadecimal, lower case */
    const char **names;      /* "DNS:a.test", "URI:spiffe://…", "email:…", "IP:…" */
    uint32_t nnames;         /* TLS_PEER_NAMES_MAX at most */
};

struct tls_peer {
    const char *version; /* "1.2", "1.3"; static */
    const char *cipher;  /* IANA's name; static */
    const char *sni;     /* what the client asked for; NULL: nothing */
    bool resumed;
    const struct tls_peer_certificate *certificate; /* NULL: it came without one */
};

/* Of a complete handshake. One reference. */
struct tls_peer *tls_peer_new(SSL *ssl);
struct tls_peer *tls_peer_ref(struct tls_peer *p); /* NULL is fine */
void tls_peer_unref(struct tls_peer *p);           /* likewise */

#endif
