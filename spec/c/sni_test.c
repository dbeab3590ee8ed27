/* Certificates by name: exact before wildcard, one label deep, in any case. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <stdio.h>
#include <string.h>

#include "sni.h"

static int find(struct sni *s, const char *name)
{
    return sni_find(s, slice_of(name));
}

static void nothing_is_found_in_an_empty_one(void **state)
{
    (void)state;
    struct sni *s = sni_new();
    assert_int_equal(find(s, "a.test"), -1);
    assert_int_equal(find(s, ""), -1);
    sni_free(s);
    sni_free(NULL);
}

static void exact_comes_before_wildcard(void **state)
{
    (void)state;
    struct sni *s = sni_new();
    sni_add(s, SLICE("*.a.test"), 1);
    sni_add(s, SLICE("x.a.test"), 2);
    sni_add(s, SLICE("X.a.TEST"), 3); /* there already */
    sni_add(s, SLICE("a.test"), 4);
    assert_int_equal(find(s, "x.a.test"), 2);
    assert_int_equal(find(s, "X.A.test."), 2);
    assert_int_equal(find(s, "y.a.test"), 1);
    assert_int_equal(find(s, "a.test"), 4);
    sni_add(s, SLICE("y.a.test"), 5); /* after a look-up */
    assert_int_equal(find(s, "y.a.test"), 5);
    sni_free(s);
}

static void a_wildcard_is_one_label(void **state)
{
    (void)state;
    struct sni *s = sni_new();
    sni_add(s, SLICE("*.a.test"), 0);
    assert_int_equal(find(s, "x.y.a.test"), -1);
    assert_int_equal(find(s, "a.test"), -1);
    assert_int_equal(find(s, ".a.test"), -1);
    assert_int_equal(find(s, "xa.test"), -1);
    sni_free(s);
}

static void what_is_no_name_is_not_found(void **state)
{
    (void)state;
    char longest[300];
    struct sni *s = sni_new();
    memset(longest, 'a', sizeof longest);
    sni_add(s, (struct slice){ longest, SNI_NAME_MAX }, 1);
    sni_add(s, (struct slice){ longest, SNI_NAME_MAX + 1 }, 2);
    sni_add(s, SLICE(""), 3);
    sni_add(s, SLICE("."), 3);
    sni_add(s, (struct slice){ "a\0b", 3 }, 3);
    sni_add(s, SLICE("*.b.test"), 4);
    assert_int_equal(sni_find(s, (struct slice){ longest, SNI_NAME_MAX }), 1);
    assert_int_equal(sni_find(s, (struct slice){ longest, SNI_NAME_MAX + 1 }), -1);
    assert_int_equal(sni_find(s, (struct slice){ "a\0b", 3 }), -1);
    assert_int_equal(find(s, "*.b.test"), 4); /* harmless: it is a name of that certificate */
    assert_int_equal(find(s, "."), -1);
    sni_free(s);
}

static void many_are_found(void **state)
{
    (void)state;
    char name[32];
    struct sni *s = sni_new();
    for (unsigned i = 0; i < 20000; i++) {
        snprintf(name, sizeof name, i % 2 == 0 ? "n%u.test" : "*.w%u.test", i * 7919 % 20011);
        sni_add(s, slice_of(name), i);
    }
    for (unsigned i = 0; i < 20000; i++) {
        snprintf(name, sizeof name, i % 2 == 0 ? "n%u.test" : "x.w%u.test", i * 7919 % 20011);
        assert_int_equal(find(s, name), i);
    }
    sni_free(s);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(nothing_is_found_in_an_empty_one),
        cmocka_unit_test(exact_comes_before_wildcard),
        cmocka_unit_test(a_wildcard_is_one_label),
        cmocka_unit_test(what_is_no_name_is_not_found),
        cmocka_unit_test(many_are_found),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
