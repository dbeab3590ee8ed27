/* shared: what the operations do, expiry, and the region's mapping by another. */
#include "shared_rig.h"

#include <math.h>
#include <sys/mman.h>
#include <unistd.h>

#include "siphash.h"

/* --- operations --- */

static void keeps_types(void **state)
{
    struct shared *s = *state;
    static const double numbers[] = { 0, -0.0, 1, -1.5, 9007199254740993.0, 1e308, INFINITY };
    struct shared_value v, yes = { .type = SHARED_BOOLEAN, .boolean = true },
                           no = { .type = SHARED_BOOLEAN };
    for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++) {
        set(s, SLICE("n"), number(numbers[i]), 0);
        assert_int_equal(shared_get(s, SLICE("n"), &v), SHARED_OK);
        assert_int_equal(v.type, SHARED_NUMBER);
        assert_memory_equal(&v.number, &numbers[i], sizeof v.number);
    }
    set(s, SLICE("n"), yes, 0);
    set(s, SLICE("no"), no, 0);
    assert_int_equal(shared_get(s, SLICE("n"), &v), SHARED_OK);
    assert_true(v.type == SHARED_BOOLEAN && v.boolean);
    assert_int_equal(shared_get(s, SLICE("no"), &v), SHARED_OK);
    assert_true(v.type == SHARED_BOOLEAN && !v.boolean);
    assert_int_equal(shared_get(s, SLICE("nobody"), &v), SHARED_NOT_FOUND);
    assert_int_equal(stats(s).entries, 2);
}

/* Every length around the ends of the first three blocks, of keys and of values, with every
 * byte. */
static void keeps_bytes(void **state)
{
    struct shared *s = *state;
    char bytes[512];
    for (size_t i = 0; i < sizeof bytes; i++)
        bytes[i] = (char)(i * 7);
    for (size_t k = 1; k < 300; k++) {
        for (size_t n = 0; n < 300; n += n < 90 ? 1 : 11) {
            struct shared_value v;
            struct slice key = { bytes, k }, value = { bytes + 100, n };
            set(s, key, text(value), 0);
            assert_int_equal(shared_get(s, key, &v), SHARED_OK);
            assert_int_equal(v.type, SHARED_STRING);
            assert_true(slice_eq(v.text, value));
            if (k % 3 == 0)
                assert_int_equal(shared_delete(s, key), SHARED_OK);
        }
    }
    assert_int_equal(stats(s).entries, 200);
    assert_int_equal(stats(s).evictions, 0);
    assert_false(has(s, (struct slice){ bytes, 3 }));
    assert_true(has(s, (struct slice){ bytes, 299 }));
}

static void adds_and_counts(void **state)
{
    struct shared *s = *state;
    struct shared_value v = number(1), w = text(SLICE("x"));
    double out = 0, init = 10;
    bool forced;
    assert_int_equal(shared_add(s, SLICE("a"), &v, 0, &forced), SHARED_OK);
    assert_int_equal(shared_add(s, SLICE("a"), &w, 0, &forced), SHARED_EXISTS);
    assert_int_equal(shared_incr(s, SLICE("a"), 2.5, NULL, 0, &out, &forced), SHARED_OK);
    assert_float_equal(out, 3.5, 0);
    assert_int_equal(shared_incr(s, SLICE("b"), 1, NULL, 0, &out, &forced), SHARED_NOT_FOUND);
    assert_int_equal(shared_incr(s, SLICE("b"), -1, &init, 50, &out, &forced), SHARED_OK);
    assert_float_equal(out, 9, 0);
    assert_int_equal(shared_incr(s, SLICE("b"), 1, &init, 5000, &out, &forced), SHARED_OK);
    assert_float_equal(out, 10, 0);
    clock_ms += 50; /* the second one's time to live was none of this entry's */
    assert_false(has(s, SLICE("b")));
    set(s, SLICE("a"), w, 0);
    assert_int_equal(shared_incr(s, SLICE("a"), 1, &init, 0, &out, &forced), SHARED_NOT_NUMBER);
    assert_int_equal(shared_delete(s, SLICE("a")), SHARED_OK);
    assert_int_equal(shared_delete(s, SLICE("a")), SHARED_NOT_FOUND);
    assert_int_equal(stats(s).bytes, 0);
}

/* The value must be the same in type, length and bytes; what takes its place may be of any kind. */
static void swaps(void **state)
{
    struct shared *s = *state;
    char large[3000];
    struct shared_value one = number(1), two = number(2),
                        yes = { .type = SHARED_BOOLEAN, .boolean = true },
                        word = text(SLICE("word")), other = text(SLICE("worm")),
                        empty = text(SLICE("")), big = text((struct slice){ large, sizeof large }),
                        v;
    bool forced;
    memset(large, 'x', sizeof large);
    assert_int_equal(shared_swap(s, SLICE("a"), &one, &two, 0, &forced), SHARED_CHANGED);
    assert_int_equal(shared_swap(s, SLICE("a"), NULL, &one, 0, &forced), SHARED_OK);
    assert_int_equal(shared_swap(s, SLICE("a"), NULL, &two, 0, &forced), SHARED_CHANGED);
    assert_int_equal(shared_swap(s, SLICE("a"), &two, &one, 0, &forced), SHARED_CHANGED);
    assert_int_equal(shared_swap(s, SLICE("a"), &yes, &two, 0, &forced), SHARED_CHANGED);
    assert_int_equal(shared_swap(s, SLICE("a"), &one, &two, 0, &forced), SHARED_OK);
    assert_int_equal(shared_swap(s, SLICE("a"), &two, &word, 0, &forced), SHARED_OK);
    assert_int_equal(shared_swap(s, SLICE("a"), &other, &two, 0, &forced), SHARED_CHANGED);
    assert_int_equal(shared_swap(s, SLICE("a"), &word, &big, 0, &forced), SHARED_OK);
    large[2999] = 'y';
    assert_int_equal(shared_swap(s, SLICE("a"), &big, &empty, 0, &forced), SHARED_CHANGED);
    large[2999] = 'x';
    assert_int_equal(shared_swap(s, SLICE("a"), &big, &empty, 0, &forced), SHARED_OK);
    assert_int_equal(shared_swap(s, SLICE("a"), &empty, &one, 10, &forced), SHARED_OK);
    assert_int_equal(shared_get(s, SLICE("a"), &v), SHARED_OK);
    assert_float_equal(v.number, 1, 0);
    assert_int_equal(stats(s).entries, 1);
    clock_ms += 10;
    assert_int_equal(shared_swap(s, SLICE("a"), &one, &two, 0, &forced), SHARED_CHANGED);
    assert_int_equal(shared_swap(s, SLICE("a"), NULL, &two, 0, &forced), SHARED_OK);
    assert_int_equal(shared_swap(s, SLICE("a"), &two, &one, 10, &forced), SHARED_OK);
    assert_int_equal(shared_swap(s, SLICE("a"), &one, &two, 0, &forced), SHARED_OK);
    clock_ms += 1000; /* the last one's time to live counts */
    assert_true(has(s, SLICE("a")));
    assert_int_equal(shared_swap(s, SLICE(""), NULL, &two, 0, &forced), SHARED_NO_MEMORY);
}

static void expires(void **state)
{
    struct shared *s = *state;
    struct shared_value v = number(1);
    uint64_t ttl = 1;
    bool forced;
    set(s, SLICE("ever"), v, 0);
    set(s, SLICE("a"), v, 100);
    assert_int_equal(shared_ttl(s, SLICE("ever"), &ttl), SHARED_OK);
    assert_int_equal(ttl, 0);
    clock_ms += 99;
    assert_int_equal(shared_ttl(s, SLICE("a"), &ttl), SHARED_OK);
    assert_int_equal(ttl, 1);
    assert_int_equal(shared_expire(s, SLICE("a"), 10), SHARED_OK);
    clock_ms += 9;
    assert_int_equal(shared_add(s, SLICE("a"), &v, 0, &forced), SHARED_EXISTS);
    clock_ms += 1;
    assert_int_equal(shared_ttl(s, SLICE("a"), &ttl), SHARED_NOT_FOUND);
    assert_int_equal(shared_expire(s, SLICE("a"), 10), SHARED_NOT_FOUND);
    assert_int_equal(stats(s).expired, 1);
    assert_int_equal(shared_add(s, SLICE("a"), &v, 10, &forced), SHARED_OK);
    assert_int_equal(shared_expire(s, SLICE("a"), 0), SHARED_OK);
    clock_ms += 1000000;
    assert_true(has(s, SLICE("a")));
    set(s, SLICE("a"), v, 1);
    set(s, SLICE("a"), v, 0); /* a set replaces the time to live too */
    clock_ms += 1;
    assert_true(has(s, SLICE("a")) && has(s, SLICE("ever")));
    assert_int_equal(shared_flush(s), SHARED_OK);
    assert_false(has(s, SLICE("ever")));
    assert_int_equal(stats(s).entries, 0);
}

/* What has expired and nobody asks for goes as new entries come, and is no eviction. */
static void sweeps(void **state)
{
    struct shared *s = *state;
    char room[32];
    for (unsigned i = 0; i < 1000; i++)
        set(s, key_of(room, "old", i), number(i), 10);
    clock_ms += 10;
    for (unsigned i = 0; i < 500; i++)
        set(s, key_of(room, "new", i), number(i), 0);
    assert_int_equal(stats(s).entries, 500);
    assert_int_equal(stats(s).expired, 1000);
    assert_int_equal(stats(s).evictions, 0);
}

/* --- mapping --- */

static void is_mapped_by_descriptor(void **state)
{
    struct shared *s = *state, *other, *none;
    struct shared_value v;
    assert_int_equal(shared_map(&other, dup(shared_fd(s))), 0);
    set(s, SLICE("a"), text(SLICE("from one")), 0);
    assert_int_equal(shared_get(other, SLICE("a"), &v), SHARED_OK);
    assert_true(slice_eq(v.text, SLICE("from one")));
    set(other, SLICE("b"), number(2), 0);
    shared_free(other);
    assert_true(has(s, SLICE("b")));
    assert_true(ftruncate(shared_fd(s), 4096) != 0);
    int ends[2], blank = memfd_create("blank", 0);
    assert_int_equal(pipe(ends), 0);
    assert_int_equal(ftruncate(blank, SHARED_SIZE_MIN), 0);
    assert_true(shared_map(&none, ends[0]) < 0 && shared_map(&none, blank) < 0 &&
                shared_map(&none, -1) < 0);
    close(ends[0]);
    close(ends[1]);
    close(blank);
    assert_true(shared_new(&none, SHARED_SIZE_MIN - 1) < 0 &&
                shared_new(&none, SHARED_SIZE_MAX + 1) < 0);
}

/* All sizes up to the largest can be made; keys are spread over the shards. */
static void has_many_sizes(void **state)
{
    (void)state;
    for (uint64_t size = SHARED_SIZE_MIN; size <= SHARED_SIZE_MAX; size = size * 5 / 2 + 12345) {
        struct shared *s;
        char room[32];
        assert_int_equal(shared_new(&s, size), 0);
        for (unsigned i = 0; i < 3000; i++)
            set(s, key_of(room, "k", i), number(i), 0);
        assert_int_equal(stats(s).entries, 3000);
        assert_in_range(stats(s).size, size - size / 20, size);
        assert_int_equal(shared_flush(s), SHARED_OK);
        assert_int_equal(stats(s).entries, 0);
        shared_free(s);
    }
}

/* As Python's hash() with PYTHONHASHSEED=0. */
static void hashes(void **state)
{
    (void)state;
    static const uint64_t none[2];
    assert_true(siphash(none, SLICE("abc")) == 0xc03bc3a0042630f2);
    assert_true(siphash(none, SLICE("abcdefghijklmnop")) == 0x94f60d3d29e6a312);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(keeps_types, setup, teardown),
        cmocka_unit_test_setup_teardown(keeps_bytes, setup, teardown),
        cmocka_unit_test_setup_teardown(adds_and_counts, setup, teardown),
        cmocka_unit_test_setup_teardown(swaps, setup, teardown),
        cmocka_unit_test_setup_teardown(expires, setup, teardown),
        cmocka_unit_test_setup_teardown(sweeps, setup, teardown),
        cmocka_unit_test_setup_teardown(is_mapped_by_descriptor, setup, teardown),
        cmocka_unit_test(has_many_sizes),
        cmocka_unit_test(hashes),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
