/* See exchange.h: what a finished request is charged, how it is counted, and its line in the access
 * log. */
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <time.h>

#include "api.h"
#include "exchange.h"
#include "json.h"

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

static bool reserved(const struct exchange *x)
{
    return x->has_verdict && x->verdict.verdict == QUOTA_ADMITTED && x->limits.has_budget;
}

/* As the client saw it; 0 where it left before the head. */
static int shown_status(const struct exchange *x)
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
    if (reserved(x)) {
        uint64_t all = x->meter.reserve, in = x->meter.prompt_tokens;
        t.reserved_input = in < all ? in : all;
        t.reserved_output = all - t.reserved_input;
        t.over_reserved = all > x->used ? all - x->used : 0;
    }
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
        .status = shown_status(x),
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

static void put_text(struct buf *out, const char *name, struct slice value)
{
    if (value.p == NULL)
        return;
    buf_printf(out, ",\"%s\":", name);
    json_quote(out, value);
}

static void put_time(struct buf *out, int64_t wall_ms)
{
    struct tm tm;
    time_t s = wall_ms / 1000;
    char text[32];
    gmtime_r(&s, &tm);
    strftime(text, sizeof text, "%Y-%m-%dT%H:%M:%S", &tm);
    buf_printf(out, "{\"time\":\"%s.%03dZ\"", text, (int)(wall_ms % 1000));
}

static void put_times(struct buf *out, const struct exchange *x)
{
    buf_printf(out, ",\"seconds\":%.3f", (double)(x->ended_at - x->begun) / 1000);
    if (x->first_byte != 0)
        buf_printf(out, ",\"first_byte_seconds\":%.3f", (double)(x->first_byte - x->begun) / 1000);
    if (x->origin_begun != 0)
        buf_printf(out, ",\"origin_seconds\":%.3f", (double)(x->ended_at - x->origin_begun) / 1000);
}

static void put_tls(struct buf *out, const struct tls_peer *p)
{
    if (p == NULL)
        return;
    buf_printf(out, ",\"tls\":{\"version\":\"%s\"", p->version);
    put_text(out, "cipher", slice_of(p->cipher));
    if (p->sni != NULL)
        put_text(out, "sni", slice_of(p->sni));
    buf_printf(out, ",\"resumed\":%s", p->resumed ? "true" : "false");
    if (p->certificate != NULL)
        put_text(out, "subject", slice_of(p->certificate->subject));
    buf_add_text(out, "}");
}

static void put_tokens(struct buf *out, const struct exchange *x)
{
    const struct llm_usage *u = x->reader != NULL ? llm_reader_usage(x->reader) : NULL;
    if (!x->metered)
        return;
    buf_printf(out,
               ",\"stream\":%s,\"tokens\":{\"prompt_estimate\":%" PRIu64 ",\"reserved\":%" PRIu64
               ",\"used\":%" PRIu64,
               x->llm->stream ? "true" : "false", x->llm->prompt_tokens,
               reserved(x) ? x->meter.reserve : 0, x->used);
    if (u != NULL && u->known)
        buf_printf(out, ",\"input\":%" PRIu64 ",\"output\":%" PRIu64, u->input, u->output);
    if (x->missing_usage != NULL)
        buf_printf(out, ",\"usage_missing\":\"%s\"", x->missing_usage);
    buf_add_text(out, "}");
}

static void put_target(struct buf *out, const struct exchange *x)
{
    if (x->attempts == 0)
        return;
    put_text(out, "target", slice_of(x->target->name));
    buf_printf(out, ",\"attempts\":%" PRIu32, x->attempts);
    if (x->failures.n > 0)
        buf_printf(out, ",\"retries\":[%.*s]", (int)x->failures.n, x->failures.p);
}

void exchange_log(struct exchange *x)
{
    struct buf *out = x->sv->access_log;
    count(x);
    if (out == NULL)
        return;
    put_time(out, x->begun_wall);
    put_text(out, "id", slice_of(x->id));
    put_text(out, "client", slice_of(x->address));
    if (x->address != x->client.address)
        put_text(out, "peer", slice_of(x->client.address));
    put_tls(out, x->client.tls);
    put_text(out, "method", x->req.method);
    put_text(out, "path", x->path.p != NULL ? x->path : x->req.path);
    if (x->route != NULL)
        put_text(out, "route", slice_of(x->route->name));
    put_text(out, "consumer", api_consumer_field(x, "id"));
    put_text(out, "tenant", api_consumer_field(x, "tenant"));
    if (shown_status(x) != 0)
        buf_printf(out, ",\"status\":%d", shown_status(x));
    put_target(out, x);
    put_text(out, "model", exchange_model(x));
    put_text(out, "refusal", x->refusal != NULL ? slice_of(x->refusal) : (struct slice){ NULL, 0 });
    put_text(out, "ended", slice_of(exchange_ended_name(x->ended)));
    buf_printf(out, ",\"bytes_in\":%" PRIu64 ",\"bytes_out\":%" PRIu64, x->body_seen, x->relayed);
    put_times(out, x);
    put_tokens(out, x);
    buf_add_text(out, "}\n");
    loop_defer(x->sv->loop, x->sv->access_flush, LOOP_FINISH);
}
