/* See exchange.h: what a finished request is charged, and its line in the access log. */
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
        .reached_origin = x->reached_origin,
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
    if (x->metered) {
        struct meter_charge c = charge(x);
        x->used = c.tokens;
        if (c.cause >= METER_CLIENT_GONE) {
            x->missing_usage = meter_cause_name(c.cause);
            x->sv->counters.usage_missing++;
        }
        x->sv->counters.tokens_used += c.tokens;
    }
    if (x->grant != NULL)
        quota_settle(x->sv->quota, x->grant, x->used);
    x->grant = NULL;
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

static void put_tokens(struct buf *out, const struct exchange *x)
{
    const struct llm_usage *u = x->reader != NULL ? llm_reader_usage(x->reader) : NULL;
    bool reserved = x->has_verdict && x->verdict.verdict == QUOTA_ADMITTED && x->limits.has_budget;
    if (!x->metered)
        return;
    put_text(out, "model", x->llm->model);
    buf_printf(out,
               ",\"stream\":%s,\"tokens\":{\"prompt_estimate\":%" PRIu64 ",\"reserved\":%" PRIu64
               ",\"used\":%" PRIu64,
               x->llm->stream ? "true" : "false", x->llm->prompt_tokens,
               reserved ? x->meter.reserve : 0, x->used);
    if (u != NULL && u->known)
        buf_printf(out, ",\"input\":%" PRIu64 ",\"output\":%" PRIu64, u->input, u->output);
    if (x->missing_usage != NULL)
        buf_printf(out, ",\"usage_missing\":\"%s\"", x->missing_usage);
    buf_add_text(out, "}");
}

void exchange_log(struct exchange *x)
{
    struct buf *out = x->sv->access_log;
    if (out == NULL)
        return;
    put_time(out, x->begun_wall);
    put_text(out, "id", slice_of(x->id));
    put_text(out, "client", slice_of(x->client.address));
    put_text(out, "method", x->req.method);
    put_text(out, "path", x->path.p != NULL ? x->path : x->req.path);
    if (x->route != NULL)
        put_text(out, "route", slice_of(x->route->name));
    put_text(out, "consumer", api_consumer_field(x, "id"));
    put_text(out, "tenant", api_consumer_field(x, "tenant"));
    if (x->ended != ENDED_CLIENT_GONE || x->head_sent)
        buf_printf(out, ",\"status\":%d", x->res.status);
    if (x->origin_begun != 0)
        put_text(out, "target", slice_of(x->route->target->url_text));
    put_text(out, "refusal", x->refusal != NULL ? slice_of(x->refusal) : (struct slice){ NULL, 0 });
    put_text(out, "ended", slice_of(exchange_ended_name(x->ended)));
    buf_printf(out, ",\"bytes_in\":%" PRIu64 ",\"bytes_out\":%" PRIu64, x->body_seen, x->relayed);
    put_times(out, x);
    put_tokens(out, x);
    buf_add_text(out, "}\n");
    loop_defer(x->sv->loop, x->sv->access_flush, LOOP_FINISH);
}
