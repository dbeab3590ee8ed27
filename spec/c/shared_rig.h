/* For tests of the shared dictionary: a region of one shard, so that the order of use is exact,
 * with a clock of the test's own. */
#ifndef TOLLGATE_SPEC_SHARED_RIG_H
#define TOLLGATE_SPEC_SHARED_RIG_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>

#include <cmocka.h>

#include "shared.h"

static uint64_t clock_ms;

static inline uint64_t fake_now(void)
{
    return clock_ms;
}

static inline int setup(void **state)
{
    struct shared *s;
    clock_ms = 1000000;
    if (shared_new(&s, SHARED_SIZE_MIN) != 0)
        return -1;
    shared_set_hooks(s, fake_now, NULL);
    *state = s;
    return 0;
}

static inline int teardown(void **state)
{
    shared_free(*state);
    return 0;
}

static inline struct shared_value text(struct slice t)
{
    return (struct shared_value){ .type = SHARED_STRING, .text = t };
}

static inline struct shared_value number(double n)
{
    return (struct shared_value){ .type = SHARED_NUMBER, .number = n };
}

static inline struct slice key_of(char room[32], const char *prefix, unsigned i)
{
    return (struct slice){ room, (size_t)snprintf(room, 32, "%s%u", prefix, i) };
}

static inline void set(struct shared *s, struct slice key, struct shared_value v, uint64_t ttl)
{
    bool forced;
    assert_int_equal(shared_set(s, key, &v, ttl, &forced), SHARED_OK);
}

static inline bool has(struct shared *s, struct slice key)
{
    struct shared_value v;
    return shared_get(s, key, &v) == SHARED_OK;
}

static inline struct shared_stats stats(const struct shared *s)
{
    struct shared_stats out;
    shared_stats(s, &out);
    return out;
}

#endif
