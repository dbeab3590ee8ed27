/* A worker's end of the access log: lines go into a pipe that the master holds and the log writer
 * reads, so that what a worker has written comes out also when it dies. A turn's lines go in one
 * write, which is never waited for: a reader that is slower gets them later, and what it leaves
 * beyond ACCESS_LOG_MAX bytes is dropped line by line, and counted. */
#ifndef TOLLGATE_ACCESS_LOG_H
#define TOLLGATE_ACCESS_LOG_H

#include "buf.h"
#include "loop.h"

enum {
    ACCESS_LOG_MAX = 1 << 20, /* bytes that wait for the pipe */
    ACCESS_LOG_START = '\0'   /* what a worker writes first: what stands unfinished before it is
                                 of a worker that died */
};

/* What becomes of lines; one writer a field: the worker, and below the log writer. */
struct access_counts {
    uint64_t sampled; /* not made, by a rule */
    uint64_t dropped; /* not made, since the reader was too slow */
    uint64_t made;
    uint64_t before; /* made, when this worker began */
    uint64_t received;
    uint64_t died;    /* made and not received: they died with their worker */
    uint64_t partial; /* the log writer has read the beginning of a line, and not its end */
};

struct access_log;

/* Takes the descriptor, which does not block; -1 where there is no pipe: lines go nowhere. counts
 * is borrowed. */
struct access_log *access_log_new(struct loop *l, int fd, struct access_counts *counts);
/* Gives a reader that is slower a moment for the rest. Or NULL. */
void access_log_free(struct access_log *a);
/* Where a line goes: whole, with its end; then access_log_end. NULL where there is no room. */
struct buf *access_log_line(struct access_log *a);
void access_log_end(struct access_log *a);
/* A line was left out by a rule. */
void access_log_skip(struct access_log *a);

#endif
