/* See access_log.h. stdout is shared with whoever started the process, so it is not made
 * non-blocking; instead a pipe is asked before each piece whether it takes PIPE_BUF bytes, which is
 * what poll promises. */
#include "access_log.h"

#include <errno.h>
#include <inttypes.h>
#include <limits.h>
#include <poll.h>
#include <string.h>
#include <unistd.h>

#include "container.h"
#include "log.h"

enum { RETRY_MS = 20, LAST_MS = 500 };

/* Waits at most `ms` for each piece. Returns false where the reader is slower. */
static bool write_out(struct access_log *a, int ms)
{
    size_t at = 0;
    while (at < a->lines.n) {
        struct pollfd p = { .fd = STDOUT_FILENO, .events = POLLOUT };
        size_t left = a->lines.n - at;
        if (poll(&p, 1, ms) == 0)
            break;
        ssize_t n = write(STDOUT_FILENO, a->lines.p + at, left < PIPE_BUF ? left : PIPE_BUF);
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0 && errno == EAGAIN)
            break;
        if (n < 0) { /* nobody reads it any more */
            buf_clear(&a->lines);
            return true;
        }
        at += (size_t)n;
    }
    buf_consume(&a->lines, at);
    return a->lines.n == 0;
}

/* Keeps the oldest lines, the first of which may be half written. */
static void drop_newest(struct access_log *a)
{
    size_t keep = a->lines.n;
    while (keep > ACCESS_LOG_MAX) {
        const char *end = memrchr(a->lines.p, '\n', keep - 1);
        if (end == NULL)
            return;
        keep = (size_t)(end - a->lines.p) + 1;
        a->dropped++;
    }
    a->lines.n = keep;
}

static void flush(struct access_log *a)
{
    if (!write_out(a, 0)) {
        drop_newest(a);
        timer_set(a->loop, &a->retry, RETRY_MS);
        return;
    }
    if (a->dropped > 0)
        log_warn("access log: its reader was too slow; %" PRIu64 " lines were dropped", a->dropped);
    a->dropped = 0;
    if (a->lines.cap > ACCESS_LOG_MAX)
        buf_deinit(&a->lines);
}

static void on_flush(struct deferred *d)
{
    flush(CONTAINER(d, struct access_log, flush));
}

static void on_retry(struct timer *t)
{
    flush(CONTAINER(t, struct access_log, retry));
}

void access_log_init(struct access_log *a, struct loop *l)
{
    *a = (struct access_log){ .loop = l, .flush.run = on_flush, .retry.cb = on_retry };
    buf_init(&a->lines);
}

void access_log_deinit(struct access_log *a)
{
    loop_undefer(a->loop, &a->flush);
    timer_deinit(a->loop, &a->retry);
    write_out(a, LAST_MS);
    buf_deinit(&a->lines);
}
