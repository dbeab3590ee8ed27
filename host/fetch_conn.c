/* See fetch.h: the connection of a fetch, what is sent on it and how the answer is read.
 *
 * The parser is the fetch's own, not the connection's: one that the gateway's exchanges keep with
 * the connection stays there for the next of them. Callbacks of the parser only take notes; what
 * follows from them is done when it has returned, so nothing is let go of while it is being read.
 */
#include "fetch_internal.h"

#include <stdio.h>

#include "container.h"
#include "reuse.h"

static int on_head(void *arg);
static int on_piece(void *arg, struct slice piece);
static void on_message_end(void *arg);
static void on_read(void *arg, const char *bytes, size_t n);
static void on_end(void *arg, int err);
static void on_drain(void *arg);
static void on_silence(struct timer *t);

static const struct parse_events parse_events = { on_head, on_piece, on_message_end };
static const struct stream_events stream_events = { on_read, on_end, on_drain };

/* --- deadlines --- */

static void watch(struct fetch *f, uint64_t ms)
{
    f->silence_ms = ms;
    f->silence.cb = on_silence;
    f->sent_seen = stream_sent(f->conn->stream);
    if (ms != 0)
        timer_set(fetch_loop(f), &f->silence, ms);
    else
        timer_stop(&f->silence);
}

/* An origin that takes the request, however slowly, is not silent. */
static void on_silence(struct timer *t)
{
    struct fetch *f = CONTAINER(t, struct fetch, silence);
    if (f->stage == FETCH_STAGE_HEAD && stream_sent(f->conn->stream) != f->sent_seen) {
        watch(f, f->silence_ms);
        return;
    }
    fetch_fail(f, FETCH_TIMEOUT,
               f->stage == FETCH_STAGE_HEAD ? "the origin did not answer in time"
                                            : "the origin fell silent within its answer");
    fetch_report(f);
}

/* --- letting go --- */

void fetch_let_go(struct fetch *f, bool reuse)
{
    struct upstream_conn *c = f->conn;
    timer_stop(&f->silence);
    if (f->dialing != NULL)
        upstream_cancel(f->dialing);
    f->dialing = NULL;
    f->conn = NULL;
    if (c != NULL) {
        bool unsent = stream_queued(c->stream) > 0; /* answered before it had the whole request */
        if (reuse && f->complete && !f->surplus && f->res.keep_alive && !unsent)
            upstream_put(c, f->keep_ms);
        else
            upstream_drop(c);
    }
    if (f->origin != NULL)
        fetch_client_keep(f->client, f->origin);
    f->origin = NULL;
}

/* --- the request --- */

static void send_request(struct fetch *f)
{
    struct buf head;
    buf_init(&head);
    message_write_request(&head, &f->req, f->url.target, false);
    struct slice v[2] = { buf_slice(&head), f->req_body };
    stream_writev(f->conn->stream, v, 2);
    buf_deinit(&head);
}

static void begin_on(struct fetch *f, struct upstream_conn *c)
{
    f->conn = c;
    c->arg = f;
    f->stage = FETCH_STAGE_HEAD;
    f->complete = f->surplus = f->redirecting = f->paused = false;
    parser_free(f->parser);
    f->parser = parser_new_response(&f->options.parse, &parse_events, f);
    arena_reset(&f->answer_arena);
    parser_next_response(f->parser, &f->res, &f->answer_arena, f->req.method);
    send_request(f);
    stream_start(c->stream, &stream_events, f);
    watch(f, f->options.first_byte_ms);
}

static enum fetch_error dial_error(int err)
{
    switch (err) {
    case UV_ETIMEDOUT: return FETCH_TIMEOUT;
    case UV_EPROTO:
    case UV_EOF: return FETCH_TLS;
    case UV_EAI_NONAME:
    case UV_EAI_AGAIN:
    case UV_EAI_FAIL:
    case UV_EAI_NODATA: return FETCH_RESOLVE;
    default: return FETCH_REFUSED;
    }
}

static void on_connection(void *arg, struct upstream_conn *c, int err)
{
    struct fetch *f = arg;
    f->dialing = NULL;
    if (c != NULL) {
        begin_on(f, c);
        return;
    }
    enum fetch_error error = dial_error(err);
    snprintf(f->detail_text, sizeof f->detail_text, "cannot connect: %s",
             error == FETCH_TLS ? origin_fault(f->origin)->text : uv_strerror(err));
    fetch_fail(f, error, f->detail_text);
    fetch_report(f);
}

void fetch_connect(struct fetch *f, bool fresh)
{
    f->stage = FETCH_STAGE_CONNECT;
    bool own = f->tls_host.p != NULL && slice_ieq(f->tls_host, f->url.at.host);
    f->origin = fetch_client_origin(f->client, &f->url.at, own ? &f->tls : NULL);
    struct upstream_conn *c = fresh ? NULL : upstream_take(f->origin);
    if (c != NULL)
        begin_on(f, c);
    else
        f->dialing = upstream_get(f->origin, f->options.connect_ms, fresh, on_connection, f);
}

/* --- the answer, as the parser tells it --- */

static bool over_limit(const struct fetch *f, uint64_t n)
{
    return f->options.max_body != 0 && n > f->options.max_body;
}

static int note_failure(struct fetch *f, enum fetch_error error, const char *detail)
{
    f->error = error; /* `failed` does the rest */
    f->detail = detail;
    return 1;
}

static int on_head(void *arg)
{
    struct fetch *f = arg;
    f->retried = true; /* the origin has seen the request */
    if (f->res.status == 101)
        return note_failure(f, FETCH_MALFORMED, "the origin switched protocols unasked");
    if (f->res.status < 200)
        return 0;
    f->keep_ms = reuse_keep_ms(&f->res.headers);
    headers_remove_hop_by_hop(&f->res.headers);
    f->stage = FETCH_STAGE_BODY;
    f->received = 0;
    f->redirecting = fetch_redirects(f);
    uint64_t length = f->res.framing == FRAMING_LENGTH ? f->res.length : 0;
    if (!f->redirecting && over_limit(f, length))
        return note_failure(f, FETCH_TOO_LARGE, "the answer's Content-Length is above max_body");
    f->answered = !f->redirecting;
    return 0;
}

static int on_piece(void *arg, struct slice piece)
{
    struct fetch *f = arg;
    f->received += piece.n;
    if (f->redirecting)
        return f->received > FETCH_DISCARD;
    if (over_limit(f, f->received))
        return note_failure(f, FETCH_TOO_LARGE, "the answer's body is above max_body");
    buf_add_slice(&f->body, piece);
    return 0;
}

static void on_message_end(void *arg)
{
    struct fetch *f = arg;
    if (f->res.status >= 200) {
        f->complete = true;
        return;
    }
    arena_reset(&f->answer_arena);
    parser_next_response(f->parser, &f->res, &f->answer_arena, f->req.method);
}

/* --- and what follows from it --- */

static bool failed(struct fetch *f, int fault)
{
    enum fetch_error error = f->error;
    if (fault == 0 && error == FETCH_OK)
        return false;
    if (error == FETCH_OK) {
        snprintf(f->detail_text, sizeof f->detail_text, "malformed answer: %s",
                 parser_fault(f->parser));
        error = FETCH_MALFORMED;
        f->detail = f->detail_text;
    }
    fetch_fail(f, error, f->detail);
    return true;
}

/* Not read while a window is full and nobody takes it: that is not the origin's silence. */
static void pace(struct fetch *f)
{
    f->paused = f->options.stream && !f->redirecting && f->body.n >= FETCH_WINDOW;
    if (f->paused) {
        stream_pause(f->conn->stream);
        timer_stop(&f->silence);
    } else if (f->stage == FETCH_STAGE_BODY) {
        watch(f, f->options.idle_ms);
    }
}

void fetch_unpause(struct fetch *f)
{
    if (f->conn == NULL || !f->paused)
        return;
    f->paused = false;
    stream_resume(f->conn->stream);
    watch(f, f->options.idle_ms);
}

static void go_on(struct fetch *f, int fault)
{
    bool enough = f->received > FETCH_DISCARD || f->res.framing == FRAMING_CLOSE ||
                  (f->res.framing == FRAMING_LENGTH && f->res.length > FETCH_DISCARD);
    if (failed(f, fault)) {
        fetch_report(f);
        return;
    }
    if (f->redirecting && (f->complete || enough))
        fetch_follow(f);
    else if (f->complete)
        fetch_complete(f);
    else
        pace(f);
    fetch_report(f);
}

static void on_read(void *arg, const char *bytes, size_t n)
{
    struct fetch *f = arg;
    int fault = 0;
    while (fault == 0 && n > 0 && !f->complete && f->error == FETCH_OK) {
        size_t used = 0;
        fault = parser_feed(f->parser, bytes, n, &used);
        bytes += used;
        n -= used;
        if (f->redirecting && f->received > FETCH_DISCARD)
            break;
    }
    f->surplus = n > 0; /* bytes behind the answer: the connection is never to be trusted again */
    go_on(f, fault);
}

/* The connection ended. Where the parser takes that as the proper end of the answer, it is one. */
static void on_end(void *arg, int err)
{
    struct fetch *f = arg;
    if (f->stage == FETCH_STAGE_HEAD && !f->retried && !parser_busy(f->parser) &&
        reuse_may_retry(f->conn->uses, f->req.method, f->req.framing)) {
        f->retried = true;
        fetch_let_go(f, false);
        fetch_connect(f, true);
        return;
    }
    f->res.keep_alive = false;
    if (err == 0 && f->stage == FETCH_STAGE_BODY && parser_eof(f->parser) == 0 && f->complete) {
        go_on(f, 0);
        return;
    }
    const struct tls_fault *t = stream_fault(f->conn->stream);
    snprintf(f->detail_text, sizeof f->detail_text,
             "the origin closed the connection before the end of its answer%s%s",
             err != 0 ? ": " : "",
             err == 0    ? ""
             : t != NULL ? t->text
                         : uv_strerror(err));
    fetch_fail(f, err == UV_EPROTO ? FETCH_TLS : FETCH_CLOSED, f->detail_text);
    fetch_report(f);
}

/* The whole request has gone: the origin's time to answer counts from here. */
static void on_drain(void *arg)
{
    struct fetch *f = arg;
    if (f->stage == FETCH_STAGE_HEAD)
        watch(f, f->options.first_byte_ms);
}
