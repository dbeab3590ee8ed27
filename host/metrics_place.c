/* See metrics.h: where figures are, in an area that other processes read or in our own memory. */
#include <stddef.h>
#include <string.h>

#include "log.h"
#include "mem.h"
#include "metrics_internal.h"

void metrics_place(struct metrics *m, struct metric *one)
{
    const struct metric_spec *spec = &one->spec;
    size_t bounds = (size_t)spec->nbuckets * sizeof *spec->buckets, text = 0;
    const char *const *texts[] = { &spec->name, &spec->help };
    for (int i = 0; i < 2 + spec->nlabels; i++)
        text += strlen(i < 2 ? *texts[i] : spec->labels[i - 2]) + 1;
    struct area_record *r = metrics_area_add(
        m->area, AREA_METRIC, offsetof(struct area_record, metric.bounds) + bounds + text);
    if (r == NULL) {
        log_warn("metric %s: there is no room for more metrics; it is not shown", spec->name);
        return;
    }
    r->metric.kind = spec->kind;
    r->metric.nlabels = (uint32_t)spec->nlabels;
    r->metric.nbuckets = (uint32_t)spec->nbuckets;
    r->metric.series = spec->series;
    r->metric.text = text;
    if (bounds > 0)
        memcpy(r->metric.bounds, spec->buckets, bounds);
    char *at = (char *)r->metric.bounds + bounds;
    for (int i = 0; i < 2 + spec->nlabels; i++)
        at = stpcpy(at, i < 2 ? *texts[i] : spec->labels[i - 2]) + 1;
    metrics_area_added(m->area, r);
    one->place = m->placed++;
    one->placed = true;
}

bool metrics_place_series(const struct metric *m, struct metric_series *s, bool must)
{
    size_t counts = m->spec.kind == METRIC_HISTOGRAM ? (size_t)m->spec.nbuckets + 1 : 0;
    struct area_record *r = NULL;
    if (m->placed)
        r = metrics_area_add(m->registry->area, AREA_SERIES,
                             offsetof(struct area_record, series.counts) +
                                 counts * sizeof(uint64_t) + s->nkey);
    if (r == NULL && m->placed && !must)
        return false;
    if (r == NULL) {
        s->value = &s->own;
        s->buckets = counts > 0 ? mem_zalloc(counts * sizeof *s->buckets) : NULL;
        return true;
    }
    r->series.metric = m->place;
    r->series.nkey = (uint32_t)s->nkey;
    r->series.ncounts = counts;
    if (s->nkey > 0)
        memcpy(r->series.counts + counts, s->key, s->nkey);
    s->value = &r->series.value;
    s->buckets = r->series.counts;
    metrics_area_added(m->registry->area, r);
    return true;
}
