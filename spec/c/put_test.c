/* put: numbers and short texts, at the edges of what each way of writing takes. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <inttypes.h>
#include <stdio.h>

#include "put.h"

static void writes_numbers(void **state)
{
    static const uint64_t all[] = { 0,    9,     10,     99,      100,           999,       1000,
                                    1001, 10099, 999999, 1000000, 1000000000000, UINT64_MAX };
    (void)state;
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
        char got[PUT_NUMBER + 1], want[PUT_NUMBER + 1];
        snprintf(want, sizeof want, "%" PRIu64, all[i]);
        *put_number(got, all[i]) = '\0';
        assert_string_equal(got, want);
    }
}

static void writes_seconds(void **state)
{
    static const uint64_t all[] = { 0, 9, 10, 999, 1000, 1001, 59999, 12345678 };
    (void)state;
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
        char got[PUT_SECONDS + 1], want[PUT_SECONDS + 32];
        snprintf(want, sizeof want, "%" PRIu64 ".%03u", all[i] / 1000, (unsigned)(all[i] % 1000));
        *put_seconds(got, all[i]) = '\0';
        assert_string_equal(got, want);
    }
}

static void writes_short_texts(void **state)
{
    static const char text[] = "abcdefghijklmnopqrstuvwxyz0123456789ABCD";
    (void)state;
    for (size_t n = 0; n < sizeof text; n++) {
        char got[sizeof text];
        memset(got, '#', sizeof got);
        assert_ptr_equal(put_short(got, (struct slice){ text, n }), got + n);
        assert_memory_equal(got, text, n);
        assert_int_equal(got[n], '#');
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(writes_numbers),
        cmocka_unit_test(writes_seconds),
        cmocka_unit_test(writes_short_texts),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
