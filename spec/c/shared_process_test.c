/* shared, by several processes: counts that lose nothing, values that are never torn, a shard whose
 * owner is stopped or dies. `shared_process_test measure` prints what the operations cost
 * instead. */
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>

#include "shared.h"

enum { KEYS = 100, LONGEST = 3000 };

static struct shared *make(uint64_t size)
{
    struct shared *s;
    assert_int_equal(shared_new(&s, size), 0);
    return s;
}

/* A child that maps the region anew, elsewhere, as a worker does; it ends with what `work`
 * returns. */
static pid_t start(const struct shared *s, int (*work)(struct shared *s))
{
    fflush(NULL);
    pid_t pid = fork();
    if (pid != 0)
        return pid;
    struct shared *mine;
    _exit(shared_map(&mine, dup(shared_fd(s))) == 0 ? work(mine) : 99);
}

static void ends_with(pid_t pid, int code)
{
    int status;
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_true(WIFEXITED(status));
    assert_int_equal(WEXITSTATUS(status), code);
}

static void kill_and_wait(pid_t pid)
{
    int status;
    kill(pid, SIGKILL);
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_true(WIFSIGNALED(status));
}

static struct shared_stats stats(const struct shared *s)
{
    struct shared_stats out;
    shared_stats(s, &out);
    return out;
}

static struct slice key_of(char room[16], unsigned i)
{
    return (struct slice){ room, (size_t)snprintf(room, 16, "key-%u", i) };
}

/* --- together --- */

/* Values are one byte many times, so that a mixture shows. 0, or 1 where one was seen. */
static int set_and_get(struct shared *s, unsigned *seed)
{
    char bytes[LONGEST], room[16];
    struct slice key = key_of(room, (unsigned)rand_r(seed) % KEYS);
    struct shared_value v = { .type = SHARED_STRING,
                              .text = { bytes, (size_t)rand_r(seed) % LONGEST } };
    bool forced;
    memset(bytes, rand_r(seed), sizeof bytes);
    shared_set(s, key, &v, rand_r(seed) % 4 == 0 ? 1 : 0, &forced);
    if (shared_get(s, key_of(room, (unsigned)rand_r(seed) % KEYS), &v) != SHARED_OK)
        return 0;
    for (size_t i = 1; i < v.text.n; i++) {
        if (v.text.p[i] != v.text.p[0])
            return 1;
    }
    return 0;
}

enum { TURNS = 30000 };

/* Counts once a turn, to the end, however long the others hold the lock. */
static int count_and_mix(struct shared *s)
{
    unsigned seed = (unsigned)getpid();
    double init = 0, out;
    bool forced;
    for (int i = 0; i < TURNS; i++) {
        enum shared_result r;
        while ((r = shared_incr(s, SLICE("counter"), 1, &init, 0, &out, &forced)) == SHARED_BUSY)
            usleep(100);
        if (r != SHARED_OK || set_and_get(s, &seed) != 0)
            return 1;
    }
    return 0;
}

static void is_used_by_several(void **state)
{
    (void)state;
    struct shared *s = make(SHARED_SIZE_MIN); /* one shard, and never full */
    struct shared_value v;
    pid_t one = start(s, count_and_mix), two = start(s, count_and_mix);
    ends_with(one, 0);
    ends_with(two, 0);
    assert_int_equal(shared_get(s, SLICE("counter"), &v), SHARED_OK);
    assert_float_equal(v.number, 2 * TURNS, 0);
    assert_int_equal(stats(s).evictions, 0);
    assert_int_equal(stats(s).emptied, 0);
    shared_free(s);
}

/* Counts in a text of changing length, which is read, changed and swapped. */
static int swap_and_count(struct shared *s)
{
    for (int i = 0; i < TURNS;) {
        char next[64];
        bool forced;
        struct shared_value before, v = { .type = SHARED_STRING };
        enum shared_result r = shared_get(s, SLICE("swapped"), &before);
        if (r == SHARED_BUSY) {
            usleep(100);
            continue;
        }
        bool known = r == SHARED_OK;
        unsigned long n = known ? strtoul(before.text.p, NULL, 10) + 1 : 1;
        v.text = (struct slice){ next, (size_t)snprintf(next, sizeof next, "%lu%.*s", n,
                                                        (int)(n % 20), " counted so far, ...") };
        char kept[64]; /* what get gave is borrowed */
        if (known)
            memcpy(kept, before.text.p, before.text.n);
        before.text.p = kept;
        r = shared_swap(s, SLICE("swapped"), known ? &before : NULL, &v, 0, &forced);
        i += r == SHARED_OK;
        if (r != SHARED_OK && r != SHARED_CHANGED && r != SHARED_BUSY)
            return 1;
    }
    return 0;
}

static void swaps_lose_nothing(void **state)
{
    (void)state;
    struct shared *s = make(SHARED_SIZE_MIN);
    struct shared_value v;
    pid_t one = start(s, swap_and_count), two = start(s, swap_and_count);
    ends_with(one, 0);
    ends_with(two, 0);
    assert_int_equal(shared_get(s, SLICE("swapped"), &v), SHARED_OK);
    assert_int_equal(strtoul(v.text.p, NULL, 10), 2 * TURNS);
    shared_free(s);
}

/* --- an owner that stops, or dies --- */

static int told[2];

static void tell_and_stop(void)
{
    if (write(told[1], "x", 1) == 1)
        pause();
}

static int stop_within_a_set(struct shared *s)
{
    char bytes[1000] = { 0 };
    struct shared_value v = { .type = SHARED_STRING, .text = { bytes, sizeof bytes } };
    bool forced;
    shared_set_hooks(s, NULL, tell_and_stop);
    shared_set(s, SLICE("half"), &v, 0, &forced);
    return 1;
}

static void outlives_an_owner(void **state)
{
    (void)state;
    struct shared *s = make(SHARED_SIZE_MIN);
    struct shared_value v = { .type = SHARED_NUMBER, .number = 1 };
    struct timespec from, to;
    bool forced;
    char c;
    assert_int_equal(pipe(told), 0);
    assert_int_equal(shared_set(s, SLICE("whole"), &v, 0, &forced), SHARED_OK);
    pid_t pid = start(s, stop_within_a_set);
    assert_int_equal(read(told[0], &c, 1), 1);
    /* Each is a miss, and few of them wait: all of them would for 25 s. */
    clock_gettime(CLOCK_MONOTONIC, &from);
    for (int i = 0; i < 5000; i++)
        assert_int_equal(shared_get(s, SLICE("whole"), &v), SHARED_BUSY);
    clock_gettime(CLOCK_MONOTONIC, &to);
    assert_true(to.tv_sec - from.tv_sec < 12);
    assert_int_equal(shared_set(s, SLICE("whole"), &v, 0, &forced), SHARED_BUSY);
    assert_int_equal(shared_flush(s), SHARED_BUSY);
    assert_int_equal(stats(s).lock_misses, 5002);
    assert_int_equal(stats(s).emptied, 0);
    kill_and_wait(pid);
    assert_int_equal(shared_get(s, SLICE("whole"), &v), SHARED_NOT_FOUND);
    assert_int_equal(stats(s).emptied, 1);
    assert_int_equal(stats(s).bytes, 0);
    v = (struct shared_value){ .type = SHARED_NUMBER, .number = 1 };
    assert_int_equal(shared_set(s, SLICE("whole"), &v, 0, &forced), SHARED_OK);
    assert_int_equal(shared_get(s, SLICE("whole"), &v), SHARED_OK);
    assert_int_equal(stats(s).emptied, 1);
    shared_free(s);
    close(told[0]);
    close(told[1]);
}

/* Dies within the set that finds that the one before it had died. */
static void dies_again(void **state)
{
    (void)state;
    struct shared *s = make(SHARED_SIZE_MIN);
    struct shared_value v;
    char c;
    assert_int_equal(pipe(told), 0);
    for (int i = 1; i <= 3; i++) {
        pid_t pid = start(s, stop_within_a_set);
        assert_int_equal(read(told[0], &c, 1), 1);
        kill_and_wait(pid);
        assert_int_equal(stats(s).emptied, i - 1);
    }
    assert_int_equal(shared_get(s, SLICE("half"), &v), SHARED_NOT_FOUND);
    assert_int_equal(stats(s).emptied, 3);
    shared_free(s);
    close(told[0]);
    close(told[1]);
}

static int mix_for_ever(struct shared *s)
{
    unsigned seed = (unsigned)getpid();
    if (write(told[1], "x", 1) != 1)
        return 1;
    while (set_and_get(s, &seed) == 0)
        ;
    return 1;
}

/* Killed wherever they are, again and again, beside one that goes on. */
static void outlives_many(void **state)
{
    (void)state;
    struct shared *s = make(SHARED_SIZE_MIN);
    unsigned seed = 1;
    char c;
    assert_int_equal(pipe(told), 0);
    for (int i = 0; i < 60; i++) {
        pid_t pid = start(s, mix_for_ever);
        assert_int_equal(read(told[0], &c, 1), 1);
        for (int k = 0; k < 100 + i * 10; k++)
            assert_int_equal(set_and_get(s, &seed), 0);
        kill_and_wait(pid);
    }
    print_message("%d deaths, %d of them within an operation\n", 60, (int)stats(s).emptied);
    for (int k = 0; k < 1000; k++)
        assert_int_equal(set_and_get(s, &seed), 0);
    assert_in_range(stats(s).entries, 1, KEYS);
    for (unsigned k = 0; k < KEYS; k++) {
        char room[16];
        shared_delete(s, key_of(room, k));
    }
    assert_int_equal(stats(s).entries, 0);
    assert_int_equal(stats(s).bytes, 0);
    shared_free(s);
    close(told[0]);
    close(told[1]);
}

/* --- measuring --- */

enum { OPERATIONS = 1000000, MEASURED_KEYS = 1000 };

static struct measured {
    const char *name;
    int op; /* 0 get, 1 set, 2 incr */
    size_t value_n;
    unsigned keys;
} measured;

static int measure_one(struct shared *s)
{
    static char bytes[65536];
    char room[MEASURED_KEYS][16];
    struct slice keys[MEASURED_KEYS];
    struct shared_value v, value = { .type = SHARED_STRING, .text = { bytes, measured.value_n } };
    double out, init = 0;
    bool forced;
    int n = OPERATIONS / (1 + (int)(measured.value_n / 1000));
    uint32_t seed = (uint32_t)getpid();
    struct timespec from, to;
    for (unsigned i = 0; i < measured.keys; i++)
        keys[i] = key_of(room[i], i);
    clock_gettime(CLOCK_MONOTONIC, &from);
    for (int i = 0; i < n; i++) {
        seed = seed * 1664525 + 1013904223;
        struct slice key = keys[(seed >> 8) % measured.keys];
        if (measured.op == 0)
            shared_get(s, key, &v);
        else if (measured.op == 1)
            shared_set(s, key, &value, 60000, &forced);
        else
            shared_incr(s, key, 1, &init, 0, &out, &forced);
    }
    clock_gettime(CLOCK_MONOTONIC, &to);
    double ns = 1e9 * (double)(to.tv_sec - from.tv_sec) + (double)(to.tv_nsec - from.tv_nsec);
    printf("  %7.0f", ns / n);
    return fflush(stdout);
}

static int measure(void)
{
    static const struct measured all[] = {
        { "get, 100 bytes", 0, 100, MEASURED_KEYS },
        { "set, 100 bytes", 1, 100, MEASURED_KEYS },
        { "incr", 2, 8, MEASURED_KEYS },
        { "incr, one key", 2, 8, 1 },
        { "get, 10 KiB", 0, 10240, 100 },
        { "set, 10 KiB", 1, 10240, 100 },
        { "get, 64 KiB", 0, 65536, 10 },
        { "set, 64 KiB", 1, 65536, 10 },
    };
    printf("ns an operation: alone; by each of two processes at once; lock misses\n");
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
        struct shared *s = make(16 << 20);
        static char bytes[65536];
        measured = all[i];
        for (unsigned k = 0; k < measured.keys && measured.op != 2; k++) {
            char room[16];
            bool forced;
            struct shared_value v = { .type = SHARED_STRING, .text = { bytes, measured.value_n } };
            shared_set(s, key_of(room, k), &v, 60000, &forced);
        }
        printf("%-16s", measured.name);
        ends_with(start(s, measure_one), 0);
        pid_t one = start(s, measure_one), two = start(s, measure_one);
        ends_with(one, 0);
        ends_with(two, 0);
        printf("  %5d\n", (int)stats(s).lock_misses);
        shared_free(s);
    }
    return 0;
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(is_used_by_several), cmocka_unit_test(swaps_lose_nothing),
        cmocka_unit_test(outlives_an_owner),  cmocka_unit_test(dies_again),
        cmocka_unit_test(outlives_many),
    };
    if (argc > 1 && strcmp(argv[1], "measure") == 0)
        return measure();
    return cmocka_run_group_tests(tests, NULL, NULL);
}
