/* tls.c: two ends in memory, whatever way the bytes between them are split. */
#include "tls_rig.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>

#include <cmocka.h>

enum { DAY = 86400 };

static struct tls_rig_identity ca, other_ca, good, expired, early, self_signed;
static uint64_t seed = 88172645463325252u;

static unsigned dice(unsigned n)
{
    seed ^= seed << 13, seed ^= seed >> 7, seed ^= seed << 17;
    return (unsigned)(seed % n);
}

/* One end, what it has sent and nobody has read yet, and what it has read. */
struct end {
    struct tls *tls;
    struct buf out, got;
    enum tls_result last;
    bool secure;
};

static void end_init(struct end *e, struct tls_context *c, const char *name, struct tls_session *s)
{
    memset(e, 0, sizeof *e);
    e->tls = tls_new(c, name, s);
}

static void end_deinit(struct end *e)
{
    tls_free(e->tls);
    buf_deinit(&e->out);
    buf_deinit(&e->got);
}

/* Works through what is lent. */
static void go_on(struct end *e)
{
    char plain[300];
    size_t n;
    if (!e->secure) {
        e->last = tls_handshake(e->tls, &e->out);
        e->secure = e->last == TLS_DONE;
        if (!e->secure)
            return;
    }
    do {
        e->last = tls_read(e->tls, plain, 1 + dice(sizeof plain - 1), &n, &e->out);
        buf_add(&e->got, plain, n);
    } while (e->last == TLS_DONE);
}

/* Carries bytes from one end to the other in pieces of at most `most`. */
static bool carry(struct end *from, struct end *to, unsigned most)
{
    bool any = from->out.n > 0;
    while (from->out.n > 0 && to->last != TLS_FAILED) {
        size_t n = 1 + dice(most);
        if (n > from->out.n)
            n = from->out.n;
        char *piece =
            mem_strndup(from->out.p, n); /* of its own, so that a look beyond it is seen */
        buf_consume(&from->out, n);
        tls_feed(to->tls, (struct slice){ piece, n });
        go_on(to);
        if (to->last != TLS_FAILED)
            assert_int_equal(tls_unread(to->tls), 0);
        tls_feed(to->tls, (struct slice){ NULL, 0 });
        mem_free(piece);
    }
    return any;
}

static void converse(struct end *client, struct end *server, unsigned most)
{
    if (!client->secure)
        go_on(client);
    while (carry(client, server, most) | carry(server, client, most)) {
        if (client->last == TLS_FAILED && server->last == TLS_FAILED)
            return;
        if (client->last == TLS_FAILED && client->out.n == 0)
            return;
        if (server->last == TLS_FAILED && server->out.n == 0)
            return;
    }
}

static void pair(struct end *client, struct end *server, const char *name,
                 const struct tls_rig_identity *trusted, const struct tls_rig_identity *shown,
                 struct tls_session *session)
{
    struct tls_context *c = tls_rig_client(trusted), *s = tls_rig_server(shown);
    end_init(client, c, name, session);
    end_init(server, s, NULL, NULL);
    tls_context_unref(c);
    tls_context_unref(s);
}

static void part(struct end *client, struct end *server)
{
    end_deinit(client);
    end_deinit(server);
}

/* --- bytes --- */

static void write_all(struct end *e, const struct slice *v, unsigned n)
{
    struct tls_source from = { v, n, 0 };
    struct buf all = e->out;
    buf_init(&e->out);
    enum tls_result r;
    do {
        r = tls_write(e->tls, &from, &e->out);
        buf_add_slice(&all, buf_slice(&e->out));
        assert_true(e->out.n < TLS_OUT_MAX + 17000);
        buf_clear(&e->out);
    } while (r == TLS_MORE);
    assert_int_equal(r, TLS_DONE);
    buf_deinit(&e->out);
    e->out = all;
}

static void carries_bytes_in_any_split(void **state)
{
    static char bytes[400000];
    (void)state;
    for (size_t i = 0; i < sizeof bytes; i++)
        bytes[i] = (char)dice(256);
    static const unsigned mosts[] = { 1, 7, 500, 20000, 1 << 20 };
    for (unsigned i = 0; i < sizeof mosts / sizeof mosts[0]; i++) {
        struct end client, server;
        pair(&client, &server, "good.example", &ca, &good, NULL);
        converse(&client, &server, mosts[i]);
        assert_true(client.secure && server.secure);
        for (int round = 0; round < 30; round++) {
            struct slice v[8];
            struct buf expected = { 0 };
            unsigned n = 1 + dice(8);
            for (unsigned k = 0; k < n; k++) {
                unsigned sizes[] = { 0, 1 + dice(20), 16384, dice(60000), dice(300) };
                size_t size = sizes[dice(5)];
                v[k] = (struct slice){ bytes + dice((unsigned)(sizeof bytes - size)), size };
                buf_add_slice(&expected, v[k]);
            }
            struct end *from = round % 2 ? &client : &server, *to = round % 2 ? &server : &client;
            write_all(from, v, n);
            converse(&client, &server, mosts[i]);
            assert_int_equal(to->got.n, expected.n);
            if (expected.n > 0)
                assert_memory_equal(to->got.p, expected.p, expected.n);
            buf_clear(&to->got);
            buf_deinit(&expected);
        }
        part(&client, &server);
    }
}

static void puts_small_slices_in_one_record(void **state)
{
    (void)state;
    struct end client, server;
    struct slice v[] = { SLICE("a"), SLICE("b"), SLICE(""), SLICE("c") };
    pair(&client, &server, "good.example", &ca, &good, NULL);
    converse(&client, &server, 1000);
    write_all(&client, v, 4);
    assert_true(client.out.n < 40); /* header, 3 bytes, type, tag */
    converse(&client, &server, 1000);
    assert_memory_equal(server.got.p, "abc", 3);
    part(&client, &server);
}

static void tells_an_end_behind_the_bytes(void **state)
{
    (void)state;
    struct end client, server;
    struct slice v = SLICE("last words");
    pair(&client, &server, "good.example", &ca, &good, NULL);
    converse(&client, &server, 1000);
    write_all(&server, &v, 1);
    tls_bye(server.tls, &server.out);
    converse(&client, &server, 100000);
    assert_int_equal(client.last, TLS_END);
    assert_memory_equal(client.got.p, "last words", 10);
    assert_true(tls_pending(client.tls));
    /* The other direction stays open. */
    write_all(&client, &v, 1);
    carry(&client, &server, 3);
    assert_int_equal(server.got.n, 10);
    part(&client, &server);
}

static void answers_a_key_update(void **state)
{
    (void)state;
    struct end client, server;
    struct slice v = SLICE("new key");
    pair(&client, &server, "good.example", &ca, &good, NULL);
    converse(&client, &server, 1000);
    assert_int_equal(SSL_key_update(tls_ssl(server.tls), SSL_KEY_UPDATE_REQUESTED), 1);
    write_all(&server, &v, 1);
    converse(&client, &server, 5);
    write_all(&client, &v, 1);
    converse(&client, &server, 5);
    assert_memory_equal(client.got.p, "new key", 7);
    assert_memory_equal(server.got.p, "new key", 7);
    part(&client, &server);
}

static void resumes_a_session(void **state)
{
    (void)state;
    struct tls_session *session = tls_session_new();
    struct tls_context *c = tls_rig_client(&ca), *s = tls_rig_server(&good);
    for (int i = 0; i < 4; i++) {
        struct end client, server;
        struct slice v = SLICE("x");
        end_init(&client, c, "good.example", session);
        end_init(&server, s, NULL, NULL);
        converse(&client, &server, 100);
        assert_true(client.secure && server.secure);
        assert_int_equal(tls_resumed(client.tls), i > 0);
        assert_int_equal(tls_resumed(server.tls), i > 0);
        write_all(&server, &v, 1);
        converse(&client, &server, 100);
        part(&client, &server); /* without a close_notify: it is resumed all the same */
    }
    tls_context_unref(c);
    tls_context_unref(s);
    tls_session_unref(session);
}

/* --- certificates --- */

static void expect_fault(const struct tls_rig_identity *trusted,
                         const struct tls_rig_identity *shown, const char *name, const char *says)
{
    struct end client, server;
    pair(&client, &server, name, trusted, shown, NULL);
    converse(&client, &server, 50);
    assert_int_equal(client.last, TLS_FAILED);
    assert_int_equal(tls_fault_of(client.tls)->kind, TLS_FAULT_CERTIFICATE);
    if (strstr(tls_fault_of(client.tls)->text, says) == NULL)
        fail_msg("\"%s\" does not say \"%s\"", tls_fault_of(client.tls)->text, says);
    assert_int_equal(tls_fault_of(server.tls)->kind, TLS_FAULT_REFUSED); /* it was sent an alert */
    part(&client, &server);
}

static void says_what_is_wrong_with_a_certificate(void **state)
{
    (void)state;
    expect_fault(&ca, &expired, "good.example", "the certificate \"old\" expired on 20");
    expect_fault(&ca, &early, "good.example", "\"early\" is not yet valid, but from 20");
    expect_fault(&ca, &good, "evil.example",
                 "is for good.example, *.wild.example, 127.0.0.1, not "
                 "for evil.example");
    expect_fault(&ca, &good, "127.0.0.2", "not for 127.0.0.2");
    expect_fault(&ca, &good, "a.b.wild.example", "not for a.b.wild.example");
    expect_fault(&other_ca, &good, "good.example",
                 "\"good\" was issued by \"The CA\", which is no trusted authority");
    expect_fault(&ca, &self_signed, "good.example", "\"lone\" is self-signed");
}

static void accepts_names_and_addresses(void **state)
{
    (void)state;
    static const char *const names[] = { "good.example", "127.0.0.1", "a.wild.example" };
    for (int i = 0; i < 3; i++) {
        struct end client, server;
        pair(&client, &server, names[i], &ca, &good, NULL);
        converse(&client, &server, 1000);
        assert_true(client.secure && server.secure);
        const char *sni = SSL_get_servername(tls_ssl(server.tls), TLSEXT_NAMETYPE_host_name);
        if (i == 1)
            assert_null(sni);
        else
            assert_string_equal(sni, names[i]);
        part(&client, &server);
    }
}

static void takes_any_certificate_where_told(void **state)
{
    (void)state;
    struct tls_pem_fault f;
    struct tls_client_options o = { .insecure = true };
    struct tls_context *c = tls_client_context(&o, &f), *s = tls_rig_server(&self_signed);
    struct end client, server;
    end_init(&client, c, "nobody.example", NULL);
    end_init(&server, s, NULL, NULL);
    converse(&client, &server, 1000);
    assert_true(client.secure && server.secure);
    assert_int_equal(tls_fault_of(client.tls)->kind, TLS_FAULT_NONE);
    part(&client, &server);
    tls_context_unref(c);
    tls_context_unref(s);
}

static void contexts_of_the_same_options_are_one(void **state)
{
    (void)state;
    struct tls_context *a = tls_rig_client(&ca), *b = tls_rig_client(&ca),
                       *c = tls_rig_client(&other_ca);
    assert_ptr_equal(a, b);
    assert_ptr_not_equal(a, c);
    tls_context_unref(a);
    tls_context_unref(b);
    tls_context_unref(c);
}

/* --- what is not TLS --- */

static void expect_garbage(const char *bytes, size_t n, enum tls_fault_kind kind)
{
    struct tls_context *s = tls_rig_server(&good);
    struct end server;
    end_init(&server, s, NULL, NULL);
    tls_feed(server.tls, (struct slice){ bytes, n });
    go_on(&server);
    assert_int_equal(server.last, TLS_FAILED);
    assert_int_equal(tls_fault_of(server.tls)->kind, kind);
    end_deinit(&server);
    tls_context_unref(s);
}

static void knows_what_is_not_tls(void **state)
{
    (void)state;
    expect_garbage("GET / HTTP/1.1\r\n\r\n", 18, TLS_FAULT_HTTP);
    expect_garbage("SSH-2.0-OpenSSH_9.2\r\n", 21, TLS_FAULT_NOT_TLS);
    expect_garbage("\x16\x03\x01\x00\x05\xff\xff\xff\xff\xff", 10, TLS_FAULT_PROTOCOL);
}

static void survives_damage(void **state)
{
    (void)state;
    for (int i = 0; i < 300; i++) {
        struct end client, server;
        struct slice v = SLICE("some bytes that are longer than a record header");
        pair(&client, &server, "good.example", &ca, &good, NULL);
        go_on(&client);
        for (int step = 0; step < 6; step++) {
            struct end *from = step % 2 ? &server : &client, *to = step % 2 ? &client : &server;
            if (from->secure && from->last != TLS_FAILED)
                write_all(from, &v, 1);
            if (from->out.n > 0 && dice(4) == 0)
                from->out.p[dice((unsigned)from->out.n)] ^= (char)(1 << dice(8));
            if (to->last == TLS_FAILED)
                break;
            carry(from, to, 400);
        }
        part(&client, &server);
    }
}

/* --- PEM --- */

static void refuse_identity(const char *cert, const char *key, const char *at, const char *says)
{
    struct tls_pem_fault f;
    struct tls_client_options o = { .ca = slice_of(ca.cert_text),
                                    .cert = slice_of(cert),
                                    .key = slice_of(key) };
    assert_null(tls_client_context(&o, &f));
    assert_string_equal(f.key, at);
    if (strstr(f.text, says) == NULL)
        fail_msg("\"%s\" does not say \"%s\"", f.text, says);
}

static void refuses_what_is_no_identity(void **state)
{
    (void)state;
    char damaged[4096];
    refuse_identity("nothing", good.key_text, "cert", "holds no certificate");
    refuse_identity(good.cert_text, "nothing", "key", "holds no private key");
    refuse_identity(good.cert_text, good.cert_text, "key", "holds no private key");
    refuse_identity(good.cert_text, expired.key_text, "key", "not the key of the certificate");
    snprintf(damaged, sizeof damaged, "%s", good.cert_text);
    damaged[60] = '!';
    refuse_identity(damaged, good.key_text, "cert", "cannot be");
    struct tls_pem_fault f;
    struct tls_client_options o = { .ca = SLICE("not a PEM file") };
    assert_null(tls_client_context(&o, &f));
    assert_string_equal(f.key, "ca");
}

static int set_up(void **state)
{
    (void)state;
    const char *names = "DNS:good.example,DNS:*.wild.example,IP:127.0.0.1";
    tls_rig_issue(&ca, "The CA", NULL, NULL, -DAY, 10 * DAY);
    tls_rig_issue(&other_ca, "Another CA", NULL, NULL, -DAY, 10 * DAY);
    tls_rig_issue(&good, "good", names, &ca, -DAY, 10 * DAY);
    tls_rig_issue(&expired, "old", names, &ca, -3 * DAY, -DAY);
    tls_rig_issue(&early, "early", names, &ca, DAY, 10 * DAY);
    tls_rig_issue(&self_signed, "lone", names, NULL, -DAY, 10 * DAY);
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    struct tls_rig_identity *all[] = { &ca, &other_ca, &good, &expired, &early, &self_signed };
    for (int i = 0; i < 6; i++)
        tls_rig_forget(all[i]);
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(carries_bytes_in_any_split),
        cmocka_unit_test(puts_small_slices_in_one_record),
        cmocka_unit_test(tells_an_end_behind_the_bytes),
        cmocka_unit_test(answers_a_key_update),
        cmocka_unit_test(resumes_a_session),
        cmocka_unit_test(says_what_is_wrong_with_a_certificate),
        cmocka_unit_test(accepts_names_and_addresses),
        cmocka_unit_test(takes_any_certificate_where_told),
        cmocka_unit_test(contexts_of_the_same_options_are_one),
        cmocka_unit_test(knows_what_is_not_tls),
        cmocka_unit_test(survives_damage),
        cmocka_unit_test(refuses_what_is_no_identity),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
