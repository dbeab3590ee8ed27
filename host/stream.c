/* See stream.h: life, reading and ends. The object lives until libuv has closed its handle;
 * `closed` says that its owner has gone, and from then on no callback leaves these files. */
#include <errno.h>
#include <netinet/tcp.h>
#include <poll.h>

#include "container.h"
#include "mem.h"
#include "stream_internal.h"

enum { STREAM_LOOK_MS = 1000 };

static void on_report(struct deferred *d);
static void on_deadline(struct timer *t);

struct stream *stream_new(struct loop *l, bool unix_socket)
{
    struct stream *s = mem_zalloc(sizeof *s);
    s->loop = l;
    s->report.run = on_report;
    s->wake.run = stream_on_wake;
    s->deadline.cb = on_deadline;
    buf_init(&s->held);
    if (unix_socket)
        uv_pipe_init(&l->uv, &s->u.pipe, 0);
    else
        uv_tcp_init(&l->uv, &s->u.tcp);
    s->u.handle.data = s;
    s->connect.data = s;
    return s;
}

static void on_closed(uv_handle_t *h)
{
    struct stream *s = h->data;
    stream_secure_deinit(s);
    mem_free(s);
}

/* The owner goes: no callback leaves these files any more. */
static bool leave(struct stream *s)
{
    if (s->closed)
        return false;
    s->closed = true;
    loop_undefer(s->loop, &s->report);
    loop_undefer(s->loop, &s->wake);
    timer_deinit(s->loop, &s->deadline);
    return true;
}

void stream_close(struct stream *s)
{
    if (leave(s))
        uv_close(&s->u.handle, on_closed);
}

void stream_reset(struct stream *s)
{
    if (!leave(s))
        return;
    if (s->u.handle.type != UV_TCP || uv_tcp_close_reset(&s->u.tcp, on_closed) != 0)
        uv_close(&s->u.handle, on_closed);
}

/* --- failure and end --- */

void stream_fail_later(struct stream *s, int err)
{
    if (s->failure == 0)
        s->failure = err;
    loop_defer(s->loop, &s->report, LOOP_COLLECT);
}

void stream_end(struct stream *s, int err)
{
    if (s->closed || s->failed || (s->ended && err == 0))
        return;
    s->ended = true;
    s->failed = err != 0;
    stream_pause(s);
    if (s->events != NULL)
        s->events->on_end(s->arg, err);
}

bool stream_tell_ready(struct stream *s, int err)
{
    void (*cb)(void *, int) = s->on_ready;
    if (cb == NULL)
        return false;
    s->on_ready = NULL;
    timer_stop(&s->deadline);
    if (s->tls != NULL)
        stream_secure_settle(s, err);
    cb(s->arg, err);
    return true;
}

static void on_report(struct deferred *d)
{
    struct stream *s = CONTAINER(d, struct stream, report);
    if (!stream_tell_ready(s, s->failure))
        stream_end(s, s->failure);
}

/* libuv polls nothing while reading is paused, so that neither an end nor a reset is told: the
 * kernel is asked. */
static void look(struct stream *s)
{
    struct tcp_info info;
    socklen_t size = sizeof info;
    uv_os_fd_t fd;
    timer_set(s->loop, &s->deadline, STREAM_LOOK_MS);
    if (uv_fileno(&s->u.handle, &fd) != 0)
        return;
    if (s->u.handle.type != UV_TCP) { /* a Unix socket knows no reset before it is read */
        struct pollfd p = { .fd = fd, .events = POLLRDHUP };
        if (poll(&p, 1, 0) > 0 && (p.revents & (POLLRDHUP | POLLHUP)) != 0)
            s->on_left(s->arg, 0);
        return;
    }
    if (getsockopt(fd, IPPROTO_TCP, TCP_INFO, &info, &size) != 0)
        return;
    if (info.tcpi_state == TCP_CLOSE || info.tcpi_state == TCP_CLOSE_WAIT)
        s->on_left(s->arg, info.tcpi_state == TCP_CLOSE ? UV_ECONNRESET : 0);
}

static void on_deadline(struct timer *t)
{
    struct stream *s = CONTAINER(t, struct stream, deadline);
    if (s->finishing)
        stream_close(s);
    else if (s->on_ready != NULL)
        stream_fail_later(s, UV_ETIMEDOUT);
    else if (s->connected)
        look(s);
}

/* --- reading --- */

static void on_alloc(uv_handle_t *h, size_t hint, uv_buf_t *out)
{
    struct stream *s = h->data;
    (void)hint;
    out->base = s->loop->read_buf;
    out->len = LOOP_READ_SIZE;
}

/* libuv tells an end also where the last bytes and a reset came in one turn; the reset is pending
 * at the socket then. (EPIPE: one that came behind a proper end.) */
static int end_of(struct stream *s)
{
    int err = 0;
    socklen_t size = sizeof err;
    uv_os_fd_t fd;
    if (uv_fileno(&s->u.handle, &fd) != 0 || getsockopt(fd, SOL_SOCKET, SO_ERROR, &err, &size) != 0)
        return 0;
    return err == 0 || err == EPIPE ? 0 : uv_translate_sys_error(err);
}

/* Of what comes behind stream_finish nothing is looked at. */
static void on_read(uv_stream_t *h, ssize_t n, const uv_buf_t *bytes)
{
    struct stream *s = h->data;
    bool secure = s->tls != NULL && !s->finishing;
    if (s->closed || n == 0)
        return;
    if (n > 0 && secure) {
        stream_secure_take(s, (struct slice){ bytes->base, (size_t)n });
    } else if (n > 0) {
        s->events->on_read(s->arg, bytes->base, (size_t)n);
    } else {
        int err = n == UV_EOF ? end_of(s) : (int)n;
        if (secure)
            stream_secure_ended(s, err);
        else
            stream_end(s, err);
    }
}

void stream_poll_start(struct stream *s)
{
    if (s->polling || s->closed)
        return;
    int err = uv_read_start(&s->u.stream, on_alloc, on_read);
    if (err != 0)
        stream_fail_later(s, err);
    s->polling = err == 0;
}

void stream_poll_stop(struct stream *s)
{
    if (s->polling)
        uv_read_stop(&s->u.stream);
    s->polling = false;
}

void stream_start(struct stream *s, const struct stream_events *events, void *arg)
{
    s->events = events;
    s->arg = arg;
    stream_resume(s);
}

void stream_pause(struct stream *s)
{
    if (!s->reading)
        return;
    stream_poll_stop(s);
    s->reading = false;
    if (!s->ended && s->on_left != NULL)
        timer_set(s->loop, &s->deadline, STREAM_LOOK_MS);
}

void stream_resume(struct stream *s)
{
    if (s->reading || s->ended || s->failure != 0)
        return;
    if (!s->finishing)
        timer_stop(&s->deadline);
    s->reading = true;
    if (s->tls != NULL && !s->finishing)
        stream_secure_resume(s);
    else
        stream_poll_start(s);
}

void stream_watch_left(struct stream *s, void (*on_left)(void *arg, int err))
{
    s->on_left = on_left;
}

/* --- the peer --- */

const char *stream_peer(const struct stream *s)
{
    return s->peer;
}

int stream_peer_port(const struct stream *s)
{
    return s->port;
}

void stream_set_peer(struct stream *s, const char *address, int port)
{
    snprintf(s->peer, sizeof s->peer, "%s", address);
    s->port = port;
}
