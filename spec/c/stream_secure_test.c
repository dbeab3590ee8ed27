/* TLS in stream: two streams of one loop over loopback, and raw peers that misbehave. */
#include <errno.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cmocka.h>

#include "stream.h"
#include "tls_rig.h"
#include "turns.h"

enum { DAY = 86400, TIMEOUT_MS = 4000 };

static struct loop loop;
static struct tls_rig_identity ca, good;
static struct tls_context *client_context, *server_context;
static uv_tcp_t listener;
static struct address address;

/* One side, and all that was told to it. */
struct side {
    struct stream *stream;
    struct buf got;
    size_t total;
    int secured, ends, end_err, drains;
    int secure_err; /* of on_secure */
    bool paused, pause_often, echo;
    bool start; /* when it is secured */
};

static struct side client, server;
static struct tls_session *session; /* of the client, or NULL */
static const struct stream_tls *server_how;
static uint64_t server_timeout;

static void on_read(void *arg, const char *bytes, size_t n)
{
    struct side *s = arg;
    assert_false(s->paused);
    s->total += n;
    if (s->echo)
        stream_write(s->stream, (struct slice){ bytes, n });
    else if (s->total < 100000)
        buf_add(&s->got, bytes, n);
    if (s->pause_often) {
        s->paused = true;
        stream_pause(s->stream);
    }
}

static void on_end(void *arg, int err)
{
    struct side *s = arg;
    s->ends++;
    s->end_err = err;
}

static void on_drain(void *arg)
{
    ((struct side *)arg)->drains++;
}

static const struct stream_events events = { on_read, on_end, on_drain };

static void on_secure(void *arg, int err)
{
    struct side *s = arg;
    s->secured++;
    s->secure_err = err;
    if (err == 0 && s->start)
        stream_start(s->stream, &events, s);
}

static void on_connection(uv_stream_t *l, int status)
{
    int err;
    assert_int_equal(status, 0);
    server.stream = stream_accept(&loop, l, &err);
    assert_non_null(server.stream);
    stream_secure(server.stream, server_how, server_timeout, on_secure, &server);
}

static void on_connect(void *arg, int err)
{
    struct stream_tls how = { client_context, "good.example", session, { NULL, 0 } };
    (void)arg;
    assert_int_equal(err, 0);
    stream_secure(client.stream, &how, TIMEOUT_MS, on_secure, &client);
}

static void meet(void)
{
    client.stream = stream_dial(&loop, &address, TIMEOUT_MS, on_connect, NULL);
    TURN_UNTIL(&loop, client.secured == 1 && server.secured == 1);
    assert_int_equal(client.secure_err, 0);
    assert_int_equal(server.secure_err, 0);
}

/* A peer without TLS of its own. */
static int raw_peer(void)
{
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0);
    connect(fd, &address.u.sa, sizeof address.u.in);
    TURN_UNTIL(&loop, server.stream != NULL);
    return fd;
}

static int set_up(void **state)
{
    static struct stream_tls how;
    (void)state;
    memset(&client, 0, sizeof client);
    memset(&server, 0, sizeof server);
    client.start = server.start = true;
    how = (struct stream_tls){ .context = server_context };
    server_how = &how;
    server_timeout = TIMEOUT_MS;
    turns_init(&loop);
    uv_tcp_init(&loop.uv, &listener);
    address_of_ip("127.0.0.1", 0, &address);
    uv_tcp_bind(&listener, &address.u.sa, 0);
    assert_int_equal(uv_listen((uv_stream_t *)&listener, 16, on_connection), 0);
    int n = sizeof address.u.in;
    uv_tcp_getsockname(&listener, &address.u.sa, &n);
    return 0;
}

static void on_handle(uv_handle_t *h, void *arg)
{
    if (h->type == UV_TCP)
        ++*(int *)arg;
}

static int sockets(void)
{
    int n = 0;
    uv_walk(&loop.uv, on_handle, &n);
    return n;
}

static int tear_down(void **state)
{
    (void)state;
    if (client.stream != NULL)
        stream_close(client.stream);
    if (server.stream != NULL)
        stream_close(server.stream);
    buf_deinit(&client.got);
    buf_deinit(&server.got);
    TURN_UNTIL(&loop, sockets() == 1); /* those that linger go with their peers */
    uv_close((uv_handle_t *)&listener, NULL);
    assert_int_equal(turns_deinit(&loop), 0);
    return 0;
}

/* --- two ends that behave --- */

static void says_hello_both_ways(void **state)
{
    (void)state;
    meet();
    assert_true(tls_established(stream_tls(client.stream)));
    assert_null(stream_fault(client.stream));
    stream_write(client.stream, SLICE("ping"));
    TURN_UNTIL(&loop, server.total == 4);
    stream_write(server.stream, SLICE("pong"));
    TURN_UNTIL(&loop, client.total == 4);
    assert_memory_equal(server.got.p, "ping", 4);
    assert_memory_equal(client.got.p, "pong", 4);
    assert_int_equal(stream_queued(client.stream), 0);
}

/* Megabytes there and back while both pause all the time. */
static void carries_megabytes_with_pauses(void **state)
{
    enum { SIZE = 8 << 20 };
    char *bytes = mem_alloc(SIZE);
    (void)state;
    for (size_t i = 0; i < SIZE; i++)
        bytes[i] = (char)(i * 31 + i / 4096);
    server.echo = server.pause_often = client.pause_often = true;
    meet();
    stream_write(client.stream, (struct slice){ bytes, SIZE });
    uint64_t end = uv_hrtime() + 20000000000ull;
    size_t checked = 0;
    while (client.total < SIZE && uv_hrtime() < end) {
        uv_run(&loop.uv, UV_RUN_ONCE);
        assert_true(client.total - checked <= 70000); /* not faster than it is taken */
        buf_clear(&client.got);
        checked = client.total;
        struct side *sides[] = { &client, &server };
        for (int i = 0; i < 2; i++) {
            if (sides[i]->paused) {
                sides[i]->paused = false;
                stream_resume(sides[i]->stream);
            }
        }
    }
    assert_int_equal(client.total, SIZE);
    assert_int_equal(client.ends, 0);
    mem_free(bytes);
}

/* A whole read that is paused in its middle keeps the rest, also behind the peer's end. */
static void hands_on_what_it_held(void **state)
{
    static char bytes[200000];
    (void)state;
    client.start = false;
    meet();
    memset(bytes, 'x', sizeof bytes);
    stream_write(server.stream, (struct slice){ bytes, sizeof bytes });
    stream_finish(server.stream, TIMEOUT_MS);
    server.stream = NULL;
    turns_for(&loop, 20);
    assert_int_equal(client.total, 0);
    client.pause_often = true;
    stream_start(client.stream, &events, &client);
    while (client.ends == 0) {
        TURN_UNTIL(&loop, client.paused || client.ends > 0);
        client.paused = false;
        stream_resume(client.stream);
    }
    assert_int_equal(client.total, sizeof bytes);
    assert_int_equal(client.end_err, 0);
}

static void a_proper_end_is_one(void **state)
{
    (void)state;
    meet();
    stream_write(server.stream, SLICE("bye"));
    stream_finish(server.stream, TIMEOUT_MS);
    server.stream = NULL;
    TURN_UNTIL(&loop, client.ends == 1);
    assert_int_equal(client.end_err, 0);
    assert_int_equal(client.total, 3);
}

static void an_end_without_close_notify_is_a_failure(void **state)
{
    (void)state;
    meet();
    stream_write(server.stream, SLICE("half an answer"));
    TURN_UNTIL(&loop, client.total > 0);
    stream_close(server.stream);
    server.stream = NULL;
    TURN_UNTIL(&loop, client.ends == 1);
    assert_int_equal(client.end_err, UV_ECONNABORTED);
    assert_int_equal(stream_fault(client.stream)->kind, TLS_FAULT_CUT);
}

static void a_reader_that_stalls_is_told_by_the_queue(void **state)
{
    static char piece[60000];
    (void)state;
    meet();
    stream_pause(server.stream);
    while (stream_queued(client.stream) == 0)
        stream_write(client.stream, (struct slice){ piece, sizeof piece });
    assert_true(stream_queued(client.stream) < 2 * sizeof piece);
    uint64_t sent = stream_sent(client.stream);
    stream_resume(server.stream);
    TURN_UNTIL(&loop, stream_queued(client.stream) == 0 && client.drains > 0);
    TURN_UNTIL(&loop, stream_sent(client.stream) > sent);
}

static void resumes_with_what_it_remembers(void **state)
{
    (void)state;
    session = tls_session_new();
    for (int i = 0; i < 3; i++) {
        meet();
        assert_int_equal(tls_resumed(stream_tls(client.stream)), i > 0);
        stream_write(server.stream, SLICE("x")); /* behind the session's ticket */
        TURN_UNTIL(&loop, client.total == 1);
        stream_close(client.stream);
        stream_close(server.stream);
        client.stream = server.stream = NULL;
        client.secured = server.secured = 0;
        client.total = 0;
    }
    tls_session_unref(session);
    session = NULL;
}

/* --- peers that do not --- */

/* n bytes, or the end where n is 0. */
static void wait_received(int fd, char *out, size_t n)
{
    char peek[64];
    TURN_UNTIL(&loop, recv(fd, peek, sizeof peek, MSG_PEEK) >= (ssize_t)n);
    assert_int_equal(recv(fd, out, n > 0 ? n : 1, 0), n);
}

static void a_silent_peer_times_out(void **state)
{
    (void)state;
    server_timeout = 30;
    int fd = raw_peer();
    TURN_UNTIL(&loop, server.secured == 1);
    assert_int_equal(server.secure_err, UV_ETIMEDOUT);
    assert_null(stream_tls(server.stream));
    close(fd);
}

static void http_is_recognised_and_can_be_answered(void **state)
{
    char answer[64] = { 0 };
    (void)state;
    int fd = raw_peer();
    assert_int_equal(send(fd, "GET / HTTP/1.1\r\n\r\n", 18, 0), 18);
    TURN_UNTIL(&loop, server.secured == 1);
    assert_int_equal(server.secure_err, UV_EPROTO);
    assert_int_equal(stream_fault(server.stream)->kind, TLS_FAULT_HTTP);
    stream_write(server.stream, SLICE("HTTP/1.1 400 No\r\n"));
    stream_finish(server.stream, TIMEOUT_MS);
    server.stream = NULL;
    wait_received(fd, answer, 17);
    assert_string_equal(answer, "HTTP/1.1 400 No\r\n");
    wait_received(fd, answer, 0);
    close(fd);
}

/* A ClientHello as the client's end would send it. */
static size_t client_hello(char *out, size_t size)
{
    struct tls *t = tls_new(client_context, "good.example", NULL);
    struct buf b = { 0 };
    assert_int_equal(tls_handshake(t, &b), TLS_MORE);
    assert_true(b.n < size);
    memcpy(out, b.p, b.n);
    size_t n = b.n;
    buf_deinit(&b);
    tls_free(t);
    return n;
}

static void a_peer_that_leaves_at_any_byte(void **state)
{
    char hello[1024];
    (void)state;
    size_t n = client_hello(hello, sizeof hello);
    for (size_t at = 0; at <= n; at += at + 40 < n ? 13 : 1) {
        memset(&server, 0, sizeof server);
        int fd = raw_peer();
        if (at > 0)
            assert_int_equal(send(fd, hello, at, 0), at);
        shutdown(fd, SHUT_WR);
        TURN_UNTIL(&loop, server.secured == 1);
        assert_int_equal(server.secure_err, UV_EOF);
        assert_int_equal(stream_fault(server.stream)->kind, TLS_FAULT_CUT);
        stream_close(server.stream);
        server.stream = NULL;
        close(fd);
    }
}

/* A peer with TLS of its own on a socket of its own: what it reads is up to the test. */
struct peer {
    int fd;
    struct tls *tls;
    struct buf out;
};

static void peer_send(struct peer *p)
{
    while (p->out.n > 0) {
        ssize_t n = send(p->fd, p->out.p, p->out.n, MSG_NOSIGNAL);
        if (n > 0)
            buf_consume(&p->out, (size_t)n);
        else if (errno != EAGAIN)
            buf_clear(&p->out);
        else
            uv_run(&loop.uv, UV_RUN_NOWAIT);
    }
}

static void peer_meet(struct peer *p)
{
    char bytes[4096];
    p->fd = raw_peer();
    p->tls = tls_new(client_context, "good.example", NULL);
    buf_init(&p->out);
    while (tls_handshake(p->tls, &p->out) == TLS_MORE) {
        peer_send(p);
        ssize_t n = -1;
        TURN_UNTIL(&loop, n > 0 || (n = recv(p->fd, bytes, sizeof bytes, 0)) > 0);
        tls_feed(p->tls, (struct slice){ bytes, (size_t)n });
    }
    peer_send(p);
    TURN_UNTIL(&loop, server.secured == 1);
    assert_int_equal(server.secure_err, 0);
}

static void peer_part(struct peer *p)
{
    tls_free(p->tls);
    buf_deinit(&p->out);
    close(p->fd);
}

/* Each asks for an answer, which it never reads. */
static void a_peer_that_makes_tls_talk_is_dropped(void **state)
{
    (void)state;
    struct peer p;
    int small = 8192;
    uv_send_buffer_size((uv_handle_t *)&listener, &small); /* whoever is accepted has it too */
    peer_meet(&p);
    setsockopt(p.fd, SOL_SOCKET, SO_RCVBUF, &small, sizeof small);
    size_t most = 0;
    for (int i = 0; i < 400000 && server.ends == 0; i++) {
        struct slice nothing = SLICE("x");
        struct tls_source from = { &nothing, 1, 0 };
        SSL_key_update(tls_ssl(p.tls), SSL_KEY_UPDATE_REQUESTED);
        assert_int_equal(tls_write(p.tls, &from, &p.out), TLS_DONE);
        if (p.out.n > 30000)
            peer_send(&p);
        uv_run(&loop.uv, UV_RUN_NOWAIT);
        if (stream_queued(server.stream) > most)
            most = stream_queued(server.stream);
    }
    assert_int_equal(server.ends, 1);
    assert_int_equal(server.end_err, UV_EPROTO);
    assert_true(most < 200000);
    peer_part(&p);
}

static void damage_behind_the_handshake_is_a_failure(void **state)
{
    (void)state;
    struct peer p;
    peer_meet(&p);
    struct slice text = SLICE("some bytes");
    struct tls_source from = { &text, 1, 0 };
    tls_write(p.tls, &from, &p.out);
    p.out.p[p.out.n - 3] ^= 1;
    peer_send(&p);
    TURN_UNTIL(&loop, server.ends == 1);
    assert_int_equal(server.end_err, UV_EPROTO);
    assert_int_equal(stream_fault(server.stream)->kind, TLS_FAULT_PROTOCOL);
    assert_int_equal(server.total, 0);
    peer_part(&p);
}

static void bytes_and_an_end_come_byte_by_byte(void **state)
{
    (void)state;
    struct peer p;
    peer_meet(&p);
    struct slice text = SLICE("some bytes");
    struct tls_source from = { &text, 1, 0 };
    tls_write(p.tls, &from, &p.out);
    tls_bye(p.tls, &p.out);
    for (size_t i = 0; i < p.out.n; i++) {
        assert_int_equal(send(p.fd, p.out.p + i, 1, 0), 1);
        uv_run(&loop.uv, UV_RUN_NOWAIT);
    }
    TURN_UNTIL(&loop, server.ends == 1);
    assert_int_equal(server.end_err, 0);
    assert_int_equal(server.got.n, 10);
    assert_memory_equal(server.got.p, "some bytes", 10);
    peer_part(&p);
}

static void bytes_that_were_read_before_count(void **state)
{
    char hello[1024], answer[16];
    struct stream_tls how = { .context = server_context };
    (void)state;
    how.early = (struct slice){ hello, client_hello(hello, sizeof hello) };
    server_how = &how;
    int fd = raw_peer();
    wait_received(fd, answer, 1);
    assert_int_equal(answer[0], 0x16); /* a handshake record: its hello */
    close(fd);
    TURN_UNTIL(&loop, server.secured == 1);
}

static void can_be_closed_and_finished_at_any_time(void **state)
{
    (void)state;
    for (int i = 0; i < 12; i++) {
        memset(&client, 0, sizeof client);
        memset(&server, 0, sizeof server);
        client.start = server.start = true;
        client.stream = stream_dial(&loop, &address, TIMEOUT_MS, on_connect, NULL);
        TURN_UNTIL(&loop, server.stream != NULL);
        for (int turn = 0; turn < i / 2; turn++)
            uv_run(&loop.uv, UV_RUN_NOWAIT);
        int told = client.secured;
        if (i % 2 == 0)
            stream_close(client.stream);
        else
            stream_finish(client.stream, TIMEOUT_MS);
        client.stream = NULL;
        TURN_UNTIL(&loop, server.secured == 1 && (server.secure_err != 0 || server.ends > 0));
        assert_int_equal(client.secured, told);
        stream_close(server.stream);
        buf_deinit(&server.got);
    }
    server.stream = NULL;
}

static int group_up(void **state)
{
    (void)state;
    signal(SIGPIPE, SIG_IGN);
    tls_rig_issue(&ca, "The CA", NULL, NULL, -DAY, 10 * DAY);
    tls_rig_issue(&good, "good", "DNS:good.example", &ca, -DAY, 10 * DAY);
    client_context = tls_rig_client(&ca);
    server_context = tls_rig_server(&good);
    return 0;
}

static int group_down(void **state)
{
    (void)state;
    tls_context_unref(client_context);
    tls_context_unref(server_context);
    tls_rig_forget(&ca);
    tls_rig_forget(&good);
    return 0;
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(says_hello_both_ways),
        TEST(carries_megabytes_with_pauses),
        TEST(hands_on_what_it_held),
        TEST(a_proper_end_is_one),
        TEST(an_end_without_close_notify_is_a_failure),
        TEST(a_reader_that_stalls_is_told_by_the_queue),
        TEST(resumes_with_what_it_remembers),
        TEST(a_silent_peer_times_out),
        TEST(http_is_recognised_and_can_be_answered),
        TEST(a_peer_that_leaves_at_any_byte),
        TEST(a_peer_that_makes_tls_talk_is_dropped),
        TEST(damage_behind_the_handshake_is_a_failure),
        TEST(bytes_and_an_end_come_byte_by_byte),
        TEST(bytes_that_were_read_before_count),
        TEST(can_be_closed_and_finished_at_any_time),
    };
    return cmocka_run_group_tests(tests, group_up, group_down);
}
