/* pace.h: time and bytes are given, so that each border is met exactly. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "pace.h"

static void is_judged_by_whole_windows(void **state)
{
    struct pace p = { 0, 0, 0 };
    (void)state;
    pace_turn(&p, true, 1000);
    pace_turn(&p, true, 1999);
    assert_false(pace_slow(&p, 10, 1000)); /* a window has not ended yet */
    p.bytes = 10;
    pace_turn(&p, true, 2000);
    assert_false(pace_slow(&p, 10, 1000));
    p.bytes = 9; /* of the next one */
    pace_turn(&p, true, 3000);
    assert_true(pace_slow(&p, 10, 1000));
}

static void is_not_judged_by_time_of_others(void **state)
{
    struct pace p = { 0, 0, 0 };
    (void)state;
    pace_turn(&p, true, 1000);
    pace_turn(&p, false, 1400);
    pace_turn(&p, false, 50000);
    pace_turn(&p, true, 90000);
    assert_false(pace_slow(&p, 10, 1000));
    pace_turn(&p, true, 90599);
    assert_false(pace_slow(&p, 10, 1000));
    pace_turn(&p, true, 90600);
    assert_true(pace_slow(&p, 10, 1000));
}

static void is_never_slow_without_a_rate(void **state)
{
    struct pace p = { 0, 0, 0 };
    (void)state;
    pace_turn(&p, true, 1);
    pace_turn(&p, true, 1000000);
    assert_false(pace_slow(&p, 0, 1000));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(is_judged_by_whole_windows),
        cmocka_unit_test(is_not_judged_by_time_of_others),
        cmocka_unit_test(is_never_slow_without_a_rate),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
