/* See metrics_read.h. */
#include "metrics_read.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <uv.h>

#include "mem.h"

enum { SAMPLES_FIRST = 256, NUMBER = 63 };

void metrics_page_init(struct metrics_page *p)
{
    *p = (struct metrics_page){ .n = 0 };
    buf_init(&p->text);
}

void metrics_page_deinit(struct metrics_page *p)
{
    buf_deinit(&p->text);
    mem_free(p->samples);
    mem_free(p->slots);
}

/* --- a line --- */

static bool begins_name(char c)
{
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_' || c == ':';
}

static size_t name_length(const char *p, const char *end)
{
    const char *at = p;
    if (at == end || !begins_name(*at))
        return 0;
    while (at < end && (begins_name(*at) || (*at >= '0' && *at <= '9')))
        at++;
    return (size_t)(at - p);
}

/* The quote that ends a value which begins at p; NULL where there is none. */
static const char *value_end(const char *p, const char *end)
{
    for (; p < end && *p != '"'; p++) {
        if (*p == '\\' && (++p == end || strchr("\\\"n", *p) == NULL || *p == '\0'))
            return NULL;
    }
    return p < end ? p : NULL;
}

/* One label at *at, which is moved behind it and its comma. */
static bool next_label(const char **at, const char *end, struct slice *name, struct slice *value)
{
    const char *p = *at;
    *name = (struct slice){ p, name_length(p, end) };
    p += name->n;
    if (name->n == 0 || end - p < 2 || p[0] != '=' || p[1] != '"')
        return false;
    const char *close = value_end(p + 2, end);
    if (close == NULL)
        return false;
    *value = (struct slice){ p + 2, (size_t)(close - p) - 2 };
    p = close + 1;
    if (p < end && *p == ',')
        p++;
    else if (p < end && *p != '}')
        return false;
    *at = p;
    return true;
}

/* What stands between the braces; *behind is set to what follows them. */
static bool read_labels(const char *p, const char *end, struct slice *labels, const char **behind)
{
    struct slice name, value;
    const char *at = p;
    while (at < end && *at != '}') {
        if (!next_label(&at, end, &name, &value))
            return false;
    }
    *labels = (struct slice){ p, (size_t)(at - p) };
    *behind = at + 1;
    return at < end;
}

static bool read_number(struct slice text, double *v)
{
    char copy[NUMBER + 1], *end;
    if (text.n == 0 || text.n > NUMBER)
        return false;
    memcpy(copy, text.p, text.n);
    copy[text.n] = '\0';
    *v = strtod(copy, &end);
    return *end == '\0';
}

/* FNV-1a: the text is the gateway's own, and series are bounded. */
static uint64_t hash_of(struct slice s)
{
    uint64_t h = 0xcbf29ce484222325u;
    for (size_t i = 0; i < s.n; i++)
        h = (h ^ (unsigned char)s.p[i]) * 0x100000001b3u;
    return h ^ h >> 32;
}

static bool read_sample(struct metrics_sample *s, const char *p, const char *end)
{
    const char *at = p + name_length(p, end);
    s->name = (struct slice){ p, (size_t)(at - p) };
    s->labels = (struct slice){ at, 0 };
    if (s->name.n == 0 || at == end)
        return false;
    if (*at == '{' && !read_labels(at + 1, end, &s->labels, &at))
        return false;
    s->series = (struct slice){ p, (size_t)(at - p) };
    struct slice rest = slice_trim((struct slice){ at, (size_t)(end - at) });
    if (at == end || (*at != ' ' && *at != '\t'))
        return false;
    const char *space = rest.n > 0 ? memchr(rest.p, ' ', rest.n) : NULL; /* a time may follow */
    if (space != NULL)
        rest.n = (size_t)(space - rest.p);
    s->hash = hash_of(s->series);
    return read_number(rest, &s->value);
}

/* --- a page --- */

static void table(struct metrics_page *p)
{
    uint32_t n = 16;
    while (n < p->n * 2)
        n *= 2;
    mem_free(p->slots);
    p->slots = mem_zalloc(n * sizeof *p->slots);
    p->nslots = n;
    for (uint32_t i = 0; i < p->n; i++) {
        uint32_t k = (uint32_t)p->samples[i].hash & (n - 1);
        while (p->slots[k] != 0)
            k = (k + 1) & (n - 1);
        p->slots[k] = i + 1;
    }
}

static struct metrics_sample *add(struct metrics_page *p)
{
    if (p->n == p->cap) {
        p->cap = p->cap == 0 ? SAMPLES_FIRST : p->cap * 2;
        p->samples = mem_realloc(p->samples, p->cap * sizeof *p->samples);
    }
    return &p->samples[p->n++];
}

int metrics_page_read(struct metrics_page *p, struct buf *text, uint32_t *line)
{
    buf_deinit(&p->text);
    p->text = *text;
    buf_init(text);
    p->n = 0;
    p->nslots = 0;
    *line = 0;
    const char *at = p->text.p, *end = at != NULL ? at + p->text.n : NULL;
    while (at != NULL && at < end) {
        const char *stop = memchr(at, '\n', (size_t)(end - at));
        const char *next = stop != NULL ? stop + 1 : end;
        ++*line;
        if (stop == NULL) /* cut */
            goto fail;
        if (stop > at && *at != '#' && !read_sample(add(p), at, stop))
            goto fail;
        at = next;
    }
    table(p);
    return 0;
fail:
    p->n = 0;
    return UV_EINVAL;
}

static const struct metrics_sample *find(const struct metrics_page *p, struct slice series,
                                         uint64_t hash)
{
    for (uint32_t k = (uint32_t)hash; p->nslots > 0; k++) {
        uint32_t i = p->slots[k & (p->nslots - 1)];
        if (i == 0)
            return NULL;
        if (p->samples[i - 1].hash == hash && slice_eq(p->samples[i - 1].series, series))
            return &p->samples[i - 1];
    }
    return NULL;
}

const struct metrics_sample *metrics_page_find(const struct metrics_page *p,
                                               const struct metrics_sample *of)
{
    return find(p, of->series, of->hash);
}

double metrics_page_value(const struct metrics_page *p, const char *series)
{
    struct slice s = slice_of(series);
    const struct metrics_sample *sample = find(p, s, hash_of(s));
    return sample != NULL ? sample->value : NAN;
}

/* --- a sample --- */

bool metrics_sample_label(const struct metrics_sample *s, const char *label, struct buf *out)
{
    const char *at = s->labels.p, *end = at + s->labels.n;
    struct slice name, value;
    buf_clear(out);
    while (at < end && next_label(&at, end, &name, &value)) {
        if (!slice_eq(name, slice_of(label)))
            continue;
        for (size_t i = 0; i < value.n; i++) {
            char c = value.p[i];
            if (c == '\\')
                c = value.p[++i] == 'n' ? '\n' : value.p[i];
            buf_add(out, &c, 1);
        }
        return true;
    }
    return false;
}

double metrics_sample_growth(const struct metrics_sample *s, const struct metrics_page *before)
{
    const struct metrics_sample *old = before != NULL ? metrics_page_find(before, s) : NULL;
    double was = old != NULL && isfinite(old->value) ? old->value : 0;
    if (!isfinite(s->value) || s->value < 0)
        return 0;
    return s->value >= was ? s->value - was : s->value;
}

/* --- quantiles --- */

double metrics_quantile(double q, const struct metrics_bucket *buckets, int n)
{
    if (isnan(q) || n < 2 || !isinf(buckets[n - 1].upto))
        return NAN;
    double total = 0; /* the greatest count so far: of buckets read one by one, some may lag */
    for (int i = 0; i < n; i++)
        total = fmax(total, buckets[i].count);
    if (!(total > 0))
        return NAN;
    if (q < 0 || q > 1)
        return q < 0 ? -INFINITY : INFINITY;
    double rank = q * total, below = 0;
    int i = 0;
    while (i < n - 1 && fmax(below, buckets[i].count) < rank) {
        below = fmax(below, buckets[i].count);
        i++;
    }
    if (i == n - 1)
        return buckets[n - 2].upto;
    if (i == 0 && buckets[0].upto <= 0)
        return buckets[0].upto;
    double start = i > 0 ? buckets[i - 1].upto : 0, in = fmax(below, buckets[i].count) - below;
    return in > 0 ? start + (buckets[i].upto - start) * (rank - below) / in : start;
}
