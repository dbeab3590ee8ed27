/* See exchange.h: the connection to the origin, what is sent on it and how its answer is read.
 *
 * The parser belongs to the connection and calls back here while it parses; the connection is
 * therefore never let go in the middle of that (`feeding`), but behind it. */
#include "exchange.h"

#include <inttypes.h>
#include <stdio.h>

#include "container.h"
#include "log.h"
#include "reuse.h"

enum { LET_GO_NOT, LET_GO_DROP, LET_GO_KEEP };

static int on_head(void *arg);
static int on_piece(void *arg, struct slice piece);
static void on_message_end(void *arg);
static void on_origin_read(void *arg, const char *bytes, size_t n);
static void on_origin_end(void *arg, int err);
static void on_origin_drain(void *arg);
static void on_silence(struct timer *t);

static const struct parse_events parse_events = { on_head, on_piece, on_message_end };
static const struct stream_events origin_events = { on_origin_read, on_origin_end,
                                                    on_origin_drain };

/* A request's first attempt has the time that its target is given; later ones no more than what is
 * left for all. */
static uint64_t within(const struct exchange *x, uint64_t ms)
{
    uint64_t now = loop_now(x->sv->loop);
    if (x->attempts < 2 || now + ms <= x->attempts_until)
        return ms;
    return x->attempts_until > now ? x->attempts_until - now : 1;
}

static void watch(struct exchange *x, uint64_t ms)
{
    x->timer.cb = on_silence;
    x->origin_limit_ms = ms;
    timer_set(x->sv->loop, &x->timer, ms);
}

/* It is the origin's turn once all has been sent, and while it does not take what there is. */
void exchange_origin_await(struct exchange *x)
{
    bool stalled = stream_queued(x->origin->stream) > 0;
    if (x->stage != STAGE_ORIGIN || x->hold != HOLD_NONE)
        return;
    if (!x->upload_done && !stalled)
        timer_stop(&x->timer);
    else if (x->upload_done || x->timer.at == 0)
        watch(x, within(x, x->target->timeouts.first_byte));
}

/* --- letting go --- */

void exchange_origin_let_go(struct exchange *x, bool reuse)
{
    struct upstream_conn *c = x->origin;
    if (c == NULL)
        return;
    reuse = reuse && x->upload_done && !x->origin_surplus && x->res.keep_alive;
    if (x->feeding) {
        x->let_go = reuse ? LET_GO_KEEP : LET_GO_DROP;
        return;
    }
    x->origin = NULL;
    if (reuse)
        upstream_put(c, x->origin_keep_ms);
    else
        upstream_drop(c);
}

/* What went wrong: for plugins and the retry policy, and what the client is told where nothing
 * follows. */
struct failure {
    const char *error;
    int status;
    const char *code, *message;
};

static const struct failure unreachable = { "connect", 502, "origin_unreachable",
                                            "The origin could not be reached." };
static const struct failure bad_certificate = { "connect", 502, "origin_certificate",
                                                "The origin's certificate is not accepted." };
static const struct failure no_tls = { "connect", 502, "origin_tls",
                                       "The origin could not be spoken with by TLS." };
/* Where it fails behind the handshake: our certificate was refused, or a record is damaged. */
static const struct failure bad_tls = { "closed", 502, "origin_tls",
                                        "The origin ended the connection by TLS." };
static const struct failure not_in_time = { "connect", 504, "origin_timeout",
                                            "The origin could not be reached in time." };
static const struct failure silent = { "timeout", 504, "origin_timeout",
                                       "The origin did not answer in time." };
static const struct failure closed = { "closed", 502, "origin_closed",
                                       "The origin closed the connection without an answer." };
static const struct failure bad_answer = { "bad_answer", 502, "bad_origin_answer",
                                           "The origin's answer could not be used." };

/* Not the target's fault. */
static const struct failure too_large = {
    "dropped", 502, "answer_too_large",
    "The origin's answer is larger than this route allows a plugin to read."
};

static void failed(struct exchange *x, const struct failure *f, const char *detail)
{
    bool sent = x->head_sent_up;
    figures_attempt_failed(x->target->figures, f->error);
    log_write(LOG_WARN, x->id, "target %s, %s: %s", x->target->name, x->target->url_text, detail);
    timer_stop(&x->timer);
    exchange_origin_let_go(x, false);
    exchange_hold_drop(x);
    if (x->gone) {
        exchange_finish(x, ENDED_CLIENT_GONE);
        return;
    }
    if (x->stage == STAGE_RELAY && !x->head_sent) { /* nothing has gone to the client yet */
        buf_clear(&x->head_out);
        x->stage = STAGE_RESPONSE;
        exchange_attempt_end(x, "cut");
    }
    if (x->head_sent || x->stage >= STAGE_RELAY)
        exchange_finish(x, f->status == 504 ? ENDED_TIMEOUT : ENDED_ORIGIN_CUT);
    else if (x->stage != STAGE_ORIGIN || !exchange_attempt_failed(x, f->error, sent))
        exchange_error(x, f->status, f->code, f->message);
}

static void on_silence(struct timer *t)
{
    struct exchange *x = CONTAINER(t, struct exchange, timer);
    char detail[96];
    snprintf(detail, sizeof detail, "sent nothing for %" PRIu64 " ms", x->origin_limit_ms);
    if (x->hold == HOLD_STATUS)
        exchange_hold_end(x);
    else
        failed(x, &silent, detail);
}

/* --- connecting --- */

static void begin_on(struct exchange *x, struct upstream_conn *c)
{
    x->origin = c;
    x->origin_connected = loop_now(x->sv->loop);
    c->arg = x;
    if (c->parser == NULL)
        c->parser = parser_new_response(&x->gen->settings.parse, &parse_events, c);
    parser_next_response(c->parser, &x->res, &x->arena, x->req.method);
    exchange_request_send(x);
    stream_start(c->stream, &origin_events, c);
    exchange_origin_await(x);
}

static void on_connection(void *arg, struct upstream_conn *c, int err)
{
    struct exchange *x = arg;
    char detail[400];
    x->origin_wait = NULL;
    if (c != NULL) {
        if (c->uses == 1)
            x->sv->counters->origin_connections++;
        begin_on(x, c);
        return;
    }
    const struct tls_fault *f = origin_fault(x->target->origin);
    bool tls = err == UV_EPROTO || err == UV_EOF;
    snprintf(detail, sizeof detail, "cannot connect: %s", tls ? f->text : uv_strerror(err));
    failed(x,
           err == UV_ETIMEDOUT                ? &not_in_time
           : !tls                             ? &unreachable
           : f->kind == TLS_FAULT_CERTIFICATE ? &bad_certificate
                                              : &no_tls,
           detail);
}

static void connect_origin(struct exchange *x, bool fresh)
{
    struct origin *o = x->target->origin;
    struct upstream_conn *c = fresh ? NULL : upstream_take(o);
    x->stage = STAGE_ORIGIN;
    if (c != NULL)
        begin_on(x, c);
    else
        x->origin_wait =
            upstream_get(o, within(x, x->target->timeouts.connect), fresh, on_connection, x);
}

void exchange_origin_connect(struct exchange *x)
{
    connect_origin(x, false);
}

/* --- what comes back --- */

/* The origin closed a connection that had been idle, without a byte of an answer: the request was
 * most likely never seen. It is sent once more where that is safe: no body has gone, and the method
 * is idempotent (RFC 9112, section 9.3.1). */
static bool retry(struct exchange *x)
{
    bool safe = x->route->retry_stale && !x->retried && !parser_busy(x->origin->parser) &&
                reuse_may_retry(x->origin->uses, x->req.method, x->up.framing);
    if (!safe)
        return false;
    x->retried = true;
    exchange_origin_let_go(x, false);
    x->head_sent_up = x->upload_done = false;
    x->sent_up = 0;
    connect_origin(x, true);
    return true;
}

static void forward_interim(struct exchange *x)
{
    struct buf out;
    if (x->res.status != 103 || x->req.minor == 0 || !x->client_here)
        return; /* 100 and 102 are between the origin and us */
    buf_init(&out);
    headers_remove_hop_by_hop(&x->res.headers);
    message_write_response(&out, &x->res, false, false);
    struct slice v = buf_slice(&out);
    x->client.ops->send(x->client.self, &v, 1);
    x->interim = true;
    buf_deinit(&out);
}

void exchange_commit(struct exchange *x)
{
    if (x->attempts > 1)
        x->sv->counters->failovers++;
    exchange_answer(x);
}

/* Nothing more is read for now: plugins or Redis are waited for, or the answer is over. */
static bool waits(const struct exchange *x)
{
    return (x->stage == STAGE_RESPONSE && !x->gathering) || x->hold == HOLD_DECIDED;
}

static int stop_parsing(const struct exchange *x)
{
    return x->stage != STAGE_RELAY || x->let_go != LET_GO_NOT;
}

/* The answer's head. Returns non-zero where parsing has to stop behind it: plugins wait, or it is
 * over. */
static int on_head(void *arg)
{
    struct upstream_conn *c = arg;
    struct exchange *x = c->arg;
    if (x->res.status == 101) {
        failed(x, &bad_answer, "switched protocols unasked");
        return 1;
    }
    if (x->res.status < 200) {
        x->retried = true; /* the origin has seen the request */
        forward_interim(x);
        return 0;
    }
    x->first_byte = loop_now(x->sv->loop);
    x->origin_status = x->res.status;
    if (x->res.status >= 400)
        x->attempt_retry_after = retry_after_ms(&x->res.headers, loop_wall_ms());
    x->origin_keep_ms = reuse_keep_ms(&x->res.headers);
    x->source = SOURCE_ORIGIN;
    headers_remove_hop_by_hop(&x->res.headers);
    exchange_add_via(x, &x->res.headers, x->res.minor);
    if (exchange_hold_head(x))
        return 0;
    exchange_commit(x);
    return stop_parsing(x);
}

void exchange_take(struct exchange *x, struct slice piece)
{
    exchange_attempt_note(x, piece);
    if (x->gathering && !exchange_gather_piece(x, piece))
        failed(x, &too_large, "an answer above limits.body, which a plugin wants whole");
    else if (!x->gathering)
        exchange_relay(x, piece);
}

static int on_piece(void *arg, struct slice piece)
{
    struct exchange *x = ((struct upstream_conn *)arg)->arg;
    if (x->hold == HOLD_NONE) {
        exchange_take(x, piece);
        return x->let_go != LET_GO_NOT;
    }
    exchange_hold_piece(x, piece);
    return x->hold == HOLD_STATUS || x->hold == HOLD_PEEK ? 0 : stop_parsing(x);
}

static void on_message_end(void *arg)
{
    struct upstream_conn *c = arg;
    struct exchange *x = c->arg;
    if (x->res.status < 200) {
        if (x->let_go == LET_GO_NOT)
            parser_next_response(c->parser, &x->res, &x->arena, x->req.method);
        return;
    }
    x->origin_complete = true;
    timer_stop(&x->timer);
    exchange_hold_end(x);
}

static void feed(struct exchange *x, const char *bytes, size_t n)
{
    struct upstream_conn *c = x->origin;
    int fault = 0;
    x->feeding = true;
    do {
        size_t used = 0;
        fault = parser_feed(c->parser, bytes, n, &used);
        bytes += used;
        n -= used;
    } while (fault == 0 && n > 0 && x->let_go == LET_GO_NOT && !x->origin_complete && !waits(x));
    if (fault != 0 && x->let_go == LET_GO_NOT) {
        char detail[128];
        snprintf(detail, sizeof detail, "malformed answer: %s", parser_fault(c->parser));
        failed(x, &bad_answer, detail);
    }
    if (waits(x) && x->let_go == LET_GO_NOT) {
        buf_add(&x->pending, bytes, n);
        stream_pause(c->stream);
        timer_stop(&x->timer);
    } else if (x->origin_complete && n > 0) {
        x->origin_surplus = true; /* bytes behind the answer: never to be trusted again */
    }
    if (x->origin_complete && x->let_go == LET_GO_NOT && x->gathering)
        exchange_gather_end(x);
    else if (x->origin_complete && x->let_go == LET_GO_NOT && x->stage == STAGE_RELAY)
        exchange_relay_end(x);
    x->feeding = false;
    if (x->let_go != LET_GO_NOT) {
        bool reuse = x->let_go == LET_GO_KEEP;
        x->let_go = LET_GO_NOT;
        exchange_origin_let_go(x, reuse);
    }
}

static bool held(const struct exchange *x)
{
    return x->hold == HOLD_STATUS || x->hold == HOLD_PEEK;
}

static void pace(struct exchange *x)
{
    if (x->origin == NULL || (x->stage != STAGE_RELAY && !x->gathering && !held(x)))
        return;
    x->origin_paused = !x->gathering && !held(x) && exchange_client_full(x);
    if (x->origin_paused) {
        stream_pause(x->origin->stream);
        timer_stop(&x->timer); /* the client's write deadline counts now */
    } else {
        uint64_t ms = x->target->timeouts.idle;
        stream_resume(x->origin->stream);
        watch(x, held(x) ? exchange_hold_limit(x, within(x, ms)) : ms);
    }
}

static void on_origin_read(void *arg, const char *bytes, size_t n)
{
    struct exchange *x = ((struct upstream_conn *)arg)->arg;
    feed(x, bytes, n);
    exchange_flush(x);
    pace(x);
}

/* The connection has ended, and the parser takes that for the proper end of the answer. */
static void ended(struct exchange *x)
{
    if (x->gathering)
        exchange_gather_end(x);
    else
        exchange_relay_end(x);
    x->feeding = false;
    if (waits(x) && x->let_go == LET_GO_NOT)
        return; /* there is more to relay, once it can go */
    x->let_go = LET_GO_NOT;
    exchange_origin_let_go(x, false);
}

static void over(struct exchange *x, int err)
{
    char detail[400];
    if (err == 0 && (x->stage == STAGE_RELAY || x->gathering || held(x)) && !x->origin_complete) {
        x->res.keep_alive = false;
        x->feeding = true;
        if (parser_eof(x->origin->parser) == 0 && x->origin_complete) {
            ended(x);
            return;
        }
        x->feeding = false;
        x->let_go = LET_GO_NOT;
    }
    if (x->stage < STAGE_RESPONSE && retry(x))
        return;
    const struct tls_fault *f = stream_fault(x->origin->stream);
    snprintf(detail, sizeof detail, "closed the connection before the end of its answer%s%s",
             err != 0 ? ": " : "",
             err == 0    ? ""
             : f != NULL ? f->text
                         : uv_strerror(err));
    failed(x, err == UV_EPROTO ? &bad_tls : &closed, detail);
}

void exchange_origin_resume(struct exchange *x)
{
    if (x->origin != NULL && (x->stage == STAGE_RELAY || x->gathering)) {
        struct buf rest = x->pending;
        buf_init(&x->pending);
        exchange_hold_deliver(x);
        if (x->origin != NULL)
            feed(x, rest.p != NULL ? rest.p : "", rest.n);
        buf_deinit(&rest);
        exchange_flush(x);
    }
    if (x->origin != NULL && (x->stage == STAGE_RELAY || x->gathering) && x->origin_failure != 0)
        over(x, x->origin_failure);
    pace(x);
}

static void on_origin_end(void *arg, int err)
{
    struct exchange *x = ((struct upstream_conn *)arg)->arg;
    if (waits(x))
        x->origin_failure = err != 0 ? err : UV_EOF; /* looked at when it goes on */
    else
        over(x, err);
}

static void on_origin_drain(void *arg)
{
    struct exchange *x = ((struct upstream_conn *)arg)->arg;
    exchange_origin_await(x);
    if (!x->upload_done && x->paused && x->client_here) {
        x->paused = false;
        x->client.ops->want_body(x->client.self, true);
    }
}
