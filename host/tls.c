/* See tls.h. OpenSSL reads from and writes to a BIO of our own, whose two methods look at the slice
 * that is lent and the buffer that is filled. */
#include "tls.h"

#include <arpa/inet.h>
#include <openssl/err.h>
#include <openssl/x509v3.h>

#include "mem.h"

struct tls_session {
    unsigned refs;
    SSL_SESSION *newest; /* owned, or NULL */
};

struct tls {
    SSL *ssl;
    struct tls_context *context;
    struct tls_session *session;
    struct slice in;
    struct buf *out; /* during a call */
    bool ended, failed;
    struct tls_fault fault;
    char name[]; /* "" for a server */
};

/* --- sessions --- */

struct tls_session *tls_session_new(void)
{
    struct tls_session *s = mem_zalloc(sizeof *s);
    s->refs = 1;
    return s;
}

void tls_session_unref(struct tls_session *s)
{
    if (s == NULL || --s->refs > 0)
        return;
    SSL_SESSION_free(s->newest);
    mem_free(s);
}

/* OpenSSL's reference becomes ours. */
static int on_session(SSL *ssl, SSL_SESSION *session)
{
    struct tls *t = SSL_get_app_data(ssl);
    if (t->session == NULL)
        return 0;
    SSL_SESSION_free(t->session->newest);
    t->session->newest = session;
    return 1;
}

/* --- the BIO --- */

static int on_bio_write(BIO *b, const char *p, size_t n, size_t *done)
{
    struct tls *t = BIO_get_data(b);
    BIO_clear_retry_flags(b);
    buf_add(t->out, p, n);
    *done = n;
    return 1;
}

static int on_bio_read(BIO *b, char *p, size_t n, size_t *done)
{
    struct tls *t = BIO_get_data(b);
    BIO_clear_retry_flags(b);
    if (t->in.n == 0) {
        BIO_set_retry_read(b);
        return 0;
    }
    if (n > t->in.n)
        n = t->in.n;
    memcpy(p, t->in.p, n);
    t->in.p += n;
    t->in.n -= n;
    *done = n;
    return 1;
}

static long on_bio_ctrl(BIO *b, int what, long n, void *arg)
{
    (void)b, (void)n, (void)arg;
    return what == BIO_CTRL_FLUSH;
}

static BIO_METHOD *bio_method(void)
{
    static BIO_METHOD *m;
    if (m == NULL) {
        m = BIO_meth_new(BIO_get_new_index() | BIO_TYPE_SOURCE_SINK, "tollgate");
        BIO_meth_set_write_ex(m, on_bio_write);
        BIO_meth_set_read_ex(m, on_bio_read);
        BIO_meth_set_ctrl(m, on_bio_ctrl);
    }
    return m;
}

/* --- beginning and end --- */

static int on_verify(int ok, X509_STORE_CTX *chain)
{
    const SSL *ssl = X509_STORE_CTX_get_ex_data(chain, SSL_get_ex_data_X509_STORE_CTX_idx());
    struct tls *t = SSL_get_app_data(ssl);
    if (!ok && tls_context_verifies(t->context))
        tls_fault_of_chain(&t->fault, chain, t->name[0] != '\0' ? t->name : NULL);
    return ok;
}

static bool is_ip(const char *name)
{
    unsigned char a[sizeof(struct in6_addr)];
    return inet_pton(AF_INET, name, a) == 1 || inet_pton(AF_INET6, name, a) == 1;
}

/* SNI holds names only (RFC 6066, section 3). */
static void expect_name(struct tls *t)
{
    X509_VERIFY_PARAM *p = SSL_get0_param(t->ssl);
    bool ip = is_ip(t->name);
    if (!ip)
        SSL_set_tlsext_host_name(t->ssl, t->name);
    if (!tls_context_verifies(t->context))
        return;
    X509_VERIFY_PARAM_set_hostflags(p, X509_CHECK_FLAG_NO_PARTIAL_WILDCARDS |
                                           X509_CHECK_FLAG_NEVER_CHECK_SUBJECT);
    if (ip)
        X509_VERIFY_PARAM_set1_ip_asc(p, t->name);
    else
        X509_VERIFY_PARAM_set1_host(p, t->name, 0);
}

struct tls *tls_new(struct tls_context *c, const char *name, struct tls_session *session)
{
    size_t n = name != NULL ? strlen(name) : 0;
    struct tls *t = mem_zalloc(sizeof *t + n + 1);
    BIO *b = BIO_new(bio_method());
    t->ssl = SSL_new(tls_context_ssl(c));
    if (b == NULL || t->ssl == NULL) {
        fprintf(stderr, "tollgate: out of memory (TLS)\n");
        abort();
    }
    t->context = tls_context_ref(c);
    if (n > 0)
        memcpy(t->name, name, n);
    BIO_set_data(b, t);
    BIO_set_init(b, 1);
    SSL_set_bio(t->ssl, b, b);
    SSL_set_app_data(t->ssl, t);
    SSL_set_verify(t->ssl, SSL_get_verify_mode(t->ssl), on_verify);
    if (tls_context_is_server(c)) {
        SSL_set_accept_state(t->ssl);
        return t;
    }
    SSL_set_connect_state(t->ssl);
    expect_name(t);
    if (session == NULL)
        return t;
    t->session = session;
    session->refs++;
    SSL_CTX_sess_set_new_cb(tls_context_ssl(c), on_session);
    if (session->newest != NULL)
        SSL_set_session(t->ssl, session->newest);
    return t;
}

/* A session stays good although its connection ended without a close_notify: whether an answer was
 * cut off is the caller's to see. OpenSSL would throw it away. */
void tls_free(struct tls *t)
{
    if (t == NULL)
        return;
    if (!t->failed && SSL_is_init_finished(t->ssl))
        SSL_set_shutdown(t->ssl, SSL_SENT_SHUTDOWN | SSL_RECEIVED_SHUTDOWN);
    SSL_free(t->ssl);
    tls_session_unref(t->session);
    tls_context_unref(t->context);
    mem_free(t);
}

/* --- bytes --- */

void tls_feed(struct tls *t, struct slice bytes)
{
    t->in = bytes;
}

size_t tls_unread(const struct tls *t)
{
    return t->in.n;
}

bool tls_pending(const struct tls *t)
{
    return t->in.n > 0 || t->ended || t->failed || SSL_pending(t->ssl) > 0;
}

/* OpenSSL tells an operation's outcome by its error queue, where others may have left something. */
static void begin(struct tls *t, struct buf *out)
{
    t->out = out;
    if (ERR_peek_error() != 0)
        ERR_clear_error();
}

/* What an operation that gave no bytes means. */
static enum tls_result outcome(struct tls *t, int r)
{
    switch (SSL_get_error(t->ssl, r)) {
    case SSL_ERROR_WANT_READ: return TLS_MORE;
    case SSL_ERROR_ZERO_RETURN: t->ended = true; return TLS_END;
    default:
        t->failed = true;
        tls_fault_of_queue(&t->fault);
        return TLS_FAILED;
    }
}

enum tls_result tls_handshake(struct tls *t, struct buf *out)
{
    begin(t, out);
    int r = SSL_do_handshake(t->ssl);
    enum tls_result result = r == 1 ? TLS_DONE : outcome(t, r);
    t->out = NULL;
    return result;
}

enum tls_result tls_read(struct tls *t, char *to, size_t size, size_t *n, struct buf *out)
{
    enum tls_result result = TLS_DONE;
    *n = 0;
    if (t->ended || t->failed)
        return t->failed ? TLS_FAILED : TLS_END;
    begin(t, out);
    while (*n < size && result == TLS_DONE) {
        size_t got = 0;
        int r = SSL_read_ex(t->ssl, to + *n, size - *n, &got);
        *n += got;
        if (r != 1)
            result = outcome(t, r);
        else if (t->in.n == 0 && SSL_pending(t->ssl) == 0)
            result = TLS_MORE; /* known without another try */
    }
    t->out = NULL;
    /* What came before an end comes first; the end waits (see the top). */
    return *n > 0 && (result == TLS_END || result == TLS_FAILED) ? TLS_DONE : result;
}

/* --- sending --- */

/* One record's worth: where a slice lies whole, itself; else gathered into `room`. */
static struct slice next_piece(struct tls_source *from, char *room)
{
    size_t n = 0;
    while (from->n > 0 && n < SSL3_RT_MAX_PLAIN_LENGTH) {
        struct slice s = { from->v->p + from->done, from->v->n - from->done };
        if (n == 0 && s.n >= SSL3_RT_MAX_PLAIN_LENGTH) {
            from->done += SSL3_RT_MAX_PLAIN_LENGTH;
            return (struct slice){ s.p, SSL3_RT_MAX_PLAIN_LENGTH };
        }
        if (s.n > SSL3_RT_MAX_PLAIN_LENGTH - n)
            s.n = SSL3_RT_MAX_PLAIN_LENGTH - n;
        if (s.n > 0)
            memcpy(room + n, s.p, s.n);
        n += s.n;
        from->done += s.n;
        if (from->done == from->v->n) {
            from->v++;
            from->n--;
            from->done = 0;
        }
    }
    return (struct slice){ room, n };
}

enum tls_result tls_write(struct tls *t, struct tls_source *from, struct buf *out)
{
    char room[SSL3_RT_MAX_PLAIN_LENGTH];
    enum tls_result result = TLS_DONE;
    if (t->failed)
        return TLS_FAILED;
    begin(t, out);
    while (from->n > 0 && result == TLS_DONE && out->n < TLS_OUT_MAX) {
        struct slice piece = next_piece(from, room);
        size_t done = 0;
        if (piece.n > 0 && SSL_write_ex(t->ssl, piece.p, piece.n, &done) != 1) {
            t->failed = true;
            tls_fault_of_queue(&t->fault);
            result = TLS_FAILED;
        }
    }
    t->out = NULL;
    return result == TLS_DONE && from->n > 0 ? TLS_MORE : result;
}

void tls_bye(struct tls *t, struct buf *out)
{
    if (t->failed || !SSL_is_init_finished(t->ssl))
        return;
    begin(t, out);
    SSL_shutdown(t->ssl);
    ERR_clear_error();
    t->out = NULL;
}

/* --- what is known --- */

const struct tls_fault *tls_fault_of(const struct tls *t)
{
    return &t->fault;
}

bool tls_established(const struct tls *t)
{
    return SSL_is_init_finished(t->ssl) == 1;
}

bool tls_resumed(const struct tls *t)
{
    return SSL_session_reused(t->ssl) == 1;
}

SSL *tls_ssl(const struct tls *t)
{
    return t->ssl;
}
