/* crowd.h against a plain list: whatever order clients come and go in, each has its own count. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>
#include <stdlib.h>

#include "crowd.h"

static const uint64_t SECRET[2] = { 0x0706050403020100, 0x0f0e0d0c0b0a0908 };

static struct crowd_net net(const char *text)
{
    struct ip ip = { 0 };
    assert_int_equal(0, ip_parse(slice_of(text), &ip));
    return crowd_net(&ip);
}

static uint32_t count(const struct crowd *c, const char *text)
{
    struct crowd_net n = net(text);
    return crowd_count(c, &n);
}

static void enter(struct crowd *c, const char *text)
{
    struct crowd_net n = net(text);
    crowd_enter(c, &n);
}

static void leave(struct crowd *c, const char *text)
{
    struct crowd_net n = net(text);
    crowd_leave(c, &n);
}

static void test_counts(void **state)
{
    struct crowd c;
    (void)state;
    crowd_init(&c, SECRET);
    assert_int_equal(0, count(&c, "192.0.2.1"));
    enter(&c, "192.0.2.1");
    enter(&c, "192.0.2.1");
    enter(&c, "192.0.2.2");
    assert_int_equal(2, count(&c, "192.0.2.1"));
    assert_int_equal(2, count(&c, "::ffff:192.0.2.1")); /* the same */
    assert_int_equal(1, count(&c, "192.0.2.2"));
    leave(&c, "192.0.2.1");
    assert_int_equal(1, count(&c, "192.0.2.1"));
    leave(&c, "192.0.2.1");
    assert_int_equal(0, count(&c, "192.0.2.1"));
    assert_int_equal(1, c.used);
    crowd_deinit(&c);
}

static void test_prefix(void **state)
{
    struct crowd c;
    (void)state;
    crowd_init(&c, SECRET);
    enter(&c, "2001:db8:0:1::1");
    enter(&c, "2001:db8:0:1:ffff:ffff:ffff:ffff");
    enter(&c, "2001:db8:0:2::1");
    assert_int_equal(2, count(&c, "2001:db8:0:1:1234::"));
    assert_int_equal(1, count(&c, "2001:db8:0:2::"));
    assert_int_equal(0, count(&c, "32.1.13.184")); /* the same first bytes, another family */
    crowd_deinit(&c);
}

static void test_none(void **state)
{
    struct ip none = { 0 };
    struct crowd_net n = crowd_net(&none);
    struct crowd c;
    (void)state;
    crowd_init(&c, SECRET);
    crowd_enter(&c, &n);
    crowd_enter(&c, &n);
    assert_int_equal(0, crowd_count(&c, &n));
    crowd_leave(&c, &n);
    assert_int_equal(0, c.used);
    crowd_deinit(&c);
}

enum { CLIENTS = 700, STEPS = 200000 };

static struct crowd_net numbered(unsigned i)
{
    return (struct crowd_net){ 4, { 10, 0, (uint8_t)(i >> 8), (uint8_t)i } };
}

static void check_all(const struct crowd *c, const uint32_t *expected)
{
    uint32_t used = 0;
    for (unsigned i = 0; i < CLIENTS; i++) {
        struct crowd_net n = numbered(i);
        assert_int_equal(expected[i], crowd_count(c, &n));
        used += expected[i] > 0;
    }
    assert_int_equal(used, c->used);
}

/* Waves that fill the table and empty it again. */
static void test_any_order(void **state)
{
    uint32_t expected[CLIENTS] = { 0 };
    struct crowd c;
    (void)state;
    srand(1);
    crowd_init(&c, SECRET);
    for (unsigned step = 0; step < STEPS; step++) {
        unsigned i = (unsigned)rand() % CLIENTS;
        bool comes = rand() % 100 < (step / 5000 % 2 == 0 ? 80 : 20);
        struct crowd_net n = numbered(i);
        if (comes && ++expected[i] > 0)
            crowd_enter(&c, &n);
        else if (expected[i] > 0 && expected[i]-- > 0)
            crowd_leave(&c, &n);
        if (step % 1000 == 0)
            check_all(&c, expected);
    }
    check_all(&c, expected);
    assert_true(c.cap <= 1024); /* as many as 700 take, however many came and went */
    crowd_deinit(&c);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_counts),
        cmocka_unit_test(test_prefix),
        cmocka_unit_test(test_none),
        cmocka_unit_test(test_any_order),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
