/* What the files of stream share: stream.c (life, reading, ends), stream_dial.c (dialing and
 * accepting), stream_write.c (writing, the polite end), stream_secure.c (TLS between the socket and
 * the owner). */
#ifndef TOLLGATE_STREAM_INTERNAL_H
#define TOLLGATE_STREAM_INTERNAL_H

#include "buf.h"
#include "stream.h"

enum { STREAM_MAX_SLICES = 8 };

struct stream {
    union {
        uv_handle_t handle;
        uv_stream_t stream;
        uv_tcp_t tcp;
        uv_pipe_t pipe;
    } u;
    struct loop *loop;
    const struct stream_events *events;
    void *arg;
    void (*on_ready)(void *arg, int err); /* who waits for dialing or securing */
    void (*on_left)(void *arg, int err);
    uv_connect_t connect;
    struct timer deadline;  /* of dialing or securing, then for a look at a paused peer, then of
                               stream_finish */
    struct deferred report; /* tells a failure after the call that met it */
    int failure;
    uint64_t written; /* bytes given to libuv */
    size_t queued;
    bool reading; /* the owner wants bytes */
    bool polling; /* libuv reads */
    bool connected, ended, failed, finishing, shut, closed;
    bool shutting; /* stream_shut waits for what is queued */
    int port;
    char peer[64];

    struct tls *tls;         /* NULL: plain */
    struct tls_fault *fault; /* what went wrong with TLS, or NULL */
    struct buf held;         /* of the peer, not decrypted yet since the owner paused */
    struct deferred wake;    /* goes on with what is held */
    size_t replies;          /* bytes that TLS itself had to say since the socket took all */
    bool taking;             /* stream_secure_take is on the stack */
};

/* stream.c */
struct stream *stream_new(struct loop *l, bool unix_socket);
/* Tells a failure at the end of this turn. */
void stream_fail_later(struct stream *s, int err);
/* Tells the end, 0 or a failure, now. */
void stream_end(struct stream *s, int err);
/* Calls who waits for dialing or securing. False where nobody does. */
bool stream_tell_ready(struct stream *s, int err);
void stream_poll_start(struct stream *s);
void stream_poll_stop(struct stream *s);

/* stream_write.c */
/* Writes bytes as they are. */
void stream_put(struct stream *s, const struct slice *v, unsigned n);

/* stream_secure.c */
/* What came from the socket: decrypted and handed on. */
void stream_secure_take(struct stream *s, struct slice bytes);
/* The socket has ended: 0, or why. */
void stream_secure_ended(struct stream *s, int err);
/* The handshake is over; where it failed, the stream is plain again. */
void stream_secure_settle(struct stream *s, int err);
void stream_secure_resume(struct stream *s);
void stream_secure_write(struct stream *s, const struct slice *v, unsigned n);
void stream_secure_bye(struct stream *s);
void stream_secure_deinit(struct stream *s);
void stream_on_wake(struct deferred *d);

#endif
