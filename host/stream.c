/* See stream.h. The object lives until libuv has closed its handle; `closed` says that its owner
 * has gone, and from then on no callback leaves this file. */
#include "stream.h"

#include <arpa/inet.h>
#include <errno.h>
#include <linux/sockios.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <sys/ioctl.h>

#include "buf.h"
#include "container.h"
#include "mem.h"

enum { STREAM_MAX_SLICES = 8, STREAM_LOOK_MS = 1000 };

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
    void (*on_connect)(void *arg, int err);
    void (*on_left)(void *arg, int err);
    uv_connect_t connect;
    struct timer deadline; /* of dialing, then for a look at a paused peer, then of stream_finish */
    struct deferred report; /* tells a failure after the call that met it */
    int failure;
    uint64_t written; /* bytes given to libuv */
    size_t queued;
    bool reading, connected, ended, failed, finishing, shut, closed;
    int port;
    char peer[64];
};

struct write {
    uv_write_t req;
    size_t n;
    char bytes[];
};

static void on_report(struct deferred *d);
static void on_deadline(struct timer *t);

static struct stream *stream_new(struct loop *l, bool unix_socket)
{
    struct stream *s = mem_zalloc(sizeof *s);
    s->loop = l;
    s->report.run = on_report;
    s->deadline.cb = on_deadline;
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
    mem_free(s);
}

/* The owner goes: no callback leaves this file any more. */
static bool leave(struct stream *s)
{
    if (s->closed)
        return false;
    s->closed = true;
    loop_undefer(s->loop, &s->report);
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

static void fail_later(struct stream *s, int err)
{
    if (s->failure == 0)
        s->failure = err;
    loop_defer(s->loop, &s->report, LOOP_COLLECT);
}

static void end(struct stream *s, int err)
{
    if (s->closed || s->failed || (s->ended && err == 0))
        return;
    s->ended = true;
    s->failed = err != 0;
    stream_pause(s);
    if (s->events != NULL)
        s->events->on_end(s->arg, err);
}

static void on_report(struct deferred *d)
{
    struct stream *s = CONTAINER(d, struct stream, report);
    if (!s->connected && s->on_connect != NULL) {
        void (*cb)(void *, int) = s->on_connect;
        s->on_connect = NULL;
        timer_stop(&s->deadline);
        cb(s->arg, s->failure);
        return;
    }
    end(s, s->failure);
}

/* --- dialing and accepting --- */

static void remember_peer(struct stream *s)
{
    struct sockaddr_storage ss;
    int n = sizeof ss;
    if (s->u.handle.type != UV_TCP ||
        uv_tcp_getpeername(&s->u.tcp, (struct sockaddr *)&ss, &n) != 0)
        return;
    if (ss.ss_family == AF_INET6) {
        const struct sockaddr_in6 *a = (const struct sockaddr_in6 *)&ss;
        s->port = ntohs(a->sin6_port);
        if (IN6_IS_ADDR_V4MAPPED(&a->sin6_addr))
            inet_ntop(AF_INET, &a->sin6_addr.s6_addr[12], s->peer, sizeof s->peer);
        else
            uv_ip6_name(a, s->peer, sizeof s->peer);
    } else {
        s->port = ntohs(((const struct sockaddr_in *)&ss)->sin_port);
        uv_ip4_name((const struct sockaddr_in *)&ss, s->peer, sizeof s->peer);
    }
}

struct stream *stream_accept(struct loop *l, uv_stream_t *listener, int *err)
{
    struct stream *s = stream_new(l, listener->type == UV_NAMED_PIPE);
    *err = uv_accept(listener, &s->u.stream);
    if (*err != 0) {
        stream_close(s);
        return NULL;
    }
    s->connected = true;
    if (s->u.handle.type == UV_TCP)
        uv_tcp_nodelay(&s->u.tcp, 1);
    remember_peer(s);
    return s;
}

/* A dial to a local port where nobody listens can be given that very port as its own and so meet
 * itself: TCP allows it (RFC 9293, section 3.5, simultaneous open). It would keep the port from
 * whoever wants to listen there. */
static bool met_itself(const struct stream *s)
{
    struct sockaddr_storage us, peer;
    int nus = sizeof us, npeer = sizeof peer;
    memset(&us, 0, sizeof us);
    memset(&peer, 0, sizeof peer);
    return s->u.handle.type == UV_TCP &&
           uv_tcp_getsockname(&s->u.tcp, (struct sockaddr *)&us, &nus) == 0 &&
           uv_tcp_getpeername(&s->u.tcp, (struct sockaddr *)&peer, &npeer) == 0 && nus == npeer &&
           memcmp(&us, &peer, (size_t)nus) == 0;
}

static void on_connected(uv_connect_t *req, int err)
{
    struct stream *s = req->data;
    if (s->closed || s->on_connect == NULL)
        return;
    if (err == 0 && met_itself(s))
        err = UV_ECONNREFUSED;
    void (*cb)(void *, int) = s->on_connect;
    s->on_connect = NULL;
    timer_stop(&s->deadline);
    if (err == 0) {
        s->connected = true;
        if (s->u.handle.type == UV_TCP)
            uv_tcp_nodelay(&s->u.tcp, 1);
        remember_peer(s);
    }
    cb(s->arg, err);
}

/* libuv polls nothing while reading is paused, so that neither an end nor a reset is told: the
 * kernel is asked. */
static void look(struct stream *s)
{
    struct tcp_info info;
    socklen_t size = sizeof info;
    uv_os_fd_t fd;
    timer_set(s->loop, &s->deadline, STREAM_LOOK_MS);
    if (uv_fileno(&s->u.handle, &fd) != 0 ||
        getsockopt(fd, IPPROTO_TCP, TCP_INFO, &info, &size) != 0)
        return;
    if (info.tcpi_state == TCP_CLOSE || info.tcpi_state == TCP_CLOSE_WAIT)
        s->on_left(s->arg, info.tcpi_state == TCP_CLOSE ? UV_ECONNRESET : 0);
}

static void on_deadline(struct timer *t)
{
    struct stream *s = CONTAINER(t, struct stream, deadline);
    if (s->finishing)
        stream_close(s);
    else if (s->connected)
        look(s);
    else
        fail_later(s, UV_ETIMEDOUT);
}

struct stream *stream_dial(struct loop *l, const struct address *to, uint64_t timeout_ms,
                           void (*on_connect)(void *arg, int err), void *arg)
{
    struct stream *s = stream_new(l, to->path[0] != '\0');
    s->on_connect = on_connect;
    s->arg = arg;
    timer_set(l, &s->deadline, timeout_ms);
    if (to->path[0] != '\0') {
        uv_pipe_connect(&s->connect, &s->u.pipe, to->path, on_connected);
        return s;
    }
    int err = uv_tcp_connect(&s->connect, &s->u.tcp, &to->u.sa, on_connected);
    if (err != 0)
        fail_later(s, err);
    return s;
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

static void on_read(uv_stream_t *h, ssize_t n, const uv_buf_t *bytes)
{
    struct stream *s = h->data;
    if (n > 0 && !s->closed)
        s->events->on_read(s->arg, bytes->base, (size_t)n);
    else if (n < 0)
        end(s, n == UV_EOF ? end_of(s) : (int)n);
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
    uv_read_stop(&s->u.stream);
    s->reading = false;
    if (!s->ended && s->on_left != NULL && s->u.handle.type == UV_TCP)
        timer_set(s->loop, &s->deadline, STREAM_LOOK_MS);
}

void stream_resume(struct stream *s)
{
    if (s->reading || s->ended || s->failure != 0)
        return;
    if (!s->finishing)
        timer_stop(&s->deadline);
    int err = uv_read_start(&s->u.stream, on_alloc, on_read);
    if (err != 0)
        fail_later(s, err);
    else
        s->reading = true;
}

void stream_watch_left(struct stream *s, void (*on_left)(void *arg, int err))
{
    s->on_left = on_left;
}

/* --- writing --- */

static void finish_if_drained(struct stream *s);

static void on_written(uv_write_t *req, int err)
{
    struct write *w = (struct write *)req;
    struct stream *s = req->data;
    s->queued -= w->n;
    mem_free(w);
    if (s->finishing) {
        finish_if_drained(s);
        return;
    }
    if (s->closed)
        return;
    if (err != 0) {
        fail_later(s, err);
        return;
    }
    if (s->queued == 0 && s->failure == 0 && s->events != NULL && s->events->on_drain != NULL)
        s->events->on_drain(s->arg);
}

/* Queues a copy of what is left of the slices behind the first `skip` bytes. */
static void queue_rest(struct stream *s, const struct slice *v, unsigned n, size_t skip,
                       size_t total)
{
    struct write *w = mem_alloc(sizeof *w + total - skip);
    size_t at = 0;
    w->n = total - skip;
    w->req.data = s;
    for (unsigned i = 0; i < n; i++) {
        if (skip >= v[i].n) {
            skip -= v[i].n;
            continue;
        }
        memcpy(w->bytes + at, v[i].p + skip, v[i].n - skip);
        at += v[i].n - skip;
        skip = 0;
    }
    uv_buf_t b = uv_buf_init(w->bytes, (unsigned)w->n);
    int err = uv_write(&w->req, &s->u.stream, &b, 1, on_written);
    if (err != 0) {
        mem_free(w);
        fail_later(s, err);
        return;
    }
    s->queued += w->n;
    s->written += w->n;
}

void stream_writev(struct stream *s, const struct slice *v, unsigned n)
{
    uv_buf_t bufs[STREAM_MAX_SLICES];
    size_t total = 0;
    unsigned used = 0;
    if (s->closed || s->failure != 0 || n > STREAM_MAX_SLICES)
        return;
    for (unsigned i = 0; i < n; i++) {
        if (v[i].n == 0)
            continue;
        bufs[used++] = uv_buf_init((char *)(uintptr_t)v[i].p, (unsigned)v[i].n);
        total += v[i].n;
    }
    if (total == 0)
        return;
    int done = s->queued == 0 ? uv_try_write(&s->u.stream, bufs, used) : UV_EAGAIN;
    if (done < 0 && done != UV_EAGAIN) {
        fail_later(s, done);
        return;
    }
    if (done < 0)
        done = 0;
    s->written += (uint64_t)done;
    if ((size_t)done < total)
        queue_rest(s, v, n, (size_t)done, total);
}

void stream_write(struct stream *s, struct slice bytes)
{
    stream_writev(s, &bytes, 1);
}

size_t stream_queued(const struct stream *s)
{
    return s->queued;
}

/* Without what the kernel holds: it reports room only by the third of its buffer, which may be
 * megabytes. */
uint64_t stream_sent(const struct stream *s)
{
    int held = 0;
    uv_os_fd_t fd;
    if (uv_fileno(&s->u.handle, &fd) != 0 || ioctl(fd, SIOCOUTQ, &held) != 0)
        held = 0;
    return s->written - uv_stream_get_write_queue_size(&s->u.stream) - (uint64_t)held;
}

/* --- a polite end --- */

static void on_drop(void *arg, const char *bytes, size_t n)
{
    (void)arg, (void)bytes, (void)n;
}

static void on_drop_end(void *arg, int err)
{
    struct stream *s = arg;
    (void)err;
    stream_close(s);
}

static const struct stream_events drop_events = { on_drop, on_drop_end, NULL };

/* Says FIN once everything is written. Where the peer has closed already nothing is left to wait
 * for. */
static void finish_if_drained(struct stream *s)
{
    if (s->shut || s->queued > 0 || s->closed)
        return;
    s->shut = true;
    uv_os_fd_t fd;
    if (s->ended || s->failure != 0 || uv_fileno(&s->u.handle, &fd) != 0) {
        stream_close(s);
        return;
    }
    shutdown(fd, SHUT_WR);
}

void stream_finish(struct stream *s, uint64_t linger_ms)
{
    if (s->closed || s->finishing)
        return;
    s->finishing = true;
    timer_set(s->loop, &s->deadline, linger_ms);
    s->events = &drop_events;
    s->arg = s;
    stream_resume(s);
    finish_if_drained(s);
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
