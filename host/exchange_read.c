/* See exchange.h: what comes back from the origin.
 *
 * The parser belongs to the connection and calls back here while it parses; the connection is
 * therefore never let go in the middle of that (`feeding`), but behind it. */
#include <stdio.h>

#include "exchange_origin.h"
#include "reuse.h"

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
    exchange_origin_again(x);
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

/* The origin begins to speak another protocol. */
static int on_switch(struct exchange *x)
{
    const char *wrong = exchange_upgrade_agree(x);
    if (wrong != NULL) {
        exchange_origin_failed(x, &exchange_failure_bad_answer, wrong);
        return 1;
    }
    timer_stop(&x->timer);
    x->first_byte = loop_now(x->sv->loop);
    x->origin_status = x->res.status;
    x->source = SOURCE_ORIGIN;
    headers_remove_hop_by_hop(&x->res.headers);
    headers_add(&x->res.headers, SLICE("upgrade"), x->upgrade);
    exchange_add_via(x, &x->res.headers, x->res.minor);
    exchange_commit(x);
    return 1;
}

/* The answer's head. Returns non-zero where parsing has to stop behind it: plugins wait, or it is
 * over. */
static int on_head(void *arg)
{
    struct upstream_conn *c = arg;
    struct exchange *x = c->arg;
    if (x->res.status == 101)
        return on_switch(x);
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
    struct slice wanted = headers_get_id(&x->res.headers, HEADER_UPGRADE);
    headers_remove_hop_by_hop(&x->res.headers);
    if (x->res.status == 426 && wanted.p != NULL) /* which must name it: RFC 9110, 15.5.22 */
        headers_add(&x->res.headers, SLICE("upgrade"), wanted);
    exchange_add_via(x, &x->res.headers, x->res.minor);
    if (exchange_hold_head(x))
        return 0;
    exchange_commit(x);
    return stop_parsing(x);
}

void exchange_take(struct exchange *x, struct slice piece)
{
    exchange_attempt_note(x, piece);
    if (x->gathering && !exchange_budget_has(x, &x->whole_answer, piece.n))
        exchange_origin_failed(
            x, &exchange_failure_overloaded,
            "limits.buffered has no room for an answer that a plugin wants whole");
    else if (x->gathering && !exchange_gather_piece(x, piece))
        exchange_origin_failed(x, &exchange_failure_too_large,
                               "an answer above limits.body, which a plugin wants whole");
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
    } while (fault == 0 && n > 0 && x->let_go == LET_GO_NOT && !x->origin_complete && !waits(x) &&
             !exchange_switches(x));
    if (fault != 0 && x->let_go == LET_GO_NOT) {
        char detail[128];
        snprintf(detail, sizeof detail, "malformed answer: %s", parser_fault(c->parser));
        exchange_origin_failed(x, &exchange_failure_bad_answer, detail);
    }
    if ((waits(x) || exchange_switches(x)) && x->let_go == LET_GO_NOT) {
        buf_add(&x->pending, bytes, n);
        exchange_budget_note(x);
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
    } else if (exchange_switches(x) && x->stage == STAGE_RELAY && x->origin != NULL) {
        exchange_tunnel_begin(x);
    }
}

static bool held(const struct exchange *x)
{
    return x->hold == HOLD_STATUS || x->hold == HOLD_PEEK;
}

static void pace(struct exchange *x)
{
    if (x->origin == NULL || (x->stage != STAGE_RELAY && !x->gathering && !held(x)) ||
        exchange_switches(x))
        return;
    x->origin_paused = !x->gathering && !held(x) && exchange_client_full(x);
    if (x->origin_paused) {
        stream_pause(x->origin->stream);
        timer_stop(&x->timer); /* the client's write deadline counts now */
    } else {
        uint64_t ms = x->target->timeouts.idle;
        stream_resume(x->origin->stream);
        exchange_origin_watch(x,
                              held(x) ? exchange_hold_limit(x, exchange_origin_within(x, ms)) : ms);
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
    exchange_origin_failed(
        x, err == UV_EPROTO ? &exchange_failure_bad_tls : &exchange_failure_closed, detail);
}

void exchange_origin_resume(struct exchange *x)
{
    if (exchange_switches(x)) {
        if (x->origin != NULL && x->stage == STAGE_RELAY && x->tunnel == TUNNEL_AGREED)
            exchange_tunnel_begin(x);
        return;
    }
    if (x->origin != NULL && (x->stage == STAGE_RELAY || x->gathering)) {
        struct buf rest = x->pending;
        buf_init(&x->pending);
        exchange_hold_deliver(x);
        if (x->origin != NULL)
            feed(x, rest.p != NULL ? rest.p : "", rest.n);
        buf_deinit(&rest);
        exchange_budget_note(x);
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

const struct parse_events exchange_parse_events = { on_head, on_piece, on_message_end };
const struct stream_events exchange_origin_events = { on_origin_read, on_origin_end,
                                                      on_origin_drain };
