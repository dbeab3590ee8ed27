/* See exchange.h: one line of the access log, by a format, and the times that both forms share. */
#include "exchange_line.h"

#include <time.h>

#include "api.h"
#include "put.h"

static const struct slice none = { NULL, 0 };

/* --- times --- */

void exchange_line_stamp_make(struct exchange_line_stamp *s, int64_t second)
{
    time_t at = second;
    struct tm tm;
    gmtime_r(&at, &tm);
    s->n = strftime(s->text, sizeof s->text, s->format, &tm);
    s->second = second;
}

char *exchange_line_put_time(char *to, int64_t wall_ms)
{
    static struct exchange_line_stamp stamp = { .format = "%Y-%m-%dT%H:%M:%S." };
    to = put_short(to, exchange_line_stamp(&stamp, wall_ms));
    to = put_three(to, (unsigned)(wall_ms - stamp.second * 1000));
    *to = 'Z';
    return to + 1;
}

static void add_time(struct buf *out, int64_t wall_ms)
{
    out->n =
        (size_t)(exchange_line_put_time(buf_reserve(out, EXCHANGE_LINE_TIME), wall_ms) - out->p);
}

static void add_time_clf(struct buf *out, int64_t wall_ms)
{
    static struct exchange_line_stamp stamp = { .format = "[%d/%b/%Y:%H:%M:%S +0000]" };
    buf_add_slice(out, exchange_line_stamp(&stamp, wall_ms));
}

static void add_seconds(struct buf *out, int64_t ms)
{
    char *to = buf_reserve(out, PUT_SECONDS);
    out->n = (size_t)(put_seconds(to, (uint64_t)ms) - out->p);
}

/* --- fields --- */

static void add_number(struct buf *out, bool there, uint64_t n)
{
    if (there)
        buf_add_number(out, n);
    else
        buf_add_text(out, "-");
}

/* Fields that are text; false where it is none of them. */
static bool text_field(struct exchange *x, const struct access_part *p, struct slice *out)
{
    const struct tls_peer *tls = x->client.tls;
    switch (p->field) {
    case ACCESS_ID: *out = slice_of(x->id); return true;
    case ACCESS_TRACE_ID: *out = exchange_line_id(x->trace.id); return true;
    case ACCESS_SPAN_ID: *out = exchange_line_id(x->trace.span); return true;
    case ACCESS_CLIENT: *out = slice_of(x->address); return true;
    case ACCESS_PEER: *out = exchange_line_peer(x); return true;
    case ACCESS_TLS_VERSION: *out = tls != NULL ? slice_of(tls->version) : none; return true;
    case ACCESS_TLS_CIPHER: *out = tls != NULL ? slice_of(tls->cipher) : none; return true;
    case ACCESS_TLS_SNI: *out = tls != NULL ? exchange_line_text(tls->sni) : none; return true;
    case ACCESS_METHOD: *out = x->req.method; return true;
    case ACCESS_PATH: *out = exchange_line_path(x); return true;
    case ACCESS_PROTOCOL:
        *out = x->req.minor == 0 ? SLICE("HTTP/1.0") : SLICE("HTTP/1.1");
        return true;
    case ACCESS_ROUTE: *out = x->route != NULL ? slice_of(x->route->name) : none; return true;
    case ACCESS_CONSUMER: *out = api_consumer(x).id; return true;
    case ACCESS_TENANT: *out = api_consumer(x).tenant; return true;
    case ACCESS_TARGET: *out = exchange_line_text(exchange_line_target(x)); return true;
    case ACCESS_CACHE: *out = exchange_line_cache(x); return true;
    case ACCESS_UPGRADE: *out = exchange_line_upgrade(x); return true;
    case ACCESS_REFUSAL: *out = exchange_line_text(x->refusal); return true;
    case ACCESS_ENDED: *out = slice_of(exchange_ended_name(x->ended)); return true;
    case ACCESS_MODEL: *out = exchange_model(x); return true;
    case ACCESS_STREAM:
        *out = !x->metered ? none : x->llm->stream ? SLICE("true") : SLICE("false");
        return true;
    case ACCESS_USAGE_MISSING: *out = exchange_line_text(x->missing_usage); return true;
    case ACCESS_HEADER: *out = headers_get(&x->req.headers, p->text); return true;
    default: return false;
    }
}

static void put_field(struct exchange *x, enum access_field field, struct buf *out)
{
    const struct llm_usage *u = exchange_line_usage(x);
    int status = exchange_shown_status(x);
    int64_t ms;
    switch (field) {
    case ACCESS_TIME: add_time(out, x->begun_wall); break;
    case ACCESS_TIME_CLF: add_time_clf(out, x->begun_wall); break;
    case ACCESS_ATTEMPTS: add_number(out, x->attempts > 0, x->attempts); break;
    case ACCESS_STATUS: add_number(out, status != 0, (uint64_t)status); break;
    case ACCESS_BYTES_IN: add_number(out, true, x->body_seen); break;
    case ACCESS_BYTES_OUT: add_number(out, true, x->relayed); break;
    case ACCESS_PROMPT_ESTIMATE:
        add_number(out, x->metered, x->metered ? x->llm->prompt_tokens : 0);
        break;
    case ACCESS_RESERVED: add_number(out, x->metered, exchange_reserved(x)); break;
    case ACCESS_USED: add_number(out, x->metered, x->used); break;
    case ACCESS_INPUT: add_number(out, u != NULL, u != NULL ? u->input : 0); break;
    case ACCESS_OUTPUT: add_number(out, u != NULL, u != NULL ? u->output : 0); break;
    default:
        ms = exchange_line_time(x, field);
        if (ms >= 0)
            add_seconds(out, ms);
        else
            buf_add_text(out, "-");
    }
}

void exchange_line(struct exchange *x, const struct access_format *format, struct buf *out)
{
    if (format->json) {
        exchange_line_json(x, out);
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
