/* Keys of session tickets: which makes tickets and which take them, over rotations, and out of
 * files. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <string.h>

#include "tls_tickets.h"

static void a_ring_keeps_the_newest_two(void **state)
{
    (void)state;
    struct ticket_ring ring;
    struct ticket_key seen[10];
    memset(&ring, 0, sizeof ring);
    struct tls_tickets *t = tls_tickets_of_ring(&ring);
    assert_null(tls_tickets_newest(t));
    unsigned char none[TICKET_NAME] = { 0 };
    assert_null(tls_tickets_find(t, none)); /* an empty slot is no key */
    for (int i = 0; i < 10; i++) {
        assert_int_equal(ticket_ring_rotate(&ring), 0);
        seen[i] = *tls_tickets_newest(t);
        assert_ptr_equal(tls_tickets_find(t, seen[i].name), tls_tickets_newest(t));
        if (i > 0) {
            const struct ticket_key *before = tls_tickets_find(t, seen[i - 1].name);
            assert_non_null(before);
            assert_memory_equal(before, &seen[i - 1], sizeof *before);
            assert_memory_not_equal(&seen[i], &seen[i - 1], sizeof *before);
        }
        if (i > 1)
            assert_null(tls_tickets_find(t, seen[i - 2].name));
    }
    tls_tickets_free(t);
    tls_tickets_free(NULL);
}

#define ONE "0123456789abcdef0123456789abcdef"
#define TWO "fedcba9876543210fedcba9876543210"

static void a_file_holds_secrets_the_first_of_which_makes_tickets(void **state)
{
    (void)state;
    const char *why;
    struct tls_tickets *a = tls_tickets_of_text(SLICE("# keys\n\n" ONE "\n" TWO "\n"), &why);
    struct tls_tickets *b = tls_tickets_of_text(SLICE(TWO "\r\n  " ONE " "), &why);
    assert_non_null(a);
    assert_non_null(b);
    const struct ticket_key *one = tls_tickets_newest(a), *two = tls_tickets_newest(b);
    assert_memory_not_equal(one->name, two->name, TICKET_NAME);
    assert_memory_not_equal(one->cipher, one->mac, TICKET_SECRET);
    assert_memory_equal(tls_tickets_find(b, one->name), one, sizeof *one);
    assert_memory_equal(tls_tickets_find(a, two->name), two, sizeof *two);
    tls_tickets_free(a);
    tls_tickets_free(b);
}

static void a_file_that_is_not_like_that_is_refused(void **state)
{
    (void)state;
    static const char *const texts[] = { "", "\n\n# nothing\n", "short\n", ONE "\nshort" };
    const char *why;
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
        assert_null(tls_tickets_of_text(slice_of(texts[i]), &why));
        assert_non_null(why);
    }
    char many[17 * sizeof ONE + 1] = "";
    for (int i = 0; i < 17; i++)
        strcat(many, ONE "\n");
    assert_null(tls_tickets_of_text(slice_of(many), &why));
    assert_string_equal(why, "holds more than 16 secrets");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_ring_keeps_the_newest_two),
        cmocka_unit_test(a_file_holds_secrets_the_first_of_which_makes_tickets),
        cmocka_unit_test(a_file_that_is_not_like_that_is_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
