/* The event loop of one worker: libuv's loop, the deadlines on it, and what runs at the end of a
 * turn.
 *
 * A turn is one pass over ready I/O. What a turn collects (admissions, log lines) goes out once, at
 * its end, in three orders: COLLECT formats, WRITE hands bytes to sockets, FINISH lets go of what
 * had to wait for those writes. So a settlement is on its way to Redis before the client sees its
 * last byte. */
#ifndef TOLLGATE_LOOP_H
#define TOLLGATE_LOOP_H

#include <stdbool.h>
#include <stdint.h>
#include <uv.h>

#include "buf.h"

enum loop_order { LOOP_COLLECT, LOOP_WRITE, LOOP_FINISH, LOOP_ORDERS };

enum { LOOP_READ_SIZE = 65536 }; /* bytes */

/* Embedded in its owner; not copied while queued. */
struct deferred {
    struct deferred *next, **link; /* link is NULL while not queued */
    void (*run)(struct deferred *d);
};

/* A deadline, embedded in its owner. `at` is 0 while not set. Moving it later costs nothing: it
 * stays where it is in the heap and is looked at again when its old time comes. */
struct timer {
    uint64_t at;  /* ms of loop_now */
    uint64_t key; /* its place in the heap is by this; <= at while set */
    uint32_t pos; /* 1-based place in the heap; 0 while not in it */
    void (*cb)(struct timer *t);
};

struct loop {
    uv_loop_t uv;
    char *read_buf;     /* LOOP_READ_SIZE; every stream reads into it */
    char *tls_in;       /* LOOP_READ_SIZE; what it is decrypted to. NULL until there is TLS */
    struct buf tls_out; /* what is encrypted, until the socket has it; empty between two calls */
    uv_prepare_t prepare;
    uv_check_t check;
    uv_idle_t idle;
    uv_timer_t alarm;
    struct deferred *queue[LOOP_ORDERS], **tail[LOOP_ORDERS];
    struct timer **heap; /* binary heap by key, 1-based */
    uint32_t timers, heap_cap;
    uint64_t alarm_at;
};

int loop_init(struct loop *l);
/* Runs until loop_stop or nothing is left. */
void loop_run(struct loop *l);
void loop_stop(struct loop *l);
/* Closes the loop's own handles, runs what is left to close, and returns how many handles of others
 * were still open (0 in a clean end); each is named in the log. */
int loop_deinit(struct loop *l);

/* Milliseconds, monotonic, as of the start of this turn. */
uint64_t loop_now(const struct loop *l);
/* Milliseconds since the epoch, read now. */
int64_t loop_wall_ms(void);

/* Runs d->run once at the end of this turn. Does nothing where it is queued already. */
void loop_defer(struct loop *l, struct deferred *d, enum loop_order order);
void loop_undefer(struct loop *l, struct deferred *d);

/* Calls t->cb once, `ms` from now (never at once, also with 0). Replaces an earlier time. */
void timer_set(struct loop *l, struct timer *t, uint64_t ms);
/* Forgets the time. The timer may stay in the heap until then; before its memory goes,
 * timer_deinit. */
void timer_stop(struct timer *t);
void timer_deinit(struct loop *l, struct timer *t);

#endif
