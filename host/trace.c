/* See trace.h. Sections are those of the W3C Recommendation "Trace Context". */
#include "trace.h"

#include <endian.h>
#include <string.h>

#include "put.h"

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

/* All digits at once: each four bits to a byte of their own, and those above 9 on to the letters.
 */
static uint64_t digits(uint32_t n)
{
    const uint64_t ones = 0x0101010101010101u;
    uint64_t w = n;
    w = (w | w << 16) & 0x0000ffff0000ffffu;
    w = (w | w << 8) & 0x00ff00ff00ff00ffu;
    w = (w | w << 4) & 0x0f0f0f0f0f0f0f0fu;
    uint64_t letter = (w + ones * 6) >> 4 & ones;
    return htobe64(w + ones * '0' + letter * ('a' - '9' - 1));
}

static void put_id(char *out, uint64_t n)
{
    uint64_t high = digits((uint32_t)(n >> 32)), low = digits((uint32_t)n);
    memcpy(out, &high, sizeof high);
    memcpy(out + sizeof high, &low, sizeof low);
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
    put_id(t->id, random());
    put_id(t->id + TRACE_SPAN, low);
}

void trace_span(char out[TRACE_SPAN + 1], uint64_t (*random)(void))
{
    put_id(out, nonzero(random));
    out[TRACE_SPAN] = '\0';
}

void trace_write(const struct trace *t, const char *span, struct headers *h)
{
    char *text = arena_alloc(h->arena, TRACE_PARENT), *to = put_short(text, SLICE("00-"));
    to = put_short(to, (struct slice){ t->id, TRACE_ID });
    *to++ = '-';
    to = put_short(to, (struct slice){ span, TRACE_SPAN });
    put_short(to, t->sampled ? SLICE("-01") : SLICE("-00"));
    headers_set(h, traceparent, (struct slice){ text, TRACE_PARENT });
    if (t->state.p != NULL)
        headers_set(h, tracestate, t->state);
    else
        headers_remove_id(h, HEADER_TRACESTATE);
}
