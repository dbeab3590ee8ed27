/* keystore: what a record may be, each fault with its line, and finding keys by secret and by
 * id. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>

#include "keystore.h"
#include "mem.h"

static char path[64];

static int setup(void **state)
{
    (void)state;
    snprintf(path, sizeof path, "/tmp/keystore-test-%ld.jsonl", (long)getpid());
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    unlink(path);
    return 0;
}

static struct keystore *load(struct slice text, struct buf *fault)
{
    FILE *f = fopen(path, "w");
    assert_non_null(f);
    assert_int_equal(fwrite(text.p, 1, text.n, f), text.n);
    fclose(f);
    return keystore_open(path, fault);
}

static struct keystore *loads(struct slice text)
{
    struct buf fault;
    buf_init(&fault);
    struct keystore *ks = load(text, &fault);
    if (ks == NULL)
        fail_msg("%.*s", (int)fault.n, fault.p);
    assert_int_equal(fault.n, 0);
    buf_deinit(&fault);
    return ks;
}

/* The fault is `path:` and what is expected. */
static void refuses(struct slice text, const char *expected)
{
    struct buf fault;
    buf_init(&fault);
    assert_null(load(text, &fault));
    buf_add(&fault, "", 1);
    assert_int_equal(strncmp(fault.p, path, strlen(path)), 0);
    assert_string_equal(fault.p + strlen(path), expected);
    buf_deinit(&fault);
}

#define ABC   "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad" /* of "abc" */
#define EMPTY "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855" /* of "" */

/* A record with some more members, in line 2. */
static void refuses_member(const char *member, const char *expected)
{
    char text[1024], line[512];
    snprintf(text, sizeof text, "\n{\"id\":\"a\",\"secret_sha256\":\"" ABC "\",%s}\n", member);
    snprintf(line, sizeof line, ":2: %s", expected);
    refuses(slice_of(text), line);
}

static void is(struct slice s, const char *text)
{
    assert_true(slice_eq(s, slice_of(text)));
}

static void loads_records(void **state)
{
    (void)state;
    struct keystore *ks = loads(SLICE(
        "{\"id\":\"a\",\"secret_sha256\":\"" ABC "\"}\n"
        " \t\r\n"
        "\n"
        " { \"id\" : \"b\\u00e9\", \"tenant\":\"\", \"plan\":\"gold\", \"rps\":0.5, "
        "\"burst\":1e1,\r\t"
        "\"monthly_tokens\":9007199254740991, \"concurrency\":4.0, "
        "\"routes\":[\"r1\",\"r2\",\"r3\","
        "\"r4\",\"r5\"], \"disabled\":true, \"secret_sha256\":\"E3B0C44298fc1c149afbf4c8996fb924"
        "27ae41e4649b934ca495991b7852b855\" }\r\n"
        "{\"id\":\"c\",\"routes\":[],\"monthly_tokens\":0,\"disabled\":false,\"secret_sha256\":"
        "\"0000000000000000000000000000000000000000000000000000000000000000\"}"));
    assert_int_equal(keystore_count(ks), 3);
    const struct key_record *a = keystore_at(ks, 0), *b = keystore_at(ks, 1),
                            *c = keystore_at(ks, 2);
    is(a->id, "a");
    assert_null(a->tenant.p);
    assert_null(a->plan.p);
    assert_null(a->routes);
    assert_true(a->rps == 0 && a->burst == 0 && a->monthly_tokens == -1 && a->concurrency == 0);
    assert_false(a->disabled);
    assert_int_equal(a->line, 1);
    is(b->id, "b\xc3\xa9");
    is(b->tenant, "");
    assert_non_null(b->tenant.p);
    is(b->plan, "gold");
    assert_true(b->rps == 0.5 && b->burst == 10 && b->monthly_tokens == 9007199254740991);
    assert_int_equal(b->concurrency, 4);
    assert_int_equal(b->nroutes, 5);
    is(b->routes[0], "r1");
    is(b->routes[4], "r5");
    assert_true(b->disabled);
    assert_int_equal(b->line, 4);
    assert_non_null(c->routes);
    assert_int_equal(c->nroutes, 0);
    assert_int_equal(c->monthly_tokens, 0);
    assert_false(c->disabled);
    keystore_free(ks);
}

static void finds(void **state)
{
    (void)state;
    struct keystore *ks = loads(SLICE("{\"id\":\"a\",\"secret_sha256\":\"" ABC "\"}\n"
                                      "{\"id\":\"b\",\"secret_sha256\":\"" EMPTY "\"}\n"));
    assert_ptr_equal(keystore_find(ks, SLICE("abc")), keystore_at(ks, 0));
    assert_ptr_equal(keystore_find(ks, (struct slice){ NULL, 0 }), keystore_at(ks, 1));
    assert_null(keystore_find(ks, SLICE("abd")));
    assert_null(keystore_find(ks, SLICE(ABC)));
    assert_ptr_equal(keystore_find_id(ks, SLICE("b")), keystore_at(ks, 1));
    assert_null(keystore_find_id(ks, SLICE("c")));
    assert_int_equal(keystore_index(ks, keystore_find(ks, SLICE(""))), 1);
    keystore_free(ks);
    ks = loads(SLICE(""));
    assert_int_equal(keystore_count(ks), 0);
    assert_null(keystore_find(ks, SLICE("abc")));
    assert_null(keystore_find_id(ks, SLICE("a")));
    keystore_free(ks);
    keystore_free(NULL);
}

static void refuses_lines(void **state)
{
    (void)state;
    refuses(SLICE("# keys"), ":1: a value is expected at byte 1");
    refuses(SLICE("\n\n[]"), ":3: a record must be an object");
    refuses(SLICE("7"), ":1: a record must be an object");
    refuses(SLICE("{}{}"), ":1: more follows the value at byte 3");
    refuses(SLICE("{}"), ":1: id is missing");
    refuses(SLICE("{\n}"), ":1: the text ends too early at byte 2");
    refuses(SLICE("{\"id\":\"a\"}"), ":1: secret_sha256 is missing");
    refuses(SLICE("{\"secret_sha256\":\"" ABC "\"}"), ":1: id is missing");
    refuses(SLICE("{\"id\":\"a\",\"secret_sha256\":\"" ABC "\"}\n\n{\"id\":\"b\" \"x\"}"),
            ":3: ',' or '}' is expected at byte 11");
    refuses(SLICE("{\"id\":\"a\",\"secret_sha256\":\"" ABC "\"}\n{\"id\":\"b\",\"secret_sha256\":"
                  "\"" ABC "\"}"),
            ":2: secret_sha256 is already that of line 1");
    refuses(SLICE("{\"id\":\"a\",\"secret_sha256\":\"" ABC "\"}\n\n{\"id\":\"\\u0061\","
                  "\"secret_sha256\":\"" EMPTY "\"}"),
            ":3: id \"a\" is already that of line 1");
    refuses(SLICE("{\"id\":\"a\0\"}"), ":1: control character in a string at byte 9");
}

static void refuses_values(void **state)
{
    (void)state;
    refuses(SLICE("{\"id\":\"\"}"), ":1: id must have 1 to 128 bytes");
    refuses(SLICE("{\"id\":7}"), ":1: id must be a string");
    refuses_member("\"id\":\"b\"", "id is there twice");
    refuses_member("\"tenant\":null", "tenant must be a string");
    refuses_member("\"tenant\":{}", "tenant must be a string");
    refuses_member("\"rps\":0", "rps must be a number above 0");
    refuses_member("\"rps\":-1", "rps must be a number above 0");
    refuses_member("\"rps\":1e999", "rps must be a number above 0");
    refuses_member("\"rps\":\"1\"", "rps must be a number");
    refuses_member("\"rps\":[1]", "rps must be a number");
    refuses_member("\"burst\":0.9", "burst must be a number of at least 1");
    refuses_member("\"monthly_tokens\":-1", "monthly_tokens must be an integer from 0 to 2^53 - 1");
    refuses_member("\"monthly_tokens\":1.5",
                   "monthly_tokens must be an integer from 0 to 2^53 - 1");
    refuses_member("\"monthly_tokens\":9007199254740992",
                   "monthly_tokens must be an integer from 0 to 2^53 - 1");
    refuses_member("\"concurrency\":0", "concurrency must be an integer from 1 to 2^53 - 1");
    refuses_member("\"concurrency\":true", "concurrency must be an integer");
    refuses_member("\"disabled\":0", "disabled must be true or false");
    refuses_member("\"routes\":\"a\"", "routes must be an array of strings");
    refuses_member("\"routes\":[\"a\",1]", "routes must be an array of strings");
    refuses_member("\"routes\":[[]]", "routes must be an array of strings");
    refuses_member("\"rps\":1,\"burst\":2678401",
                   "burst / rps, the time that a bucket takes to fill, must be at most 31 days");
    refuses_member("\"rps\":1e-9",
                   "burst / rps, the time that a bucket takes to fill, must be at most 31 days");
    refuses(SLICE("{\"secret_sha256\":\"ab\"}"),
            ":1: secret_sha256 must be a string of 64 hexadecimal digits");
    refuses(
        SLICE("{\"secret_sha256\":\"xa7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015a"
              "d\"}"),
        ":1: secret_sha256 must be a string of 64 hexadecimal digits");
}

static void refuses_long_text(void **state)
{
    (void)state;
    char member[400], text[300];
    memset(text, 'x', sizeof text);
    snprintf(member, sizeof member, "{\"id\":\"%.129s\"}", text);
    refuses(slice_of(member), ":1: id must have 1 to 128 bytes");
    snprintf(member, sizeof member, "\"plan\":\"%.257s\"", text);
    refuses_member(member, "plan must have at most 256 bytes");
    snprintf(member, sizeof member, "\"routes\":[\"%.257s\"]", text);
    refuses_member(member, "routes must have names of at most 256 bytes");
}

static void names_the_nearest_member(void **state)
{
    (void)state;
    refuses_member("\"rp\":1", "unknown member \"rp\" (did you mean rps?)");
    refuses_member("\"RSP\":1", "unknown member \"RSP\" (did you mean rps?)");
    refuses_member("\"month_tokens\":1",
                   "unknown member \"month_tokens\" (did you mean monthly_tokens?)");
    refuses_member("\"secret\":\"x\"", "unknown member \"secret\"");
    refuses_member("\"colour\":1", "unknown member \"colour\"");
    refuses_member("\"a\\u0000\\\"\":1", "unknown member \"a\\u0000\\\"\"");
    refuses_member("\"a_name_that_is_longer_than_any_known_one\":1",
                   "unknown member \"a_name_that_is_longer_than_any_known_one\"");
}

static void tells_why_a_file_cannot_be_read(void **state)
{
    (void)state;
    struct buf fault;
    buf_init(&fault);
    assert_null(keystore_open("/nonexistent/keys.jsonl", &fault));
    assert_null(keystore_open("/tmp", &fault));
    buf_add(&fault, "", 1);
    assert_string_equal(fault.p,
                        "/nonexistent/keys.jsonl: cannot be read: No such file or directory"
                        "/tmp: cannot be read: Is a directory");
    buf_deinit(&fault);
}

static void makes_secrets(void **state)
{
    (void)state;
    char a[KEY_SECRET_SIZE], b[KEY_SECRET_SIZE], hex[KEY_HEX_SIZE];
    assert_int_equal(keystore_secret_new(a), 0);
    assert_int_equal(keystore_secret_new(b), 0);
    assert_string_not_equal(a, b);
    assert_int_equal(strlen(a), 46);
    assert_int_equal(strncmp(a, "tg-", 3), 0);
    assert_int_equal(strspn(a, "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_"),
                     46);
    keystore_digest_hex(SLICE("abc"), hex);
    assert_string_equal(hex, ABC);
    keystore_digest_hex(SLICE(""), hex);
    assert_string_equal(hex, EMPTY);
}

/* 100,000 keys of different secrets; each is found, and loading takes well under a second. */
static void loads_many(void **state)
{
    (void)state;
    enum { N = 100000 };
    struct buf text;
    buf_init(&text);
    for (int i = 0; i < N; i++) {
        char secret[32], hex[KEY_HEX_SIZE];
        snprintf(secret, sizeof secret, "secret-%d", i);
        keystore_digest_hex(slice_of(secret), hex);
        buf_printf(&text,
                   "{\"id\":\"key-%d\",\"tenant\":\"t%d\",\"secret_sha256\":\"%s\",\"rps\":%d,"
                   "\"burst\":20,\"monthly_tokens\":1000000,\"concurrency\":8}\n",
                   i, i % 100, hex, 1 + i % 50);
    }
    struct timespec from, to;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &from);
    struct keystore *ks = loads(buf_slice(&text));
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &to);
    double ms =
        1e3 * (double)(to.tv_sec - from.tv_sec) + 1e-6 * (double)(to.tv_nsec - from.tv_nsec);
    print_message("%d keys (%zu bytes) in %.0f ms\n", N, text.n, ms);
    assert_true(ms < 5000); /* sanitizers and busy machines included */
    assert_int_equal(keystore_count(ks), N);
    for (int i = 0; i < N; i += 7) {
        char secret[32], id[32];
        snprintf(secret, sizeof secret, "secret-%d", i);
        snprintf(id, sizeof id, "key-%d", i);
        assert_ptr_equal(keystore_find(ks, slice_of(secret)), keystore_at(ks, (size_t)i));
        assert_ptr_equal(keystore_find_id(ks, slice_of(id)), keystore_at(ks, (size_t)i));
    }
    keystore_free(ks);
    buf_deinit(&text);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(loads_records),
        cmocka_unit_test(finds),
        cmocka_unit_test(refuses_lines),
        cmocka_unit_test(refuses_values),
        cmocka_unit_test(refuses_long_text),
        cmocka_unit_test(names_the_nearest_member),
        cmocka_unit_test(tells_why_a_file_cannot_be_read),
        cmocka_unit_test(makes_secrets),
        cmocka_unit_test(loads_many),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
