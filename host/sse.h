/* Splits a stream of server-sent events (WHATWG HTML, section 9.2.6) that is fed in any split: line
 * ends LF, CRLF and CR, a byte order mark, comments, data over several lines. Nothing is kept but
 * the event's name, cut to SSE_NAME bytes; the data goes on in pieces as it comes. Offsets count
 * the bytes since sse_init, and do not depend on the split.
 *
 * A blank line that ends in CR is complete only with the byte behind it, which may be its LF. */
#ifndef TOLLGATE_SSE_H
#define TOLLGATE_SSE_H

#include <stdbool.h>
#include <stdint.h>

#include "slice.h"

enum { SSE_NAME = 64 }; /* bytes */

struct sse_event {
    struct slice name;   /* of the last `event:`; empty where there is none */
    uint64_t start, end; /* from its first line that is no comment to behind its blank line */
};

struct sse {
    /* A piece of the current event's data, lines joined by LF; borrowed until it returns. */
    void (*on_data)(void *arg, struct slice piece);
    /* The event is complete. Events without a data line are not reported. */
    void (*on_event)(void *arg, const struct sse_event *e);
    void *arg;
    uint64_t offset; /* bytes taken */
    /* private */
    uint64_t start;
    int state;
    bool in_event, has_data;
    bool cr;         /* the last byte was a CR: an LF belongs to it */
    uint8_t matched; /* of the byte order mark */
    uint8_t field_n, name_n;
    char field[8], name[SSE_NAME];
};

void sse_init(struct sse *s, void (*on_data)(void *, struct slice),
              void (*on_event)(void *, const struct sse_event *), void *arg);
void sse_feed(struct sse *s, struct slice bytes);
/* The end of the stream. An event without its blank line is dropped, as the standard says. */
void sse_end(struct sse *s);
/* Where the event that has begun and not ended starts; `offset` where there is none. Bytes before
 * it belong to no event that is still to be reported. */
uint64_t sse_pending(const struct sse *s);

#endif
