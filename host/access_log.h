/* Where lines of the access log go: to stdout, a turn's lines in one write, and never waited for. A
 * reader that is slower gets them later; what it leaves beyond ACCESS_LOG_MAX bytes is dropped line
 * by line, and the number is logged. */
#ifndef TOLLGATE_ACCESS_LOG_H
#define TOLLGATE_ACCESS_LOG_H

#include "buf.h"
#include "loop.h"

enum { ACCESS_LOG_MAX = 1 << 20 }; /* bytes */

struct access_log {
    struct loop *loop;
    struct buf lines; /* whole ones are appended to it, then `flush` is deferred */
    struct deferred flush;
    struct timer retry;
    uint64_t dropped; /* lines, since the log last said so */
};

void access_log_init(struct access_log *a, struct loop *l);
/* Gives a reader that is slower a moment for the rest. */
void access_log_deinit(struct access_log *a);

#endif
