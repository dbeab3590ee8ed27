/* candidates: the order in which a name's addresses are tried. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <string.h>

#include "candidates.h"

static struct ip ip(const char *text)
{
    struct ip ip;
    assert_int_equal(ip_parse(slice_of(text), &ip), 0);
    return ip;
}

static void set(struct candidates *c, bool gone, unsigned n, ...)
{
    struct ip v[8];
    va_list ap;
    va_start(ap, n);
    for (unsigned i = 0; i < n; i++)
        v[i] = ip(va_arg(ap, const char *));
    va_end(ap);
    assert_int_equal(candidates_set(c, v, n), gone);
}

/* The order as one text. */
static const char *order(struct candidates *a, struct candidates *b, uint64_t now, unsigned max)
{
    static char out[512];
    struct ip v[8];
    char text[IP_TEXT];
    unsigned n = candidates_order(a, b, now, v, max);
    out[0] = '\0';
    for (unsigned i = 0; i < n; i++) {
        strcat(out, i > 0 ? " " : "");
        strcat(out, ip_text(&v[i], text));
    }
    return out;
}

static void alternates_families(void **state)
{
    struct candidates six = { 0 }, four = { 0 };
    (void)state;
    set(&six, false, 1, "::1");
    set(&four, false, 3, "1.0.0.1", "1.0.0.2", "1.0.0.3");
    assert_string_equal(order(&six, &four, 1, 8), "::1 1.0.0.1 1.0.0.2 1.0.0.3");
    assert_string_equal(order(&six, &four, 1, 8), "::1 1.0.0.2 1.0.0.3 1.0.0.1");
    assert_string_equal(order(&four, &six, 1, 8), "1.0.0.3 ::1 1.0.0.1 1.0.0.2");
    assert_string_equal(order(&four, &six, 1, 2), "1.0.0.1 ::1");
    candidates_deinit(&six);
    assert_string_equal(order(&six, &four, 1, 8), "1.0.0.2 1.0.0.3 1.0.0.1");
    candidates_deinit(&four);
    assert_string_equal(order(&six, &four, 1, 8), "");
}

static void puts_bad_ones_last(void **state)
{
    struct candidates six = { 0 }, four = { 0 };
    struct ip bad = ip("::1");
    (void)state;
    set(&six, false, 1, "::1");
    set(&four, false, 1, "1.0.0.1");
    struct candidate *c = candidates_find(&six, &bad);
    for (unsigned i = 0; i <= CANDIDATES_BAD_DOUBLINGS + 1; i++) {
        uint64_t now = 1000000ull * (i + 1);
        unsigned doublings = i < CANDIDATES_BAD_DOUBLINGS ? i : CANDIDATES_BAD_DOUBLINGS;
        uint64_t end = now + ((uint64_t)CANDIDATES_BAD_MS << doublings);
        candidate_failed(c, now);
        assert_string_equal(order(&six, &four, end - 1, 8), "1.0.0.1 ::1");
        assert_string_equal(order(&six, &four, end, 8), "::1 1.0.0.1");
    }
    candidate_worked(c);
    candidate_failed(c, 1000);
    assert_string_equal(order(&six, &four, 1000 + CANDIDATES_BAD_MS, 8), "::1 1.0.0.1");
    candidates_deinit(&six);
    candidates_deinit(&four);
}

static void keeps_what_it_knows(void **state)
{
    struct candidates c = { 0 }, none = { 0 };
    struct ip first = ip("1.0.0.1");
    (void)state;
    set(&c, false, 2, "1.0.0.1", "1.0.0.2");
    candidate_failed(candidates_find(&c, &first), 0);
    set(&c, false, 4, "1.0.0.3", "1.0.0.1", "1.0.0.1", "1.0.0.2");
    assert_int_equal(c.n, 3); /* without what came twice */
    assert_string_equal(order(&c, &none, 1, 8), "1.0.0.3 1.0.0.2 1.0.0.1");
    set(&c, true, 1, "1.0.0.1");
    assert_string_equal(order(&c, &none, 1, 8), "1.0.0.1");
    set(&c, true, 0);
    assert_int_equal(c.n, 0);
    set(&c, false, 1, "1.0.0.1"); /* what came back is new */
    assert_int_equal(c.v[0].fails, 0);
    candidates_deinit(&c);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(alternates_families),
        cmocka_unit_test(puts_bad_ones_last),
        cmocka_unit_test(keeps_what_it_knows),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
