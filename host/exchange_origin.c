/* See exchange.h: the connection to the origin: how it is come by, watched, let go, and what is
 * done where it fails. What comes back on it is read by exchange_read.c. */
#include "exchange_origin.h"

#include <inttypes.h>
#include <stdio.h>

#include "container.h"
#include "log.h"

static void on_silence(struct timer *t);

uint64_t exchange_origin_within(const struct exchange *x, uint64_t ms)
{
    uint64_t now = loop_now(x->sv->loop);
    if (x->attempts < 2 || now + ms <= x->attempts_until)
        return ms;
    return x->attempts_until > now ? x->attempts_until - now : 1;
}

void exchange_origin_watch(struct exchange *x, uint64_t ms)
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
        exchange_origin_watch(x, exchange_origin_within(x, x->target->timeouts.first_byte));
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

static const struct exchange_failure unreachable = { "connect", 502, "origin_unreachable",
                                                     "The origin could not be reached." };
static const struct exchange_failure bad_certificate = {
    "connect", 502, "origin_certificate", "The origin's certificate is not accepted."
};
static const struct exchange_failure no_tls = { "connect", 502, "origin_tls",
                                                "The origin could not be spoken with by TLS." };
/* Where it fails behind the handshake: our certificate was refused, or a record is damaged. */
const struct exchange_failure exchange_failure_bad_tls = {
    "closed", 502, "origin_tls", "The origin ended the connection by TLS."
};
static const struct exchange_failure not_in_time = { "connect", 504, "origin_timeout",
                                                     "The origin could not be reached in time." };
static const struct exchange_failure silent = { "timeout", 504, "origin_timeout",
                                                "The origin did not answer in time." };
const struct exchange_failure exchange_failure_closed = {
    "closed", 502, "origin_closed", "The origin closed the connection without an answer."
};
const struct exchange_failure exchange_failure_bad_answer = {
    "bad_answer", 502, "bad_origin_answer", "The origin's answer could not be used."
};

/* Not the target's fault. */
const struct exchange_failure exchange_failure_too_large = {
    "dropped", 502, "answer_too_large",
    "The origin's answer is larger than this route allows a plugin to read."
};

/* Likewise. */
const struct exchange_failure exchange_failure_overloaded = {
    "dropped", 503, "overloaded", "The gateway has no room for this answer now; try again later."
};

void exchange_origin_failed(struct exchange *x, const struct exchange_failure *f,
                            const char *detail)
{
    bool sent = x->head_sent_up;
    figures_attempt_failed(x->target->figures, f->error);
    log_write(LOG_WARN, x->id, "target %s, %s: %s", x->target->name, x->target->where, detail);
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
        exchange_origin_failed(x, &silent, detail);
}

/* --- connecting --- */

static void begin_on(struct exchange *x, struct upstream_conn *c)
{
    x->origin = c;
    x->origin_connected = loop_now(x->sv->loop);
    c->arg = x;
    if (c->parser == NULL)
        c->parser = parser_new_response(&x->gen->settings.parse, &exchange_parse_events, c);
    parser_next_response(c->parser, &x->res, &x->arena, x->req.method);
    exchange_request_send(x);
    stream_start(c->stream, &exchange_origin_events, c);
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
    exchange_origin_failed(x,
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
        x->origin_wait = upstream_get(o, exchange_origin_within(x, x->target->timeouts.connect),
                                      fresh, on_connection, x);
}

void exchange_origin_connect(struct exchange *x)
{
    connect_origin(x, false);
}

void exchange_origin_again(struct exchange *x)
{
    connect_origin(x, true);
}
