/* See exchange_line.h: a line as JSON. The texts of a line are collected first, so that its room is
 * made once and what follows are stores; only a text that has something to escape, and what is
 * rare, goes by the buffer. */
#include "api.h"
#include "exchange_line.h"
#include "json.h"
#include "put.h"

enum { FIXED = 2048 }; /* bytes: more than all names, numbers and times */

/* So that a name is a few stores rather than a call of memcpy. */
#define INLINE     static inline __attribute__((always_inline))
#define NAME(text) SLICE(",\"" text "\":")

/* p == NULL: the line has none. */
struct texts {
    struct slice peer, path, consumer, tenant, target, model, cache, upgrade, refusal, missing;
    struct slice client, route;
    size_t room; /* for all of the line but escapes */
};

static void collect(struct exchange *x, struct texts *t)
{
    struct api_consumer consumer = api_consumer(x);
    t->peer = exchange_line_peer(x);
    t->path = exchange_line_path(x);
    t->consumer = consumer.id;
    t->tenant = consumer.tenant;
    t->target = exchange_line_text(exchange_line_target(x));
    t->model = exchange_model(x);
    t->cache = exchange_line_cache(x);
    t->upgrade = exchange_line_upgrade(x);
    t->refusal = exchange_line_text(x->refusal);
    t->missing = exchange_line_text(x->missing_usage);
    t->client = slice_of(x->address);
    t->route = exchange_line_text(x->route != NULL ? x->route->name : NULL);
    t->room = FIXED + x->req.method.n + t->peer.n + t->path.n + t->consumer.n + t->tenant.n +
              t->target.n + t->model.n + t->cache.n + t->upgrade.n + t->refusal.n + t->missing.n +
              t->client.n + t->route.n;
}

/* Text that has nothing to escape: the gateway's own words, addresses, tokens of HTTP. */
INLINE char *put_word(char *to, struct slice name, struct slice value)
{
    if (value.p == NULL)
        return to;
    to = put_slice(to, name);
    *to++ = '"';
    to = put_short(to, value);
    *to = '"';
    return to + 1;
}

/* Whether text of up to seven bytes stands in a string as it is. */
INLINE bool few_plain(struct slice s)
{
    uint64_t w = 0x2020202020202020u;
    uint32_t low, high;
    if (s.n >= 4) {
        memcpy(&low, s.p, 4);
        memcpy(&high, s.p + s.n - 4, 4);
        w = low | (uint64_t)high << 32;
    } else if (s.n > 0) {
        w = (w & ~(uint64_t)0xffffff) | (unsigned char)s.p[0] |
            (uint64_t)(unsigned char)s.p[s.n / 2] << 8 |
            (uint64_t)(unsigned char)s.p[s.n - 1] << 16;
    }
    return json_plain(w);
}

INLINE bool plain(struct slice s)
{
    uint64_t w;
    if (s.n < 8)
        return few_plain(s);
    for (size_t i = 0; i + 8 < s.n; i += 8) {
        memcpy(&w, s.p + i, 8);
        if (!json_plain(w))
            return false;
    }
    memcpy(&w, s.p + s.n - 8, 8); /* some bytes twice */
    return json_plain(w);
}

/* What is written by the buffer's own means goes between these two. */
INLINE void leave(struct buf *out, const char *to)
{
    out->n = (size_t)(to - out->p);
}

/* The room of a whole line once more: what is left to come needs no more. */
INLINE char *back(struct buf *out, const struct texts *t)
{
    return buf_reserve(out, t->room);
}

static char *quote(struct buf *out, char *to, struct slice value, const struct texts *t)
{
    if (plain(value)) {
        *to++ = '"';
        to = put_short(to, value);
        *to = '"';
        return to + 1;
    }
    leave(out, to);
    json_quote(out, value);
    return back(out, t);
}

INLINE char *put_text(struct buf *out, char *to, struct slice name, struct slice value,
                      const struct texts *t)
{
    return value.p != NULL ? quote(out, put_slice(to, name), value, t) : to;
}

INLINE char *put_figure(char *to, struct slice name, uint64_t n)
{
    return put_number(put_slice(to, name), n);
}

INLINE char *put_span(char *to, struct slice name, int64_t ms)
{
    return ms >= 0 ? put_seconds(put_slice(to, name), (uint64_t)ms) : to;
}

static void add_text(struct buf *out, struct slice name, struct slice value)
{
    buf_add_slice(out, name);
    json_quote(out, value);
}

static void add_tls(struct buf *out, const struct tls_peer *p)
{
    buf_printf(out, ",\"tls\":{\"version\":\"%s\"", p->version);
    add_text(out, NAME("cipher"), slice_of(p->cipher));
    if (p->sni != NULL)
        add_text(out, NAME("sni"), slice_of(p->sni));
    buf_printf(out, ",\"resumed\":%s", p->resumed ? "true" : "false");
    if (p->certificate != NULL)
        add_text(out, NAME("subject"), slice_of(p->certificate->subject));
    buf_add_text(out, "}");
}

/* Who asked for what. */
INLINE char *put_request(struct exchange *x, struct buf *out, char *to, const struct texts *t)
{
    to = put_slice(to, SLICE("{\"time\":\""));
    to = exchange_line_put_time(to, x->begun_wall);
    to = put_slice(to, SLICE("\",\"id\":\""));
    to = put_short(to, slice_of(x->id));
    *to++ = '"';
    if (x->trace.id[0] != '\0') {
        to = put_word(to, NAME("trace_id"), (struct slice){ x->trace.id, TRACE_ID });
        to = put_word(to, NAME("span_id"), (struct slice){ x->trace.span, TRACE_SPAN });
    }
    to = put_word(to, NAME("client"), t->client);
    to = put_word(to, NAME("peer"), t->peer);
    if (x->client.tls != NULL) {
        leave(out, to);
        add_tls(out, x->client.tls);
        to = back(out, t);
    }
    to = put_word(to, NAME("method"), x->req.method);
    to = put_text(out, to, NAME("path"), t->path, t);
    to = put_word(to, NAME("route"), t->route);
    to = put_text(out, to, NAME("consumer"), t->consumer, t);
    return put_text(out, to, NAME("tenant"), t->tenant, t);
}

/* What became of it. */
INLINE char *put_answer(const struct exchange *x, struct buf *out, char *to, const struct texts *t)
{
    int status = exchange_shown_status(x);
    if (status != 0)
        to = put_figure(to, NAME("status"), (uint64_t)status);
    to = put_text(out, to, NAME("target"), t->target, t);
    if (x->attempts > 0)
        to = put_figure(to, NAME("attempts"), x->attempts);
    if (x->failures.n > 0) {
        leave(out, to);
        buf_printf(out, ",\"retries\":[%.*s]", (int)x->failures.n, x->failures.p);
        to = back(out, t);
    }
    to = put_text(out, to, NAME("model"), t->model, t);
    to = put_text(out, to, NAME("cache"), t->cache, t);
    to = put_text(out, to, NAME("upgrade"), t->upgrade, t);
    to = put_text(out, to, NAME("refusal"), t->refusal, t);
    to = put_word(to, NAME("ended"), slice_of(exchange_ended_name(x->ended)));
    to = put_figure(to, NAME("bytes_in"), x->body_seen);
    return put_figure(to, NAME("bytes_out"), x->relayed);
}

INLINE char *put_times(const struct exchange *x, char *to)
{
    to = put_span(to, NAME("seconds"), exchange_line_time(x, ACCESS_SECONDS));
    to = put_span(to, NAME("access_seconds"), exchange_line_time(x, ACCESS_ACCESS_SECONDS));
    to = put_span(to, NAME("connect_seconds"), exchange_line_time(x, ACCESS_CONNECT_SECONDS));
    to = put_span(to, NAME("first_byte_seconds"), exchange_line_time(x, ACCESS_FIRST_BYTE_SECONDS));
    return put_span(to, NAME("origin_seconds"), exchange_line_time(x, ACCESS_ORIGIN_SECONDS));
}

static char *put_tokens(const struct exchange *x, struct buf *out, char *to, const struct texts *t)
{
    const struct llm_usage *u = exchange_line_usage(x);
    to = put_slice(to, NAME("stream"));
    to = put_slice(to, x->llm->stream ? SLICE("true") : SLICE("false"));
    to = put_slice(to, SLICE(",\"tokens\":{\"prompt_estimate\":"));
    to = put_number(to, x->llm->prompt_tokens);
    to = put_figure(to, NAME("reserved"), exchange_reserved(x));
    to = put_figure(to, NAME("used"), x->used);
    if (u != NULL) {
        to = put_figure(to, NAME("input"), u->input);
        to = put_figure(to, NAME("output"), u->output);
    }
    to = put_text(out, to, NAME("usage_missing"), t->missing, t);
    *to = '}';
    return to + 1;
}

void exchange_line_json(struct exchange *x, struct buf *out)
{
    struct texts t;
    collect(x, &t);
    char *to = put_request(x, out, buf_reserve(out, t.room), &t);
    to = put_times(x, put_answer(x, out, to, &t));
    if (x->metered)
        to = put_tokens(x, out, to, &t);
    *to++ = '}';
    leave(out, to);
}
