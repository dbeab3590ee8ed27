/* For tests: runs the loop until something is so, or too long. */
#ifndef TOLLGATE_SPEC_TURNS_H
#define TOLLGATE_SPEC_TURNS_H

#include "loop.h"

static uv_timer_t turns_tick; /* keeps the loop turning */

static inline void on_turns_tick(uv_timer_t *t)
{
    (void)t;
}

static inline void turns_init(struct loop *l)
{
    loop_init(l);
    uv_timer_init(&l->uv, &turns_tick);
    uv_timer_start(&turns_tick, on_turns_tick, 2, 2);
}

/* What loop_deinit says: handles and timers that are left. */
static inline int turns_deinit(struct loop *l)
{
    uv_close((uv_handle_t *)&turns_tick, NULL);
    return loop_deinit(l);
}

static inline void turns_for(struct loop *l, uint64_t ms)
{
    uint64_t end = uv_hrtime() + ms * 1000000;
    while (uv_hrtime() < end)
        uv_run(&l->uv, UV_RUN_ONCE);
}

/* Waits 5 s at most for `condition`. */
#define TURN_UNTIL(l, condition)                                                                   \
    do {                                                                                           \
        uint64_t end_ = uv_hrtime() + 5000000000ull;                                               \
        while (!(condition) && uv_hrtime() < end_)                                                 \
            uv_run(&(l)->uv, UV_RUN_ONCE);                                                         \
        assert_true(condition);                                                                    \
    } while (0)

#endif
