/* Messages out of bytes: tables of raw input, each fed whole, byte by byte and in random pieces,
 * with one outcome. The outcome is written as a line: a message is
 *
 *   METHOD path[?query] @authority 1.minor framing flags =body
 *   status 1.minor framing flags =body
 *
 * and what follows it "; ". "!400" is a fault, "?400" one that only came with the end of input.
 * Flags: k keep_alive, e expect_continue, u upgrade, h head_length. The tables are in
 * parse_cases.h. */
#include "parse.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

#include <cmocka.h>

#include "mem.h"
#include "parse_cases.h"

static const struct parse_limits limits = { .head = 4096, .url = 1024, .fields = 20 };

struct run {
    bool is_request;
    const char *method; /* that a response answers */
    struct parser *parser;
    struct request request;
    struct response response;
    struct arena arena;
    struct buf said, fields, body;
    bool headed;
    bool stop; /* every callback returns non-zero */
    int heads, ends;
};

static const char *framing_text(enum framing framing, uint64_t length)
{
    static char text[32];
    static const char *const names[] = { "none", "", "chunked", "close" };
    if (framing == FRAMING_LENGTH)
        snprintf(text, sizeof text, "%llu", (unsigned long long)length);
    else
        snprintf(text, sizeof text, "%s", names[framing]);
    return text;
}

static void say_fields(struct run *r, const struct headers *h)
{
    for (uint32_t i = 0; i < h->n; i++) {
        buf_add_slice(&r->fields, h->v[i].name);
        buf_add_text(&r->fields, "=");
        buf_add_slice(&r->fields, h->v[i].value);
        buf_add_text(&r->fields, ";");
        assert_int_equal(h->v[i].id, header_id(h->v[i].name));
    }
}

static void say_request(struct run *r)
{
    struct request *q = &r->request;
    buf_printf(&r->said, "%.*s %.*s", (int)q->method.n, q->method.p, (int)q->path.n, q->path.p);
    if (q->query.p != NULL)
        buf_printf(&r->said, "?%.*s", (int)q->query.n, q->query.p);
    buf_printf(&r->said, " @%.*s 1.%d %s%s%s%s%s", (int)q->authority.n, q->authority.p, q->minor,
               framing_text(q->framing, q->length),
               q->keep_alive || q->expect_continue || q->upgrade ? " " : "",
               q->keep_alive ? "k" : "", q->expect_continue ? "e" : "", q->upgrade ? "u" : "");
    say_fields(r, &q->headers);
}

static void say_response(struct run *r)
{
    struct response *s = &r->response;
    buf_printf(&r->said, "%d 1.%d %s%s%s%s", s->status, s->minor,
               framing_text(s->framing, s->length), s->keep_alive || s->head_length ? " " : "",
               s->keep_alive ? "k" : "", s->head_length ? "h" : "");
    buf_add_slice(&r->fields, s->reason);
    say_fields(r, &s->headers);
}

static int on_head(void *arg)
{
    struct run *r = arg;
    assert_true(parser_busy(r->parser));
    r->heads++;
    if (r->said.n > 0)
        buf_add_text(&r->said, "; ");
    if (r->is_request)
        say_request(r);
    else
        say_response(r);
    r->headed = true;
    return r->stop;
}

static int on_body(void *arg, struct slice piece)
{
    struct run *r = arg;
    assert_true(r->headed && piece.n > 0 && parser_busy(r->parser));
    buf_add_slice(&r->body, piece);
    /* The message is ours to change by now. */
    r->request.framing = r->response.framing = FRAMING_NONE;
    r->request.length = r->response.length = 0;
    return r->stop;
}

static void next(struct run *r)
{
    arena_reset(&r->arena);
    if (r->is_request)
        parser_next_request(r->parser, &r->request, &r->arena);
    else
        parser_next_response(r->parser, &r->response, &r->arena, slice_of(r->method));
}

static void say_body(struct run *r)
{
    if (r->body.n > 0) {
        buf_add_text(&r->said, " =");
        buf_add_slice(&r->said, buf_slice(&r->body));
        buf_clear(&r->body);
    }
}

static void on_end(void *arg)
{
    struct run *r = arg;
    assert_true(r->headed);
    assert_false(parser_busy(r->parser));
    r->ends++;
    r->headed = false;
    say_body(r);
    next(r);
}

static const struct parse_events events = { on_head, on_body, on_end };

static void run_init(struct run *r, bool is_request, const char *method)
{
    *r = (struct run){ .is_request = is_request, .method = method };
    r->parser = is_request ? parser_new_request(&limits, &events, r)
                           : parser_new_response(&limits, &events, r);
    arena_init(&r->arena);
    next(r);
}

static void run_deinit(struct run *r)
{
    parser_free(r->parser);
    arena_deinit(&r->arena);
    buf_deinit(&r->said);
    buf_deinit(&r->fields);
    buf_deinit(&r->body);
}

/* Feeds a piece, in a block of its own so that the sanitizer sees every byte read too far. */
static int feed(struct run *r, const char *bytes, size_t n)
{
    char *copy = mem_alloc(n == 0 ? 1 : n);
    memcpy(copy, bytes, n);
    size_t at = 0;
    int status = 0;
    while (status == 0 && at < n) {
        size_t took;
        status = parser_feed(r->parser, copy + at, n - at, &took);
        assert_true(took <= n - at);
        at += took;
    }
    mem_free(copy);
    return status;
}

/* Pieces of `step` bytes, or with step 0 of random sizes. */
static void run_all(struct run *r, const char *raw, size_t n, size_t step, unsigned seed)
{
    int status = 0;
    for (size_t at = 0; at < n && status == 0;) {
        size_t piece = step;
        if (step == 0) {
            seed = seed * 1103515245 + 12345;
            piece = 1 + seed / 65536 % (seed & 0x1000000 ? 4 : 40);
        }
        piece = piece < n - at ? piece : n - at;
        status = feed(r, raw + at, piece);
        at += piece;
    }
    char mark = '!';
    if (status == 0) {
        size_t took;
        status = parser_feed(r->parser, NULL, 0, &took); /* an end that a stop has put off */
        assert_int_equal(status, 0);
        status = parser_eof(r->parser);
        mark = '?';
    }
    say_body(r);
    if (status != 0) {
        buf_printf(&r->said, "%s%c%d", r->said.n > 0 ? " " : "", mark, status);
        assert_true(parser_fault(r->parser)[0] != '\0');
    }
    buf_add(&r->said, "", 1);
}

static void check(const struct test_case *c, bool is_request)
{
    struct buf fields;
    buf_init(&fields);
    for (unsigned round = 0; round < 24; round++) {
        struct run r;
        run_init(&r, is_request, c->method == NULL ? "GET" : c->method);
        r.stop = round % 2 == 1;
        size_t step = round < 2 ? c->n : round < 4 ? 1 : 0;
        run_all(&r, c->raw, c->n, step, round + 1);
        if (strcmp(r.said.p, c->want) != 0)
            fail_msg("round %u of\n%.*s\ngives  %s (%s)\nnot    %s", round, (int)c->n, c->raw,
                     r.said.p, parser_fault(r.parser), c->want);
        if (round == 0)
            buf_add_slice(&fields, buf_slice(&r.fields));
        assert_true(slice_eq(buf_slice(&fields), buf_slice(&r.fields)));
        run_deinit(&r);
    }
    buf_deinit(&fields);
}

static void check_all(const struct test_case *cases, size_t n, bool is_request)
{
    for (size_t i = 0; i < n; i++)
        check(&cases[i], is_request);
}

static void reads_start_lines(void **state)
{
    (void)state;
    check_all(start_lines, COUNT(start_lines), true);
}

static void reads_targets(void **state)
{
    (void)state;
    check_all(targets, COUNT(targets), true);
}

static void reads_fields(void **state)
{
    (void)state;
    check_all(fields, COUNT(fields), true);
}

static void reads_framing(void **state)
{
    (void)state;
    check_all(framing, COUNT(framing), true);
}

static void reads_chunks(void **state)
{
    (void)state;
    check_all(chunks, COUNT(chunks), true);
}

static void reads_responses(void **state)
{
    (void)state;
    check_all(responses, COUNT(responses), false);
}

/* prefix, n times c, suffix */
static void check_padded(const char *prefix, size_t n, char c, const char *suffix, const char *want)
{
    struct buf raw;
    buf_init(&raw);
    buf_add_text(&raw, prefix);
    memset(buf_reserve(&raw, n + 1), c, n);
    raw.n += n;
    buf_add_text(&raw, suffix);
    struct test_case test = { raw.p, want, raw.n, NULL };
    struct run r;
    for (size_t step = 1; step <= raw.n; step = step * 7) {
        run_init(&r, strncmp(prefix, "HTTP", 4) != 0, "GET");
        run_all(&r, test.raw, test.n, step, 1);
        if (!slice_ends(slice_of(r.said.p), slice_of(want)))
            fail_msg("%s, not %s", r.said.p, want);
        run_deinit(&r);
    }
    buf_deinit(&raw);
}

static void keeps_limits(void **state)
{
    (void)state;
    const char *end = " HTTP/1.1\r\n" H "\r\n";
    check_padded("GET /", 1023, 'a', end, " @h 1.1 none k");
    check_padded("GET /", 1024, 'a', end, "!414");
    check_padded("GET /", 1085, 'a', "", "?400");
    check_padded("GET /", 2000, 'a', "", "!414");
    check_padded("G", 2000, 'a', "", "!414");
    check_padded("GET /", 5000, 'a', end, "!414");
    const char *head = "GET / HTTP/1.1\r\n" H "A: ";
    size_t room = limits.head - strlen(head) - 4;
    check_padded(head, room, 'a', "\r\n\r\n", GOT);
    check_padded(head, room + 1, 'a', "\r\n\r\n", "!431");
    check_padded(head, room + 5, 'a', "", "!431");
    check_padded("HTTP/1.1 200 ", 5000, 'a', "", "!502");
    check_padded(OK "A: ", 5000, 'a', "", "!502");
    /* the body does not count */
    check_padded(LENGTH(" 100000"), 100000, 'a', GET(""), "a; " GOT);
}

static void limits_fields(void **state)
{
    (void)state;
    char raw[1024] = "GET / HTTP/1.1\r\n" H;
    for (int i = 1; i < 20; i++)
        strcat(raw, "A: b\r\n");
    size_t n = strlen(raw);
    strcat(raw, "\r\n");
    check(&(struct test_case){ raw, GOT, n + 2, NULL }, true);
    strcpy(raw + n, "A: b\r\n\r\n");
    check(&(struct test_case){ raw, "!431", n + 8, NULL }, true);
}

static void limits_chunk_framing(void **state)
{
    (void)state;
    check_padded(CHUNKED("1;"), 16383, 'a', "\r\na\r\n" EMPTY, "chunked k =a");
    check_padded(CHUNKED("1;"), 16385, 'a', "", "!400");
    check_padded(CHUNKED("1;"), 1 << 20, ' ', "", "!400");
    check_padded(CHUNKED("0\r\nA:"), 4096 - 6, 'a', "\r\n\r\n", "chunked k");
    check_padded(CHUNKED("0\r\nA:"), 4096 - 5, 'a', "\r\n\r\n", "!431");
}

/* Extensions on many chunks: paid for by data, or refused. */
static void weighs_extensions(void **state)
{
    (void)state;
    struct run r;
    run_init(&r, true, "GET");
    assert_int_equal(feed(&r, CHUNKED(""), strlen(CHUNKED(""))), 0);
    const char *fair = "10;sign=0123456789\r\n0123456789abcdef\r\n";
    for (int i = 0; i < 10000; i++)
        assert_int_equal(feed(&r, fair, strlen(fair)), 0);
    const char *unfair = "1;sign=0123456789\r\n0\r\n";
    int i = 0;
    while (feed(&r, unfair, strlen(unfair)) == 0)
        assert_in_range(++i, 0, 1200);
    run_deinit(&r);
}

static void stops_where_told(void **state)
{
    (void)state;
    const char *raw = LENGTH(" 5") "hello" GET("");
    size_t n = strlen(raw), head = n - 5 - strlen(GET("")), took;
    struct run r;
    run_init(&r, true, "GET");
    r.stop = true;
    assert_false(parser_busy(r.parser));
    assert_int_equal(parser_feed(r.parser, raw, n, &took), 0);
    assert_int_equal(took, head);
    assert_int_equal(r.body.n, 0);
    assert_int_equal(parser_feed(r.parser, raw + head, 2, &took), 0);
    assert_int_equal(took, 2);
    assert_int_equal(parser_feed(r.parser, raw + head + 2, n - head - 2, &took), 0);
    assert_int_equal(took, 3);
    assert_int_equal(r.ends, 0);
    assert_true(parser_busy(r.parser));
    assert_int_equal(parser_feed(r.parser, raw + head + 5, n - head - 5, &took), 0);
    assert_int_equal(took, 0);
    assert_int_equal(r.ends, 1);
    assert_int_equal(parser_feed(r.parser, raw + head + 5, n - head - 5, &took), 0);
    assert_int_equal(took, n - head - 5);
    assert_int_equal(r.heads, 2);
    assert_int_equal(r.ends, 1);
    assert_int_equal(parser_eof(r.parser), 0);
    assert_int_equal(r.ends, 2);
    run_deinit(&r);
}

static void consumes_one_message(void **state)
{
    (void)state;
    static const char *const messages[] = { GET(""), LENGTH("3") "abc",
                                            CHUNKED("1\r\na\r\n0\r\nA: b\r\n\r\n"), LENGTH("0"),
                                            "\r\n" GET("") };
    for (size_t i = 0; i < sizeof messages / sizeof *messages; i++) {
        char raw[1024];
        snprintf(raw, sizeof raw, "%s%s", messages[i], messages[i]);
        struct run r;
        size_t took;
        run_init(&r, true, "GET");
        assert_int_equal(parser_feed(r.parser, raw, strlen(raw), &took), 0);
        assert_int_equal(took, strlen(messages[i]));
        assert_int_equal(r.ends, 1);
        run_deinit(&r);
    }
}

static void on_end_idle(void *arg)
{
    ((struct run *)arg)->ends++;
}

static void waits_for_next(void **state)
{
    (void)state;
    static const struct parse_events idle = { on_head, on_body, on_end_idle };
    struct run r = { .is_request = true };
    size_t took;
    r.parser = parser_new_request(&limits, &idle, &r);
    assert_int_equal(parser_feed(r.parser, GET(""), 5, &took), 0);
    assert_int_equal(took, 0);
    assert_int_equal(parser_eof(r.parser), 0);
    next(&r);
    assert_int_equal(parser_feed(r.parser, GET("") GET(""), 2 * strlen(GET("")), &took), 0);
    assert_int_equal(took, strlen(GET("")));
    assert_int_equal(r.ends, 1);
    assert_int_equal(parser_feed(r.parser, GET(""), 5, &took), 0);
    assert_int_equal(took, 0);
    run_deinit(&r);
}

static void stays_failed(void **state)
{
    (void)state;
    struct run r;
    size_t took;
    run_init(&r, true, "GET");
    assert_int_equal(feed(&r, "(", 1), 400);
    assert_string_equal(parser_fault(r.parser), "not HTTP");
    assert_int_equal(parser_feed(r.parser, GET(""), 10, &took), 400);
    assert_int_equal(parser_eof(r.parser), 400);
    next(&r);
    assert_int_equal(parser_feed(r.parser, GET(""), 10, &took), 400);
    run_deinit(&r);
}

/* What a head says outlives the bytes it came in, and is what was sent. */
static void delivers_slices(void **state)
{
    (void)state;
    struct run r;
    run_init(&r, true, "GET");
    r.stop = true;
    const char *raw =
        "PUT http://x:/a%2fb?c HTTP/1.1\r\nHost: other\r\nA:  b c \t\r\nE:\r\na: d\r\n\r\n";
    assert_int_equal(feed(&r, raw, strlen(raw)), 0);
    struct request *q = &r.request;
    assert_true(slice_eq(q->target, SLICE("/a%2fb?c")));
    assert_true(slice_eq(q->path, SLICE("/a%2Fb")));
    assert_true(slice_eq(q->query, SLICE("c")));
    buf_add(&r.fields, "", 1);
    assert_string_equal(r.fields.p, "Host=x;A=b c;E=;a=d;");
    run_deinit(&r);
    run_init(&r, false, "GET");
    raw = "HTTP/1.1 200 So so\r\nA: b\r\n\r\n";
    assert_int_equal(feed(&r, raw, strlen(raw)), 0);
    assert_true(slice_eq(r.response.reason, SLICE("So so")));
    run_deinit(&r);
}

/* Stops behind the first head. */
static void read_first(struct run *r, bool is_request, const char *method, struct slice raw)
{
    size_t took;
    run_init(r, is_request, method);
    r->stop = true;
    if (parser_feed(r->parser, raw.p, raw.n, &took) != 0)
        fail_msg("%s in\n%.*s", parser_fault(r->parser), (int)raw.n, raw.p);
    assert_int_equal(r->heads, 1);
    buf_add(&r->said, "", 1);
}

static void write_again(struct run *r, struct buf *out)
{
    struct slice target = r->request.path, query = r->request.query;
    if (query.p != NULL)
        target =
            arena_printf(&r->arena, "%.*s?%.*s", (int)target.n, target.p, (int)query.n, query.p);
    /* As the gateway does: an Upgrade that Connection does not name is none (RFC 9110,
     * section 7.8). */
    headers_remove_hop_by_hop(r->is_request ? &r->request.headers : &r->response.headers);
    if (r->is_request)
        message_write_request(out, &r->request, target, !r->request.keep_alive);
    else
        message_write_response(out, &r->response, !r->response.keep_alive, false);
}

/* Writing gives HTTP/1.1 whatever came in, and leaves out what a connection keeps to itself. */
static bool comparable(const struct test_case *c)
{
    static const char *const not [] = { "!4", "!5", "?4", "?5", "@ ", " 1.0 ", "u", "101 " };
    for (size_t i = 0; i < sizeof not / sizeof *not ; i++)
        if (strstr(c->want, not [i]) != NULL)
            return false;
    /* Who writes Upgrade names it in Connection, whatever came. */
    return c->want[0] != '\0' && memmem(c->raw, c->n, "\nUpgrade:", 9) == NULL;
}

static int write_all_again(const struct test_case *cases, size_t n, bool is_request)
{
    int compared = 0;
    for (size_t i = 0; i < n; i++) {
        const struct test_case *c = &cases[i];
        if (!comparable(c))
            continue;
        struct run one, two;
        struct buf out;
        const char *method = c->method == NULL ? "GET" : c->method;
        buf_init(&out);
        read_first(&one, is_request, method, (struct slice){ c->raw, c->n });
        write_again(&one, &out);
        read_first(&two, is_request, method, buf_slice(&out));
        assert_string_equal(one.said.p, two.said.p);
        compared++;
        run_deinit(&one);
        run_deinit(&two);
        buf_deinit(&out);
    }
    return compared;
}

/* Whatever is accepted, written again, is the same message to a second parser. */
static void writes_what_it_reads(void **state)
{
    (void)state;
    int compared = write_all_again(start_lines, COUNT(start_lines), true) +
                   write_all_again(targets, COUNT(targets), true) +
                   write_all_again(fields, COUNT(fields), true) +
                   write_all_again(framing, COUNT(framing), true) +
                   write_all_again(responses, COUNT(responses), false);
    assert_in_range(compared, 80, 1000);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(reads_start_lines),    cmocka_unit_test(reads_targets),
        cmocka_unit_test(reads_fields),         cmocka_unit_test(reads_framing),
        cmocka_unit_test(reads_chunks),         cmocka_unit_test(reads_responses),
        cmocka_unit_test(keeps_limits),         cmocka_unit_test(limits_fields),
        cmocka_unit_test(limits_chunk_framing), cmocka_unit_test(weighs_extensions),
        cmocka_unit_test(stops_where_told),     cmocka_unit_test(consumes_one_message),
        cmocka_unit_test(waits_for_next),       cmocka_unit_test(stays_failed),
        cmocka_unit_test(delivers_slices),      cmocka_unit_test(writes_what_it_reads),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
