/* See metrics.h: one registry out of what several processes counted, for who shows the sum. */
#include <string.h>

#include "mem.h"
#include "metrics.h"

/* A text behind the last one. */
static const char *take(const char **at)
{
    const char *text = *at;
    *at += strlen(text) + 1;
    return text;
}

static struct metric *merge_metric(struct metrics *m, const struct area_record *r, bool gauges)
{
    struct metric_spec spec = { .kind = (enum metric_kind)r->metric.kind, .own = true };
    const char *why, *at = (const char *)(r->metric.bounds + r->metric.nbuckets);
    if (spec.kind == METRIC_GAUGE && !gauges)
        return NULL;
    spec.nlabels = (int)r->metric.nlabels;
    spec.nbuckets = (int)r->metric.nbuckets;
    spec.series = METRICS_SERIES_MAX; /* each process kept to its bound */
    spec.name = take(&at);
    spec.help = take(&at);
    for (int i = 0; i < spec.nlabels; i++)
        spec.labels[i] = take(&at);
    for (int i = 0; i < spec.nbuckets; i++)
        spec.buckets[i] = r->metric.bounds[i];
    return metrics_register(m, &spec, &why);
}

static void merge_series(struct metric *m, const struct area_record *r)
{
    struct slice values[METRICS_LABELS];
    const char *at = (const char *)(r->series.counts + r->series.ncounts);
    for (int i = 0; i < metric_nlabels(m); i++) {
        values[i] = (struct slice){ at + 1, (unsigned char)at[0] };
        at += 1 + values[i].n;
    }
    metric_merge(m, metric_series(m, values), r->series.value, r->series.counts);
}

void metrics_merge(struct metrics *m, const struct metrics_area *from, bool gauges)
{
    struct metric *known[METRICS_MAX];
    uint32_t n = 0;
    for (const struct area_record *r = NULL; (r = metrics_area_next(from, r)) != NULL;) {
        if (r->tag == AREA_METRIC && n < METRICS_MAX)
            known[n++] = merge_metric(m, r, gauges);
        else if (r->tag == AREA_SERIES && r->series.metric < n && known[r->series.metric] != NULL)
            merge_series(known[r->series.metric], r);
    }
}
