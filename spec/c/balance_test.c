/* balance.c: turns, tiers and load, exact. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "balance.h"

#define ALL UINT64_MAX

static void picks(struct balance_item *v, uint32_t n, enum balance_kind kind, uint64_t left,
                  uint32_t times, uint32_t *count)
{
    for (uint32_t i = 0; i < times; i++) {
        int at = balance_pick(v, n, kind, left);
        assert_in_range(at, 0, n - 1);
        count[at]++;
    }
}

static void test_smooth(void **state)
{
    (void)state;
    struct balance_item v[3] = { { 5, 1, 0, 0 }, { 1, 1, 0, 0 }, { 1, 1, 0, 0 } };
    static const int expected[] = { 0, 0, 1, 0, 2, 0, 0 }; /* as nginx's change log shows */
    for (int round = 0; round < 3; round++)
        for (int i = 0; i < 7; i++)
            assert_int_equal(expected[i], balance_pick(v, 3, BALANCE_ROUND_ROBIN, ALL));
}

static void test_exact_from_any_turn(void **state)
{
    (void)state;
    for (uint32_t turns = 0; turns < 12; turns++) {
        struct balance_item v[4] = {
            { 5, 1, 0, 0 }, { 3, 1, 0, 0 }, { 0, 1, 0, 0 }, { 2, 1, 0, 0 }
        };
        uint32_t count[4] = { 0 };
        balance_turn(v, 4, turns);
        picks(v, 4, BALANCE_ROUND_ROBIN, ALL, 10000, count);
        assert_int_equal(5000, count[0]);
        assert_int_equal(3000, count[1]);
        assert_int_equal(0, count[2]);
        assert_int_equal(2000, count[3]);
    }
}

static void test_tiers(void **state)
{
    (void)state;
    struct balance_item v[4] = { { 1, 3, 0, 0 }, { 2, 1, 0, 0 }, { 1, 1, 0, 0 }, { 0, 1, 0, 0 } };
    uint32_t count[4] = { 0 };
    picks(v, 4, BALANCE_ROUND_ROBIN, ALL, 300, count);
    assert_int_equal(200, count[1]);
    assert_int_equal(100, count[2]);
    picks(v, 4, BALANCE_ROUND_ROBIN, ~(uint64_t)2, 10, count);
    assert_int_equal(110, count[2]);
    assert_int_equal(0, count[0]);
    assert_int_equal(0, balance_pick(v, 4, BALANCE_ROUND_ROBIN, ~(uint64_t)6));
    assert_int_equal(-1, balance_pick(v, 4, BALANCE_ROUND_ROBIN, ~(uint64_t)7));
    assert_int_equal(-1, balance_pick(v, 0, BALANCE_ROUND_ROBIN, ALL));
}

/* What is left out for a while does not gain turns that it would make up for later. */
static void test_return_without_a_burst(void **state)
{
    (void)state;
    struct balance_item v[2] = { { 1, 1, 0, 0 }, { 1, 1, 0, 0 } };
    uint32_t count[2] = { 0 };
    picks(v, 2, BALANCE_ROUND_ROBIN, 1, 1000, count);
    picks(v, 2, BALANCE_ROUND_ROBIN, ALL, 10, count);
    assert_int_equal(1005, count[0]);
    assert_int_equal(5, count[1]);
}

static void test_least_in_flight(void **state)
{
    (void)state;
    struct balance_item v[3] = { { 1, 1, 0, 0 }, { 4, 1, 0, 0 }, { 0, 1, 0, 0 } };
    for (int i = 0; i < 50; i++)
        v[balance_pick(v, 3, BALANCE_LEAST_IN_FLIGHT, ALL)].inflight++;
    assert_int_equal(10, v[0].inflight);
    assert_int_equal(40, v[1].inflight);
    v[0].inflight = 0;
    assert_int_equal(0, balance_pick(v, 3, BALANCE_LEAST_IN_FLIGHT, ALL));
    v[1].inflight = 1000000; /* a slow one gets nothing more */
    uint32_t count[3] = { 0 };
    picks(v, 3, BALANCE_LEAST_IN_FLIGHT, ALL, 100, count);
    assert_int_equal(100, count[0]);
    /* Idle ones take turns. */
    struct balance_item idle[2] = { { 1, 1, 0, 0 }, { 1, 1, 0, 0 } };
    uint32_t even[2] = { 0 };
    picks(idle, 2, BALANCE_LEAST_IN_FLIGHT, ALL, 10, even);
    assert_int_equal(5, even[0]);
    /* The highest of bits */
    struct balance_item many[BALANCE_MAX];
    for (int i = 0; i < BALANCE_MAX; i++)
        many[i] = (struct balance_item){ 1, 1, 0, 0 };
    assert_int_equal(63,
                     balance_pick(many, BALANCE_MAX, BALANCE_LEAST_IN_FLIGHT, (uint64_t)1 << 63));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_smooth),          cmocka_unit_test(test_exact_from_any_turn),
        cmocka_unit_test(test_tiers),           cmocka_unit_test(test_return_without_a_burst),
        cmocka_unit_test(test_least_in_flight),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
