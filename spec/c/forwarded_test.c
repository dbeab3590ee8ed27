/* forwarded: who the client is behind which proxies, and what origins are told. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <stdio.h>

#include "forwarded.h"

static struct arena arena;
static struct headers h;
static struct cidr nets[4];

static int setup(void **state)
{
    (void)state;
    arena_init(&arena);
    headers_init(&h, &arena);
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    arena_deinit(&arena);
    return 0;
}

/* Trusts 10.0.0.0/8, fd00::/8 and Unix sockets. */
static struct forwarded_rules rules(enum forwarded_form read, unsigned write)
{
    assert_int_equal(cidr_parse(SLICE("10.0.0.0/8"), &nets[0]), 0);
    assert_int_equal(cidr_parse(SLICE("fd00::/8"), &nets[1]), 0);
    return (struct forwarded_rules){ { nets, 2, true }, read, write };
}

static void clear(void)
{
    headers_init(&h, &arena);
}

static void add(const char *name, const char *value)
{
    headers_add(&h, slice_of(name), slice_of(value));
}

static struct forwarded read_from(const char *peer, enum forwarded_form form)
{
    struct forwarded_rules r = rules(form, form);
    struct forwarded f;
    struct ip ip = { 0 };
    if (peer[0] != '\0')
        assert_int_equal(ip_parse(slice_of(peer), &ip), 0);
    forwarded_read(&r, &ip, &h, &f);
    return f;
}

/* Who the client is, where `peer` sends one field. */
static const char *client(const char *peer, const char *field, const char *value)
{
    static char text[IP_TEXT + 8];
    char ip[IP_TEXT];
    enum forwarded_form form =
        slice_ieq(slice_of(field), SLICE("forwarded")) ? FORWARDED_RFC7239 : FORWARDED_X;
    clear();
    add(field, value);
    struct forwarded f = read_from(peer, form);
    snprintf(text, sizeof text, f.port != 0 ? "%s %d" : "%s", ip_text(&f.client, ip), f.port);
    return text;
}

static void walks_over_trusted_proxies(void **state)
{
    static const char xff[] = "X-Forwarded-For";
    (void)state;
    assert_string_equal(client("10.0.0.1", xff, "9.9.9.9"), "9.9.9.9");
    assert_string_equal(client("10.0.0.1", xff, "6.6.6.6, 9.9.9.9"), "9.9.9.9");
    assert_string_equal(client("10.0.0.1", xff, "6.6.6.6,9.9.9.9 ,10.1.1.1, fd00::7"), "9.9.9.9");
    assert_string_equal(client("10.0.0.1", xff, "10.0.0.3, 10.0.0.2"), "10.0.0.3");
    assert_string_equal(client("fd00::1", xff, "2001:db8::5"), "2001:db8::5");
    assert_string_equal(client("10.0.0.1", xff, "[2001:db8::5]:4711"), "2001:db8::5 4711");
    assert_string_equal(client("10.0.0.1", xff, "9.9.9.9:80"), "9.9.9.9 80");
    assert_string_equal(client("10.0.0.1", xff, "::ffff:9.9.9.9"), "9.9.9.9");
    assert_string_equal(client("", xff, "9.9.9.9"), "9.9.9.9");
    assert_string_equal(client("8.8.8.8", xff, "9.9.9.9"), ""); /* not trusted */
    assert_string_equal(client("10.0.0.1", xff, ""), "");
}

static void stops_at_what_it_does_not_understand(void **state)
{
    static const char xff[] = "x-forwarded-for";
    static const char *const bad[] = { "unknown",   "_hidden", "9.9.9.9.9",  "[9.9.9.9]",
                                       "[::1",      "::1]:80", "9.9.9.9;x",  "\"9.9.9.9\"",
                                       "localhost", "[::1]x",  "1.2.3.4:5:6" };
    char value[64];
    (void)state;
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        assert_string_equal(client("10.0.0.1", xff, bad[i]), "");
        snprintf(value, sizeof value, "9.9.9.9, %s, 10.0.0.5", bad[i]);
        assert_string_equal(client("10.0.0.1", xff, value), "10.0.0.5");
    }
    assert_string_equal(client("10.0.0.1", xff, "9.9.9.9:_x"), "9.9.9.9");
    assert_string_equal(client("10.0.0.1", xff, "9.9.9.9:99999"), "9.9.9.9");
}

static void reads_several_lines_and_long_lists(void **state)
{
    char ip[IP_TEXT];
    (void)state;
    clear();
    add("x-forwarded-for", "6.6.6.6, 9.9.9.9");
    add("x-forwarded-for", "10.0.0.7");
    struct forwarded f = read_from("10.0.0.1", FORWARDED_X);
    assert_string_equal(ip_text(&f.client, ip), "9.9.9.9");
    clear();
    for (int i = 0; i < 500; i++)
        add("x-forwarded-for", "10.0.0.7, 10.0.0.8");
    f = read_from("10.0.0.1", FORWARDED_X);
    assert_string_equal(ip_text(&f.client, ip), "10.0.0.7");
}

static void reads_rfc_7239(void **state)
{
    (void)state;
    assert_string_equal(client("10.0.0.1", "Forwarded", "for=192.0.2.43"), "192.0.2.43");
    assert_string_equal(client("10.0.0.1", "forwarded", "For=\"[2001:db8:cafe::17]:4711\""),
                        "2001:db8:cafe::17 4711");
    assert_string_equal(
        client("10.0.0.1", "forwarded",
               "for=6.6.6.6;by=1.1.1.1, for=192.0.2.60;proto=http;by=203.0.113.43, for=10.0.0.5"),
        "192.0.2.60");
    assert_string_equal(client("10.0.0.1", "forwarded", "for=9.9.9.9, for=_gazonk, for=10.0.0.5"),
                        "10.0.0.5");
    assert_string_equal(client("10.0.0.1", "forwarded", "for=9.9.9.9, by=x, for=10.0.0.5"),
                        "10.0.0.5");
    assert_string_equal(client("10.0.0.1", "forwarded", ",, for=9.9.9.9 ; proto=https ,"),
                        "9.9.9.9");
    /* An open quote of the client's would swallow what the proxy appended. */
    assert_string_equal(client("10.0.0.1", "forwarded", "for=\"6.6.6.6, for=9.9.9.9"), "");
    assert_string_equal(client("10.0.0.1", "forwarded", "for = 6.6.6.6"), "");
    assert_string_equal(client("10.0.0.1", "forwarded", "for=\"9.9.9\\.9\""), "");
    clear();
    add("forwarded", "for=\"6.6.6.6");
    add("forwarded", "for=9.9.9.9");
    char ip[IP_TEXT];
    struct forwarded f = read_from("10.0.0.1", FORWARDED_RFC7239);
    assert_string_equal(ip_text(&f.client, ip), "9.9.9.9");
}

static void believes_proto_and_host_of_the_clients_hop(void **state)
{
    (void)state;
    clear();
    add("x-forwarded-for", "6.6.6.6, 9.9.9.9, 10.0.0.5");
    add("x-forwarded-proto", "ftp, HTTPS, http");
    add("x-forwarded-host", "evil.test, shop.test:8443, inner.test");
    struct forwarded f = read_from("10.0.0.1", FORWARDED_X);
    assert_true(slice_eq(f.proto, SLICE("HTTPS")));
    assert_true(slice_eq(f.host, SLICE("shop.test:8443")));
    f = read_from("8.8.8.8", FORWARDED_X);
    assert_null(f.proto.p);
    assert_null(f.host.p);
    clear();
    add("x-forwarded-for", "9.9.9.9, 10.0.0.5");
    add("x-forwarded-proto", "https");
    add("x-forwarded-host", "a b");
    f = read_from("10.0.0.1", FORWARDED_X);
    assert_true(slice_eq(f.proto, SLICE("https")));
    assert_null(f.host.p); /* no host */
    clear();
    add("forwarded", "for=6.6.6.6;proto=http, for=9.9.9.9;proto=https;host=\"shop.test:1\"");
    f = read_from("10.0.0.1", FORWARDED_RFC7239);
    assert_true(slice_eq(f.proto, SLICE("https")));
    assert_true(slice_eq(f.host, SLICE("shop.test:1")));
}

/* All fields as one text. */
static const char *fields(void)
{
    static char out[1024];
    size_t n = 0;
    out[0] = '\0';
    for (uint32_t i = 0; i < h.n; i++)
        n += (size_t)snprintf(out + n, sizeof out - n, "%s%.*s: %.*s", i > 0 ? "\n" : "",
                              (int)h.v[i].name.n, h.v[i].name.p, (int)h.v[i].value.n,
                              h.v[i].value.p);
    return out;
}

static const char *written(enum forwarded_form read, unsigned write, const char *peer,
                           const char *authority)
{
    struct forwarded_rules r = rules(read, write);
    struct forwarded f = read_from(peer, read);
    struct forwarded_hop hop = { slice_of(peer), SLICE("http"), slice_of(authority) };
    forwarded_write(&r, &f, &hop, &h);
    return fields();
}

static void tells_origins_by_x_forwarded(void **state)
{
    (void)state;
    clear();
    add("x-forwarded-for", "6.6.6.6");
    add("X-Forwarded-For", "7.7.7.7");
    add("x-forwarded-proto", "https");
    add("X-Forwarded-Port", "1");
    add("X_Forwarded_For", "1");
    add("x-real-ip", "6.6.6.6");
    add("forwarded", "for=6.6.6.6");
    add("x-forwardedness", "stays");
    assert_string_equal(written(FORWARDED_X, FORWARDED_X, "8.8.8.8", "shop.test"),
                        "x-forwardedness: stays\nx-forwarded-for: 8.8.8.8\n"
                        "x-forwarded-proto: http\nx-forwarded-host: shop.test");
    clear();
    add("x-forwarded-for", "6.6.6.6");
    add("X-Forwarded-For", "7.7.7.7");
    add("x-forwarded-proto", "https");
    add("x-forwarded-port", "443");
    add("x_forwarded_for", "1");
    add("x-real-ip", "7.7.7.7");
    assert_string_equal(written(FORWARDED_X, FORWARDED_X, "10.0.0.1", ""),
                        "x-forwarded-for: 6.6.6.6, 7.7.7.7, 10.0.0.1\nx-forwarded-proto: https\n"
                        "x-forwarded-port: 443\nx-real-ip: 7.7.7.7");
    clear();
    assert_string_equal(written(FORWARDED_X, FORWARDED_X, "", "a"),
                        "x-forwarded-for: unknown\nx-forwarded-proto: http\nx-forwarded-host: a");
    clear();
    add("x-forwarded-for", "9.9.9.9");
    assert_string_equal(written(FORWARDED_X, FORWARDED_X, "", "a"),
                        "x-forwarded-for: 9.9.9.9\nx-forwarded-proto: http\nx-forwarded-host: a");
}

static void tells_origins_by_forwarded(void **state)
{
    (void)state;
    clear();
    add("forwarded", "for=6.6.6.6");
    add("x-forwarded-for", "6.6.6.6");
    assert_string_equal(written(FORWARDED_RFC7239, FORWARDED_RFC7239, "8.8.8.8", "shop.test"),
                        "forwarded: for=8.8.8.8;host=shop.test;proto=http");
    clear();
    add("forwarded", "for=9.9.9.9");
    assert_string_equal(written(FORWARDED_RFC7239, FORWARDED_RFC7239, "fd00::1", "[::1]:8080"),
                        "forwarded: for=9.9.9.9, for=\"[fd00::1]\";host=\"[::1]:8080\";proto=http");
    clear();
    assert_string_equal(written(FORWARDED_RFC7239, FORWARDED_RFC7239, "", ""),
                        "forwarded: for=unknown;proto=http");
    clear();
    assert_string_equal(written(FORWARDED_X, FORWARDED_X | FORWARDED_RFC7239, "8.8.8.8", "a:1"),
                        "forwarded: for=8.8.8.8;host=\"a:1\";proto=http\nx-forwarded-for: 8.8.8.8\n"
                        "x-forwarded-proto: http\nx-forwarded-host: a:1");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(walks_over_trusted_proxies, setup, teardown),
        cmocka_unit_test_setup_teardown(stops_at_what_it_does_not_understand, setup, teardown),
        cmocka_unit_test_setup_teardown(reads_several_lines_and_long_lists, setup, teardown),
        cmocka_unit_test_setup_teardown(reads_rfc_7239, setup, teardown),
        cmocka_unit_test_setup_teardown(believes_proto_and_host_of_the_clients_hop, setup,
                                        teardown),
        cmocka_unit_test_setup_teardown(tells_origins_by_x_forwarded, setup, teardown),
        cmocka_unit_test_setup_teardown(tells_origins_by_forwarded, setup, teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
