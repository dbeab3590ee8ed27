/* See stream.h: writing, and the polite end. Bytes go to the socket at once as far as it takes
 * them; the rest is copied and queued. */
#include <linux/sockios.h>
#include <sys/ioctl.h>

#include "mem.h"
#include "stream_internal.h"

struct write {
    uv_write_t req;
    size_t n;
    char bytes[];
};

static void finish_if_drained(struct stream *s);
static void say_end(struct stream *s);

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
    say_end(s);
    if (err != 0) {
        stream_fail_later(s, err);
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
        stream_fail_later(s, err);
        return;
    }
    s->queued += w->n;
    s->written += w->n;
}

void stream_put(struct stream *s, const struct slice *v, unsigned n)
{
    uv_buf_t bufs[STREAM_MAX_SLICES];
    size_t total = 0;
    unsigned used = 0;
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
        stream_fail_later(s, done);
        return;
    }
    if (done < 0)
        done = 0;
    s->written += (uint64_t)done;
    if ((size_t)done < total)
        queue_rest(s, v, n, (size_t)done, total);
}

void stream_writev(struct stream *s, const struct slice *v, unsigned n)
{
    if (s->closed || s->failure != 0 || n > STREAM_MAX_SLICES)
        return;
    if (s->tls != NULL)
        stream_secure_write(s, v, n);
    else
        stream_put(s, v, n);
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

/* Reading goes on, unlike in finish_if_drained. */
static void say_end(struct stream *s)
{
    uv_os_fd_t fd;
    if (!s->shutting || s->queued > 0 || s->failure != 0)
        return;
    s->shutting = false;
    if (uv_fileno(&s->u.handle, &fd) == 0)
        shutdown(fd, SHUT_WR);
}

void stream_shut(struct stream *s)
{
    if (s->closed || s->finishing)
        return;
    if (s->tls != NULL)
        stream_secure_bye(s);
    s->shutting = true;
    say_end(s);
}

void stream_leave(struct stream *s)
{
    if (!s->closed && s->tls != NULL && s->queued == 0 && s->failure == 0)
        stream_secure_bye(s);
    stream_close(s);
}

void stream_finish(struct stream *s, uint64_t linger_ms)
{
    if (s->closed || s->finishing)
        return;
    if (s->tls != NULL)
        stream_secure_bye(s);
    s->finishing = true;
    s->on_ready = NULL;
    timer_set(s->loop, &s->deadline, linger_ms);
    s->events = &drop_events;
    s->arg = s;
    stream_resume(s);
    if (s->reading)
        stream_poll_start(s); /* whatever is held */
    finish_if_drained(s);
}
