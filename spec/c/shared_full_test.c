/* shared, where a region is full: who goes, what does not fit, and that long use with random sizes
 * leaves it as good as new. */
#include "shared_rig.h"

#include <stdlib.h>

#include "mem.h"

/* Fills with entries of one block until one is forced out; how many fit. */
static unsigned fill(struct shared *s, const char *prefix)
{
    struct shared_value v = number(1);
    bool forced = false;
    char room[32];
    unsigned n = 0;
    while (!forced)
        assert_int_equal(shared_set(s, key_of(room, prefix, n++), &v, 0, &forced), SHARED_OK);
    return n - 1;
}

static void lets_the_oldest_go(void **state)
{
    struct shared *s = *state;
    char room[32];
    double out;
    bool forced;
    unsigned n = fill(s, "k");
    assert_in_range(n, 7000, 8192);
    assert_false(has(s, SLICE("k0")));
    /* In use: read, counted, given more time. Asked about: not in use. */
    uint64_t ttl;
    assert_true(has(s, SLICE("k1")));
    assert_int_equal(shared_incr(s, SLICE("k2"), 1, NULL, 0, &out, &forced), SHARED_OK);
    assert_int_equal(shared_expire(s, SLICE("k3"), 0), SHARED_OK);
    assert_int_equal(shared_ttl(s, SLICE("k4"), &ttl), SHARED_OK);
    for (unsigned i = 0; i < n - 3; i++)
        set(s, key_of(room, "new", i), number(1), 0);
    for (unsigned i = 4; i <= n; i++)
        assert_false(has(s, key_of(room, "k", i)));
    assert_true(has(s, SLICE("k1")) && has(s, SLICE("k2")) && has(s, SLICE("k3")));
    assert_int_equal(stats(s).entries, n);
    assert_int_equal(stats(s).evictions, n - 2);
    assert_int_equal(stats(s).bytes, stats(s).size);
}

static void bounds_entries(void **state)
{
    struct shared *s = *state;
    char *bytes = mem_zalloc(SHARED_VALUE_MAX + 1);
    struct shared_value v = number(1);
    double out, init = 0;
    bool forced;
    struct slice longest = { bytes, SHARED_KEY_MAX };
    set(s, longest, v, 0);
    assert_true(has(s, longest));
    struct slice bad[] = { { bytes, SHARED_KEY_MAX + 1 }, { bytes, 0 } };
    for (int i = 0; i < 2; i++) {
        assert_int_equal(shared_set(s, bad[i], &v, 0, &forced), SHARED_NO_MEMORY);
        assert_int_equal(shared_incr(s, bad[i], 1, &init, 0, &out, &forced), SHARED_NO_MEMORY);
        assert_false(has(s, bad[i]));
    }
    /* A value that is too large leaves the old one; the largest that a region of this size takes is
     * near 256 KiB. */
    set(s, SLICE("k"), v, 0);
    size_t n = SHARED_VALUE_MAX + 1;
    for (v = text((struct slice){ bytes, n });
         shared_set(s, SLICE("k"), &v, 0, &forced) != SHARED_OK; v.text.n = --n) {
        if (n == SHARED_VALUE_MAX)
            assert_true(has(s, SLICE("k")));
    }
    assert_in_range(n, 230 << 10, 256 << 10);
    assert_int_equal(shared_get(s, SLICE("k"), &v), SHARED_OK);
    assert_int_equal(v.text.n, n);
    mem_free(bytes);
}

/* Random sizes, times to live and deletions for long: what is found is what was written last, the
 * newest entries are always there, and in the end a region has room for as much as at first. */
static void does_not_wear_out(void **state)
{
    enum { KEYS = 3000, ROUNDS = 200000, NEWEST = 8, LARGEST = 32768 };
    struct shared *s = *state;
    unsigned at_first = fill(s, "k");
    unsigned *version = mem_zalloc(KEYS * sizeof *version), newest[NEWEST] = { 0 };
    char *bytes = mem_alloc(LARGEST + 256);
    for (int i = 0; i < LARGEST + 256; i++)
        bytes[i] = (char)i;
    srand(1);
    for (unsigned i = 1; i <= ROUNDS; i++) {
        unsigned k = (unsigned)rand() % KEYS,
                 size = (unsigned)rand() % (i % 50 == 0 ? LARGEST : 600);
        struct shared_value v;
        char room[32];
        struct slice key = key_of(room, "r", k);
        if (shared_get(s, key, &v) == SHARED_OK) {
            assert_int_not_equal(version[k], 0);
            assert_memory_equal(v.text.p, bytes + version[k] % 256, v.text.n);
        }
        set(s, key, text((struct slice){ bytes + i % 256, size }),
            rand() % 3 == 0 ? 2 + (uint64_t)rand() % 50 : 0);
        version[k] = i;
        newest[i % NEWEST] = k;
        for (int j = 0; j < NEWEST && i > NEWEST; j++)
            assert_true(has(s, key_of(room, "r", newest[j])) || version[newest[j]] == 0);
        if (i % 7 == 0) {
            shared_delete(s, key_of(room, "r", k));
            version[k] = 0;
        }
        if (i % 1000 == 0)
            clock_ms += 1; /* no more than once for the newest, which live for 2 */
        assert_true(stats(s).bytes <= stats(s).size);
    }
    for (unsigned k = 0; k < KEYS; k++) {
        char room[32];
        shared_delete(s, key_of(room, "r", k));
    }
    for (unsigned k = 0; k <= at_first; k++) {
        char room[32];
        shared_delete(s, key_of(room, "k", k));
    }
    assert_int_equal(stats(s).entries, 0);
    assert_int_equal(stats(s).bytes, 0);
    assert_int_equal(fill(s, "k"), at_first);
    mem_free(version);
    mem_free(bytes);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(lets_the_oldest_go, setup, teardown),
        cmocka_unit_test_setup_teardown(bounds_entries, setup, teardown),
        cmocka_unit_test_setup_teardown(does_not_wear_out, setup, teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
