/* See access_log.h. */
#include "access_log.h"

#include <errno.h>
#include <inttypes.h>
#include <poll.h>
#include <unistd.h>

#include "container.h"
#include "log.h"
#include "mem.h"

enum { RETRY_MS = 20, LAST_MS = 500, LINES_KEEP = 65536 };

struct access_log {
    struct loop *loop;
    int fd; /* -1: none */
    struct buf lines;
    struct deferred flush;
    struct timer retry;
    struct access_counts *counts;
    uint64_t told; /* of those dropped: the log has told of them */
};

/* Returns false where the reader is slower. */
static bool write_out(struct access_log *a)
{
    size_t at = 0;
    while (at < a->lines.n) {
        ssize_t n = write(a->fd, a->lines.p + at, a->lines.n - at);
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0 && errno == EAGAIN)
            break;
        if (n < 0) { /* the master holds the other end: there is no such case */
            buf_clear(&a->lines);
            return true;
        }
        at += (size_t)n;
    }
    buf_consume(&a->lines, at);
    return a->lines.n == 0;
}

static void flush(struct access_log *a)
{
    uint64_t dropped = a->counts->dropped - a->told;
    if (!write_out(a)) {
        timer_set(a->loop, &a->retry, RETRY_MS);
        return;
    }
    if (dropped > 0)
        log_warn("access log: its reader was too slow; %" PRIu64 " lines were dropped", dropped);
    a->told = a->counts->dropped;
    if (a->lines.cap > LINES_KEEP)
        buf_deinit(&a->lines);
}

static void on_flush(struct deferred *d)
{
    struct access_log *a = CONTAINER(d, struct access_log, flush);
    if (a->retry.at == 0)
        flush(a);
}

static void on_retry(struct timer *t)
{
    flush(CONTAINER(t, struct access_log, retry));
}

struct access_log *access_log_new(struct loop *l, int fd, struct access_counts *counts)
{
    struct access_log *a = mem_zalloc(sizeof *a);
    a->loop = l;
    a->fd = fd;
    a->flush.run = on_flush;
    a->retry.cb = on_retry;
    a->counts = counts;
    a->told = counts->dropped;
    counts->before = counts->made;
    buf_init(&a->lines);
    buf_add(&a->lines, (char[]){ ACCESS_LOG_START }, 1);
    if (fd >= 0)
        flush(a);
    return a;
}

void access_log_free(struct access_log *a)
{
    if (a == NULL)
        return;
    loop_undefer(a->loop, &a->flush);
    timer_deinit(a->loop, &a->retry);
    struct pollfd room = { .fd = a->fd, .events = POLLOUT };
    while (a->fd >= 0 && !write_out(a) && poll(&room, 1, LAST_MS) > 0)
        ;
    if (a->fd >= 0)
        close(a->fd);
    buf_deinit(&a->lines);
    mem_free(a);
}

struct buf *access_log_line(struct access_log *a)
{
    if (a->fd >= 0 && a->lines.n < ACCESS_LOG_MAX)
        return &a->lines;
    a->counts->dropped++;
    return NULL;
}

void access_log_end(struct access_log *a)
{
    a->counts->made++;
    loop_defer(a->loop, &a->flush, LOOP_FINISH);
}

void access_log_skip(struct access_log *a)
{
    a->counts->sampled++;
}
