/* json: what is accepted and what is refused (against an independent view of each rule), and that
 * no split of the bytes changes an event, an offset or a fault. */
#include <regex.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>

#include <cmocka.h>

#include "json.h"

static uint32_t seed = 1;

static uint32_t chance(uint32_t below)
{
    seed = seed * 1664525u + 1013904223u;
    return (seed >> 8) % below;
}

/* Writes each event as a line, so that two scans can be compared. */
static int on_event(void *arg, const struct json_event *e)
{
    static const char *const names[] = { "{",      "}",      "[",    "]",     "key",
                                         "string", "number", "true", "false", "null" };
    buf_printf(arg, "%s %d %llu-%llu %d %llu ", names[e->type], e->depth,
               (unsigned long long)e->start, (unsigned long long)e->end, e->whole,
               (unsigned long long)e->decoded);
    buf_add_slice(arg, e->text);
    buf_add_text(arg, "\n");
    return 0;
}

/* Feeds in pieces of at most `most` bytes: 0 is whole, 1 byte by byte, more is at random. */
static int scan(struct slice text, uint32_t most, struct buf *log)
{
    struct json j;
    json_init(&j, on_event, log);
    int rc = 0;
    for (size_t at = 0; at < text.n;) {
        size_t n = most == 0 ? text.n : most == 1 ? 1 : 1 + chance(most);
        if (n > text.n - at)
            n = text.n - at;
        char *copy = malloc(n); /* so that a read beyond the piece is seen */
        memcpy(copy, text.p + at, n);
        rc = json_feed(&j, copy, n);
        free(copy);
        at += n;
    }
    if (rc == 0)
        rc = json_finish(&j);
    const char *fault = json_fault(&j);
    buf_printf(log, "= %d %s %llu", rc, fault == NULL ? "-" : fault, (unsigned long long)j.offset);
    assert_int_equal(rc == -1, fault != NULL);
    return rc;
}

static int same_in_any_split(struct slice text, struct buf *log)
{
    int rc = scan(text, 0, log);
    for (int i = 0; i < 12; i++) {
        struct buf other;
        buf_init(&other);
        assert_int_equal(scan(text, i == 0 ? 1 : 2 + (uint32_t)i, &other), rc);
        assert_int_equal(other.n, log->n);
        assert_memory_equal(other.p, log->p, log->n);
        buf_deinit(&other);
    }
    return rc;
}

static void expect(struct slice text, const char *log)
{
    struct buf b;
    buf_init(&b);
    same_in_any_split(text, &b);
    buf_add(&b, "", 1);
    assert_string_equal(b.p, log);
    buf_deinit(&b);
}

static bool accepts(struct slice text)
{
    struct buf b;
    buf_init(&b);
    int rc = scan(text, 0, &b);
    buf_deinit(&b);
    return rc == 0;
}

static void refused(struct slice text, const char *why, uint64_t offset)
{
    struct buf b;
    buf_init(&b);
    assert_int_equal(same_in_any_split(text, &b), -1);
    char tail[128];
    int n = snprintf(tail, sizeof tail, "= -1 %s %llu", why, (unsigned long long)offset);
    assert_true(b.n >= (size_t)n);
    buf_add(&b, "", 1);
    assert_string_equal(b.p + b.n - 1 - n, tail);
    buf_deinit(&b);
}

static void reports_values_with_their_places(void **state)
{
    (void)state;
    expect(SLICE(" {\"a\" : [1, -2.5e+3,true,false , null,\"x\"],\"b\":{}}\n"),
           "{ 0 1-2 1 0 \nkey 1 2-5 1 1 a\n[ 1 8-9 1 0 \nnumber 2 9-10 1 1 1\nnumber 2 12-19 1 7 "
           "-2.5e+3\n"
           "true 2 20-24 1 0 \nfalse 2 25-30 1 0 \nnull 2 33-37 1 0 \nstring 2 38-41 1 1 x\n] 1 "
           "41-42 1 0 \n"
           "key 1 43-46 1 1 b\n{ 1 47-48 1 0 \n} 1 48-49 1 0 \n} 0 49-50 1 0 \n= 0 - 51");
    expect(SLICE("[]"), "[ 0 0-1 1 0 \n] 0 1-2 1 0 \n= 0 - 2");
    expect(SLICE("0"), "number 0 0-1 1 1 0\n= 0 - 1");
    expect(SLICE("12 "), "number 0 0-2 1 2 12\n= 0 - 3");
    expect(SLICE("\"\""), "string 0 0-2 1 0 \n= 0 - 2");
}

static void decodes_strings(void **state)
{
    (void)state;
    expect(SLICE("\"\\\"\\\\\\/\\b\\f\\n\\r\\t\\u0041\\u00e9\\u20AC\""),
           "string 0 0-36 1 14 \"\\/\b\f\n\r\tA\xc3\xa9\xe2\x82\xac\n= 0 - 36");
    expect(SLICE("\"\\ud83d\\ude00\""), "string 0 0-14 1 4 \xf0\x9f\x98\x80\n= 0 - 14");
    expect(SLICE("\"\xf0\x9f\x98\x80\xe2\x82\xac\""),
           "string 0 0-9 1 7 \xf0\x9f\x98\x80\xe2\x82\xac\n= 0 - 9");
    /* lone surrogates, each kind and before each kind of thing */
    expect(SLICE("\"\\ud83d\""), "string 0 0-8 1 3 \xef\xbf\xbd\n= 0 - 8");
    expect(SLICE("\"\\ude00x\""), "string 0 0-9 1 4 \xef\xbf\xbdx\n= 0 - 9");
    expect(SLICE("\"\\ud83dx\""), "string 0 0-9 1 4 \xef\xbf\xbdx\n= 0 - 9");
    expect(SLICE("\"\\ud83d\\n\""), "string 0 0-10 1 4 \xef\xbf\xbd\n\n= 0 - 10");
    expect(SLICE("\"\\ud83d\xc3\xa9\""), "string 0 0-10 1 5 \xef\xbf\xbd\xc3\xa9\n= 0 - 10");
    expect(SLICE("\"\\ud83d\\ud83d\\ude00\""),
           "string 0 0-20 1 7 \xef\xbf\xbd\xf0\x9f\x98\x80\n= 0 - 20");
}

static void captures_no_more_than_its_bound(void **state)
{
    (void)state;
    char text[1024], digits[600];
    memset(text, 'x', sizeof text);
    text[0] = '"';
    for (size_t n = JSON_CAPTURE - 1; n <= JSON_CAPTURE + 1; n++) {
        struct buf b;
        buf_init(&b);
        text[n + 1] = '"';
        assert_int_equal(same_in_any_split((struct slice){ text, n + 2 }, &b), 0);
        text[n + 1] = 'x';
        char head[64];
        int h = snprintf(head, sizeof head, "string 0 0-%zu %d %zu x", n + 2, n <= JSON_CAPTURE, n);
        assert_memory_equal(b.p, head, (size_t)h);
        size_t kept = n < JSON_CAPTURE ? n : JSON_CAPTURE;
        assert_int_equal(((char *)memchr(b.p, '\n', b.n)) - b.p, (size_t)h - 1 + kept);
        buf_deinit(&b);
    }
    memset(digits, '7', sizeof digits);
    assert_true(accepts((struct slice){ digits, sizeof digits }));
}

static void refuses_with_fault_and_offset(void **state)
{
    (void)state;
    refused(SLICE(""), "the text ends too early", 0);
    refused(SLICE("  "), "the text ends too early", 2);
    refused(SLICE("[1"), "the text ends too early", 2);
    refused(SLICE("\"abc"), "the text ends too early", 4);
    refused(SLICE("tru"), "the text ends too early", 3);
    refused(SLICE("-"), "the text ends too early", 1);
    refused(SLICE("trux"), "unknown literal", 3);
    refused(SLICE("nan"), "unknown literal", 1);
    refused(SLICE("NaN"), "a value is expected", 0);
    refused(SLICE("'a'"), "a value is expected", 0);
    refused(SLICE("\xef\xbb\xbf{}"), "a value is expected", 0);
    refused(SLICE("\v1"), "a value is expected", 0);
    refused(SLICE("01"), "leading zero in a number", 1);
    refused(SLICE("-01"), "leading zero in a number", 2);
    refused(SLICE("1."), "the text ends too early", 2);
    refused(SLICE("[1.]"), "a digit is missing in a number", 3);
    refused(SLICE("[1e]"), "a digit is missing in a number", 3);
    refused(SLICE("[-]"), "a digit is missing in a number", 2);
    refused(SLICE("+1"), "a value is expected", 0);
    refused(SLICE(".5"), "a value is expected", 0);
    refused(SLICE("0x10"), "more follows the value", 1);
    refused(SLICE("[1,]"), "a value is expected", 3);
    refused(SLICE("[,1]"), "a value is expected", 1);
    refused(SLICE("[1 2]"), "',' or ']' is expected", 3);
    refused(SLICE("[1}"), "',' or ']' is expected", 2);
    refused(SLICE("{\"a\":1,}"), "a member's name is expected", 7);
    refused(SLICE("{a:1}"), "a member's name is expected", 1);
    refused(SLICE("{1:1}"), "a member's name is expected", 1);
    refused(SLICE("{\"a\" 1}"), "':' is expected", 5);
    refused(SLICE("{\"a\"}"), "':' is expected", 4);
    refused(SLICE("{\"a\":}"), "a value is expected", 5);
    refused(SLICE("{\"a\":1]"), "',' or '}' is expected", 6);
    refused(SLICE("{} {}"), "more follows the value", 3);
    refused(SLICE("1 x"), "more follows the value", 2);
    refused(SLICE("]"), "a value is expected", 0);
    refused(SLICE("\"a\nb\""), "control character in a string", 2);
    refused(SLICE("\"a\0b\""), "control character in a string", 2);
    refused(SLICE("\"\x1f\""), "control character in a string", 1);
    refused(SLICE("\"\\x\""), "unknown escape in a string", 2);
    refused(SLICE("\"\\\0\""), "unknown escape in a string", 2);
    refused(SLICE("\"\\U0041\""), "unknown escape in a string", 2);
    refused(SLICE("\"\\u00g0\""), "four hexadecimal digits must follow \\u", 5);
    refused(SLICE("\"\\u00\""), "four hexadecimal digits must follow \\u", 5);
    refused(SLICE("\"\x80\""), "invalid UTF-8", 1);
    refused(SLICE("\"\xc0\xaf\""), "invalid UTF-8", 1);
    refused(SLICE("\"\xe2\x82\""), "invalid UTF-8", 3);
    refused(SLICE("\"\xed\xa0\x80\""), "invalid UTF-8", 2);
    refused(SLICE("\"\xf4\x90\x80\x80\""), "invalid UTF-8", 2);
    refused(SLICE("{\"\xff\":1}"), "invalid UTF-8", 2);
}

/* Long runs are looked at in blocks: every byte must be seen at each place in one. */
static void sees_every_byte_of_a_long_string(void **state)
{
    (void)state;
    for (unsigned c = 0; c < 256; c++) {
        for (size_t at = 1; at <= 24; at++) {
            char text[40] = "\"";
            memset(text + 1, 'x', sizeof text - 2);
            text[sizeof text - 1] = '"';
            text[at] = (char)c;
            /* a backslash makes an unknown escape of the x behind it */
            bool plain = c >= 0x20 && c < 0x80 && c != '"' && c != '\\';
            assert_int_equal(accepts((struct slice){ text, sizeof text }), plain);
        }
    }
}

static void bounds_the_depth(void **state)
{
    (void)state;
    char text[2 * (JSON_DEPTH + 1)];
    for (size_t n = JSON_DEPTH; n <= JSON_DEPTH + 1; n++) {
        memset(text, '[', n);
        memset(text + n, ']', n);
        assert_int_equal(accepts((struct slice){ text, 2 * n }), n <= JSON_DEPTH);
    }
    refused((struct slice){ text, sizeof text }, "nested too deeply", JSON_DEPTH);
    /* objects and arrays by turns: each end must find its kind again */
    struct buf b;
    buf_init(&b);
    for (int i = 0; i < JSON_DEPTH; i++)
        buf_add_text(&b, i % 3 == 0 ? "{\"k\":" : "[");
    buf_add_text(&b, "1");
    for (int i = JSON_DEPTH; i-- > 0;)
        buf_add_text(&b, i % 3 == 0 ? "}" : "]");
    assert_true(accepts(buf_slice(&b)));
    buf_deinit(&b);
}

/* All texts of up to five characters, against the grammar as a regular expression. */
static void knows_the_grammar_of_numbers(void **state)
{
    (void)state;
    static const char alphabet[] = "-+.0159eE";
    regex_t number;
    assert_int_equal(regcomp(&number, "^-?(0|[1-9][0-9]*)([.][0-9]+)?([eE][+-]?[0-9]+)?$",
                             REG_EXTENDED | REG_NOSUB),
                     0);
    unsigned total = 1;
    for (int length = 1; length <= 5; length++) {
        total *= sizeof alphabet - 1;
        for (unsigned i = 0; i < total; i++) {
            char text[8] = "", array[12];
            unsigned rest = i;
            for (int k = 0; k < length; k++, rest /= sizeof alphabet - 1)
                text[k] = alphabet[rest % (sizeof alphabet - 1)];
            bool valid = regexec(&number, text, 0, NULL, 0) == 0;
            int n = snprintf(array, sizeof array, "[%s]", text);
            if (accepts(slice_of(text)) != valid ||
                accepts((struct slice){ array, (size_t)n }) != valid)
                fail_msg("%s", text);
        }
    }
    regfree(&number);
}

/* By the definition: shortest form, no surrogates, at most U+10FFFF. */
static bool utf8_by_definition(const unsigned char *p, size_t n)
{
    while (n > 0) {
        size_t len = *p < 0x80 ? 1 : *p >> 5 == 6 ? 2 : *p >> 4 == 14 ? 3 : *p >> 3 == 30 ? 4 : 0;
        if (len == 0 || len > n)
            return false;
        uint32_t c = len == 1 ? *p : *p & (0x7fu >> len);
        for (size_t i = 1; i < len; i++) {
            if (p[i] >> 6 != 2)
                return false;
            c = c << 6 | (p[i] & 0x3f);
        }
        static const uint32_t least[] = { 0, 0, 0x80, 0x800, 0x10000 };
        if (c < least[len] || c > 0x10ffff || (c >= 0xd800 && c <= 0xdfff))
            return false;
        p += len;
        n -= len;
    }
    return true;
}

static void check_utf8(const unsigned char *p, size_t n)
{
    char text[8] = "\"";
    memcpy(text + 1, p, n);
    text[n + 1] = '"';
    if (accepts((struct slice){ text, n + 2 }) != utf8_by_definition(p, n))
        fail_msg("%zu: %02x %02x %02x %02x", n, p[0], p[1], p[2], p[3]);
}

static void knows_utf8(void **state)
{
    (void)state;
    static const unsigned char edges[] = { 0x7f, 0x80, 0x8f, 0x90, 0x9f, 0xa0, 0xbf, 0xc0 };
    for (unsigned a = 0x7f; a < 256; a++) {
        for (unsigned b = 0x7f; b < 256; b++) {
            unsigned char u[4] = { (unsigned char)a, (unsigned char)b, 0x80, 0x80 };
            check_utf8(u, 1);
            check_utf8(u, 2);
            for (unsigned c = 0; c < sizeof edges; c++) {
                u[2] = edges[c];
                check_utf8(u, 3);
                check_utf8(u, 4);
                u[3] = edges[sizeof edges - 1 - c];
                check_utf8(u, 4);
            }
        }
    }
}

static int keep_text(void *arg, const struct json_event *e)
{
    buf_add_slice(arg, e->text);
    return 0;
}

/* What json_quote writes is JSON, and means what was given. */
static void quotes_so_that_it_reads_the_same(void **state)
{
    (void)state;
    for (int round = 0; round < 3000; round++) {
        char text[48];
        size_t n = chance(sizeof text);
        for (size_t i = 0; i < n; i++)
            text[i] = (char)(round % 3 == 0 ? chance(256) : chance(128));
        struct buf quoted, back;
        buf_init(&quoted);
        buf_init(&back);
        json_quote(&quoted, (struct slice){ text, n });
        struct json j;
        json_init(&j, keep_text, &back);
        assert_int_equal(json_feed(&j, quoted.p, quoted.n), 0);
        assert_int_equal(json_finish(&j), 0);
        if (utf8_by_definition((unsigned char *)text, n)) {
            assert_int_equal(back.n, n);
            if (n > 0)
                assert_memory_equal(back.p, text, n);
        } else {
            assert_non_null(memmem(back.p, back.n, "\xef\xbf\xbd", 3));
        }
        buf_deinit(&quoted);
        buf_deinit(&back);
    }
    struct buf b;
    buf_init(&b);
    json_quote(&b, SLICE("a\"\\/\b\f\n\r\t\x01\x7f\xc3\xa9\xff\xe2\x82"));
    buf_add(&b, "", 1);
    assert_string_equal(
        b.p,
        "\"a\\\"\\\\/\\b\\f\\n\\r\\t\\u0001\x7f\xc3\xa9\xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbd\"");
    buf_deinit(&b);
}

/* Random documents, sound and damaged, give the same in any split. */
static void random_documents_do_not_depend_on_the_split(void **state)
{
    (void)state;
    static const char *const parts[] = { "{",
                                         "}",
                                         "[",
                                         "]",
                                         ",",
                                         ":",
                                         "\"key\"",
                                         "\"\\ud83d\\ude00x\"",
                                         "\"\xe2\x82\xac and some longer plain text\"",
                                         "12",
                                         "-0.5e7",
                                         "true",
                                         "null",
                                         " ",
                                         "\"a\":",
                                         "\\",
                                         "\"",
                                         "\xff" };
    for (int round = 0; round < 4000; round++) {
        struct buf text, log;
        buf_init(&text);
        buf_init(&log);
        for (uint32_t i = 0, n = 1 + chance(24); i < n; i++)
            buf_add_text(&text, parts[chance(sizeof parts / sizeof *parts)]);
        same_in_any_split(buf_slice(&text), &log);
        buf_deinit(&text);
        buf_deinit(&log);
    }
}

static int stop_at_two(void *arg, const struct json_event *e)
{
    ++*(int *)arg;
    return e->type == JSON_NUMBER && slice_eq(e->text, SLICE("2")) ? 7 : 0;
}

static void a_callback_can_end_the_scan(void **state)
{
    (void)state;
    static const char text[] = "[1,2,3,oops";
    for (size_t step = 1; step <= sizeof text; step++) {
        struct json j;
        int calls = 0;
        json_init(&j, stop_at_two, &calls);
        for (size_t at = 0; at < sizeof text - 1; at += step)
            json_feed(&j, text + at, sizeof text - 1 - at < step ? sizeof text - 1 - at : step);
        assert_int_equal(json_finish(&j), 7);
        assert_int_equal(calls, 3);
        assert_int_equal(j.offset, 4);
        assert_null(json_fault(&j));
    }
}

static void tells_of_the_string_that_is_being_read(void **state)
{
    (void)state;
    struct json j;
    struct json_event e;
    struct buf sink;
    buf_init(&sink);
    json_init(&j, on_event, &sink);
    json_feed(&j, "{\"ke", 4);
    assert_false(json_partial(&j, &e));
    json_feed(&j, "y\":[\"a\\n", 8);
    assert_true(json_partial(&j, &e));
    assert_int_equal(e.depth, 2);
    assert_int_equal(e.decoded, 2);
    assert_true(slice_eq(e.text, SLICE("a\n")));
    json_feed(&j, "\"", 1);
    assert_false(json_partial(&j, &e));
    buf_deinit(&sink);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(reports_values_with_their_places),
        cmocka_unit_test(decodes_strings),
        cmocka_unit_test(captures_no_more_than_its_bound),
        cmocka_unit_test(refuses_with_fault_and_offset),
        cmocka_unit_test(sees_every_byte_of_a_long_string),
        cmocka_unit_test(bounds_the_depth),
        cmocka_unit_test(knows_the_grammar_of_numbers),
        cmocka_unit_test(knows_utf8),
        cmocka_unit_test(quotes_so_that_it_reads_the_same),
        cmocka_unit_test(random_documents_do_not_depend_on_the_split),
        cmocka_unit_test(a_callback_can_end_the_scan),
        cmocka_unit_test(tells_of_the_string_that_is_being_read),
    };
    return cmocka_run_group_tests_name("json", tests, NULL, NULL);
}
