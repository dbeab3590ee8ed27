/* Counters, gauges and histograms of plugins and of the host, by name, and their text for Prometheus (the
 * text format 0.0.4).
 *
 * A metric has a fixed list of labels. Each combination of their values that occurs is a series
 * of its own; the number of series is bounded, since values may come from requests: what comes
 * beyond the bound is counted in one series whose labels are all "other". Nothing is ever
 * removed but the whole. */
#ifndef TOLLGATE_METRICS_H
#define TOLLGATE_METRICS_H

#include <stdbool.h>
#include <stdint.h>

#include "buf.h"
#include "metrics_area.h"

enum {
    METRICS_MAX = 1000,    /* metrics of one registry */
    METRICS_LABELS = 16,   /* of one metric */
    METRICS_BUCKETS = 64,  /* of one histogram */
    METRICS_SERIES = 1000, /* of one metric, where it does not say otherwise */
    METRICS_SERIES_MAX = 100000,
    METRICS_NAME = 128, /* bytes of a name */
    METRICS_VALUE = 128 /* bytes of a label's value; the rest is cut off */
};

enum metric_kind { METRIC_COUNTER, METRIC_GAUGE, METRIC_HISTOGRAM };

struct metrics;
struct metric;
struct metric_series;

struct metric_spec {
    enum metric_kind kind;
    const char *name, *help;
    int nlabels, nbuckets;
    const char *labels[METRICS_LABELS];
    double buckets[METRICS_BUCKETS]; /* upper bounds, rising, without infinity */
    uint32_t series;                 /* the bound; 0: METRICS_SERIES */
    bool own;                        /* the gateway's own: its name may begin with tollgate_ */
};

struct metrics *metrics_new(void);
/* One whose figures are in an area, which is empty and borrowed. What finds no more room there is
 * counted as "other", or, where it is a metric, for nobody; the log says so. */
struct metrics *metrics_new_in(struct metrics_area *a);
void metrics_free(struct metrics *m); /* or NULL */

/* The metric of this name, made where there is none; all is copied. NULL where the name or a
 * label is malformed or the name is that of another kind of metric: *why says so for people
 * (static text). */
struct metric *metrics_register(struct metrics *m, const struct metric_spec *spec,
                                const char **why);

enum metric_kind metric_kind(const struct metric *m);
int metric_nlabels(const struct metric *m);
const char *metric_label(const struct metric *m, int i);
const char *metric_name(const struct metric *m);

/* The series of these values, one for each label. */
struct metric_series *metric_series(struct metric *m, const struct slice *values);
/* Of counters and gauges. */
void metric_add(struct metric_series *s, double v);
void metric_set(struct metric_series *s, double v);
/* Where the value of a counter or gauge stands, for who adds to it often. */
double *metric_value(struct metric_series *s);
/* Of histograms. */
void metric_observe(const struct metric *m, struct metric_series *s, double v);

/* metrics_merge.c: adds what an area holds: counters and histograms, and gauges where they are
 * wanted. A metric that m has with another kind, other labels or other buckets is left out. */
void metrics_merge(struct metrics *m, const struct metrics_area *from, bool gauges);
/* Adds to a series of a metric of nbuckets what another one counted. */
void metric_merge(const struct metric *m, struct metric_series *s, double value,
                  const uint64_t *counts);

/* Appends all metrics as text, in the order of their making. m may be NULL. */
void metrics_write(const struct metrics *m, struct buf *out);

#endif
