/* See metrics.h: a registry as text. */
#include "metrics_internal.h"
#include "metrics_text.h"

static void write_histogram(const struct metric *m, const struct metric_series *s, struct buf *out)
{
    const char *name = m->spec.name, *comma = s->labels[0] != '\0' ? "," : "";
    uint64_t count = 0;
    for (int i = 0; i <= m->spec.nbuckets; i++) {
        buf_printf(out, "%s_bucket{%s%sle=\"", name, s->labels, comma);
        metrics_text_number(out, i < m->spec.nbuckets ? m->spec.buckets[i] : 1.0 / 0.0);
        buf_printf(out, "\"} %llu\n", (unsigned long long)(count += s->buckets[i]));
    }
    const char *open = s->labels[0] != '\0' ? "{" : "", *close = s->labels[0] != '\0' ? "}" : "";
    buf_printf(out, "%s_sum%s%s%s ", name, open, s->labels, close);
    metrics_text_number(out, *s->value);
    buf_printf(out, "\n%s_count%s%s%s %llu\n", name, open, s->labels, close,
               (unsigned long long)count);
}

static void write_series(const struct metric *m, const struct metric_series *s, struct buf *out)
{
    if (m->spec.kind == METRIC_HISTOGRAM) {
        write_histogram(m, s, out);
        return;
    }
    buf_add_text(out, m->spec.name);
    if (s->labels[0] != '\0')
        buf_printf(out, "{%s}", s->labels);
    buf_add_text(out, " ");
    metrics_text_number(out, *s->value);
    buf_add_text(out, "\n");
}

void metrics_write(const struct metrics *m, struct buf *out)
{
    static const char *const kinds[] = { "counter", "gauge", "histogram" };
    for (uint32_t i = 0; m != NULL && i < m->n; i++) {
        const struct metric *one = m->all[i];
        buf_printf(out, "# HELP %s ", one->spec.name);
        metrics_text_help(out, one->spec.help);
        buf_printf(out, "\n# TYPE %s %s\n", one->spec.name, kinds[one->spec.kind]);
        for (uint32_t k = 0; k < one->n; k++)
            write_series(one, one->all[k], out);
        if (one->other != NULL && !one->other_listed)
            write_series(one, one->other, out);
    }
}
