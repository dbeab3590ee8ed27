/* See exchange.h: an answer that is not relayed at once, since another target may be asked instead.
 *
 * A failing status: its body is read, up to HOLD_MAX bytes and HOLD_MS, for the error's code and
 * for usage. A stream: its first event is waited for, which may be an error. Then it is decided:
 * either the next target is tried, or the answer goes out as it came, what was read of it first.
 *
 * Usage that such an answer reports is charged, although the client never sees it. Where a budget
 * applies, what it took is settled, and the next attempt has to be admitted anew, by the same
 * limits but the rate's and under a name of its own: so the budget is never exceeded, and each part
 * is settled once. Where it is refused the answer goes out. */
#include <inttypes.h>

#include "exchange.h"
#include "log.h"

enum { HOLD_MAX = 65536, HOLD_MS = 2000 };

/* --- whether to hold --- */

static bool may_peek(const struct exchange *x)
{
    const struct headers *h = &x->res.headers;
    return x->route->retry.peek && x->res.status >= 200 && x->res.status <= 299 &&
           llm_body_of(headers_get_id(h, HEADER_CONTENT_TYPE),
                       headers_get_id(h, HEADER_CONTENT_ENCODING)) == LLM_BODY_STREAM &&
           !message_no_body(x->req.method, x->res.status);
}

bool exchange_hold_head(struct exchange *x)
{
    bool failing = retry_status(&x->route->retry, x->res.status);
    if (!failing && !may_peek(x))
        return false;
    if (!exchange_attempt_may_follow(x, true))
        return false;
    if (failing && !exchange_attempt_afford(x))
        return false;
    x->hold = failing ? HOLD_STATUS : HOLD_PEEK;
    x->hold_until = loop_now(x->sv->loop) + HOLD_MS;
    if (x->hold == HOLD_PEEK) {
        x->peek = arena_alloc(&x->arena, sizeof *x->peek);
        llm_peek_init(x->peek);
    }
    return true;
}

uint64_t exchange_hold_limit(const struct exchange *x, uint64_t ms)
{
    uint64_t now = loop_now(x->sv->loop), left = x->hold_until > now ? x->hold_until - now : 1;
    return x->hold == HOLD_STATUS && ms > left ? left : ms;
}

void exchange_hold_drop(struct exchange *x)
{
    x->hold = HOLD_NONE;
    buf_deinit(&x->held_answer);
    exchange_budget_note(x);
    if (x->peek != NULL)
        llm_peek_deinit(x->peek);
    x->peek = NULL;
}

/* --- usage of an answer that nobody gets --- */

static void ignore(void *arg, struct slice piece)
{
    (void)arg, (void)piece;
}

/* What the answer says that it used, or 0. */
static uint64_t reported(const struct exchange *x)
{
    const struct headers *h = &x->res.headers;
    if (!x->metered || x->held_answer.n == 0)
        return 0;
    enum llm_body body = llm_body_of(headers_get_id(h, HEADER_CONTENT_TYPE),
                                     headers_get_id(h, HEADER_CONTENT_ENCODING));
    struct llm_reader *r = llm_reader_new(x->route->api, body, false);
    llm_reader_feed(r, buf_slice(&x->held_answer), ignore, NULL);
    llm_reader_end(r, ignore, NULL);
    const struct llm_usage *u = llm_reader_usage(r);
    uint64_t total = u->known ? u->total : 0;
    llm_reader_free(r);
    return total;
}

static void note_code(struct exchange *x)
{
    char text[LLM_ERROR_CODE];
    struct slice code =
        x->peek != NULL ? x->peek->code : llm_error_code(buf_slice(&x->held_answer), text);
    x->attempt_code = code.p != NULL ? arena_dup(&x->arena, code) : code;
}

/* --- the decision --- */

static void commit(struct exchange *x)
{
    x->hold = HOLD_NONE;
    if (x->peek != NULL)
        llm_peek_deinit(x->peek);
    x->peek = NULL;
    exchange_commit(x);
    if (x->feeding)
        exchange_hold_deliver(x);
}

static const char *error_of(const struct exchange *x)
{
    if (x->peek != NULL)
        return "stream_error";
    return x->origin_complete ? NULL : "cut";
}

static void follow(struct exchange *x)
{
    log_write(LOG_WARN, x->id, "target %s, %s: answered %d%s%.*s", x->target->name,
              x->target->where, x->origin_status,
              x->peek != NULL             ? ", a stream that begins with an error"
              : x->attempt_code.p != NULL ? ", "
                                          : "",
              x->peek == NULL ? (int)x->attempt_code.n : 0, x->attempt_code.p);
    x->hold = HOLD_NONE;
    x->source = SOURCE_NONE;
    x->unpriced = false; /* it has said what it took, or it refused */
    exchange_attempt_follow(x, error_of(x), true);
    exchange_hold_drop(x);
    exchange_origin_let_go(x, x->origin_complete && x->origin_failure == 0);
}

/* The concurrency and budget of before, without another token of the bucket. */
static void on_readmitted(void *arg, struct quota_grant *grant, const struct quota_result *result)
{
    struct exchange *x = arg;
    x->admission = NULL;
    x->grant = grant;
    if (grant != NULL) {
        x->verdict.spent = result->spent;
        x->verdict.inflight = result->inflight;
    }
    if (x->hold != HOLD_DECIDED || x->stage != STAGE_ORIGIN)
        return; /* ended otherwise, which settles it */
    if (grant != NULL) {
        follow(x);
        return;
    }
    x->used_before -= x->attempt_used; /* it is told again by the answer that goes out */
    exchange_target_unpick(x);
    commit(x);
}

/* Settles what the failed attempt used, and asks for as much as before. */
static void readmit(struct exchange *x)
{
    struct quota *q = x->sv->quota;
    struct quota_limits limits = x->limits;
    struct slice id = arena_printf(&x->arena, "%s.%" PRIu32, x->id, x->attempts + 1);
    limits.has_rate = false;
    quota_settle(q, x->grant, x->attempt_used);
    x->grant = NULL;
    if (x->verdict.verdict == QUOTA_ADMITTED) {
        x->admission = quota_admit(q, x->quota_key, id, &limits, x->quota_reserve,
                                   x->quota_deadline, on_readmitted, x);
        return;
    }
    x->grant = quota_grant_unadmitted(q, x->quota_key, id, &limits);
    follow(x);
}

static void decide(struct exchange *x)
{
    enum exchange_pick pick = PICK_NONE;
    timer_stop(&x->timer);
    note_code(x);
    x->stream_error = x->hold == HOLD_PEEK;
    if (exchange_attempt_may_follow(x, true) && exchange_attempt_afford(x))
        pick = exchange_target_pick(x);
    if (pick == PICK_FAILED)
        return;
    if (pick == PICK_NONE) {
        commit(x);
        return;
    }
    x->hold = HOLD_DECIDED;
    x->attempt_used = reported(x);
    x->used_before += x->attempt_used;
    if (x->attempt_used > 0 && x->grant != NULL && x->limits.has_budget)
        readmit(x);
    else
        follow(x);
}

/* --- what comes of it --- */

void exchange_hold_piece(struct exchange *x, struct slice piece)
{
    bool room = exchange_budget_has(x, &x->held_answer, piece.n);
    buf_add_slice(&x->held_answer, piece);
    exchange_budget_note(x);
    if (x->hold == HOLD_STATUS) {
        if (x->held_answer.n > HOLD_MAX || !room)
            decide(x);
        return;
    }
    switch (llm_peek_feed(x->peek, piece)) {
    case LLM_PEEK_ERROR: decide(x); break;
    case LLM_PEEK_FINE: commit(x); break;
    default:
        if (!room)
            commit(x);
        break;
    }
}

void exchange_hold_end(struct exchange *x)
{
    if (x->hold == HOLD_STATUS)
        decide(x);
    else if (x->hold == HOLD_PEEK)
        commit(x); /* it had no event at all */
}

void exchange_hold_deliver(struct exchange *x)
{
    struct buf held = x->held_answer;
    if (held.n == 0 || (x->stage != STAGE_RELAY && !x->gathering))
        return;
    buf_init(&x->held_answer);
    exchange_take(x, buf_slice(&held));
    buf_deinit(&held);
}
