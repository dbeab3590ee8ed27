/* cidr: which texts are addresses and networks, and what a network holds. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "cidr.h"

static void parses_addresses(void **state)
{
    static const char *const good[][2] = {
        { "1.2.3.4", "1.2.3.4" },         { "::1", "::1" },
        { "2001:DB8::7", "2001:db8::7" }, { "::ffff:1.2.3.4", "1.2.3.4" },
        { "::ffff:102:304", "1.2.3.4" },  { "0:0:0:0:0:0:0:0", "::" },
    };
    static const char *const bad[] = { "",
                                       "1.2.3",
                                       "1.2.3.256",
                                       "01.2.3.4",
                                       "::1%lo",
                                       "[::1]",
                                       "1.2.3.4:80",
                                       "1::2::3",
                                       " ::1",
                                       "a.b.c.d",
                                       "1.2.3.4 ",
                                       "12345::",
                                       "::ffff:1.2.3.4.5.6.7.8.9.10.11.12.13.14.15" };
    char text[IP_TEXT];
    struct ip ip;
    (void)state;
    for (size_t i = 0; i < sizeof good / sizeof *good; i++) {
        assert_int_equal(ip_parse(slice_of(good[i][0]), &ip), 0);
        assert_string_equal(ip_text(&ip, text), good[i][1]);
    }
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        assert_int_not_equal(ip_parse(slice_of(bad[i]), &ip), 0);
    assert_int_not_equal(ip_parse((struct slice){ "1.2.3.4\0", 8 }, &ip), 0);
    ip.size = 0;
    assert_string_equal(ip_text(&ip, text), "");
}

static void checks_networks(void **state)
{
    static const char *const bad[] = { "10.0.0.0/33",  "10.0.0.1/8",    "10.0.0.0/", "10.0.0.0/08",
                                       "10.0.0.0/-1",  "::/129",        "1::1/64",   "/8",
                                       "10.0.0.0/8/8", "::ffff:0:0/95", "unix" };
    struct cidr c;
    (void)state;
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        assert_int_not_equal(cidr_parse(slice_of(bad[i]), &c), 0);
}

static bool holds(const char *network, const char *address)
{
    struct cidr c;
    struct ip ip;
    assert_int_equal(cidr_parse(slice_of(network), &c), 0);
    assert_int_equal(ip_parse(slice_of(address), &ip), 0);
    return cidr_has(&c, &ip);
}

static void knows_what_it_holds(void **state)
{
    (void)state;
    assert_true(holds("10.0.0.0/8", "10.255.0.1"));
    assert_false(holds("10.0.0.0/8", "11.0.0.0"));
    assert_true(holds("0.0.0.0/0", "255.255.255.255"));
    assert_false(holds("0.0.0.0/0", "::1"));
    assert_true(holds("10.1.128.0/17", "10.1.200.9"));
    assert_false(holds("10.1.128.0/17", "10.1.127.255"));
    assert_true(holds("192.0.2.1", "192.0.2.1"));
    assert_false(holds("192.0.2.1/32", "192.0.2.2"));
    assert_true(holds("::ffff:10.0.0.0/104", "10.1.1.1"));
    assert_true(holds("10.0.0.0/8", "::ffff:10.1.1.1"));
    assert_true(holds("2001:db8::/33", "2001:db8:7fff::1"));
    assert_false(holds("2001:db8::/33", "2001:db8:8000::1"));
    assert_true(holds("::/0", "2001:db8::1"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(parses_addresses),
        cmocka_unit_test(checks_networks),
        cmocka_unit_test(knows_what_it_holds),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
