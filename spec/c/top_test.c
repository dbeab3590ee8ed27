/* top: keys, what names may show, tables that fit, rows and rates out of pages, frames. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "top_json.h"
#include "top_view.h"

static const struct top_look ascii = { 80, 24, false, false }, utf8 = { 80, 24, false, true };

/* --- keys --- */

static void keys(void **state)
{
    static const struct {
        const char *bytes;
        int key;
    } rows[] = { { "q", 'q' },
                 { "\t", '\t' },
                 { "\033[A", TOP_KEY_UP },
                 { "\033OB", TOP_KEY_DOWN },
                 { "\033[5~", TOP_KEY_PAGE_UP },
                 { "\033[6~", TOP_KEY_PAGE_DOWN },
                 { "\033[1;5C", TOP_KEY_RIGHT },
                 { "\033[Z", '<' },
                 { "\033q", 'q' },
                 { "\033\033[H", TOP_KEY_HOME },
                 { "\033[99999999999~", 0 },
                 { "\033[\377", 0 },
                 { "\033[200~", 0 } };
    struct top_keys k = { .number = 0 };
    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        int key = 0;
        for (const char *c = rows[i].bytes; *c != '\0'; c++) {
            assert_int_equal(key, 0);
            key = top_keys_byte(&k, (unsigned char)*c);
        }
        assert_int_equal(key, rows[i].key);
    }
}

/* --- text --- */

static void fits(const struct top_look *look, const char *text, int width, const char *expected)
{
    struct buf out;
    buf_init(&out);
    top_text_fit(&out, look, slice_of(text), width, false);
    buf_add(&out, "", 1);
    assert_string_equal(out.p, expected);
    buf_deinit(&out);
}

static void cells(void **state)
{
    (void)state;
    fits(&ascii, "chat", 6, "chat  ");
    fits(&ascii, "chat-long", 6, "chat-~");
    fits(&utf8, "chat-long", 6, "chat-\u2026");
    fits(&utf8, "\u00fcber", 4, "\u00fcber");
    fits(&utf8, "\u65e5\u672c\u8a9e", 5, "\u65e5\u672c\u2026"); /* two cells each */
    fits(&utf8, "\u65e5\u672c\u8a9e", 4, "\u65e5\u2026 ");
    fits(&utf8, "e\u0301e", 2, "e\u0301e");
    fits(&ascii, "\u00fcber", 4, "?ber");
    fits(&utf8, "a\033[31mb", 8, "a?[31mb ");
    fits(&utf8, "a\nb\rc\td\177", 8, "a?b?c?d?");
    fits(&utf8,
         "\xc2\x9b"
         "31m\u202ea\u200bb",
         7, "?31m?a\u2026");
    fits(&utf8, "\xff\xc3(\xe2\x82", 5,
         "??"
         "(??");
    fits(&utf8, "\xc0\xaf\xed\xa0\x80", 5, "?????"); /* overlong, surrogate */
    fits(&utf8, "abc", 0, "");
    fits(&utf8, "", 2, "  ");
}

static void tables_fit(void **state)
{
    static const struct top_column columns[] = { { "NAME", true, 0, 6 },
                                                 { "RATE", false, 0, 0 },
                                                 { "TOTAL", false, 1, 0 },
                                                 { "MORE", false, 2, 0 } };
    struct top_cell row[] = { { SLICE("a-name-of-some-length"), false },
                              { SLICE("12.5"), true },
                              { SLICE("1000"), false },
                              { SLICE("7"), false } };
    (void)state;
    static const struct {
        int columns;
        const char *text;
    } rows[] = { { 80, "NAME                   *RATE  TOTAL  MORE\na-name-of-some-length   12.5   "
                       "1000     7\n" },
                 { 30, "NAME        *RATE  TOTAL  MORE\na-name-of~   12.5   1000     7\n" },
                 { 25, "NAME    *RATE  TOTAL\na-nam~   12.5   1000\n" },
                 { 13, "NAME    *RATE\na-nam~   12.5\n" },
                 { 4, "NAME\na-n~\n" } };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct top_look look = { rows[i].columns, 24, false, false };
        struct buf out;
        buf_init(&out);
        top_text_table(&out, &look, columns, 4, row, 1, 1);
        buf_add(&out, "", 1);
        assert_string_equal(out.p, rows[i].text);
        buf_deinit(&out);
    }
}

/* --- figures --- */

static void page(struct metrics_page *p, const char *text)
{
    struct buf b;
    uint32_t line;
    metrics_page_init(p);
    buf_init(&b);
    buf_add_text(&b, text);
    assert_int_equal(metrics_page_read(p, &b, &line), 0);
}

static const char first[] =
    "process_start_time_seconds 100\n"
    "tollgate_requests_ended_total{route=\"a\",code=\"200\",ended=\"ok\"} 10\n"
    "tollgate_requests_ended_total{route=\"a\",code=\"502\",ended=\"ok\"} 1\n"
    "tollgate_tokens_used_total{model=\"m\",direction=\"input\"} 100\n";
static const char second[] =
    "process_start_time_seconds 100\n"
    "tollgate_build_info{version=\"1.2.3\"} 1\ntollgate_ready 1\n"
    "tollgate_requests_total 32\ntollgate_requests_in_flight 2\n"
    "tollgate_requests_ended_total{route=\"a\",code=\"200\",ended=\"ok\"} 20\n"
    "tollgate_requests_ended_total{route=\"a\",code=\"502\",ended=\"ok\"} 3\n"
    "tollgate_requests_ended_total{route=\"a\",code=\"200\",ended=\"origin_cut\"} 1\n"
    "tollgate_requests_ended_total{route=\"b\",code=\"none\",ended=\"client_gone\"} 6\n"
    "tollgate_request_duration_seconds_bucket{route=\"a\",status=\"2xx\",le=\"0.1\"} 10\n"
    "tollgate_request_duration_seconds_bucket{route=\"a\",status=\"2xx\",le=\"1\"} 20\n"
    "tollgate_request_duration_seconds_bucket{route=\"a\",status=\"2xx\",le=\"+Inf\"} 20\n"
    "tollgate_request_duration_seconds_bucket{route=\"a\",status=\"5xx\",le=\"0.1\"} 0\n"
    "tollgate_request_duration_seconds_bucket{route=\"a\",status=\"5xx\",le=\"1\"} 0\n"
    "tollgate_request_duration_seconds_bucket{route=\"a\",status=\"5xx\",le=\"+Inf\"} 20\n"
    "tollgate_refusals_total{route=\"a\",limit=\"rate\"} 4\n"
    "tollgate_tokens_used_total{model=\"m\",direction=\"input\"} 150\n"
    "tollgate_tokens_used_total{model=\"m\",direction=\"output\"} 8\n"
    "tollgate_origin_attempts_total{route=\"a\",target=\"p:m\"} 9\n"
    "tollgate_origin_attempts_total{route=\"b\",target=\"p:m\"} 1\n"
    "tollgate_origin_errors_total{route=\"a\",target=\"p:m\",error=\"timeout\"} 2\n"
    "breaker_state{provider=\"p\",model=\"m\"} 2\nbreaker_state{provider=\"q\",model=\"x\"} 0\n"
    "tollgate_target_healthy{target=\"p:m\"} 0\n"
    "tollgate_quota_decisions_total{verdict=\"budget\"} 6\n"
    "tollgate_worker_redis_usable{worker=\"0\"} 1\ntollgate_worker_redis_usable{worker=\"1\"} 0\n"
    "tollgate_worker_restarts_total{reason=\"watchdog\"} 3\n";

static void rows_and_rates(void **state)
{
    struct metrics_page a, b;
    struct top t;
    (void)state;
    page(&a, first);
    page(&b, second);
    top_read(&t, &b, &a, 2);
    const struct top_row *route = t.lists[TOP_ROUTES].rows;
    assert_int_equal(t.lists[TOP_ROUTES].n, 2);
    assert_true(route->requests.total == 24 && route->requests.rate == 6.5);
    assert_true(route->errors.total == 4 && route->errors.rate == 1.5 && t.errors.total == 4);
    assert_true(route->refused.rate == 2 && route[1].requests.rate == 3);
    assert_true(route[1].errors.total == 0 && isnan(route[1].duration.p50));
    assert_true(route->duration.p50 == 1 && route->duration.p95 == 1); /* 20 of 40 below 1 */
    assert_true(t.requests.total == 32 && t.in_flight == 2 && t.seconds == 2 && !t.restarted);
    assert_true(t.input.total == 150 && t.input.rate == 25 && t.output.rate == 4);
    const struct top_row *target = t.lists[TOP_TARGETS].rows;
    assert_int_equal(t.lists[TOP_TARGETS].n, 3);
    assert_true(target[0].errors.rate == 1 && target[0].breaker == 2 && target[0].healthy == 0);
    assert_true(target[1].breaker == 2 && target[1].healthy == 0);
    assert_true(target[2].breaker == 0 && isnan(target[2].healthy));
    assert_true(t.verdicts[3].rate == 3 && t.restarts[2].total == 3 && t.redis_usable == 1);
    assert_int_equal(t.lists[TOP_WORKERS].n, 2);
    top_deinit(&t);
    top_read(&t, &b, NULL, 2); /* the first look */
    assert_true(isnan(t.requests.rate) && isnan(t.lists[TOP_ROUTES].rows[0].errors.rate));
    assert_true(t.lists[TOP_ROUTES].rows[0].requests.total == 24);
    top_deinit(&t);
    metrics_page_deinit(&a);
    metrics_page_deinit(&b);
}

static void a_restart_has_no_rates(void **state)
{
    struct metrics_page a, b;
    struct top t;
    struct buf out;
    (void)state;
    page(&a, second);
    page(&b, "process_start_time_seconds 200\n"
             "tollgate_requests_ended_total{route=\"a\",code=\"200\",ended=\"ok\"} 1\n");
    top_read(&t, &b, &a, 1);
    assert_true(t.restarted && isnan(t.seconds) &&
                isnan(t.lists[TOP_ROUTES].rows[0].requests.rate));
    buf_init(&out);
    top_json(&out, &t);
    buf_add(&out, "", 1);
    assert_non_null(strstr(out.p, "\"restarted\":true"));
    assert_non_null(strstr(out.p, "{\"route\":\"a\",\"requests\":{\"total\":1,\"rate\":null}"));
    assert_null(strstr(out.p, "nan"));
    buf_deinit(&out);
    top_deinit(&t);
    metrics_page_deinit(&a);
    metrics_page_deinit(&b);
}

/* --- frames --- */

/* Lines and the widest one; no control character but line breaks. */
static void measure(const struct top_look *look, const struct buf *out, int *lines, int *widest)
{
    *lines = 1;
    *widest = 0;
    const char *at = out->p, *end = at + out->n;
    while (at < end) {
        const char *stop = memchr(at, '\n', (size_t)(end - at));
        struct slice one = { at, (size_t)((stop != NULL ? stop : end) - at) };
        for (size_t i = 0; i < one.n; i++)
            assert_true((unsigned char)one.p[i] >= 0x20 && one.p[i] != 0x7f);
        int width = top_text_width(look, one);
        *widest = width > *widest ? width : *widest;
        *lines += stop != NULL;
        at = stop != NULL ? stop + 1 : end;
    }
}

static void many(struct metrics_page *p, int routes, int targets)
{
    struct buf text;
    uint32_t line;
    buf_init(&text);
    buf_add_text(&text, second);
    for (int i = 0; i < routes; i++)
        buf_printf(
            &text,
            "tollgate_requests_ended_total{route=\"route-%04d-\u65e5\033[2J\",code=\"200\",ended="
            "\"ok\"} %d\n",
            i, i * 1000);
    for (int i = 0; i < targets; i++)
        buf_printf(&text,
                   "tollgate_origin_attempts_total{route=\"route-%04d\",target=\"p%d:m\"} %d\n", i,
                   i, i);
    metrics_page_init(p);
    assert_int_equal(metrics_page_read(p, &text, &line), 0);
    buf_deinit(&text);
}

static void frames_fit_any_terminal(void **state)
{
    static const int sizes[][2] = { { 80, 24 }, { 200, 60 }, { 40, 10 },
                                    { 20, 5 },  { 10, 2 },   { 1, 1 } };
    static const int keys_of[] = { '0',  '1',          '2',         '3', '4',
                                   '\t', TOP_KEY_DOWN, TOP_KEY_END, 'r', TOP_KEY_PAGE_UP };
    struct metrics_page a, b;
    (void)state;
    page(&a, first);
    many(&b, 1000, 100);
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        struct top_look look = { sizes[i][0], sizes[i][1], false, i % 2 == 0 };
        struct top_view v;
        struct top t;
        top_view_init(&v);
        top_read(&t, &b, &a, 1);
        for (size_t k = 0; k < sizeof keys_of / sizeof *keys_of; k++) {
            struct buf out;
            int lines, widest;
            buf_init(&out);
            assert_true(top_view_key(&v, keys_of[k], look.rows));
            v.note = k % 2 == 1 ? "the gateway has been started anew" : NULL;
            top_view_frame(&out, &look, &v, &t, 4000);
            measure(&look, &out, &lines, &widest);
            assert_int_equal(lines, look.rows);
            assert_true(widest <= look.columns);
            buf_deinit(&out);
        }
        assert_false(top_view_key(&v, 'q', look.rows));
        top_deinit(&t);
    }
    metrics_page_deinit(&a);
    metrics_page_deinit(&b);
}

static struct buf frame(struct top_view *v, struct top *t)
{
    struct buf out;
    buf_init(&out);
    top_view_frame(&out, &utf8, v, t, 4000);
    buf_add(&out, "", 1);
    return out;
}

/* Of a gateway that is away frames are drawn out of one page for days. */
static void a_frame_leaves_nothing_behind(void **state)
{
    struct metrics_page a;
    struct top_view v;
    struct top t;
    (void)state;
    many(&a, 100, 100);
    top_view_init(&v);
    top_read(&t, &a, NULL, 0);
    struct arena before = t.arena;
    for (int i = 0; i < 1000; i++) {
        struct buf out = frame(&v, &t);
        buf_deinit(&out);
    }
    assert_ptr_equal(t.arena.last, before.last);
    top_deinit(&t);
    metrics_page_deinit(&a);
}

static void expect_in(struct top_view *v, struct top *t, const char *text, bool there)
{
    struct buf out = frame(v, t);
    if ((strstr(out.p, text) != NULL) != there)
        fail_msg("%s in:\n%s", text, out.p);
    buf_deinit(&out);
}

static void sorts_and_scrolls(void **state)
{
    struct metrics_page a, b;
    struct top_view v;
    struct top t;
    (void)state;
    page(&a, first);
    many(&b, 1000, 100);
    top_view_init(&v);
    top_read(&t, &b, &a, 1);
    expect_in(&v, &t, "route-0999-", true); /* the busiest first */
    expect_in(&v, &t, "route-0000-", false);
    top_view_key(&v, '1', 24);
    top_view_key(&v, TOP_KEY_END, 24);
    expect_in(&v, &t, "route-0000-", true);
    top_view_key(&v, TOP_KEY_HOME, 24);
    top_view_key(&v, TOP_KEY_DOWN, 24);
    expect_in(&v, &t, "route-0999-", false);
    expect_in(&v, &t, "route-0998-", true);
    top_view_key(&v, TOP_KEY_UP, 24);
    top_view_key(&v, TOP_KEY_UP, 24);
    top_view_key(&v, 'r', 24);
    expect_in(&v, &t, "route-0999-", false);
    top_view_key(&v, 'r', 24);
    top_view_key(&v, TOP_KEY_LEFT, 24); /* by name */
    expect_in(&v, &t, "\u25beROUTE", true);
    expect_in(&v, &t, "route-0000-\u65e5?[2J", true);
    top_view_key(&v, '2', 24);
    expect_in(&v, &t, "BREAKER", true);
    expect_in(&v, &t, "WORKER", false);
    top_deinit(&t);
    metrics_page_deinit(&a);
    metrics_page_deinit(&b);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(keys),
        cmocka_unit_test(cells),
        cmocka_unit_test(tables_fit),
        cmocka_unit_test(rows_and_rates),
        cmocka_unit_test(a_restart_has_no_rates),
        cmocka_unit_test(frames_fit_any_terminal),
        cmocka_unit_test(sorts_and_scrolls),
        cmocka_unit_test(a_frame_leaves_nothing_behind),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
