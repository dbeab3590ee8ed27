/* Heads as they are written, dates, and the facts about methods and statuses. */
#include "message.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <time.h>

#include <cmocka.h>

static struct arena arena;
static struct buf out;

static int setup(void **state)
{
    (void)state;
    arena_init(&arena);
    buf_init(&out);
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    arena_deinit(&arena);
    buf_deinit(&out);
    return 0;
}

static void expect(const char *want)
{
    buf_add(&out, "", 1);
    assert_string_equal(out.p, want);
    buf_clear(&out);
}

static struct request request(void)
{
    struct request r = { .method = SLICE("POST"), .authority = SLICE("a") };
    headers_init(&r.headers, &arena);
    headers_add(&r.headers, SLICE("X"), SLICE("1"));
    headers_add(&r.headers, SLICE("content-length"), SLICE("99"));
    headers_add(&r.headers, SLICE("Transfer-Encoding"), SLICE("gzip"));
    headers_add(&r.headers, SLICE("Connection"), SLICE("x"));
    headers_add(&r.headers, SLICE("Empty"), (struct slice){ NULL, 0 });
    return r;
}

static void writes_requests(void **state)
{
    (void)state;
    struct request r = request();
    message_write_request(&out, &r, SLICE("/p?q"), false);
    expect("POST /p?q HTTP/1.1\r\nHost: a\r\nX: 1\r\nEmpty: \r\n\r\n");
    headers_add(&r.headers, SLICE("host"), SLICE("b:8"));
    r.framing = FRAMING_LENGTH;
    message_write_request(&out, &r, SLICE("/"), false);
    expect("POST / HTTP/1.1\r\nHost: b:8\r\nX: 1\r\nEmpty: \r\nContent-Length: 0\r\n\r\n");
    r.length = UINT64_MAX;
    message_write_request(&out, &r, SLICE("/"), true);
    expect("POST / HTTP/1.1\r\nHost: b:8\r\nX: 1\r\nEmpty: \r\n"
           "Content-Length: 18446744073709551615\r\nConnection: close\r\n\r\n");
    r.framing = FRAMING_CHUNKED;
    message_write_request(&out, &r, SLICE("*"), false);
    expect("POST * HTTP/1.1\r\nHost: b:8\r\nX: 1\r\nEmpty: \r\nTransfer-Encoding: chunked\r\n\r\n");
}

static void response_is(struct response r, bool close, bool keep_alive_10, const char *want)
{
    headers_init(&r.headers, &arena);
    headers_add(&r.headers, SLICE("Content-Length"), SLICE("99"));
    headers_add(&r.headers, SLICE("B"), SLICE("2"));
    message_write_response(&out, &r, close, keep_alive_10);
    expect(want);
}

#define RESPONSE(...) ((struct response){ __VA_ARGS__ })

static void writes_responses(void **state)
{
    (void)state;
    response_is(RESPONSE(.status = 200, .framing = FRAMING_LENGTH), false, false,
                "HTTP/1.1 200 OK\r\nB: 2\r\nContent-Length: 0\r\n\r\n");
    response_is(RESPONSE(.status = 429, .framing = FRAMING_LENGTH, .length = 12), true, true,
                "HTTP/1.1 429 Too Many Requests\r\nB: 2\r\nContent-Length: 12\r\n"
                "Connection: close\r\n\r\n");
    response_is(RESPONSE(.status = 200, .framing = FRAMING_CHUNKED), false, false,
                "HTTP/1.1 200 OK\r\nB: 2\r\nTransfer-Encoding: chunked\r\n\r\n");
    response_is(RESPONSE(.status = 200, .framing = FRAMING_CLOSE), false, true,
                "HTTP/1.1 200 OK\r\nB: 2\r\nConnection: close\r\n\r\n");
    response_is(RESPONSE(.status = 200, .framing = FRAMING_LENGTH, .length = 1), false, true,
                "HTTP/1.1 200 OK\r\nB: 2\r\nContent-Length: 1\r\nConnection: keep-alive\r\n\r\n");
    response_is(RESPONSE(.status = 599, .framing = FRAMING_LENGTH), false, false,
                "HTTP/1.1 599 Unknown\r\nB: 2\r\nContent-Length: 0\r\n\r\n");
}

static void writes_responses_without_body(void **state)
{
    (void)state;
    response_is(RESPONSE(.status = 304), false, false, "HTTP/1.1 304 Not Modified\r\nB: 2\r\n\r\n");
    response_is(RESPONSE(.status = 304, .head_length = true, .length = 7), false, false,
                "HTTP/1.1 304 Not Modified\r\nB: 2\r\nContent-Length: 7\r\n\r\n");
    response_is(RESPONSE(.status = 200, .head_length = true, .length = 0), false, false,
                "HTTP/1.1 200 OK\r\nB: 2\r\nContent-Length: 0\r\n\r\n");
    response_is(RESPONSE(.status = 204, .head_length = true, .length = 7), false, false,
                "HTTP/1.1 204 No Content\r\nB: 2\r\n\r\n");
    response_is(RESPONSE(.status = 204, .framing = FRAMING_LENGTH), false, false,
                "HTTP/1.1 204 No Content\r\nB: 2\r\n\r\n");
    response_is(RESPONSE(.status = 100), false, false, "HTTP/1.1 100 Continue\r\nB: 2\r\n\r\n");
}

static void appends(void **state)
{
    (void)state;
    buf_add_text(&out, "before ");
    struct response r = { .status = 204 };
    headers_init(&r.headers, &arena);
    message_write_response(&out, &r, false, false);
    expect("before HTTP/1.1 204 No Content\r\n\r\n");
}

static void knows_methods_and_statuses(void **state)
{
    (void)state;
    assert_string_equal(message_reason(200), "OK");
    assert_string_equal(message_reason(431), "Request Header Fields Too Large");
    assert_string_equal(message_reason(299), "Unknown");
    assert_string_equal(message_reason(-1), "Unknown");
    assert_string_equal(message_reason(600), "Unknown");
    assert_true(message_no_body(SLICE("HEAD"), 200));
    assert_true(message_no_body(SLICE("GET"), 100));
    assert_true(message_no_body(SLICE("GET"), 204));
    assert_true(message_no_body(SLICE("GET"), 304));
    assert_false(message_no_body(SLICE("GET"), 200));
    assert_false(message_no_body(SLICE("head"), 200));
    assert_false(message_no_body(SLICE("POST"), 205));
    static const char *const yes[] = { "GET", "HEAD", "OPTIONS", "TRACE", "PUT", "DELETE" };
    static const char *const no[] = { "POST", "PATCH", "get", "", "GETS", "CONNECT", "LOCK" };
    for (size_t i = 0; i < sizeof yes / sizeof *yes; i++)
        assert_true(message_idempotent(slice_of(yes[i])));
    for (size_t i = 0; i < sizeof no / sizeof *no; i++)
        assert_false(message_idempotent(slice_of(no[i])));
}

static void date_is(int64_t seconds, const char *want)
{
    char got[30];
    message_date(seconds, got);
    assert_string_equal(got, want);
}

static void writes_dates(void **state)
{
    (void)state;
    date_is(784111777, "Sun, 06 Nov 1994 08:49:37 GMT"); /* the example of RFC 9110 */
    date_is(0, "Thu, 01 Jan 1970 00:00:00 GMT");
    date_is(-1, "Wed, 31 Dec 1969 23:59:59 GMT");
    date_is(951782400, "Tue, 29 Feb 2000 00:00:00 GMT");
    date_is(4107542400, "Mon, 01 Mar 2100 00:00:00 GMT");
    date_is(253402300799, "Fri, 31 Dec 9999 23:59:59 GMT");
    date_is(253402300800, "Fri, 31 Dec 9999 23:59:59 GMT");
    date_is(INT64_MAX, "Fri, 31 Dec 9999 23:59:59 GMT");
    date_is(-62167219200, "Sat, 01 Jan 0000 00:00:00 GMT");
    date_is(INT64_MIN, "Sat, 01 Jan 0000 00:00:00 GMT");
}

/* Against the C library, about each day of ten thousand years. */
static void dates_agree_with_libc(void **state)
{
    (void)state;
    for (int64_t at = -62167219200; at <= 253402300799; at += 86399) {
        char got[30], want[160], text[64];
        time_t seconds = (time_t)at;
        struct tm tm;
        gmtime_r(&seconds, &tm);
        strftime(text, sizeof text, "%a, %d %b ", &tm);
        snprintf(want, sizeof want, "%s%04d %02d:%02d:%02d GMT", text, tm.tm_year + 1900,
                 tm.tm_hour, tm.tm_min, tm.tm_sec);
        message_date(at, got);
        if (strcmp(got, want) != 0)
            fail_msg("%lld: %s, not %s", (long long)at, got, want);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(writes_requests, setup, teardown),
        cmocka_unit_test_setup_teardown(writes_responses, setup, teardown),
        cmocka_unit_test_setup_teardown(writes_responses_without_body, setup, teardown),
        cmocka_unit_test_setup_teardown(appends, setup, teardown),
        cmocka_unit_test(knows_methods_and_statuses),
        cmocka_unit_test(writes_dates),
        cmocka_unit_test(dates_agree_with_libc),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
