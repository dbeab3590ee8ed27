/* W3C Trace Context, level 1: whose trace a request belongs to, and what origins are told. Plain
 * data.
 *
 * traceparent is read strictly: what is not exactly as the recommendation has it begins a new
 * trace, and tracestate, which means nothing without it, is dropped with it. The ids go into logs
 * and on to origins as they are, so nothing but lower-case hexadecimal ever gets into them. */
#ifndef TOLLGATE_TRACE_H
#define TOLLGATE_TRACE_H

#include "headers.h"

enum {
    TRACE_ID = 32,
    TRACE_SPAN = 16,
    TRACE_PARENT = 55, /* characters of a traceparent that is written */
    TRACE_STATE = 512  /* the most of a tracestate that is carried; section 3.3.1.5 */
};

enum trace_accept { TRACE_NEVER, TRACE_TRUSTED, TRACE_ALWAYS };

struct trace_rules {
    bool on;
    enum trace_accept accept; /* whose traceparent is believed */
    uint64_t sample;          /* of 2^64 new traces: so many, less one; UINT64_MAX: all */
};

struct trace {
    char id[TRACE_ID + 1];       /* "": requests are not traced */
    char span[TRACE_SPAN + 1];   /* the request's own */
    char parent[TRACE_SPAN + 1]; /* "": it is the root */
    bool sampled;
    struct slice state; /* tracestate, in the headers' arena; p == NULL: none */
};

/* Reads a traceparent: id, parent and sampled. 0, or -1 and out is as it was. */
int trace_parse(struct slice value, struct trace *out);
/* The same out of a request's fields, with its tracestate; -1 where there is no traceparent, or not
 * exactly one. */
int trace_read(const struct headers *h, struct trace *out);
/* A new trace; `random` gives 64 bits. */
void trace_new(struct trace *t, uint64_t sample, uint64_t (*random)(void));
/* The id of a new span, never all zeros. */
void trace_span(char out[TRACE_SPAN + 1], uint64_t (*random)(void));
/* Makes traceparent and tracestate in h what an origin is to get, whose parent is `span`. Texts
 * live in h's arena, or where t's do. */
void trace_write(const struct trace *t, const char *span, struct headers *h);

#endif
