/* Certificates of one address: decoded once for all who have the same bytes, judged by their dates,
 * and every fault told. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <string.h>

#include "tls_identity.h"
#include "tls_rig.h"
#include "tls_store.h"

static struct tls_rig_identity ca, one, two;

static int set_up(void **state)
{
    (void)state;
    tls_rig_issue(&ca, "Authority", NULL, NULL, -60, 3600);
    tls_rig_issue(&one, "one", "DNS:a.test,DNS:*.a.test", &ca, -60, 864000);
    tls_rig_issue(&two, "two", "DNS:b.test", &ca, -60, 864000);
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    tls_rig_forget(&ca);
    tls_rig_forget(&one);
    tls_rig_forget(&two);
    return 0;
}

static void the_same_bytes_are_the_same_identity(void **state)
{
    (void)state;
    struct tls_pem_fault f;
    char copy[4096];
    strcpy(copy, one.cert_text);
    SSL_CTX *reader = SSL_CTX_new(TLS_server_method());
    struct tls_identity *a =
        tls_identity_get(reader, slice_of(one.cert_text), slice_of(one.key_text), &f);
    struct tls_identity *b = tls_identity_get(reader, slice_of(copy), slice_of(one.key_text), &f);
    struct tls_identity *c =
        tls_identity_get(reader, slice_of(two.cert_text), slice_of(two.key_text), &f);
    assert_non_null(a);
    assert_ptr_equal(a, b);
    assert_non_null(c);
    assert_ptr_not_equal(a, c);
    assert_true(a->from < a->to);
    tls_identity_unref(a);
    assert_int_equal(X509_check_private_key(b->cert, b->key), 1); /* b holds it */
    assert_null(tls_identity_get(reader, slice_of(one.cert_text), slice_of(two.key_text), &f));
    assert_string_equal(f.key, "key");
    tls_identity_unref(b);
    tls_identity_unref(c);
    tls_identity_unref(NULL);
    SSL_CTX_free(reader);
}

static void every_fault_is_told(void **state)
{
    (void)state;
    struct buf faults, warnings;
    const struct tls_certificate given[] = {
        { .path = "c[1]", .cert = slice_of(one.cert_text), .key = slice_of(two.key_text) },
        { .path = "c[2]", .cert = slice_of(two.cert_text), .key = slice_of(two.key_text) },
        { .path = "c[3]", .cert = SLICE("x"), .key = slice_of(two.key_text) },
    };
    buf_init(&faults);
    buf_init(&warnings);
    struct tls_rig_identity late;
    tls_rig_issue(&late, "late", "DNS:a.test", &ca, -7200, -3600);
    struct tls_certificate old = { .path = "d",
                                   .cert = slice_of(late.cert_text),
                                   .key = slice_of(late.key_text) };
    assert_null(tls_store_new(&old, 1, true, &faults, &warnings));
    assert_true(slice_starts(buf_slice(&faults), SLICE("d.cert: the certificate expired on ")));
    struct tls_store *served = tls_store_new(&old, 1, false, &faults, &warnings);
    assert_non_null(served); /* by one that starts again */
    tls_store_free(served);
    tls_rig_forget(&late);
    buf_clear(&faults);
    assert_null(tls_store_new(given, 3, true, &faults, &warnings));
    assert_true(
        slice_starts(buf_slice(&warnings), SLICE("c[2].cert: the certificate expires on ")));
    buf_add(&faults, "", 1);
    assert_string_equal(faults.p, "c[1].key: is not the key of the certificate\n"
                                  "c[3].cert: holds no certificate in PEM form\n");
    struct tls_store *s = tls_store_new(given + 1, 1, false, &faults, &warnings);
    assert_non_null(s);
    assert_true(tls_store_expires(s) > 0);
    tls_store_free(s);
    tls_store_free(NULL);
    buf_deinit(&faults);
    buf_deinit(&warnings);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_same_bytes_are_the_same_identity),
        cmocka_unit_test(every_fault_is_told),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
