/* What went wrong with TLS, as one sentence for people and a kind for programs. The sentence never
 * holds bytes of keys; names out of certificates are printed with what is not printable escaped. */
#ifndef TOLLGATE_TLS_FAULT_H
#define TOLLGATE_TLS_FAULT_H

#include <openssl/ssl.h>

enum tls_fault_kind {
    TLS_FAULT_NONE,
    TLS_FAULT_CERTIFICATE, /* the peer's certificate is not accepted */
    TLS_FAULT_REFUSED,     /* the peer sent an alert */
    TLS_FAULT_HTTP,        /* a plain HTTP request came instead of TLS */
    TLS_FAULT_NOT_TLS,     /* something else came instead of TLS */
    TLS_FAULT_CUT,         /* the connection ended without TLS's own end */
    TLS_FAULT_PROTOCOL     /* anything else: no version or cipher in common, damaged records */
};

struct tls_fault {
    enum tls_fault_kind kind;
    char text[320];
};

/* Of a certificate that did not pass, from inside OpenSSL's verify callback. `name` is who was
 * asked for; NULL where the peer is a client. */
void tls_fault_of_chain(struct tls_fault *f, X509_STORE_CTX *chain, const char *name);
/* Of an operation on a connection that failed, from OpenSSL's error queue, which it empties. Keeps
 * a fault that is told already. */
void tls_fault_of_queue(struct tls_fault *f);
/* Why OpenSSL refused an argument (a certificate, a key): its last words; empties the queue. */
void tls_fault_last_words(char *out, size_t size);

#endif
