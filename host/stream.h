/* One byte stream over TCP or a Unix socket: the only way the host talks to a peer. Reads come from
 * the loop's shared buffer; writes go to the socket at once as far as it takes them, the rest is
 * copied and queued. No callback runs before the call that started it has returned, and none runs
 * after stream_close. */
#ifndef TOLLGATE_STREAM_H
#define TOLLGATE_STREAM_H

#include "address.h"
#include "loop.h"
#include "slice.h"

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
/* Bytes that were written by the caller and not taken by the socket yet. */
size_t stream_queued(const struct stream *s);
/* Bytes that the peer has taken so far; to tell a slow one from one that takes nothing. */
uint64_t stream_sent(const struct stream *s);

/* Ends: closes once what is queued has been written, or after `linger_ms`; the peer's further bytes
 * are read and dropped until it closes too, so that no reset overtakes the answer (RFC 9112,
 * section 9.6). */
void stream_finish(struct stream *s, uint64_t linger_ms);
/* Ends at once; s is gone for the caller. */
void stream_close(struct stream *s);
/* Ends at once with a reset where the transport has one. */
void stream_reset(struct stream *s);

/* The peer's address as text without port ("" for a Unix socket), and its port. */
const char *stream_peer(const struct stream *s);
int stream_peer_port(const struct stream *s);

#endif
