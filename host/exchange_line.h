/* Private to exchange_line*.c: what a line says of an exchange, whatever its form. */
#ifndef TOLLGATE_EXCHANGE_LINE_H
#define TOLLGATE_EXCHANGE_LINE_H

#include "exchange.h"

static inline struct slice exchange_line_text(const char *text)
{
    return text != NULL ? slice_of(text) : (struct slice){ NULL, 0 };
}

/* Of a trace; "" where requests are not traced. */
static inline struct slice exchange_line_id(const char *id)
{
    return id[0] != '\0' ? slice_of(id) : (struct slice){ NULL, 0 };
}

static inline struct slice exchange_line_path(const struct exchange *x)
{
    return x->path.p != NULL ? x->path : x->req.path;
}

static inline const char *exchange_line_target(const struct exchange *x)
{
    return x->attempts > 0 ? x->target->name : NULL;
}

/* Whose connection it was, where that was not the client. */
static inline struct slice exchange_line_peer(const struct exchange *x)
{
    return x->address != x->client.address ? slice_of(x->client.address)
                                           : (struct slice){ NULL, 0 };
}

/* What the answer says of the cache (RFC 9211), where it came to a head. */
static inline struct slice exchange_line_cache(const struct exchange *x)
{
    return x->res.status != 0 ? headers_get_id(&x->res.headers, HEADER_CACHE_STATUS)
                              : (struct slice){ NULL, 0 };
}

/* The protocol of a tunnel. */
static inline struct slice exchange_line_upgrade(const struct exchange *x)
{
    return x->tunnel == TUNNEL_OPEN ? x->upgrade : (struct slice){ NULL, 0 };
}

static inline const struct llm_usage *exchange_line_usage(const struct exchange *x)
{
    const struct llm_usage *u = x->reader != NULL ? llm_reader_usage(x->reader) : NULL;
    return u != NULL && u->known ? u : NULL;
}

/* ms from one time to another; -1 where the request did not come to it. */
static inline int64_t exchange_line_since(uint64_t from, uint64_t to)
{
    return from != 0 && to >= from ? (int64_t)(to - from) : -1;
}

static inline int64_t exchange_line_time(const struct exchange *x, enum access_field field)
{
    switch (field) {
    case ACCESS_SECONDS: return exchange_line_since(x->begun, x->ended_at);
    case ACCESS_ACCESS_SECONDS:
        return x->origin_begun != 0 ? exchange_line_since(x->begun, x->origin_begun) : -1;
    case ACCESS_CONNECT_SECONDS: return exchange_line_since(x->origin_begun, x->origin_connected);
    case ACCESS_FIRST_BYTE_SECONDS:
        return x->first_byte != 0 ? exchange_line_since(x->begun, x->first_byte) : -1;
    default: return exchange_line_since(x->origin_begun, x->ended_at);
    }
}

/* Text of a second, which many requests share. */
struct exchange_line_stamp {
    const char *format;
    int64_t second; /* 0: none yet */
    char text[40];
    size_t n;
};

void exchange_line_stamp_make(struct exchange_line_stamp *s, int64_t second);

static inline struct slice exchange_line_stamp(struct exchange_line_stamp *s, int64_t wall_ms)
{
    int64_t second = wall_ms / 1000;
    if (second != s->second)
        exchange_line_stamp_make(s, second);
    return (struct slice){ s->text, s->n };
}

/* RFC 3339, with milliseconds. Needs EXCHANGE_LINE_TIME bytes; returns their end. */
enum { EXCHANGE_LINE_TIME = 40 };
char *exchange_line_put_time(char *to, int64_t wall_ms);

/* exchange_line_json.c: appends it as JSON. */
void exchange_line_json(struct exchange *x, struct buf *out);

#endif
