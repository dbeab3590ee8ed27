/* See exchange.h: one line of the access log, as JSON or by a format. */
#include <time.h>

#include "api.h"
#include "exchange.h"
#include "json.h"

static const struct slice none = { NULL, 0 };

static struct slice text_of(const char *text)
{
    return text != NULL ? slice_of(text) : none;
}

/* Of a trace; "" where requests are not traced. */
static struct slice id_of(const char *id)
{
    return id[0] != '\0' ? slice_of(id) : none;
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
    return x->res.status != 0 ? headers_get_id(&x->res.headers, HEADER_CACHE_STATUS) : none;
}

/* The protocol of a tunnel. */
static struct slice upgrade_of(const struct exchange *x)
{
    return x->tunnel == TUNNEL_OPEN ? x->upgrade : none;
}

static const struct llm_usage *usage_of(const struct exchange *x)
{
    const struct llm_usage *u = x->reader != NULL ? llm_reader_usage(x->reader) : NULL;
    return u != NULL && u->known ? u : NULL;
}

/* Text of a second, which many requests share. */
struct stamp {
    const char *format;
    time_t second; /* 0: none yet */
    char text[40];
    size_t n;
};

static void put_stamp(struct buf *out, int64_t wall_ms, struct stamp *s)
{
    time_t second = wall_ms / 1000;
    if (second != s->second) {
        struct tm tm;
        gmtime_r(&second, &tm);
        s->n = strftime(s->text, sizeof s->text, s->format, &tm);
        s->second = second;
    }
    buf_add(out, s->text, s->n);
}

static char *three_digits(char *to, unsigned n)
{
    to[0] = (char)('0' + n / 100);
    to[1] = (char)('0' + n / 10 % 10);
    to[2] = (char)('0' + n % 10);
    return to + 3;
}

/* As buf_add_number; most are small. */
static void put_decimal(struct buf *out, uint64_t n)
{
    char *to = buf_reserve(out, 3);
    if (n < 10) {
        *to = (char)('0' + n);
        out->n++;
    } else if (n >= 100 && n < 1000) {
        three_digits(to, (unsigned)n);
        out->n += 3;
    } else {
        buf_add_number(out, n);
    }
}

static void put_time(struct buf *out, int64_t wall_ms)
{
    static struct stamp stamp = { .format = "%Y-%m-%dT%H:%M:%S" };
    put_stamp(out, wall_ms, &stamp);
    char *to = buf_reserve(out, 5);
    to[0] = '.';
    *three_digits(to + 1, (unsigned)(wall_ms % 1000)) = 'Z';
    out->n += 5;
}

static void put_time_clf(struct buf *out, int64_t wall_ms)
{
    static struct stamp stamp = { .format = "[%d/%b/%Y:%H:%M:%S +0000]" };
    put_stamp(out, wall_ms, &stamp);
}

static void put_seconds(struct buf *out, int64_t ms)
{
    uint64_t whole = (uint64_t)ms / 1000;
    put_decimal(out, whole);
    char *to = buf_reserve(out, 4);
    to[0] = '.';
    three_digits(to + 1, (unsigned)((uint64_t)ms - whole * 1000));
    out->n += 4;
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

#define NAME(text) SLICE(",\"" text "\":")
/* So that a name is a few stores rather than a call of memcpy. */
#define INLINE static inline __attribute__((always_inline))

INLINE void put_text(struct buf *out, struct slice name, struct slice value)
{
    if (value.p == NULL)
        return;
    buf_add_slice(out, name);
    json_quote(out, value);
}

/* Text that has nothing to escape: the gateway's own words, addresses, tokens of HTTP. */
INLINE void put_word(struct buf *out, struct slice name, struct slice value)
{
    if (value.p == NULL)
        return;
    buf_add_slice(out, name);
    char *to = buf_reserve(out, value.n + 2);
    to[0] = to[value.n + 1] = '"';
    memcpy(to + 1, value.p, value.n);
    out->n += value.n + 2;
}

INLINE void put_count(struct buf *out, struct slice name, uint64_t n)
{
    buf_add_slice(out, name);
    put_decimal(out, n);
}

INLINE void put_span(struct buf *out, struct slice name, int64_t ms)
{
    if (ms < 0)
        return;
    buf_add_slice(out, name);
    put_seconds(out, ms);
}

static void put_tls(struct buf *out, const struct tls_peer *p)
{
    if (p == NULL)
        return;
    buf_printf(out, ",\"tls\":{\"version\":\"%s\"", p->version);
    put_text(out, NAME("cipher"), slice_of(p->cipher));
    if (p->sni != NULL)
        put_text(out, NAME("sni"), slice_of(p->sni));
    buf_printf(out, ",\"resumed\":%s", p->resumed ? "true" : "false");
    if (p->certificate != NULL)
        put_text(out, NAME("subject"), slice_of(p->certificate->subject));
    buf_add_text(out, "}");
}

static void put_times(struct buf *out, const struct exchange *x)
{
    put_span(out, NAME("seconds"), time_of(x, ACCESS_SECONDS));
    put_span(out, NAME("access_seconds"), time_of(x, ACCESS_ACCESS_SECONDS));
    put_span(out, NAME("connect_seconds"), time_of(x, ACCESS_CONNECT_SECONDS));
    put_span(out, NAME("first_byte_seconds"), time_of(x, ACCESS_FIRST_BYTE_SECONDS));
    put_span(out, NAME("origin_seconds"), time_of(x, ACCESS_ORIGIN_SECONDS));
}

static void put_tokens(struct buf *out, const struct exchange *x)
{
    const struct llm_usage *u = usage_of(x);
    if (!x->metered)
        return;
    buf_add_slice(out, NAME("stream"));
    buf_add_text(out, x->llm->stream ? "true" : "false");
    buf_add_text(out, ",\"tokens\":{\"prompt_estimate\":");
    buf_add_number(out, x->llm->prompt_tokens);
    put_count(out, NAME("reserved"), exchange_reserved(x));
    put_count(out, NAME("used"), x->used);
    if (u != NULL) {
        put_count(out, NAME("input"), u->input);
        put_count(out, NAME("output"), u->output);
    }
    put_text(out, NAME("usage_missing"), text_of(x->missing_usage));
    buf_add_text(out, "}");
}

static void put_json(struct exchange *x, struct buf *out)
{
    struct api_consumer consumer = api_consumer(x);
    buf_add_text(out, "{\"time\":\"");
    put_time(out, x->begun_wall);
    buf_add_text(out, "\"");
    put_word(out, NAME("id"), slice_of(x->id));
    put_word(out, NAME("trace_id"), id_of(x->trace.id));
    put_word(out, NAME("span_id"), id_of(x->trace.span));
    put_word(out, NAME("client"), slice_of(x->address));
    put_word(out, NAME("peer"), peer_of(x));
    put_tls(out, x->client.tls);
    put_word(out, NAME("method"), x->req.method);
    put_text(out, NAME("path"), path_of(x));
    if (x->route != NULL)
        put_word(out, NAME("route"), slice_of(x->route->name));
    put_text(out, NAME("consumer"), consumer.id);
    put_text(out, NAME("tenant"), consumer.tenant);
    if (exchange_shown_status(x) != 0)
        put_count(out, NAME("status"), (uint64_t)exchange_shown_status(x));
    put_text(out, NAME("target"), text_of(target_of(x)));
    if (x->attempts > 0)
        put_count(out, NAME("attempts"), x->attempts);
    if (x->failures.n > 0)
        buf_printf(out, ",\"retries\":[%.*s]", (int)x->failures.n, x->failures.p);
    put_text(out, NAME("model"), exchange_model(x));
    put_text(out, NAME("cache"), cache_of(x));
    put_text(out, NAME("upgrade"), upgrade_of(x));
    put_text(out, NAME("refusal"), text_of(x->refusal));
    put_word(out, NAME("ended"), slice_of(exchange_ended_name(x->ended)));
    put_count(out, NAME("bytes_in"), x->body_seen);
    put_count(out, NAME("bytes_out"), x->relayed);
    put_times(out, x);
    put_tokens(out, x);
    buf_add_text(out, "}");
}

/* --- by a format --- */

static void put_number(struct buf *out, bool there, uint64_t n)
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
    case ACCESS_TRACE_ID: *out = id_of(x->trace.id); return true;
    case ACCESS_SPAN_ID: *out = id_of(x->trace.span); return true;
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
    case ACCESS_CONSUMER: *out = api_consumer(x).id; return true;
    case ACCESS_TENANT: *out = api_consumer(x).tenant; return true;
    case ACCESS_TARGET: *out = text_of(target_of(x)); return true;
    case ACCESS_CACHE: *out = cache_of(x); return true;
    case ACCESS_UPGRADE: *out = upgrade_of(x); return true;
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
    case ACCESS_TIME_CLF: put_time_clf(out, x->begun_wall); break;
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
            put_seconds(out, ms);
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
