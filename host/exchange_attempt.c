/* See exchange.h: one attempt after another. Whatever ends one passes exchange_attempt_end, once;
 * the next begins at the end of the turn, since the last one's connection may be in the middle of a
 * callback. */
#include <inttypes.h>

#include "container.h"
#include "exchange.h"
#include "json.h"
#include "zone.h"

/* --- the end of one --- */

/* A target that says when to come back is left alone until then, by all workers. */
static void keep_out(struct exchange *x, const struct attempt_outcome *o)
{
    const struct retry_policy *p = &x->route->retry;
    uint64_t ms = (uint64_t)o->retry_after_ms;
    if (o->retry_after_ms <= 0 || p->out_ms == 0 || x->targets->n < 2 ||
        !retry_status(p, o->status))
        return;
    target_state_out(&x->target->state, zone_now() + (ms < p->out_ms ? ms : p->out_ms));
}

void exchange_attempt_note(struct exchange *x, struct slice piece)
{
    size_t room = LLM_PEEK - x->error_body.n;
    if (x->origin_status >= 400 && x->route->hooks[PHASE_ATTEMPT].n > 0)
        buf_add(&x->error_body, piece.p, piece.n < room ? piece.n : room);
}

static void read_code(struct exchange *x)
{
    char text[LLM_ERROR_CODE];
    if (x->attempt_code.p != NULL || x->error_body.n == 0)
        return;
    struct slice code = llm_error_code(buf_slice(&x->error_body), text);
    x->attempt_code = code.p != NULL ? arena_dup(&x->arena, code) : code;
}

void exchange_attempt_end(struct exchange *x, const char *error)
{
    read_code(x);
    uint64_t now = loop_now(x->sv->loop);
    struct attempt_outcome o = {
        .error = error,
        .status = x->origin_status,
        .ms = now - x->attempt_begun,
        .first_byte_ms = x->origin_status != 0 ? (int64_t)(x->first_byte - x->attempt_begun) : -1,
        .retry_after_ms = x->attempt_retry_after,
        .code = x->attempt_code,
        .n = x->attempts,
        .span = x->attempt_span[0] != '\0' ? x->attempt_span : NULL,
    };
    if (!x->attempt_open)
        return;
    x->attempt_open = false;
    x->targets->items[x->target->place].inflight--;
    keep_out(x, &o);
    if (x->route->hooks[PHASE_ATTEMPT].n > 0)
        exchange_attempt_tell(x, x->target, &o, &x->route->hooks[PHASE_ATTEMPT]);
}

/* An answer that came whole may still tell of an error, behind a status of success. */
static const char *whole_error(struct exchange *x)
{
    bool told = x->stream_error || (x->reader != NULL && x->origin_status <= 299 &&
                                    llm_reader_usage(x->reader)->error);
    return told ? "stream_error" : NULL;
}

void exchange_attempt_over(struct exchange *x, enum ended how)
{
    static const char *const errors[] = {
        [ENDED_OK] = NULL,       [ENDED_CLIENT_GONE] = "client_gone", [ENDED_ORIGIN_CUT] = "cut",
        [ENDED_TIMEOUT] = "cut", [ENDED_PLUGIN_ERROR] = "dropped",    [ENDED_SHUTDOWN] = "dropped"
    };
    loop_undefer(x->sv->loop, &x->next_attempt);
    exchange_target_unpick(x);
    exchange_attempt_end(x, x->origin_complete ? whole_error(x) : errors[how]);
}

/* --- the next one --- */

bool exchange_attempt_may_follow(const struct exchange *x, bool sent)
{
    const struct retry_policy *p = &x->route->retry;
    if (x->attempts >= p->attempts || !exchange_target_left(x) || x->gone || x->interim ||
        !(x->whole || x->held) || loop_now(x->sv->loop) >= x->attempts_until)
        return false;
    return !sent || p->unsafe || message_idempotent(x->req.method); /* RFC 9110, section 9.2.2 */
}

bool exchange_attempt_afford(struct exchange *x)
{
    uint64_t now = loop_now(x->sv->loop);
    if (retry_budget_left(x->route->budget, x->route->retry.budget, now))
        return true;
    x->sv->counters->retries_refused++;
    return false;
}

static void on_next_attempt(struct deferred *d)
{
    exchange_attempt_begin(CONTAINER(d, struct exchange, next_attempt));
}

/* Why the last one failed, for the access log. */
static void note_failure(struct exchange *x, const char *error)
{
    buf_add_text(&x->failures, x->failures.n > 0 ? ",{\"target\":" : "{\"target\":");
    json_quote(&x->failures, slice_of(x->target->name));
    if (x->origin_status != 0)
        buf_printf(&x->failures, ",\"status\":%d", x->origin_status);
    if (error != NULL)
        buf_printf(&x->failures, ",\"error\":\"%s\"", error);
    buf_add_text(&x->failures, "}");
}

void exchange_attempt_follow(struct exchange *x, const char *error, bool sent)
{
    exchange_attempt_end(x, error);
    note_failure(x, error);
    if (sent)
        retry_budget_spend(x->route->budget, loop_now(x->sv->loop));
    x->next_attempt.run = on_next_attempt;
    loop_defer(x->sv->loop, &x->next_attempt, LOOP_COLLECT);
}

bool exchange_attempt_failed(struct exchange *x, const char *error, bool sent)
{
    bool follow = retry_error(&x->route->retry, error) && exchange_attempt_may_follow(x, sent) &&
                  (!sent || exchange_attempt_afford(x));
    if (x->origin_status != 0) /* of an answer that was held */
        error = "cut";
    exchange_attempt_end(x, error);
    enum exchange_pick pick = follow ? exchange_target_pick(x) : PICK_NONE;
    if (pick == PICK_FOUND)
        exchange_attempt_follow(x, error, sent);
    return pick != PICK_NONE;
}

void exchange_attempt_begin(struct exchange *x)
{
    uint64_t now = loop_now(x->sv->loop);
    x->target = x->next_target;
    x->next_target = NULL;
    figures_attempt(x->target->figures);
    if (++x->attempts > 1)
        x->sv->counters->retries++;
    x->attempt_open = true;
    x->targets->items[x->target->place].inflight++;
    x->attempt_begun = now;
    x->attempt_retry_after = -1;
    if (x->origin_begun == 0)
        x->origin_begun = now;
    x->head_sent_up = x->upload_done = x->retried = false;
    x->origin_surplus = x->origin_complete = false;
    x->origin_status = 0;
    x->origin_failure = 0;
    x->source = SOURCE_NONE;
    x->res = (struct response){ 0 };
    x->attempt_code = (struct slice){ NULL, 0 };
    x->stream_error = false;
    buf_clear(&x->error_body);
    x->first_byte = 0;
    x->sent_up = 0;
    if (x->trace.id[0] != '\0')
        trace_span(x->attempt_span, exchange_random);
    exchange_request_prepare(x);
    exchange_origin_connect(x);
}
