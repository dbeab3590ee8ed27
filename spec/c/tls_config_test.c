/* What a configuration says of TLS, as bytes and back; and bytes that are damaged. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <string.h>

#include "tls_config.h"

static void write_one(struct buf *out)
{
    const char *names[] = { "a.test", "*.b.test" }, *ciphers[] = { "X" };
    struct tls_config_certificate certificates[] = {
        { "listen.tls.certificates[1]", "/a b.crt", "/a.key", names, 2 },
        { "listen.tls.certificates[2]", "/c.crt", "/c.key", NULL, 0 },
    };
    struct tls_config c = { .path = "listen.tls",
                            .certificates = certificates,
                            .ncertificates = 2,
                            .ciphers = ciphers,
                            .nciphers = 1,
                            .min_version = "1.3",
                            .ca = "/ca",
                            .tickets = true };
    tls_config_write(&c, out);
}

static void is_the_same_behind_it(void **state)
{
    (void)state;
    struct buf bytes;
    struct arena a;
    buf_init(&bytes);
    arena_init(&a);
    write_one(&bytes);
    const struct tls_config *c = tls_config_read(&a, buf_slice(&bytes));
    assert_non_null(c);
    assert_string_equal(c->path, "listen.tls");
    assert_string_equal(c->min_version, "1.3");
    assert_string_equal(c->ca, "/ca");
    assert_false(c->required);
    assert_true(c->tickets);
    assert_null(c->ticket_keys);
    assert_int_equal(c->nciphers, 1);
    assert_string_equal(c->ciphers[0], "X");
    assert_int_equal(c->ncertificates, 2);
    assert_string_equal(c->certificates[0].cert, "/a b.crt");
    assert_string_equal(c->certificates[0].names[1], "*.b.test");
    assert_string_equal(c->certificates[1].path, "listen.tls.certificates[2]");
    assert_string_equal(c->certificates[1].key, "/c.key");
    assert_int_equal(c->certificates[1].nnames, 0);
    buf_deinit(&bytes);
    arena_deinit(&a);
}

static void is_refused_where_it_is_cut(void **state)
{
    (void)state;
    struct buf bytes;
    buf_init(&bytes);
    write_one(&bytes);
    for (size_t n = 0; n < bytes.n; n++) {
        struct arena a;
        arena_init(&a);
        assert_null(tls_config_read(&a, (struct slice){ bytes.p, n }));
        arena_deinit(&a);
    }
    buf_deinit(&bytes);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(is_the_same_behind_it),
        cmocka_unit_test(is_refused_where_it_is_cut),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
