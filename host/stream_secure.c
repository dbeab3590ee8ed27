/* See stream.h: TLS between the socket and the owner. What libuv has read is decrypted into the
 * loop's second buffer and handed on, all of it in one call where the owner does not pause. What
 * the owner does not want now stays encrypted in `held`: at most one read, since libuv is not asked
 * for more.
 *
 * What TLS itself says (handshake, key updates, alerts) goes out when it comes up. A peer that
 * makes it talk and never reads would make the queue grow: beyond STREAM_REPLIES_MAX it is dropped.
 */
#include "container.h"
#include "mem.h"
#include "stream_internal.h"

enum { STREAM_REPLIES_MAX = 65536 }; /* bytes */

/* --- out --- */

static struct buf *out_of(struct stream *s)
{
    return &s->loop->tls_out;
}

static void put_out(struct stream *s)
{
    struct slice bytes = buf_slice(out_of(s));
    if (bytes.n > 0 && s->failure == 0)
        stream_put(s, &bytes, 1);
    buf_clear(out_of(s));
}

/* What TLS said unasked. False where the peer lets too much of it pile up. */
static bool put_replies(struct stream *s)
{
    size_t n = out_of(s)->n;
    if (n == 0)
        return true;
    put_out(s);
    s->replies = s->queued > 0 ? s->replies + n : 0;
    return s->replies <= STREAM_REPLIES_MAX;
}

static void remember_fault(struct stream *s, const struct tls_fault *f)
{
    if (s->fault == NULL)
        s->fault = mem_alloc(sizeof *s->fault);
    *s->fault = *f;
}

static void remember_cut(struct stream *s, const char *text)
{
    struct tls_fault f = { .kind = TLS_FAULT_CUT };
    snprintf(f.text, sizeof f.text, "%s", text);
    remember_fault(s, &f);
}

void stream_secure_write(struct stream *s, const struct slice *v, unsigned n)
{
    struct tls_source from = { v, n, 0 };
    enum tls_result r;
    do {
        r = tls_write(s->tls, &from, out_of(s));
        put_out(s);
    } while (r == TLS_MORE && s->failure == 0);
    if (r == TLS_FAILED && s->failure == 0) {
        remember_fault(s, tls_fault_of(s->tls));
        stream_fail_later(s, UV_EPROTO);
    }
}

void stream_secure_bye(struct stream *s)
{
    tls_bye(s->tls, out_of(s));
    put_out(s);
}

/* --- the handshake --- */

/* libuv is not told to stop where the owner is about to go on: stream_secure_take sees to that. */
void stream_secure_settle(struct stream *s, int err)
{
    s->reading = false;
    if (err == 0 && s->taking)
        return;
    stream_poll_stop(s);
    if (err == 0)
        return;
    loop_undefer(s->loop, &s->wake);
    tls_free(s->tls);
    s->tls = NULL;
    buf_deinit(&s->held);
}

/* False where there is nothing to go on with. */
static bool shake(struct stream *s)
{
    enum tls_result r = tls_handshake(s->tls, out_of(s));
    bool fine = put_replies(s);
    if (r == TLS_MORE && fine)
        return false;
    if (r == TLS_DONE) {
        stream_tell_ready(s, 0);
        return !s->closed;
    }
    remember_fault(s, tls_fault_of(s->tls));
    stream_tell_ready(s, UV_EPROTO);
    return false;
}

/* --- in --- */

/* Decrypts into the loop's buffer and hands it on. False where there is nothing to go on with. */
static bool pass_on(struct stream *s)
{
    size_t n = 0;
    enum tls_result r = tls_read(s->tls, s->loop->tls_in, LOOP_READ_SIZE, &n, out_of(s));
    bool fine = put_replies(s);
    if (n > 0)
        s->events->on_read(s->arg, s->loop->tls_in, n);
    if (s->closed || s->finishing || s->failed)
        return false;
    if (!fine) {
        remember_cut(s, "it asked for too many TLS messages and read none");
        stream_end(s, UV_EPROTO);
    } else if (r == TLS_FAILED) {
        remember_fault(s, tls_fault_of(s->tls));
        stream_end(s, UV_EPROTO);
    } else if (r == TLS_END) {
        stream_end(s, 0);
    }
    return r == TLS_DONE && fine;
}

void stream_secure_take(struct stream *s, struct slice bytes)
{
    bool more = true;
    if (s->held.n > 0) { /* it comes first */
        buf_add_slice(&s->held, bytes);
        return;
    }
    s->taking = true;
    tls_feed(s->tls, bytes);
    while (more && s->tls != NULL)
        more = s->on_ready != NULL ? shake(s) : s->reading && pass_on(s);
    s->taking = false;
    if (s->closed || s->tls == NULL || s->finishing)
        return;
    size_t rest = tls_unread(s->tls);
    buf_add(&s->held, bytes.p + bytes.n - rest, s->ended ? 0 : rest);
    tls_feed(s->tls, (struct slice){ NULL, 0 });
    if (s->reading || s->on_ready != NULL)
        stream_poll_start(s);
    else
        stream_poll_stop(s);
}

void stream_on_wake(struct deferred *d)
{
    struct stream *s = CONTAINER(d, struct stream, wake);
    struct buf held = s->held;
    buf_init(&s->held);
    stream_secure_take(s, buf_slice(&held));
    buf_deinit(&held);
}

void stream_secure_resume(struct stream *s)
{
    if (s->taking)
        return;
    if (s->held.n > 0 || tls_pending(s->tls))
        loop_defer(s->loop, &s->wake, LOOP_COLLECT);
    else
        stream_poll_start(s);
}

void stream_secure_ended(struct stream *s, int err)
{
    if (s->on_ready != NULL) {
        remember_cut(s, "it closed the connection in the middle of the TLS handshake");
        stream_tell_ready(s, err != 0 ? err : UV_EOF);
        return;
    }
    if (err == 0) {
        remember_cut(s, "it closed the connection without ending TLS: something may be missing");
        err = UV_ECONNABORTED;
    }
    stream_end(s, err);
}

/* --- from plain to secure --- */

void stream_secure(struct stream *s, const struct stream_tls *how, uint64_t timeout_ms,
                   void (*on_secure)(void *arg, int err), void *arg)
{
    if (s->loop->tls_in == NULL)
        s->loop->tls_in = mem_alloc(LOOP_READ_SIZE);
    s->reading = false;
    s->tls = tls_new(how->context, how->name, how->session);
    s->events = NULL;
    s->on_ready = on_secure;
    s->arg = arg;
    timer_set(s->loop, &s->deadline, timeout_ms);
    buf_add_slice(&s->held, how->early);
    if (s->failure != 0)
        stream_fail_later(s, s->failure);
    else if (how->name != NULL || how->early.n > 0)
        loop_defer(s->loop, &s->wake, LOOP_COLLECT);
    else
        stream_poll_start(s); /* a client speaks first */
}

const struct tls *stream_tls(const struct stream *s)
{
    return s->on_ready == NULL ? s->tls : NULL;
}

const struct tls_fault *stream_fault(const struct stream *s)
{
    return s->fault;
}

void stream_secure_deinit(struct stream *s)
{
    tls_free(s->tls);
    mem_free(s->fault);
    buf_deinit(&s->held);
}
