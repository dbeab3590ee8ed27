/* See exchange.h: one line of the access log, as JSON or by a format. */
#include <inttypes.h>
#include <stdio.h>
#include <time.h>

#include "api.h"
#include "exchange.h"
#include "json.h"

static const struct slice none = { NULL, 0 };

static struct slice text_of(const char *text)
{
    return text != NULL ? slice_of(text) : none;
}

static struct slice path_of(const struct exchange *x)
{
    return x->path.p != NULL ? x->path : x->req.path;
}

static const char *target_of(const struct exchange *x)
{
    return x->attempts > 0 ? x->target->name : NULL;
}

/* Whose connection it was, where that was not the client. */
static struct slice peer_of(const struct exchange *x)
{
    return x->address != x->client.address ? slice_of(x->client.address) : none;
}

/* What the answer says of the cache (RFC 9211), where it came to a head. */
static struct slice cache_of(const struct exchange *x)
{
    return x->res.status != 0 ? headers_get(&x->res.headers, SLICE("cache-status")) : none;
}

static const struct llm_usage *usage_of(const struct exchange *x)
{
    const struct llm_usage *u = x->reader != NULL ? llm_reader_usage(x->reader) : NULL;
    return u != NULL && u->known ? u : NULL;
}

static void put_stamp(struct buf *out, int64_t wall_ms, const char *format)
{
    struct tm tm;
    time_t s = wall_ms / 1000;
    char text[40];
    gmtime_r(&s, &tm);
    buf_add(out, text, strftime(text, sizeof text, format, &tm));
}

static void put_time(struct buf *out, int64_t wall_ms)
{
    put_stamp(out, wall_ms, "%Y-%m-%dT%H:%M:%S");
    buf_printf(out, ".%03dZ", (int)(wall_ms % 1000));
}

/* --- the times of the parts: ms; -1 where the request did not come to it --- */

static int64_t since(uint64_t from, uint64_t to)
{
    return from != 0 && to >= from ? (int64_t)(to - from) : -1;
}

static int64_t time_of(const struct exchange *x, enum access_field field)
{
    switch (field) {
    case ACCESS_SECONDS: return since(x->begun, x->ended_at);
    case ACCESS_ACCESS_SECONDS: return x->origin_begun != 0 ? since(x->begun, x->origin_begun) : -1;
    case ACCESS_CONNECT_SECONDS: return since(x->origin_begun, x->origin_connected);
    case ACCESS_FIRST_BYTE_SECONDS: return x->first_byte != 0 ? since(x->begun, x->first_byte) : -1;
    default: return since(x->origin_begun, x->ended_at);
    }
}

/* --- JSON --- */

static void put_text(struct buf *out, const char *name, struct slice value)
{
    if (value.p == NULL)
        return;
    buf_printf(out, ",\"%s\":", name);
    json_quote(out, value);
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

static void put_times(struct buf *out, const struct exchange *x)
{
    static const struct {
        enum access_field field;
        const char *name;
    } times[] = { { ACCESS_SECONDS, "seconds" },
                  { ACCESS_ACCESS_SECONDS, "access_seconds" },
                  { ACCESS_CONNECT_SECONDS, "connect_seconds" },
                  { ACCESS_FIRST_BYTE_SECONDS, "first_byte_seconds" },
                  { ACCESS_ORIGIN_SECONDS, "origin_seconds" } };
    for (size_t i = 0; i < sizeof times / sizeof *times; i++) {
        int64_t ms = time_of(x, times[i].field);
        if (ms >= 0)
            buf_printf(out, ",\"%s\":%" PRId64 ".%03d", times[i].name, ms / 1000, (int)(ms % 1000));
    }
}

static void put_tokens(struct buf *out, const struct exchange *x)
{
    const struct llm_usage *u = usage_of(x);
    if (!x->metered)
        return;
    buf_printf(out,
               ",\"stream\":%s,\"tokens\":{\"prompt_estimate\":%" PRIu64 ",\"reserved\":%" PRIu64
               ",\"used\":%" PRIu64,
               x->llm->stream ? "true" : "false", x->llm->prompt_tokens, exchange_reserved(x),
               x->used);
    if (u != NULL)
        buf_printf(out, ",\"input\":%" PRIu64 ",\"output\":%" PRIu64, u->input, u->output);
    if (x->missing_usage != NULL)
        buf_printf(out, ",\"usage_missing\":\"%s\"", x->missing_usage);
    buf_add_text(out, "}");
}

static void put_json(struct exchange *x, struct buf *out)
{
    buf_add_text(out, "{\"time\":\"");
    put_time(out, x->begun_wall);
    buf_add_text(out, "\"");
    put_text(out, "id", slice_of(x->id));
    put_text(out, "client", slice_of(x->address));
    put_text(out, "peer", peer_of(x));
    put_tls(out, x->client.tls);
    put_text(out, "method", x->req.method);
    put_text(out, "path", path_of(x));
    if (x->route != NULL)
        put_text(out, "route", slice_of(x->route->name));
    put_text(out, "consumer", api_consumer_field(x, "id"));
    put_text(out, "tenant", api_consumer_field(x, "tenant"));
    if (exchange_shown_status(x) != 0)
        buf_printf(out, ",\"status\":%d", exchange_shown_status(x));
    put_text(out, "target", text_of(target_of(x)));
    if (x->attempts > 0)
        buf_printf(out, ",\"attempts\":%" PRIu32, x->attempts);
    if (x->failures.n > 0)
        buf_printf(out, ",\"retries\":[%.*s]", (int)x->failures.n, x->failures.p);
    put_text(out, "model", exchange_model(x));
    put_text(out, "cache", cache_of(x));
    put_text(out, "upgrade", x->tunnel == TUNNEL_OPEN ? x->upgrade : none);
    put_text(out, "refusal", text_of(x->refusal));
    put_text(out, "ended", slice_of(exchange_ended_name(x->ended)));
    buf_printf(out, ",\"bytes_in\":%" PRIu64 ",\"bytes_out\":%" PRIu64, x->body_seen, x->relayed);
    put_times(out, x);
    put_tokens(out, x);
    buf_add_text(out, "}");
}

/* --- by a format --- */

static void put_number(struct buf *out, bool there, uint64_t n)
{
    if (there)
        buf_printf(out, "%" PRIu64, n);
    else
        buf_add_text(out, "-");
}

/* Fields that are text; false where it is none of them. */
static bool text_field(struct exchange *x, const struct access_part *p, struct slice *out)
{
    const struct tls_peer *tls = x->client.tls;
    switch (p->field) {
    case ACCESS_ID: *out = slice_of(x->id); return true;
    case ACCESS_CLIENT: *out = slice_of(x->address); return true;
    case ACCESS_PEER: *out = peer_of(x); return true;
    case ACCESS_TLS_VERSION: *out = tls != NULL ? slice_of(tls->version) : none; return true;
    case ACCESS_TLS_CIPHER: *out = tls != NULL ? slice_of(tls->cipher) : none; return true;
    case ACCESS_TLS_SNI: *out = tls != NULL ? text_of(tls->sni) : none; return true;
    case ACCESS_METHOD: *out = x->req.method; return true;
    case ACCESS_PATH: *out = path_of(x); return true;
    case ACCESS_PROTOCOL:
        *out = x->req.minor == 0 ? SLICE("HTTP/1.0") : SLICE("HTTP/1.1");
        return true;
    case ACCESS_ROUTE: *out = x->route != NULL ? slice_of(x->route->name) : none; return true;
    case ACCESS_CONSUMER: *out = api_consumer_field(x, "id"); return true;
    case ACCESS_TENANT: *out = api_consumer_field(x, "tenant"); return true;
    case ACCESS_TARGET: *out = text_of(target_of(x)); return true;
    case ACCESS_CACHE: *out = cache_of(x); return true;
    case ACCESS_REFUSAL: *out = text_of(x->refusal); return true;
    case ACCESS_ENDED: *out = slice_of(exchange_ended_name(x->ended)); return true;
    case ACCESS_MODEL: *out = exchange_model(x); return true;
    case ACCESS_STREAM:
        *out = !x->metered ? none : x->llm->stream ? SLICE("true") : SLICE("false");
        return true;
    case ACCESS_USAGE_MISSING: *out = text_of(x->missing_usage); return true;
    case ACCESS_HEADER: *out = headers_get(&x->req.headers, p->text); return true;
    default: return false;
    }
}

static void put_field(struct exchange *x, enum access_field field, struct buf *out)
{
    const struct llm_usage *u = usage_of(x);
    int status = exchange_shown_status(x);
    int64_t ms;
    switch (field) {
    case ACCESS_TIME: put_time(out, x->begun_wall); break;
    case ACCESS_TIME_CLF: put_stamp(out, x->begun_wall, "[%d/%b/%Y:%H:%M:%S +0000]"); break;
    case ACCESS_ATTEMPTS: put_number(out, x->attempts > 0, x->attempts); break;
    case ACCESS_STATUS: put_number(out, status != 0, (uint64_t)status); break;
    case ACCESS_BYTES_IN: put_number(out, true, x->body_seen); break;
    case ACCESS_BYTES_OUT: put_number(out, true, x->relayed); break;
    case ACCESS_PROMPT_ESTIMATE:
        put_number(out, x->metered, x->metered ? x->llm->prompt_tokens : 0);
        break;
    case ACCESS_RESERVED: put_number(out, x->metered, exchange_reserved(x)); break;
    case ACCESS_USED: put_number(out, x->metered, x->used); break;
    case ACCESS_INPUT: put_number(out, u != NULL, u != NULL ? u->input : 0); break;
    case ACCESS_OUTPUT: put_number(out, u != NULL, u != NULL ? u->output : 0); break;
    default:
        ms = time_of(x, field);
        if (ms >= 0)
            buf_printf(out, "%" PRId64 ".%03d", ms / 1000, (int)(ms % 1000));
        else
            buf_add_text(out, "-");
    }
}

void exchange_line(struct exchange *x, const struct access_format *format, struct buf *out)
{
    if (format->json) {
        put_json(x, out);
        return;
    }
    for (uint32_t i = 0; i < format->n; i++) {
        const struct access_part *p = &format->parts[i];
        struct slice text = none;
        if (p->field == ACCESS_LITERAL)
            buf_add_slice(out, p->text);
        else if (text_field(x, p, &text))
            access_format_value(out, text);
        else
            put_field(x, p->field, out);
    }
}
