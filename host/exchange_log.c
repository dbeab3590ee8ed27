/* See exchange.h: what a finished request is charged, how it is counted, and whether it gets a line
 * in the access log. */
#include "exchange.h"

static struct meter_charge charge(struct exchange *x)
{
    struct meter_facts f = {
        .reached_origin = x->unpriced,
        .status = x->origin_status,
        .complete = (x->ended == ENDED_OK || x->gone) && x->origin_complete,
        .client_gone = x->ended == ENDED_CLIENT_GONE,
        .body = x->answer_body,
    };
    return meter_charge(&x->meter, x->reader != NULL ? llm_reader_usage(x->reader) : NULL, &f);
}

void exchange_settle(struct exchange *x)
{
    if (x->admission != NULL)
        quota_cancel(x->admission);
    x->admission = NULL;
    uint64_t spent = 0; /* under the current admission */
    if (x->metered) {
        struct meter_charge c = charge(x);
        spent = c.tokens;
        if (c.cause >= METER_CLIENT_GONE)
            x->missing_usage = meter_cause_name(c.cause);
    }
    x->used = x->used_before + spent;
    if (x->grant != NULL)
        quota_settle(x->sv->quota, x->grant, spent);
    x->grant = NULL;
}

/* --- figures --- */

uint64_t exchange_reserved(const struct exchange *x)
{
    bool reserved = x->has_verdict && x->verdict.verdict == QUOTA_ADMITTED && x->limits.has_budget;
    return reserved ? x->meter.reserve : 0;
}

int exchange_shown_status(const struct exchange *x)
{
    return x->ended != ENDED_CLIENT_GONE || x->head_sent ? x->res.status : 0;
}

/* What the origin answered with success, or the configuration names: not any text of a client's. */
static bool model_known(const struct exchange *x)
{
    const struct target *t = x->target;
    return (x->origin_status >= 200 && x->origin_status <= 299) ||
           (x->targets != NULL && slice_eq(x->targets->alias, x->llm->model)) ||
           (t != NULL && t->model != NULL && slice_eq(slice_of(t->model), x->llm->model));
}

static void count_tokens(const struct exchange *x)
{
    const struct llm_usage *u = x->reader != NULL ? llm_reader_usage(x->reader) : NULL;
    struct figures_tokens t = { .output = x->used };
    uint64_t all = exchange_reserved(x), in = x->meter.prompt_tokens;
    t.reserved_input = in < all ? in : all;
    t.reserved_output = all - t.reserved_input;
    t.over_reserved = all > x->used ? all - x->used : 0;
    t.input = u != NULL && u->input_known ? u->input : x->meter.prompt_tokens;
    t.input = t.input < x->used ? t.input : x->used;
    t.output = x->used - t.input;
    figures_tokens(x->sv->figures, x->llm->model, model_known(x), &t);
}

static void count(const struct exchange *x)
{
    struct figures_route *r =
        x->route != NULL ? x->route->figures : figures_route(x->sv->figures, "");
    struct figures_end e = {
        .status = exchange_shown_status(x),
        .ended = exchange_ended_name(x->ended),
        .refusal = x->refusal,
        .ms = x->ended_at - x->begun,
        .first_byte_ms = x->first_byte - x->begun,
        .first_byte = x->first_byte != 0,
    };
    x->sv->counters->ended++;
    figures_ended(r, &e);
    if (x->metered)
        count_tokens(x);
    if (x->missing_usage != NULL)
        figures_usage_missing(x->sv->figures, x->missing_usage);
}

/* --- the access log --- */

void exchange_log(struct exchange *x)
{
    const struct access_settings *s = x->gen->settings.access;
    int status = exchange_shown_status(x);
    bool well = x->ended == ENDED_OK && x->refusal == NULL && status < 400;
    count(x);
    if (s == NULL || x->sv->access_log == NULL)
        return;
    if (!access_keeps(&s->rules, x->route != NULL ? x->route->name : NULL, status, well,
                      slice_of(x->id))) {
        access_log_skip(x->sv->access_log);
        return;
    }
    struct buf *out = access_log_line(x->sv->access_log);
    if (out == NULL)
        return;
    exchange_line(x, &s->format, out);
    buf_add_text(out, "\n");
    access_log_end(x->sv->access_log);
}
