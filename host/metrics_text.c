/* See metrics_text.h. Rules: https://prometheus.io/docs/concepts/data_model,
 * .../practices/naming and .../instrumenting/exposition_formats. */
#include "metrics_text.h"

#include <ctype.h>
#include <float.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

/* --- what may be registered --- */

static bool is_name(const char *text)
{
    size_t n = strlen(text);
    if (n == 0 || n > METRICS_NAME || isdigit((unsigned char)text[0]))
        return false;
    for (; *text != '\0'; text++) {
        if (!isalnum((unsigned char)*text) && *text != '_')
            return false;
    }
    return true;
}

static bool ends(const char *name, const char *with)
{
    return slice_ends(slice_of(name), slice_of(with));
}

static const char *name_fault(const struct metric_spec *spec)
{
    const char *name = spec->name;
    if (!is_name(name))
        return "a name is made of letters, digits and _, begins with no digit, and has 128 bytes "
               "at most";
    if (!spec->own && slice_starts(slice_of(name), SLICE("tollgate_")))
        return "names that begin with tollgate_ are the gateway's own";
    if (spec->kind == METRIC_COUNTER && !ends(name, "_total"))
        return "a counter's name must end in _total";
    if (spec->kind != METRIC_COUNTER && ends(name, "_total"))
        return "only a counter's name ends in _total";
    if (ends(name, "_bucket") || ends(name, "_sum") || ends(name, "_count"))
        return "_bucket, _sum and _count are what a histogram adds to its name";
    return NULL;
}

static const char *labels_fault(const struct metric_spec *spec)
{
    for (int i = 0; i < spec->nlabels; i++) {
        const char *label = spec->labels[i];
        if (!is_name(label) || strncmp(label, "__", 2) == 0)
            return "a label is made of letters, digits and _, and begins with no digit and not "
                   "with __";
        if (spec->kind == METRIC_HISTOGRAM && strcmp(label, "le") == 0)
            return "the label le of a histogram is made by it";
        for (int k = 0; k < i; k++) {
            if (strcmp(spec->labels[k], label) == 0)
                return "two labels have the same name";
        }
    }
    return NULL;
}

const char *metrics_text_fault(const struct metric_spec *spec)
{
    const char *fault = name_fault(spec);
    if (fault == NULL)
        fault = labels_fault(spec);
    if (fault == NULL && spec->kind == METRIC_HISTOGRAM && spec->nbuckets == 0)
        fault = "a histogram needs a bucket";
    for (int i = 0; fault == NULL && i < spec->nbuckets; i++) {
        if (!isfinite(spec->buckets[i]) || (i > 0 && spec->buckets[i] <= spec->buckets[i - 1]))
            fault = "buckets are finite numbers, each greater than the one before";
    }
    return fault;
}

/* --- values --- */

/* Bytes of the UTF-8 character (RFC 3629, section 4) at p; 0 where it is none. */
static size_t character(const unsigned char *p, size_t n)
{
    size_t size = p[0] == 0     ? 0
                  : p[0] < 0x80 ? 1
                  : p[0] < 0xc2 ? 0
                  : p[0] < 0xe0 ? 2
                  : p[0] < 0xf0 ? 3
                  : p[0] < 0xf5 ? 4
                                : 0;
    if (size > n)
        return 0;
    for (size_t i = 1; i < size; i++) {
        unsigned char low = 0x80, high = 0xbf;
        if (i == 1) {
            low = p[0] == 0xe0 ? 0xa0 : p[0] == 0xf0 ? 0x90 : low;
            high = p[0] == 0xed ? 0x9f : p[0] == 0xf4 ? 0x8f : high;
        }
        if (p[i] < low || p[i] > high)
            return 0;
    }
    return size;
}

size_t metrics_text_value(char *out, struct slice value)
{
    size_t n = 0;
    for (size_t i = 0, size; i < value.n; i += size) {
        size = character((const unsigned char *)value.p + i, value.n - i);
        if (n + (size > 0 ? size : 1) > METRICS_VALUE)
            break;
        if (size == 0) {
            out[n++] = '?';
            size = 1;
            continue;
        }
        memcpy(out + n, value.p + i, size);
        n += size;
    }
    return n;
}

/* --- text --- */

static void escape(struct buf *out, struct slice text, bool quotes)
{
    for (size_t i = 0; i < text.n; i++) {
        char c = text.p[i];
        if (c == '\n')
            buf_add(out, "\\n", 2);
        else if (c == '\\' || (c == '"' && quotes))
            buf_add(out, (char[]){ '\\', c }, 2);
        else
            buf_add(out, &c, 1);
    }
}

void metrics_text_label(struct buf *out, const char *name, struct slice value)
{
    buf_printf(out, "%s%s=\"", out->n > 0 ? "," : "", name);
    escape(out, value, true);
    buf_add(out, "\"", 1);
}

void metrics_text_help(struct buf *out, const char *help)
{
    escape(out, slice_of(help), false);
}

void metrics_text_number(struct buf *out, double v)
{
    char text[40];
    if (isnan(v) || isinf(v)) {
        buf_add_text(out, isnan(v) ? "NaN" : v > 0 ? "+Inf" : "-Inf");
        return;
    }
    if (v == floor(v) && fabs(v) < 9007199254740992.0) {
        buf_printf(out, "%.0f", v);
        return;
    }
    for (int digits = DBL_DIG; digits <= DBL_DECIMAL_DIG; digits++) {
        snprintf(text, sizeof text, "%.*g", digits, v);
        if (strtod(text, NULL) == v)
            break;
    }
    buf_add_text(out, text);
}
