/* One end of a TLS connection in memory: it knows no socket. Bytes of the peer are lent to it, what
 * is to be sent is appended to a buffer of the caller's; nothing is copied in between but by
 * OpenSSL itself. It holds at most one record of the peer's (16 KB).
 *
 * A session that a server gives is remembered where the next connection to the same peer finds it.
 */
#ifndef TOLLGATE_TLS_H
#define TOLLGATE_TLS_H

#include "buf.h"
#include "tls_context.h"
#include "tls_fault.h"

struct tls;

/* The newest session with one peer, shared by the connections to it. */
struct tls_session;
struct tls_session *tls_session_new(void);
void tls_session_unref(struct tls_session *s); /* the maker's reference; NULL is fine */

enum tls_result {
    TLS_DONE, /* the handshake is complete; bytes were read */
    TLS_MORE, /* what came has been used up; more is needed */
    TLS_END,  /* the peer said that it sends no more */
    TLS_FAILED
};

enum {
    TLS_OUT_MAX = 131072
}; /* bytes; an output buffer is not filled further than a record above */

/* A client of `name` (SNI, and what its certificate must be for: a host's name or an IP address),
 * or a server (NULL). References to context and session are taken; session may be NULL. */
struct tls *tls_new(struct tls_context *c, const char *name, struct tls_session *session);
void tls_free(struct tls *t); /* NULL is fine */

/* Lends bytes that the peer sent, in place of those lent before; borrowed until the next call of
 * this. tls_unread says how many at their end were not looked at yet. */
void tls_feed(struct tls *t, struct slice bytes);
size_t tls_unread(const struct tls *t);
/* Whether tls_read may give more (bytes, an end, a failure) without more from the peer. */
bool tls_pending(const struct tls *t);

/* Goes on with the handshake: TLS_DONE, TLS_MORE or TLS_FAILED. */
enum tls_result tls_handshake(struct tls *t, struct buf *out);
/* Up to `size` bytes into `to`, *n of them; anything but TLS_END and TLS_FAILED comes with *n. What
 * TLS has to say in answer (key updates, alerts) is added to out. */
enum tls_result tls_read(struct tls *t, char *to, size_t size, size_t *n, struct buf *out);

/* What is to be sent: slices, and how far they are done. */
struct tls_source {
    const struct slice *v;
    unsigned n;
    size_t done; /* bytes of the first slice */
};
/* Encrypts as much as goes into out (TLS_OUT_MAX), small slices together in one record. TLS_DONE
 * when all of it is in out, TLS_MORE when out has to be emptied first, or TLS_FAILED. */
enum tls_result tls_write(struct tls *t, struct tls_source *from, struct buf *out);
/* Says that nothing more will be sent. */
void tls_bye(struct tls *t, struct buf *out);

/* Why it failed. */
const struct tls_fault *tls_fault_of(const struct tls *t);
/* Whether the handshake is complete, and was an abbreviated one. */
bool tls_established(const struct tls *t);
bool tls_resumed(const struct tls *t);
/* For what is to be known of a connection: version, cipher, names, certificates. */
SSL *tls_ssl(const struct tls *t);

#endif
