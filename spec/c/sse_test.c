/* sse: events and offsets, against a plain reading of the standard, whatever the line ends and the
 * split. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>

#include <cmocka.h>

#include "buf.h"
#include "sse.h"

static uint32_t seed = 1;

static uint32_t chance(uint32_t below)
{
    seed = seed * 1664525u + 1013904223u;
    return (seed >> 8) % below;
}

struct seen {
    struct buf log, data;
};

static void note(struct buf *log, struct slice name, struct slice data, uint64_t start,
                 uint64_t end)
{
    buf_printf(log, "%llu-%llu ", (unsigned long long)start, (unsigned long long)end);
    buf_add_slice(log, name);
    buf_add_text(log, "|");
    buf_add_slice(log, data);
    buf_add_text(log, ";");
}

static void on_data(void *arg, struct slice piece)
{
    struct seen *seen = arg;
    assert_true(piece.n > 0);
    buf_add_slice(&seen->data, piece);
}

static void on_event(void *arg, const struct sse_event *e)
{
    struct seen *seen = arg;
    note(&seen->log, e->name, buf_slice(&seen->data), e->start, e->end);
    buf_clear(&seen->data);
}

/* Feeds in pieces of at most `most` bytes: 0 is whole, 1 byte by byte, more is at random. */
static void split(struct slice text, uint32_t most, struct buf *log)
{
    struct seen seen;
    struct sse s;
    buf_init(&seen.log);
    buf_init(&seen.data);
    sse_init(&s, on_data, on_event, &seen);
    for (size_t at = 0; at < text.n;) {
        size_t n = most == 0 ? text.n : most == 1 ? 1 : 1 + chance(most);
        if (n > text.n - at)
            n = text.n - at;
        char *copy = malloc(n);
        memcpy(copy, text.p + at, n);
        sse_feed(&s, (struct slice){ copy, n });
        free(copy);
        at += n;
        assert_int_equal(s.offset, at);
        assert_true(sse_pending(&s) <= at);
    }
    sse_end(&s);
    *log = seen.log;
    buf_add(log, "", 1);
    buf_deinit(&seen.data);
}

static void expect(struct slice text, const char *log)
{
    for (uint32_t most = 0; most < 12; most++) {
        struct buf b;
        split(text, most, &b);
        assert_string_equal(b.p, log);
        buf_deinit(&b);
    }
}

static void splits_events(void **state)
{
    (void)state;
    expect(SLICE(""), "");
    expect(SLICE("data: a\n\ndata: b\n\n"), "0-9 |a;9-18 |b;");
    expect(SLICE("event: x\ndata: a\n\n"), "0-18 x|a;");
    expect(SLICE("data: a\nevent: x\nevent: y\n\ndata:b\n\n"), "0-27 y|a;27-35 |b;");
    expect(SLICE("data: a\ndata: b\ndata\ndata:\n\n"), "0-28 |a\nb\n\n;");
}

static void takes_every_line_end(void **state)
{
    (void)state;
    expect(SLICE("data: a\r\n\r\ndata: b\r\n\r\n"), "0-11 |a;11-22 |b;");
    expect(SLICE("data: a\r\rdata: b\r\r"), "0-9 |a;9-18 |b;");
    expect(SLICE("data: a\r\ndata: b\rdata: c\n\r\n"), "0-27 |a\nb\nc;");
    expect(SLICE("data: a\n\r"), "0-9 |a;");
    expect(SLICE("data: a\r\r\ndata: b\n\n"), "0-10 |a;10-19 |b;");
    expect(SLICE("data: a\n\n\n\r\n\r\rdata: b\n\n"), "0-9 |a;14-23 |b;");
}

static void takes_colons_and_one_space(void **state)
{
    (void)state;
    expect(SLICE("data:a\n\n"), "0-8 |a;");
    expect(SLICE("data:  a\n\n"), "0-10 | a;");
    expect(SLICE("data: a: b\n\n"), "0-12 |a: b;");
    expect(SLICE("data:\n\n"), "0-7 |;");
    expect(SLICE("data\n\n"), "0-6 |;");
    expect(SLICE("data: \n\n"), "0-8 |;");
    expect(SLICE("event\ndata: a\n\n"), "0-15 |a;");
    expect(SLICE("event: x\nevent\ndata: a\n\n"), "0-24 |a;");
}

static void passes_over_what_it_does_not_know(void **state)
{
    (void)state;
    expect(SLICE(": hello\n\n:\n\ndata: a\n\n"), "12-21 |a;");
    expect(SLICE(": in front\n: of it\ndata: a\n: between\n\n"), "19-38 |a;");
    expect(SLICE("id: 7\nretry: 10\ndatas: x\ndat: y\nDATA: z\n data: w\ndata: a\n\n"), "0-58 |a;");
    expect(SLICE("event: x\n\ndata: a\n\n"), "10-19 |a;");
    expect(SLICE("database: 1\neventful: 2\nda: 3\n\n"), "");
    expect(SLICE("data: a"), "");
    expect(SLICE("data: a\n"), "");
    expect(SLICE("data: a\r"), "");
}

static void takes_a_byte_order_mark_at_the_start_only(void **state)
{
    (void)state;
    expect(SLICE("\xef\xbb\xbf"
                 "data: a\n\n"),
           "3-12 |a;");
    expect(SLICE("\xef\xbb\xbf\n\xef\xbb\xbf"
                 "data: a\n\n"),
           "");
    expect(SLICE("\xef\xbb"
                 "data: a\n\ndata: b\n\n"),
           "11-20 |b;");
    expect(SLICE("\xef\ndata: b\n\n"), "0-11 |b;");
    expect(SLICE("\xef\xbb\xbf\xef\xbb\xbf"
                 "data: a\n\n"),
           "");
}

static void bounds_the_name(void **state)
{
    (void)state;
    char text[256], want[256], name[SSE_NAME + 11];
    memset(name, 'n', sizeof name - 1);
    name[sizeof name - 1] = '\0';
    int n = snprintf(text, sizeof text, "event: %s\ndata: a\n\nevent: y\ndata: b\n\n", name);
    snprintf(want, sizeof want, "0-%d %.*s|a;%d-%d y|b;", n - 18, SSE_NAME, name, n - 18, n);
    expect((struct slice){ text, (size_t)n }, want);
}

static void knows_where_a_begun_event_starts(void **state)
{
    (void)state;
    struct seen seen;
    struct sse s;
    buf_init(&seen.log);
    buf_init(&seen.data);
    sse_init(&s, on_data, on_event, &seen);
    sse_feed(&s, SLICE(": comment\n: an"));
    assert_int_equal(sse_pending(&s), 14);
    sse_feed(&s, SLICE("other\nd"));
    assert_int_equal(sse_pending(&s), 20);
    sse_feed(&s, SLICE("ata: a\r\n\r"));
    assert_int_equal(sse_pending(&s), 20);
    sse_feed(&s, SLICE("\n"));
    assert_int_equal(sse_pending(&s), s.offset);
    buf_deinit(&seen.log);
    buf_deinit(&seen.data);
}

/* The standard's algorithm on a whole stream: lines first, then fields. */
static void by_the_standard(struct slice text, struct buf *log)
{
    size_t at = slice_starts(text, SLICE("\xef\xbb\xbf")) ? 3 : 0, start = at;
    bool begun = false, has_data = false;
    struct slice name = { "", 0 };
    struct buf data;
    buf_init(&data);
    buf_init(log);
    for (;;) {
        size_t end = at;
        while (end < text.n && text.p[end] != '\r' && text.p[end] != '\n')
            end++;
        if (end == text.n)
            break;
        struct slice line = { text.p + at, end - at };
        size_t next =
            end +
            (slice_starts((struct slice){ text.p + end, text.n - end }, SLICE("\r\n")) ? 2 : 1);
        if (line.n == 0) {
            if (has_data)
                note(log, name, (struct slice){ data.p, data.n - 1 }, start, next);
            buf_clear(&data);
            name.n = 0;
            begun = has_data = false;
        } else if (line.p[0] != ':') {
            if (!begun)
                start = at;
            begun = true;
            const char *colon = memchr(line.p, ':', line.n);
            struct slice field = line, value = { line.p + line.n, 0 };
            if (colon != NULL) {
                field.n = (size_t)(colon - line.p);
                value = (struct slice){ colon + 1, line.n - field.n - 1 };
                if (slice_starts(value, SLICE(" ")))
                    value = (struct slice){ value.p + 1, value.n - 1 };
            }
            if (slice_eq(field, SLICE("data"))) {
                buf_add_slice(&data, value);
                buf_add_text(&data, "\n");
                has_data = true;
            } else if (slice_eq(field, SLICE("event"))) {
                name = value;
            }
        }
        at = next;
    }
    buf_add(log, "", 1);
    buf_deinit(&data);
}

static void agrees_with_the_standard_on_random_streams(void **state)
{
    (void)state;
    static const char *const parts[] = {
        "data", "data:",    "data: ", "event: ",      "event", "id: 1",       ":",
        " ",    "x",        "y",      "\n",           "\n",    "\n\n",        "\r",
        "\r\n", "\r\n\r\n", "\r\r",   "\xef\xbb\xbf", "\xef",  "data: {}\n\n"
    };
    for (int round = 0; round < 20000; round++) {
        struct buf text, want;
        buf_init(&text);
        buf_add_text(&text, "");
        for (uint32_t i = 0, n = chance(30); i < n; i++)
            buf_add_text(&text, parts[chance(sizeof parts / sizeof *parts)]);
        by_the_standard(buf_slice(&text), &want);
        for (uint32_t most = 0; most < 5; most++) {
            struct buf got;
            split(buf_slice(&text), most, &got);
            if (strcmp(got.p, want.p) != 0)
                print_error("stream: %.*s\n", (int)text.n, text.p);
            assert_string_equal(got.p, want.p);
            buf_deinit(&got);
        }
        buf_deinit(&text);
        buf_deinit(&want);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(splits_events),
        cmocka_unit_test(takes_every_line_end),
        cmocka_unit_test(takes_colons_and_one_space),
        cmocka_unit_test(passes_over_what_it_does_not_know),
        cmocka_unit_test(takes_a_byte_order_mark_at_the_start_only),
        cmocka_unit_test(bounds_the_name),
        cmocka_unit_test(knows_where_a_begun_event_starts),
        cmocka_unit_test(agrees_with_the_standard_on_random_streams),
    };
    return cmocka_run_group_tests_name("sse", tests, NULL, NULL);
}
