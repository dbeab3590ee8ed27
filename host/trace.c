/* See trace.h. Sections are those of the W3C Recommendation "Trace Context". */
#include "trace.h"

#include <string.h>

static const struct slice traceparent = { "traceparent", 11 }, tracestate = { "tracestate", 10 };

/* Takes n digits of lower-case hexadecimal; upper case is invalid (section 3.2.2). */
static bool hex(struct slice s, size_t at, size_t n)
{
    for (size_t i = at; i < at + n; i++) {
        if (!((s.p[i] >= '0' && s.p[i] <= '9') || (s.p[i] >= 'a' && s.p[i] <= 'f')))
            return false;
    }
    return true;
}

static bool zeros(const char *p, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        if (p[i] != '0')
            return false;
    }
    return true;
}

static unsigned digit(char c)
{
    return (unsigned)(c <= '9' ? c - '0' : c - 'a' + 10);
}

/* version "-" trace-id "-" parent-id "-" flags. Of a version that is not known yet the beginning
 * means the same, and more may follow behind another "-" (section 3.2.4). */
int trace_parse(struct slice v, struct trace *out)
{
    enum { ID = 3, PARENT = ID + TRACE_ID + 1, FLAGS = PARENT + TRACE_SPAN + 1 };
    if (v.n < TRACE_PARENT || !hex(v, 0, 2) || memcmp(v.p, "ff", 2) == 0)
        return -1;
    if (v.n > TRACE_PARENT && (zeros(v.p, 2) || v.p[TRACE_PARENT] != '-'))
        return -1;
    if (v.p[ID - 1] != '-' || v.p[PARENT - 1] != '-' || v.p[FLAGS - 1] != '-' ||
        !hex(v, ID, TRACE_ID) || !hex(v, PARENT, TRACE_SPAN) || !hex(v, FLAGS, 2) ||
        zeros(v.p + ID, TRACE_ID) || zeros(v.p + PARENT, TRACE_SPAN))
        return -1;
    memcpy(out->id, v.p + ID, TRACE_ID);
    memcpy(out->parent, v.p + PARENT, TRACE_SPAN);
    out->id[TRACE_ID] = out->parent[TRACE_SPAN] = '\0';
    out->sampled = (digit(v.p[FLAGS + 1]) & 1) != 0;
    return 0;
}

/* Its fields joined in order (RFC 9110, section 5.3), not looked into. One that is too long is
 * dropped whole: half a list would tell its writers what is not so. */
static struct slice read_state(const struct headers *h)
{
    size_t n = 0;
    int found = 0, at = -1;
    while ((at = headers_find(h, tracestate, (uint32_t)(at + 1))) >= 0) {
        if (h->v[at].value.n == 0)
            continue;
        n += h->v[at].value.n + (found++ > 0);
    }
    if (n == 0 || n > TRACE_STATE)
        return (struct slice){ NULL, 0 };
    char *text = arena_alloc(h->arena, n), *end = text;
    while ((at = headers_find(h, tracestate, (uint32_t)(at + 1))) >= 0) {
        if (h->v[at].value.n == 0)
            continue;
        if (end > text)
            *end++ = ',';
        memcpy(end, h->v[at].value.p, h->v[at].value.n);
        end += h->v[at].value.n;
    }
    return (struct slice){ text, n };
}

int trace_read(const struct headers *h, struct trace *out)
{
    int at = headers_find(h, traceparent, 0);
    if (at < 0 || headers_find(h, traceparent, (uint32_t)at + 1) >= 0 ||
        trace_parse(h->v[at].value, out) != 0)
        return -1;
    out->state = read_state(h);
    return 0;
}

static void put_hex(char *out, uint64_t n)
{
    for (int i = TRACE_SPAN - 1; i >= 0; i--, n >>= 4)
        out[i] = "0123456789abcdef"[n & 15];
}

static uint64_t nonzero(uint64_t (*random)(void))
{
    uint64_t n = random();
    return n != 0 ? n : 1;
}

/* By the right half of the id alone, so that whoever has the id and the share decides the same. */
void trace_new(struct trace *t, uint64_t sample, uint64_t (*random)(void))
{
    uint64_t low = nonzero(random);
    *t = (struct trace){ .sampled = sample == UINT64_MAX || low < sample };
    put_hex(t->id, random());
    put_hex(t->id + TRACE_SPAN, low);
}

void trace_span(char out[TRACE_SPAN + 1], uint64_t (*random)(void))
{
    put_hex(out, nonzero(random));
    out[TRACE_SPAN] = '\0';
}

void trace_write(const struct trace *t, const char *span, struct headers *h)
{
    headers_set(h, traceparent,
                arena_printf(h->arena, "00-%s-%s-%s", t->id, span, t->sampled ? "01" : "00"));
    if (t->state.p != NULL)
        headers_set(h, tracestate, t->state);
    else
        headers_remove(h, tracestate);
}
