/* fetch: that it can be cancelled in any turn, and that a callback runs once, later, and never
 * behind fetch_free. What requests and answers look like is in spec/host/http_client*_spec.lua. */
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include <cmocka.h>

#include "fetch.h"
#include "mem.h"
#include "turns.h"

enum { TURNS_MAX = 150, STEP = 5 /* bytes */ };

/* An origin that writes a fixed answer, a few bytes a turn, to every connection that sends
 * something. */
struct origin_conn {
    uv_tcp_t tcp;
    uv_timer_t next;
    size_t at;
    bool closing;
};

static struct {
    uv_tcp_t listener;
    int port, connections, open;
    const char *answer;
    bool close_at_end;
} origin;

static void on_conn_closed(uv_handle_t *h)
{
    mem_free(h->data);
}

static void on_timer_closed(uv_handle_t *h)
{
    struct origin_conn *c = h->data;
    uv_close((uv_handle_t *)&c->tcp, on_conn_closed);
}

static void conn_end(struct origin_conn *c)
{
    if (c->closing)
        return;
    c->closing = true;
    origin.open--;
    uv_close((uv_handle_t *)&c->next, on_timer_closed);
}

static void on_next(uv_timer_t *t)
{
    struct origin_conn *c = t->data;
    size_t left = strlen(origin.answer) - c->at;
    uv_buf_t piece =
        uv_buf_init((char *)origin.answer + c->at, left < STEP ? (unsigned)left : STEP);
    if (left == 0) {
        uv_timer_stop(t);
        if (origin.close_at_end)
            conn_end(c);
    } else {
        int n = uv_try_write((uv_stream_t *)&c->tcp, &piece, 1);
        c->at += n > 0 ? (size_t)n : 0;
    }
}

static void on_alloc(uv_handle_t *h, size_t hint, uv_buf_t *out)
{
    static char bytes[4096];
    (void)h, (void)hint;
    *out = uv_buf_init(bytes, sizeof bytes);
}

static void on_request(uv_stream_t *s, ssize_t n, const uv_buf_t *b)
{
    struct origin_conn *c = s->data;
    (void)b;
    if (n < 0) {
        conn_end(c);
    } else if (n > 0) {
        c->at = 0;
        uv_timer_start(&c->next, on_next, 0, 1);
    }
}

static void on_connection(uv_stream_t *s, int err)
{
    assert_int_equal(err, 0);
    struct origin_conn *c = mem_zalloc(sizeof *c);
    uv_tcp_init(s->loop, &c->tcp);
    uv_timer_init(s->loop, &c->next);
    c->tcp.data = c->next.data = c;
    assert_int_equal(uv_accept(s, (uv_stream_t *)&c->tcp), 0);
    uv_read_start((uv_stream_t *)&c->tcp, on_alloc, on_request);
    origin.connections++;
    origin.open++;
}

/* --- the rig --- */

static struct loop loop;
static struct resolve *resolve;
static struct upstream *upstream;
static struct fetch_client *client;

static void open_rig(const char *answer)
{
    struct upstream_limits limits = { .idle = 8, .idle_ms = 10000 };
    struct sockaddr_in a;
    int n = sizeof a;
    const char *why = NULL;
    memset(&origin, 0, sizeof origin);
    origin.answer = answer;
    turns_init(&loop);
    resolve = resolve_new(&loop, &why);
    upstream = upstream_new(&loop, resolve, &limits);
    client = fetch_client_new(&loop, upstream);
    uv_ip4_addr("127.0.0.1", 0, &a);
    uv_tcp_init(&loop.uv, &origin.listener);
    assert_int_equal(uv_tcp_bind(&origin.listener, (struct sockaddr *)&a, 0), 0);
    assert_int_equal(uv_listen((uv_stream_t *)&origin.listener, 64, on_connection), 0);
    uv_tcp_getsockname(&origin.listener, (struct sockaddr *)&a, &n);
    origin.port = ntohs(a.sin_port);
}

static void close_rig(void)
{
    fetch_client_free(client);
    upstream_free(upstream);
    resolve_free(resolve);
    TURN_UNTIL(&loop, origin.open == 0);
    uv_close((uv_handle_t *)&origin.listener, NULL);
    assert_int_equal(turns_deinit(&loop), 0);
}

struct watch {
    struct fetch *f;
    int calls;
    bool returned, freed, free_inside;
};

static void on_call(void *arg)
{
    struct watch *w = arg;
    w->calls++;
    assert_true(w->returned);
    assert_false(w->freed);
    if (w->free_inside) {
        fetch_free(w->f);
        w->freed = true;
    }
}

static struct fetch *start(struct watch *w, bool stream)
{
    char text[64];
    struct fetch_url url;
    struct fetch *f = fetch_new(client);
    snprintf(text, sizeof text, "http://127.0.0.1:%d/", origin.port);
    assert_null(fetch_url_parse(fetch_arena(f), slice_of(text), &url));
    fetch_set_url(f, &url);
    *fetch_options(f) =
        (struct fetch_options){ .parse = { .head = 4096, .url = 1024, .fields = 20 },
                                .connect_ms = 2000,
                                .total_ms = 5000,
                                .redirects = 1,
                                .stream = stream };
    w->f = f;
    fetch_start(f, on_call, w);
    w->returned = true;
    return f;
}

/* --- the tests --- */

static const char ANSWER[] =
    "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n2\r\nde\r\n0\r\n\r\n";
static const char MOVED[] = "HTTP/1.1 302 Found\r\nLocation: /\r\nContent-Length: 5\r\n\r\nmoved";

static void step(void)
{
    uv_run(&loop.uv, UV_RUN_ONCE);
}

/* Cancels behind one turn, then behind two, and so on, until one was done first. */
static void cancel_everywhere(const char *answer, bool stream)
{
    bool complete = false;
    open_rig(answer);
    for (int turns = 0; turns < TURNS_MAX && !complete; turns++) {
        struct watch w = { 0 };
        struct fetch *f = start(&w, stream);
        for (int i = 0; i < turns; i++)
            step();
        fetch_free(f);
        w.freed = true;
        step();
        assert_true(w.calls <= 1);
        complete = stream ? turns == TURNS_MAX / 2 : w.calls == 1;
    }
    assert_true(complete);
    close_rig();
}

static void whole_can_be_cancelled_in_any_turn(void **state)
{
    (void)state;
    cancel_everywhere(ANSWER, false);
    cancel_everywhere(MOVED, false);
}

static void stream_can_be_cancelled_in_any_turn(void **state)
{
    (void)state;
    cancel_everywhere(ANSWER, true);
    cancel_everywhere(MOVED, true);
}

static void may_be_freed_in_its_callback(void **state)
{
    (void)state;
    for (int stream = 0; stream < 2; stream++) {
        for (int ends = 0; ends < 2; ends++) {
            struct watch w = { .free_inside = true };
            open_rig(ends ? "HTTP/1.1 200 OK\r\n\r\nabc" : ANSWER);
            origin.close_at_end = ends;
            start(&w, stream);
            TURN_UNTIL(&loop, w.freed);
            assert_int_equal(w.calls, 1);
            close_rig();
        }
    }
}

static void may_be_freed_in_the_callback_of_a_read(void **state)
{
    (void)state;
    struct watch w = { 0 };
    struct slice piece;
    open_rig(ANSWER);
    struct fetch *f = start(&w, true);
    TURN_UNTIL(&loop, w.calls == 1);
    assert_int_equal(fetch_read(f, &piece), FETCH_WAIT);
    w.free_inside = true;
    fetch_await(f, on_call, &w);
    TURN_UNTIL(&loop, w.freed);
    assert_int_equal(w.calls, 2);
    close_rig();
}

static void a_stop_ends_all_and_what_comes_later(void **state)
{
    (void)state;
    struct watch a = { 0 }, b = { 0 }, c = { 0 };
    open_rig("");
    start(&a, false);
    start(&b, true);
    TURN_UNTIL(&loop, origin.connections == 2);
    fetch_client_stop(client);
    start(&c, false);
    assert_int_equal(a.calls + b.calls, 2);
    assert_int_equal(c.calls, 0);
    TURN_UNTIL(&loop, c.calls == 1);
    assert_int_equal(fetch_failure(a.f), FETCH_CLOSED);
    assert_int_equal(fetch_failure(c.f), FETCH_CLOSED);
    fetch_free(a.f);
    fetch_free(b.f);
    fetch_free(c.f);
    close_rig();
}

int main(void)
{
    signal(SIGPIPE, SIG_IGN);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(whole_can_be_cancelled_in_any_turn),
        cmocka_unit_test(stream_can_be_cancelled_in_any_turn),
        cmocka_unit_test(may_be_freed_in_its_callback),
        cmocka_unit_test(may_be_freed_in_the_callback_of_a_read),
        cmocka_unit_test(a_stop_ends_all_and_what_comes_later),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
