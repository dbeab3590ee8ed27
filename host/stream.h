/* One byte stream over TCP or a Unix socket, plain or with TLS: the only way the host talks to a
 * peer. Reads come from the loop's shared buffers; writes go to the socket at once as far as it
 * takes them, the rest is copied and queued. No callback runs before the call that started it has
 * returned, and none runs after stream_close.
 *
 * With TLS all of this holds for what is inside it. A peer that ends the connection without having
 * said so inside TLS (close_notify) may have been cut off by somebody on the way: that is no end
 * but a failure, UV_ECONNABORTED. Other failures of TLS are UV_EPROTO; stream_fault says what it
 * is. */
#ifndef TOLLGATE_STREAM_H
#define TOLLGATE_STREAM_H

#include "address.h"
#include "loop.h"
#include "slice.h"
#include "tls.h"

struct stream;

struct stream_events {
    /* Bytes arrived; borrowed until it returns. It may close the stream. */
    void (*on_read)(void *arg, const char *bytes, size_t n);
    /* The peer sends no more: 0 at its end, else a UV_E* of a failed read or write. A failure may
     * still follow an end; nothing follows a failure. The stream is still to be closed. */
    void (*on_end)(void *arg, int err);
    /* All that was queued has been written. May be NULL. */
    void (*on_drain)(void *arg);
};

/* Accepts from a listening handle (a uv_tcp_t or uv_pipe_t). NULL and *err where that fails. */
struct stream *stream_accept(struct loop *l, uv_stream_t *listener, int *err);
/* Dials. on_connect is called once: 0 and the stream is connected, or UV_E* (UV_ETIMEDOUT after
 * timeout_ms) and the stream is to be closed. stream_close before that cancels without a call. */
struct stream *stream_dial(struct loop *l, const struct address *to, uint64_t timeout_ms,
                           void (*on_connect)(void *arg, int err), void *arg);

/* Whom to speak TLS with. */
struct stream_tls {
    struct tls_context *context; /* of a client or of a server */
    const char *name;            /* client: whose certificate it must be; copied */
    struct tls_session *session; /* client: what is remembered of the peer; may be NULL */
    struct slice early;          /* bytes of the peer that were read already; copied */
};
/* Begins TLS on a stream that is connected, on which nothing is read at the time. on_secure is
 * called once: 0, and stream_start may follow; UV_EPROTO (see stream_fault); UV_ETIMEDOUT after
 * timeout_ms; UV_EOF where the peer left in the middle; or what the socket said. After a failure
 * the stream is plain again (a client that spoke plain HTTP can be told), the peer has its alert,
 * and the stream is to be finished or closed. stream_close before that cancels without a call. */
void stream_secure(struct stream *s, const struct stream_tls *how, uint64_t timeout_ms,
                   void (*on_secure)(void *arg, int err), void *arg);
/* The TLS of a stream that is secured; NULL: none. */
const struct tls *stream_tls(const struct stream *s);
/* What went wrong with TLS, NULL where nothing has; valid until stream_close. */
const struct tls_fault *stream_fault(const struct stream *s);

/* Starts reading. May be called again to give the stream to another owner. */
void stream_start(struct stream *s, const struct stream_events *events, void *arg);
/* Stops and goes on reading; both may be called at any time. */
void stream_pause(struct stream *s);
void stream_resume(struct stream *s);

/* Asks to hear within a second or so, while reading is paused, that the peer has sent its end (0;
 * bytes before it are unread still) or a reset (UV_ECONNRESET). May come again. */
void stream_watch_left(struct stream *s, void (*on_left)(void *arg, int err));

/* Writes; the bytes are borrowed for the call only. A failure is told by on_end. */
void stream_write(struct stream *s, struct slice bytes);
void stream_writev(struct stream *s, const struct slice *bytes, unsigned n);
/* Bytes that were written and not taken by the socket yet; with TLS, what they became. */
size_t stream_queued(const struct stream *s);
/* Bytes that the peer has taken so far; to tell a slow one from one that takes nothing. */
uint64_t stream_sent(const struct stream *s);

/* Says the end once what was written has been taken; reading goes on. Nothing may be written behind
 * it. */
void stream_shut(struct stream *s);

/* Ends: closes once what is queued has been written, or after `linger_ms`; the peer's further bytes
 * are read and dropped until it closes too, so that no reset overtakes the answer (RFC 9112,
 * section 9.6). */
void stream_finish(struct stream *s, uint64_t linger_ms);
/* Ends at once; s is gone for the caller. Nothing is said inside TLS: what was cut off shows as
 * that. */
void stream_close(struct stream *s);
/* The same between two messages, where nothing is cut off: inside TLS it is said. */
void stream_leave(struct stream *s);
/* Ends at once with a reset where the transport has one. */
void stream_reset(struct stream *s);

/* The peer's address as text without port ("" for a Unix socket), and its port. */
const char *stream_peer(const struct stream *s);
int stream_peer_port(const struct stream *s);
/* Somebody else stands behind the peer, as the peer says. */
void stream_set_peer(struct stream *s, const char *address, int port);

#endif
