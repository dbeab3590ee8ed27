/* retry.c: what is retried, Retry-After, and the budget with a clock of its own. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "retry.h"

static void test_policy(void **state)
{
    (void)state;
    struct retry_policy p = { 0 };
    static const int statuses[] = { 400, 429, 463, 464, 500, 529, 599 };
    for (size_t i = 0; i < sizeof statuses / sizeof *statuses; i++)
        retry_add_status(&p, statuses[i]);
    int found = 0;
    for (int s = 0; s < 1000; s++)
        found += retry_status(&p, s);
    assert_int_equal(7, found);
    assert_true(retry_status(&p, 529));
    assert_false(retry_status(&p, -1));
    assert_true(retry_add_error(&p, SLICE("closed")));
    assert_false(retry_add_error(&p, SLICE("cut")));
    assert_true(retry_error(&p, "closed"));
    assert_false(retry_error(&p, "connect"));
    assert_false(retry_error(&p, "client_gone"));
}

static int64_t after(const char *name, const char *value)
{
    struct arena a;
    struct headers h;
    arena_init(&a);
    headers_init(&h, &a);
    headers_add(&h, slice_of(name), slice_of(value));
    int64_t ms = retry_after_ms(&h, 784111717000); /* Sun, 06 Nov 1994 08:48:37 GMT */
    arena_deinit(&a);
    return ms;
}

static void test_retry_after(void **state)
{
    (void)state;
    assert_int_equal(2000, after("retry-after", "2"));
    assert_int_equal(0, after("retry-after", "0"));
    assert_int_equal(1500, after("retry-after", "1.5"));
    assert_int_equal(20, after("retry-after-ms", "19.5"));
    assert_int_equal(60000, after("retry-after", "Sun, 06 Nov 1994 08:49:37 GMT"));
    assert_int_equal(0, after("retry-after", "Sun, 06 Nov 1994 08:47:37 GMT"));
    assert_int_equal(-1, after("x", "2"));
    static const char *const none[] = {
        "", "-1", "soon", "2s", "0x10", "1e99", "nan", "99999999999999999999999999999999999999999"
    };
    for (size_t i = 0; i < sizeof none / sizeof *none; i++)
        assert_int_equal(-1, after("retry-after", none[i]));
}

static int spend_all(struct retry_budget *b, double share, uint64_t now)
{
    int n = 0;
    for (; n < 100000 && retry_budget_left(b, share, now); n++)
        retry_budget_spend(b, now);
    return n;
}

static void test_budget(void **state)
{
    (void)state;
    struct retry_budget b = { 0 };
    uint64_t now = 123456789000;
    assert_int_equal(RETRY_MIN, spend_all(&b, 0.2, now)); /* a quiet gateway retries too */
    assert_int_equal(0, spend_all(&b, 0.2, now + 9000));
    assert_int_equal(RETRY_MIN, spend_all(&b, 0.2, now + 10000));
    b = (struct retry_budget){ 0 };
    for (int i = 0; i < 1000; i++)
        retry_budget_request(&b, now + (uint64_t)i * 5); /* 200 a second */
    assert_int_equal(RETRY_MIN + 200, spend_all(&b, 0.2, now + 5000));
    assert_int_equal(0, spend_all(&b, 0.2, now + 9999));
    assert_int_equal(RETRY_MIN, spend_all(&b, 0.2, now + 1000000)); /* all forgotten */
    b = (struct retry_budget){ 0 };
    assert_int_equal(0, spend_all(&b, 0, now));
}

/* Half of all requests fail: what goes up is bounded, second by second. */
static void test_outage(void **state)
{
    (void)state;
    struct retry_budget b = { 0 };
    int requests = 0, retries = 0;
    for (uint64_t ms = 0; ms < 60000; ms += 2) {
        requests++;
        retry_budget_request(&b, 5000 + ms);
        if (ms % 4 == 0 && retry_budget_left(&b, 0.2, 5000 + ms)) {
            retry_budget_spend(&b, 5000 + ms);
            retries++;
        }
    }
    assert_in_range(retries, requests / 5 - requests / 50, requests / 5 + RETRY_MIN * 6);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_policy),
        cmocka_unit_test(test_retry_after),
        cmocka_unit_test(test_budget),
        cmocka_unit_test(test_outage),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
