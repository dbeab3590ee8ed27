/* health_count.c: thresholds, and what breaks a row. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "health_count.h"

struct run {
    struct health_count count;
    enum target_health health;
};

static bool result(struct run *r, bool good)
{
    static const struct health_thresholds t = { .healthy = 2, .unhealthy = 3 };
    return health_count_result(&r->count, &t, good, &r->health);
}

static void test_down_and_up(void **state)
{
    (void)state;
    struct run r = { .health = TARGET_HEALTH_UNKNOWN };
    assert_false(result(&r, false));
    assert_false(result(&r, false));
    assert_int_equal(TARGET_HEALTH_UNKNOWN, r.health);
    assert_true(result(&r, false));
    assert_int_equal(TARGET_HEALTH_DOWN, r.health);
    assert_false(result(&r, false)); /* told once */
    assert_false(result(&r, true));
    assert_int_equal(TARGET_HEALTH_DOWN, r.health);
    assert_true(result(&r, true));
    assert_int_equal(TARGET_HEALTH_UP, r.health);
    assert_false(result(&r, true));
}

static void test_a_row_breaks(void **state)
{
    (void)state;
    struct run r = { .health = TARGET_HEALTH_UP };
    for (int i = 0; i < 10; i++) {
        assert_false(result(&r, false));
        assert_false(result(&r, false));
        assert_false(result(&r, true));
    }
    assert_int_equal(TARGET_HEALTH_UP, r.health);
    r.health = TARGET_HEALTH_DOWN;
    r.count = (struct health_count){ 0, 0 };
    for (int i = 0; i < 10; i++) {
        assert_false(result(&r, true));
        assert_false(result(&r, false));
    }
    assert_int_equal(TARGET_HEALTH_DOWN, r.health);
}

/* Another worker found the target down before this one began to count. */
static void test_goes_on_from_what_is_known(void **state)
{
    (void)state;
    struct run r = { .health = TARGET_HEALTH_DOWN };
    assert_false(result(&r, true));
    assert_true(result(&r, true));
    assert_int_equal(TARGET_HEALTH_UP, r.health);
}

static void test_never_overflows(void **state)
{
    (void)state;
    struct run r = { .health = TARGET_HEALTH_UP, .count = { .good = 2 } };
    for (int i = 0; i < 1000; i++)
        result(&r, true);
    assert_int_equal(2, r.count.good);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_down_and_up),
        cmocka_unit_test(test_a_row_breaks),
        cmocka_unit_test(test_goes_on_from_what_is_known),
        cmocka_unit_test(test_never_overflows),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
