/* Whether bytes come fast enough: so many a second at least, looked at over windows of time that is
 * the sender's turn. Time in which nobody reads does not count, so a body that waits for a slow
 * origin is not slow. No clock, no I/O: the caller says what time it is, in ms. */
#ifndef TOLLGATE_PACE_H
#define TOLLGATE_PACE_H

#include <stdbool.h>
#include <stdint.h>

struct pace {
    uint64_t since; /* when the sender's turn began; 0: it is not */
    uint64_t ms;    /* of this window that were its turn */
    uint64_t bytes; /* that came in this window */
};

/* It is the sender's turn from now on, or it is not any more. */
static inline void pace_turn(struct pace *p, bool on, uint64_t now)
{
    if (p->since != 0)
        p->ms += now - p->since;
    p->since = on ? now : 0;
}

/* Whether the window that ended, if one has, brought less than `rate` bytes a second; 0: never.
 * A new one begins then. */
static inline bool pace_slow(struct pace *p, uint64_t rate, uint64_t window)
{
    if (p->ms < window)
        return false;
    bool slow = rate > 0 && p->bytes < (p->ms * rate + 999) / 1000;
    p->ms = p->bytes = 0;
    return slow;
}

#endif
