/* target_state.c: a table that processes share, found by key, full, and taken over. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "target_state.h"

static struct target_table *table(void)
{
    void *p =
        mmap(NULL, target_table_size(), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    assert_ptr_not_equal(MAP_FAILED, p);
    return p;
}

static void test_one(void **state)
{
    (void)state;
    struct target_table *t = table();
    struct target_state a = target_table_get(t, 7, "x", 100),
                        again = target_table_get(t, 7, "x", 200),
                        b = target_table_get(t, 7 + TARGET_STATES, "x", 100), none = { 0 };
    target_state_out(&a, 5000);
    target_state_out(&again, 4000); /* an earlier time changes nothing */
    assert_int_equal(5000, target_state_until(&again));
    assert_int_equal(0, target_state_until(&b));
    target_state_set_health(&b, TARGET_HEALTH_DOWN, 50);
    assert_int_equal(TARGET_HEALTH_DOWN, target_state_health(&b, 49));
    assert_int_equal(TARGET_HEALTH_UNKNOWN, target_state_health(&b, 50)); /* believed no more */
    assert_int_equal(TARGET_HEALTH_UNKNOWN, target_state_health(&a, 49));
    target_state_out(&none, 1);
    target_state_set_health(&none, TARGET_HEALTH_UP, 50);
    assert_int_equal(0, target_state_until(&none));
    assert_int_equal(TARGET_HEALTH_UNKNOWN, target_state_health(&none, 0));
    for (uint64_t key = 0; key < 3; key++) /* keys that mean something else inside */
        assert_non_null(target_table_get(t, key, "x", 1).entry);
    munmap(t, target_table_size());
}

/* What was not named for the longest makes room, and who holds it still learns nothing of others.
 */
static void test_full(void **state)
{
    (void)state;
    struct target_table *t = table();
    struct target_state first = target_table_get(t, 5, "x", 1);
    target_state_out(&first, 9000);
    for (uint64_t i = 1; i <= 40; i++) {
        struct target_state s = target_table_get(t, 5 + i * TARGET_STATES, "x", 1 + i);
        assert_non_null(s.entry);
        assert_int_equal(0, target_state_until(&s));
        target_state_out(&s, i);
        assert_int_equal(i, target_state_until(&s));
    }
    assert_int_equal(0, target_state_until(&first));
    target_state_out(&first, 9999);
    struct target_state last = target_table_get(t, 5 + 40ull * TARGET_STATES, "x", 100);
    assert_int_equal(40, target_state_until(&last));
    munmap(t, target_table_size());
}

/* Workers of one configuration find the same entries, whoever comes first. */
static void test_processes(void **state)
{
    (void)state;
    enum { WORKERS = 4, KEYS = 500 };
    struct target_table *t = table();
    for (int w = 0; w < WORKERS; w++) {
        if (fork() != 0)
            continue;
        for (uint64_t k = 0; k < KEYS; k++) {
            struct target_state s = target_table_get(t, k * 0x9e3779b97f4a7c15ull + 2, "x", 1);
            target_state_out(&s, 1000 + k);
            if (target_state_until(&s) != 1000 + k)
                _exit(1);
        }
        _exit(0);
    }
    for (int w = 0; w < WORKERS; w++) {
        int status;
        assert_true(wait(&status) > 0);
        assert_int_equal(0, status);
    }
    for (uint64_t k = 0; k < KEYS; k++) {
        struct target_state s = target_table_get(t, k * 0x9e3779b97f4a7c15ull + 2, "x", 2);
        assert_int_equal(1000 + k, target_state_until(&s));
    }
    munmap(t, target_table_size());
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_one),
        cmocka_unit_test(test_full),
        cmocka_unit_test(test_processes),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
